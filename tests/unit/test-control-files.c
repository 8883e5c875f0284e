/* SPDX-License-Identifier: Apache-2.0 */

/* File work: when it begins, what ends it, and that it keeps its sandbox awake. */

#include "control/control.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"

#include "control-fixture.h"

/* What was heard of a call. */
typedef struct Heard {
        char messages[64]; /* one after the other */
        unsigned n_writable;
        bool ended;
        char reason[64];
        char state[16];
} Heard;

static void on_message(void *user, uint8_t *bytes, size_t len) {
        Heard *heard = user;

        strncat(heard->messages, (const char *) bytes, len);
        free(bytes);
}

static void on_writable(void *user) {
        ((Heard *) user)->n_writable++;
}

static void on_ended(void *user, const HutchError *err) {
        Heard *heard = user;

        assert_false(heard->ended);
        heard->ended = true;
        if (err)
                append(heard->reason, err->reason);
        if (err && err->n_pairs > 0 && str_equal(err->pairs[0].key, "state"))
                append(heard->state, err->pairs[0].value);
}

static int open_as(Fixture *f, const Caller *caller, const char *id, bool is_whole, Heard *heard, FileCall **ret_call) {
        static const FileCallEvents events = { on_message, on_writable, on_ended };
        const FileCallRequest request = {
                .path = "/hutch.v1.FileService/StatFile",
                .key = "abc:uid:1000/r-1",
                .deadline = 12345,
                .is_whole = is_whole,
        };

        return control_open_file_call(f->control, caller, id, &request, (uint8_t *) xstrdup("first"), 5, &events, heard,
                                      ret_call, &f->err);
}

static FileCall *begin(Fixture *f, const char *id, Heard *heard) {
        FileCall *call;

        *heard = (Heard){};
        if (open_as(f, &alice, id, true, heard, &call) < 0)
                fail_msg("%s", error_message(&f->err));
        return call;
}

static void work_in_a_ready_sandbox_begins_at_once(void **state) {
        Fixture *f = *state;
        Heard heard = {};
        FileCall *call;
        FakeCall *fake;

        create(f, "sb-one", "");
        assert_int_equal(open_as(f, &alice, "sb-one", false, &heard, &call), 0);
        fake = fake_sandbox(f, "sb-one")->last_call;
        assert_non_null(fake);
        assert_string_equal(fake->path, "/hutch.v1.FileService/StatFile");
        assert_string_equal(fake->key, "abc:uid:1000/r-1");
        assert_string_equal(fake->user_name, sandbox(f, "sb-one").record->spec->user);
        assert_int_equal(fake->deadline, 12345);
        assert_int_equal(fake->n_messages, 1);
        assert_memory_equal(fake->messages[0], "first", 5);
        assert_false(fake->is_whole);

        assert_true(file_call_is_writable(call));
        assert_int_equal(file_call_send_taken(call, (uint8_t *) xstrdup("second"), 6), 0);
        assert_memory_equal(fake->messages[1], "second", 6);
        fake->is_full = true;
        assert_false(file_call_is_writable(call));
        fake->events->writable(fake->user);
        assert_int_equal(heard.n_writable, 1);
        file_call_end(call);
        assert_true(fake->is_whole);

        file_call_read(call);
        fake_answer(fake, "answer", 6);
        assert_string_equal(heard.messages, "answer");
        fake_end_call(fake, REASON_UNSPECIFIED);
        assert_true(heard.ended);
        assert_string_equal(heard.reason, "");
        assert_null(fake_sandbox(f, "sb-one")->last_call);

        /* What comes after the end goes nowhere. */
        assert_false(file_call_is_writable(call));
        assert_true(file_call_send_taken(call, (uint8_t *) xstrdup("late"), 4) < 0);
        file_call_read(call);
        (void) file_call_free(call);
}

static void failure_inside_is_told_as_it_is(void **state) {
        Fixture *f = *state;
        Heard heard;
        FileCall *call;

        create(f, "sb-one", "");
        call = begin(f, "sb-one", &heard);
        fake_end_call(fake_sandbox(f, "sb-one")->last_call, REASON_FILE_NOT_FOUND);
        assert_string_equal(heard.reason, "FILE_NOT_FOUND");
        (void) file_call_free(call);
}

static void work_waits_for_ready(void **state) {
        Fixture *f = *state;
        Heard heard;
        FileCall *call;
        FakeCall *fake;
        void *user;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        call = begin(f, "sb-one", &heard);
        file_call_read(call);
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_calls, 0);
        assert_false(file_call_is_writable(call));

        fake_events(fake_sandbox(f, "sb-one"), &user)->started(user);
        /* Not before that is durable. */
        assert_int_equal(fake_sandbox(f, "sb-one")->n_calls, 0);
        fixture_turn(f);
        fake = fake_sandbox(f, "sb-one")->last_call;
        assert_non_null(fake);
        assert_int_equal(fake->n_messages, 1);
        assert_true(fake->is_whole);
        assert_int_equal(fake->demand, 1);
        assert_int_equal(heard.n_writable, 1);
        assert_false(heard.ended);
        (void) file_call_free(call);
        assert_null(fake_sandbox(f, "sb-one")->last_call);
}

static void work_that_waits_ends_when_the_start_fails(void **state) {
        Fixture *f = *state;
        _cleanup_(error_clear) HutchError err = {};
        Heard heard;
        FileCall *call;
        void *user;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        call = begin(f, "sb-one", &heard);
        (void) reason_set(&err, -EIO, REASON_DISK_FULL, "the disk is full");
        fake_events(fake_sandbox(f, "sb-one"), &user)->start_failed(user, &err);
        fixture_turn(f);
        assert_string_equal(heard.reason, "SANDBOX_WRONG_STATE");
        assert_string_equal(heard.state, "FAILED");
        (void) file_call_free(call);
}

static void work_waits_for_the_recovery_after_a_restart(void **state) {
        Fixture *f = *state;
        Heard heard;
        FileCall *call;
        void *user;

        create(f, "sb-one", "");
        f->fake.hold_recover = true;
        fixture_restart(f);
        fixture_turn(f);
        call = begin(f, "sb-one", &heard);
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_calls, 0);
        fake_events(fake_sandbox(f, "sb-one"), &user)->started(user);
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_calls, 1);
        (void) file_call_free(call);
}

static void other_states_are_refused(void **state) {
        static const SandboxState states[] = {
                SANDBOX_PAUSED, SANDBOX_STOPPING, SANDBOX_STOPPED, SANDBOX_FAILED, SANDBOX_DELETING, SANDBOX_DELETED,
        };
        Fixture *f = *state;
        Heard heard = {};
        FileCall *call;

        for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
                char id[32];

                (void) snprintf(id, sizeof(id), "sb-%zu", i);
                bring_to(f, id, states[i]);
                assert_refused(f, open_as(f, &alice, id, true, &heard, &call), "SANDBOX_WRONG_STATE");
        }
}

static void work_belongs_to_the_owner(void **state) {
        Fixture *f = *state;
        Heard heard = {};
        FileCall *call;

        create(f, "sb-one", "");
        assert_refused(f, open_as(f, &bob, "sb-one", true, &heard, &call), "SANDBOX_NOT_FOUND");
        assert_refused(f, open_as(f, &alice, "sb-none", true, &heard, &call), "SANDBOX_NOT_FOUND");
        assert_int_equal(open_as(f, &root, "sb-one", true, &heard, &call), 0);
        (void) file_call_free(call);
}

static void work_ends_with_its_sandbox(void **state) {
        static const char *const ends[] = { "stop", "delete", "lose" };
        static const char *const states[] = { "STOPPING", "DELETING", "FAILED" };
        Fixture *f = *state;
        SandboxView view;

        for (size_t i = 0; i < 3; i++) {
                Heard heard[2];
                FileCall *calls[2];
                char id[32];

                (void) snprintf(id, sizeof(id), "sb-%s", ends[i]);
                create(f, id, "");
                calls[0] = begin(f, id, &heard[0]);
                calls[1] = begin(f, id, &heard[1]);
                if (i == 0)
                        assert_int_equal(control_stop_sandbox(f->control, &alice, id, 0, &view, NULL), 0);
                else if (i == 1)
                        assert_int_equal(control_delete_sandbox(f->control, &alice, id, &view, NULL), 0);
                else
                        fake_lose(f, id);
                fixture_turn(f);
                for (size_t j = 0; j < 2; j++) {
                        assert_string_equal(heard[j].reason, "SANDBOX_WRONG_STATE");
                        assert_string_equal(heard[j].state, states[i]);
                        (void) file_call_free(calls[j]);
                }
                assert_null(fake_sandbox(f, id)->last_call);
        }
}

static void work_stands_still_in_a_paused_sandbox(void **state) {
        Fixture *f = *state;
        SandboxView view;
        Heard heard;
        FileCall *call;

        create(f, "sb-one", "");
        call = begin(f, "sb-one", &heard);
        assert_int_equal(control_pause_sandbox(f->control, &alice, "sb-one", true, &view, NULL), 0);
        fixture_turn(f);
        assert_state(f, "sb-one", "PAUSED");
        assert_false(heard.ended);
        fake_end_call(fake_sandbox(f, "sb-one")->last_call, REASON_UNSPECIFIED);
        assert_true(heard.ended);
        (void) file_call_free(call);
}

static void work_keeps_the_sandbox_awake(void **state) {
        Fixture *f = *state;
        uint64_t idle_since;
        Heard heard;
        FileCall *call, *other;

        create(f, "sb-one", "idle=2000");
        idle_since = sandbox(f, "sb-one").record->idle_since;
        call = begin(f, "sb-one", &heard);
        other = begin(f, "sb-one", &heard);
        assert_int_equal(sandbox(f, "sb-one").idle_deadline, 0);
        fixture_wait(f, 2300);
        assert_state(f, "sb-one", "READY");
        (void) file_call_free(other);
        assert_int_equal(sandbox(f, "sb-one").idle_deadline, 0);
        (void) file_call_free(call);
        assert_true(sandbox(f, "sb-one").idle_deadline > clock_realtime_ns());
        /* Nothing of it is written down each time. */
        assert_int_equal(sandbox(f, "sb-one").record->idle_since, idle_since);
        assert_state(f, "sb-one", "READY");
        fixture_wait(f, 2300);
        assert_state(f, "sb-one", "STOPPED");
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(work_in_a_ready_sandbox_begins_at_once),
                test(failure_inside_is_told_as_it_is),
                test(work_waits_for_ready),
                test(work_that_waits_ends_when_the_start_fails),
                test(work_waits_for_the_recovery_after_a_restart),
                test(other_states_are_refused),
                test(work_belongs_to_the_owner),
                test(work_ends_with_its_sandbox),
                test(work_stands_still_in_a_paused_sandbox),
                test(work_keeps_the_sandbox_awake),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
