/* SPDX-License-Identifier: Apache-2.0 */

/* The life of sandboxes: every request and observation in every state, who may ask, quotas, repeats, lists, times. */

#include "control/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#include "control-fixture.h"

static int request(Fixture *f, SandboxInput input, const char *id) {
        static const char *const fields[] = { "labels", NULL };
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("labels=a=b");
        const RequestKey key = { .method = "ResumeSandbox" };
        SandboxView view;

        switch (input) {
        case SANDBOX_REQUEST_STOP:
                return control_stop_sandbox(f->control, &alice, id, 0, &view, &f->err);
        case SANDBOX_REQUEST_RESUME:
                return control_resume_sandbox(f->control, &alice, &key, id, &view, &f->err);
        case SANDBOX_REQUEST_PAUSE:
        case SANDBOX_REQUEST_UNPAUSE:
                return control_pause_sandbox(f->control, &alice, id, input == SANDBOX_REQUEST_PAUSE, &view, &f->err);
        case SANDBOX_REQUEST_UPDATE:
                return control_update_sandbox(f->control, &alice, id, spec, fields, &view, &f->err);
        case SANDBOX_REQUEST_USE: {
                _cleanup_(exec_spec_unrefp) ExecSpec *exec_spec = fixture_exec_spec("true");
                ExecView exec_view;

                return control_create_exec(f->control, &alice, &key, id, "", exec_spec, false, &exec_view, &f->err);
        }
        default:
                return control_delete_sandbox(f->control, &alice, id, &view, &f->err);
        }
}

static void observe(Fixture *f, SandboxInput input, const char *id) {
        void *user;
        const RuntimeEvents *events = fake_events(fake_sandbox(f, id), &user);

        switch (input) {
        case SANDBOX_OBSERVED_STARTED:
                events->started(user);
                break;
        case SANDBOX_OBSERVED_START_FAILED:
                events->start_failed(user, NULL);
                break;
        case SANDBOX_OBSERVED_PAUSED:
        case SANDBOX_OBSERVED_UNPAUSED:
                events->pause_done(user, input == SANDBOX_OBSERVED_PAUSED);
                break;
        case SANDBOX_OBSERVED_STOPPED:
                events->stopped(user);
                break;
        case SANDBOX_OBSERVED_LOST:
                events->lost(user, NULL);
                break;
        default:
                events->removed(user);
        }
}

static void every_request_does_in_every_state_what_the_table_says(void **state) {
        Fixture *f = *state;

        for (SandboxState from = 0; from < SANDBOX_STATES_N; from++)
                for (SandboxInput input = 0; input <= SANDBOX_REQUEST_DELETE; input++) {
                        SandboxTransition transition;
                        char id[64];
                        uint64_t sequence;
                        int r;

                        if (input == SANDBOX_REQUEST_SNAPSHOT)
                                continue;
                        (void) snprintf(id, sizeof id, "sb-%s-%s", sandbox_state_name(from), sandbox_input_name(input));
                        bring_to(f, id, from);
                        f->fake.hold_pause = true;
                        sequence = sandbox(f, id).record->sequence;

                        r = request(f, input, id);
                        if (sandbox_state_apply(from, input, &transition, NULL) < 0) {
                                assert_string_equal(f->err.pairs[0].key, "state");
                                assert_string_equal(f->err.pairs[0].value, sandbox_state_name(from));
                                assert_refused(f, r, "SANDBOX_WRONG_STATE");
                                assert_state(f, id, sandbox_state_name(from));
                                assert_int_equal(sandbox(f, id).record->sequence, sequence);
                                continue;
                        }
                        assert_int_equal(r, 0);
                        assert_state(f, id, sandbox_state_name(transition.state));
                        if (transition.action == TRANSITION_MOVE)
                                assert_int_equal(sandbox(f, id).record->sequence, sequence + 1);
                        if (transition.action == TRANSITION_NOTHING)
                                assert_int_equal(sandbox(f, id).record->sequence, sequence);
                }
}

static void every_observation_does_in_every_state_what_the_table_says(void **state) {
        Fixture *f = *state;

        for (SandboxState from = 0; from < SANDBOX_DELETED; from++)
                for (SandboxInput input = SANDBOX_OBSERVED_STARTED; input < SANDBOX_INPUTS_N; input++) {
                        SandboxTransition transition;
                        uint64_t sequence;
                        char id[64];

                        if (input == SANDBOX_OBSERVED_REBOOTED)
                                continue;
                        (void) snprintf(id, sizeof id, "sb-%s-%s", sandbox_state_name(from), sandbox_input_name(input));
                        bring_to(f, id, from);
                        sequence = sandbox(f, id).record->sequence;
                        f->fake.hold_start = f->fake.hold_stop = f->fake.hold_remove = true;

                        observe(f, input, id);
                        assert_int_equal(sandbox_state_apply(from, input, &transition, NULL), 0);
                        assert_state(f, id, sandbox_state_name(transition.state));
                        assert_int_equal(sandbox(f, id).record->sequence,
                                         sequence + (transition.action == TRANSITION_MOVE));
                        fixture_turn(f);
                }
}

static void a_machine_that_restarted_has_stopped_everything(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-stopped", SANDBOX_STOPPED);
        bring_to(f, "sb-failed", SANDBOX_FAILED);
        bring_to(f, "sb-paused", SANDBOX_PAUSED);
        bring_to(f, "sb-ready", SANDBOX_READY);
        create_exec(f, "sb-ready", "exec", "true");
        bring_to(f, "sb-stopping", SANDBOX_STOPPING);
        bring_to(f, "sb-pending", SANDBOX_PENDING);
        create_exec(f, "sb-pending", "exec", "true");
        f->options.boot_id = "second";
        f->fake.hold_start = f->fake.hold_stop = false;
        fake_sandbox(f, "sb-pending")->runs = false;
        fixture_restart(f);

        assert_state(f, "sb-stopped", "STOPPED");
        assert_state(f, "sb-failed", "FAILED");
        assert_state(f, "sb-paused", "STOPPED");
        assert_state(f, "sb-ready", "STOPPED");
        assert_string_equal(sandbox(f, "sb-ready").record->state_message, "the machine was restarted");
        assert_state(f, "sb-stopping", "STOPPED");
        assert_state(f, "sb-pending", "READY");
        assert_exec_state(f, "sb-ready", "exec", "LOST");
        assert_false(exec(f, "sb-ready", "exec").record->result.has_exit_code);
        assert_int_equal(exec(f, "sb-ready", "exec").record->result.end_reason, EXEC_END_MACHINE_DOWN);
        assert_exec_state(f, "sb-pending", "exec", "LOST");

        /* Only once. */
        fixture_restart(f);
        assert_state(f, "sb-pending", "READY");
}

static void a_delete_during_a_create_ends_in_deleted(void **state) {
        Fixture *f = *state;
        SandboxView view;
        void *user;
        const RuntimeEvents *events;

        f->fake.hold_start = f->fake.hold_remove = true;
        create(f, "sb-one", "");
        create_exec(f, "sb-one", "exec", "true");
        assert_int_equal(fake_sandbox(f, "sb-one")->n_start, 1);
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-one", &view, NULL), 0);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 0); /* nothing is done before it is durable */
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 1);
        assert_exec_state(f, "sb-one", "exec", "CANCELLED");
        assert_int_equal(exec(f, "sb-one", "exec").record->result.end_reason, EXEC_END_SANDBOX_DELETED);

        events = fake_events(fake_sandbox(f, "sb-one"), &user);
        events->started(user);
        fixture_turn(f);
        assert_state(f, "sb-one", "DELETING");
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 1); /* it is under way */

        f->fake.hold_start = f->fake.hold_remove = false;
        fixture_restart(f);
        assert_state(f, "sb-one", "DELETED");
        assert_false(fake_sandbox(f, "sb-one")->exists);
        fixture_restart(f);
        assert_state(f, "sb-one", "DELETED");
        assert_exec_state(f, "sb-one", "exec", "CANCELLED");
}

static void a_stop_supersedes_and_keeps_its_grace(void **state) {
        Fixture *f = *state;
        SandboxView view;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        f->fake.hold_stop = true;
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-one", 77, &view, NULL), 0);
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->stop_grace, 77);

        f->fake.hold_stop = false;
        fixture_restart(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->stop_grace, 77);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_stop, 2);
        assert_state(f, "sb-one", "STOPPED");

        f->fake.hold_start = false;
        assert_int_equal(request(f, SANDBOX_REQUEST_RESUME, "sb-one"), 0);
        fixture_turn(f);
        assert_state(f, "sb-one", "READY");
}

static void a_pause_and_an_unpause_do_not_cross(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_pause = true;
        assert_int_equal(request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), 0);
        fixture_turn(f);
        assert_int_equal(request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), 0);
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_pause, 1);
        assert_refused(f, request(f, SANDBOX_REQUEST_UNPAUSE, "sb-one"), "OPERATION_IN_PROGRESS");

        observe(f, SANDBOX_OBSERVED_PAUSED, "sb-one");
        fixture_turn(f);
        assert_state(f, "sb-one", "PAUSED");
        assert_int_equal(request(f, SANDBOX_REQUEST_UNPAUSE, "sb-one"), 0);
        fixture_turn(f);
        assert_refused(f, request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), "OPERATION_IN_PROGRESS");

        /* A pause that fails leaves everything as it was. */
        {
                void *user;
                const RuntimeEvents *events = fake_events(fake_sandbox(f, "sb-one"), &user);

                events->pause_failed(user, NULL);
        }
        fixture_turn(f);
        assert_state(f, "sb-one", "PAUSED");
        assert_int_equal(request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), 0);
}

static void a_pause_that_was_accepted_outlives_the_daemon(void **state) {
        Fixture *f = *state;
        FakeSandbox *fake;

        /* It ends before the pause was observed, or even asked for. */
        bring_to(f, "sb-one", SANDBOX_READY);
        fake = fake_sandbox(f, "sb-one");
        f->fake.hold_pause = true;
        assert_int_equal(request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), 0);
        fixture_turn(f);
        assert_state(f, "sb-one", "READY");
        fixture_stop(f);
        fixture_start(f);
        assert_refused(f, request(f, SANDBOX_REQUEST_UNPAUSE, "sb-one"), "OPERATION_IN_PROGRESS");
        f->fake.hold_pause = false;
        fixture_turn(f);
        assert_state(f, "sb-one", "PAUSED");
        assert_true(fake->is_paused);
        assert_int_equal(sandbox(f, "sb-one").record->pause_wanted, PAUSE_WANTED_NONE);

        f->fake.hold_pause = true;
        assert_int_equal(request(f, SANDBOX_REQUEST_UNPAUSE, "sb-one"), 0);
        fixture_turn(f);
        f->fake.hold_pause = false;
        fixture_restart(f);
        assert_state(f, "sb-one", "READY");
        assert_false(fake->is_paused);

        /* What was done is not done again, and what was superseded is not either. */
        fixture_restart(f);
        assert_state(f, "sb-one", "READY");
        f->fake.hold_pause = f->fake.hold_stop = true;
        assert_int_equal(request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), 0);
        fixture_turn(f);
        assert_int_equal(request(f, SANDBOX_REQUEST_STOP, "sb-one"), 0);
        fixture_turn(f);
        f->fake.hold_pause = f->fake.hold_stop = false;
        fixture_restart(f);
        assert_state(f, "sb-one", "STOPPED");
        assert_int_equal(request(f, SANDBOX_REQUEST_RESUME, "sb-one"), 0);
        fixture_turn(f);
        assert_state(f, "sb-one", "READY");
        assert_false(fake->is_paused);
}

static void a_pause_that_failed_is_not_tried_again_by_the_next_daemon(void **state) {
        Fixture *f = *state;
        const RuntimeEvents *events;
        void *user;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_pause = true;
        assert_int_equal(request(f, SANDBOX_REQUEST_PAUSE, "sb-one"), 0);
        fixture_turn(f);
        events = fake_events(fake_sandbox(f, "sb-one"), &user);
        events->pause_failed(user, NULL);
        fixture_turn(f);
        f->fake.hold_pause = false;
        fixture_restart(f);
        assert_state(f, "sb-one", "READY");
        assert_false(fake_sandbox(f, "sb-one")->is_paused);
}

static void what_was_lost_fails_with_its_reason(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "exec", "true");
        fake_lose(f, "sb-one");
        fixture_turn(f);
        assert_state(f, "sb-one", "FAILED");
        assert_int_equal(sandbox(f, "sb-one").record->state_reason, REASON_KEEPER_UNAVAILABLE);
        assert_string_equal(sandbox(f, "sb-one").record->state_message, "the keeper is gone");
        assert_exec_state(f, "sb-one", "exec", "CANCELLED");
        assert_int_equal(exec(f, "sb-one", "exec").record->result.end_reason, EXEC_END_SANDBOX_FAILED);
}

static int create_as(Fixture *f, const Caller *caller, const char *id, const char *request_id, uint8_t fingerprint,
                     char ret_id[ID_LEN_MAX + 1]) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        RequestKey key = { .method = "CreateSandbox", .request_id = request_id, .fingerprint = { fingerprint } };
        SandboxView view;
        int r = control_repeat_sandbox(f->control, caller, &key, &view, &f->err);

        if (r == 0)
                r = control_create_sandbox(f->control, caller, &key, id, spec, &view, &f->err);
        if (r >= 0 && ret_id)
                (void) snprintf(ret_id, ID_LEN_MAX + 1, "%s", view.record->id);
        return r < 0 ? r : 0;
}

static void a_repeated_request_is_done_once(void **state) {
        Fixture *f = *state;
        char first[ID_LEN_MAX + 1], second[ID_LEN_MAX + 1];
        SandboxView view;

        assert_int_equal(create_as(f, &alice, "", "r-1", 1, first), 0);
        assert_int_equal(create_as(f, &alice, "", "r-1", 1, second), 0); /* in the same turn */
        assert_string_equal(first, second);
        fixture_turn(f);
        fixture_restart(f);
        assert_int_equal(create_as(f, &alice, "", "r-1", 1, second), 0);
        assert_string_equal(first, second);
        assert_refused(f, create_as(f, &alice, "", "r-1", 2, NULL), "REQUEST_ID_REUSED");
        assert_int_equal(create_as(f, &bob, "", "r-1", 2, second), 0);
        assert_string_not_equal(first, second);
        assert_int_equal(control_counts(f->control).sandboxes, 2);

        assert_int_equal(control_delete_sandbox(f->control, &alice, first, &view, NULL), 0);
        fixture_turn(f);
        assert_int_equal(create_as(f, &alice, "", "r-1", 1, second), 0);
        assert_string_equal(first, second);
        assert_state(f, second, "DELETED");
}

static void ids_are_reserved_for_ever(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_READY);
        assert_refused(f, create_as(f, &alice, "sb-one", NULL, 0, NULL), "ID_TAKEN");
        bring_to(f, "sb-two", SANDBOX_DELETED);
        assert_refused(f, create_as(f, &bob, "sb-two", NULL, 0, NULL), "ID_TAKEN");
        fixture_restart(f);
        assert_refused(f, create_as(f, &bob, "sb-two", NULL, 0, NULL), "ID_TAKEN");
}

static void others_find_nothing(void **state) {
        Fixture *f = *state;
        SandboxView view;

        bring_to(f, "sb-one", SANDBOX_READY);
        bring_to(f, "sb-two", SANDBOX_DELETED);
        assert_refused(f, control_get_sandbox(f->control, &bob, "sb-one", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_refused(f, control_get_sandbox(f->control, &bob, "sb-two", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_refused(f, control_delete_sandbox(f->control, &bob, "sb-one", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_refused(f, control_get_sandbox(f->control, &alice, "sb-none", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_int_equal(control_get_sandbox(f->control, &root, "sb-one", &view, NULL), 0);
        assert_int_equal(control_get_sandbox(f->control, &root, "sb-two", &view, NULL), 0);
}

static void limits_are_those_of_the_contract(void **state) {
        const ControlLimits *limits = &control_limits_default;

        assert_int_equal(limits->sandboxes_per_caller, 1000);
        assert_int_equal(limits->sandboxes, 10000);
        assert_int_equal(limits->execs_per_sandbox, 256);
        assert_int_equal(limits->watches_per_caller, 1000);
        assert_int_equal(limits->history_retention, UINT64_C(15) * 24 * 3600 * NSEC_PER_SEC);
}

static void quotas_say_which(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        SandboxView view;

        limits.sandboxes_per_caller = 2;
        limits.sandboxes = 3;
        control_set_limits(f->control, &limits);
        create(f, "sb-1111", "");
        create(f, "sb-2222", "");
        assert_int_equal(create_as(f, &alice, "", NULL, 0, NULL), -EDQUOT);
        assert_string_equal(f->err.pairs[0].value, "sandboxes_per_caller");
        assert_string_equal(f->err.pairs[1].value, "2");
        assert_refused(f, -1, "QUOTA_EXCEEDED");
        assert_int_equal(create_as(f, &bob, "", NULL, 0, NULL), 0);
        assert_int_equal(create_as(f, &root, "", NULL, 0, NULL), -EDQUOT);
        assert_string_equal(f->err.pairs[0].value, "sandboxes");
        assert_refused(f, -1, "QUOTA_EXCEEDED");

        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-1111", &view, NULL), 0);
        assert_refused(f, create_as(f, &alice, "", NULL, 0, NULL), "QUOTA_EXCEEDED");
        fixture_turn(f);
        assert_state(f, "sb-1111", "DELETED");
        assert_int_equal(create_as(f, &alice, "", NULL, 0, NULL), 0);
}

static void an_unknown_runtime_is_refused(void **state) {
        Fixture *f = *state;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("runtime=other");
        SandboxView view;

        assert_refused(f,
                       control_create_sandbox(f->control, &alice, &(const RequestKey){ .method = "CreateSandbox" }, "",
                                              spec, &view, &f->err),
                       "RUNTIME_UNKNOWN");
}

static void uids_are_used_again_after_the_end(void **state) {
        Fixture *f = *state;
        SandboxView view;

        create(f, "sb-1111", "");
        create(f, "sb-2222", "");
        create(f, "sb-3333", "");
        assert_int_equal(fake_sandbox(f, "sb-2222")->uid_slot, 1);
        f->fake.hold_remove = true;
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-2222", &view, NULL), 0);
        fixture_turn(f);
        create(f, "sb-4444", "");
        assert_int_equal(fake_sandbox(f, "sb-4444")->uid_slot, 3);
        observe(f, SANDBOX_OBSERVED_REMOVED, "sb-2222");
        fixture_turn(f);
        create(f, "sb-5555", "");
        assert_int_equal(fake_sandbox(f, "sb-5555")->uid_slot, 1);
        fixture_restart(f);
        create(f, "sb-6666", "");
        assert_int_equal(fake_sandbox(f, "sb-6666")->uid_slot, 4);
}

typedef struct Listed {
        char ids[1024];
        size_t left;
        uint64_t serial;
} Listed;

static bool note(const SandboxView *view, void *user) {
        Listed *listed = user;

        append(listed->ids, view->record->id + 3);
        append(listed->ids, " ");
        listed->serial = view->record->serial;
        return --listed->left > 0;
}

static void lists_are_in_order_and_by_pages(void **state) {
        Fixture *f = *state;
        _cleanup_(selector_freep) Selector *selector = NULL;
        unsigned deleted = 1u << SANDBOX_DELETED;
        Listed listed = { .left = 3 };

        for (int i = 0; i < 8; i++) {
                char id[16];
                SandboxView view;

                (void) snprintf(id, sizeof id, "sb-%d", 1000 + i);
                create(f, id, i % 2 ? "labels=a=b" : "");
                if (i % 3 == 0)
                        assert_int_equal(control_delete_sandbox(f->control, &alice, id, &view, NULL), 0);
                fixture_turn(f);
        }
        assert_int_equal(create_as(f, &bob, "sb-bobs", NULL, 0, NULL), 0);

        assert_int_equal(control_list_sandboxes(f->control, &alice, &(const SandboxFilter){}, &(uint64_t){ 0 }, note,
                                                &listed, NULL),
                         0);
        assert_string_equal(listed.ids, "1001 1002 1004 ");
        listed = (Listed){ .left = 99, .serial = listed.serial };
        assert_int_equal(control_list_sandboxes(f->control, &alice, &(const SandboxFilter){},
                                                &(uint64_t){ listed.serial }, note, &listed, NULL),
                         0);
        assert_string_equal(listed.ids, "1005 1007 ");

        listed = (Listed){ .left = 99 };
        assert_int_equal(control_list_sandboxes(f->control, &alice, &(const SandboxFilter){ .states = deleted },
                                                &(uint64_t){ 0 }, note, &listed, NULL),
                         0);
        assert_string_equal(listed.ids, "1000 1003 1006 ");
        listed = (Listed){ .left = 99 };
        assert_int_equal(control_list_sandboxes(f->control, &root,
                                                &(const SandboxFilter){ .states = ~0u, .all_owners = true },
                                                &(uint64_t){ 2 }, note, &listed, NULL),
                         0);
        assert_string_equal(listed.ids, "1002 1003 1004 1005 1006 1007 bobs ");

        /* One that is DELETED but not durably so is there once. */
        {
                SandboxView view;

                f->fake.hold_remove = true;
                assert_int_equal(control_delete_sandbox(f->control, &bob, "sb-bobs", &view, NULL), 0);
                fixture_turn(f);
                observe(f, SANDBOX_OBSERVED_REMOVED, "sb-bobs");
                listed = (Listed){ .left = 99 };
                assert_int_equal(control_list_sandboxes(f->control, &bob, &(const SandboxFilter){ .states = ~0u },
                                                        &(uint64_t){ 0 }, note, &listed, NULL),
                                 0);
                assert_string_equal(listed.ids, "bobs ");
                f->fake.hold_remove = false;
        }

        assert_int_equal(selector_parse("a=b", 3, &selector, NULL), 0);
        listed = (Listed){ .left = 99 };
        assert_int_equal(control_list_sandboxes(f->control, &alice, &(const SandboxFilter){ .selector = selector },
                                                &(uint64_t){ 0 }, note, &listed, NULL),
                         0);
        assert_string_equal(listed.ids, "1001 1005 1007 ");
        assert_refused(f,
                       control_list_sandboxes(f->control, &alice, &(const SandboxFilter){ .all_owners = true },
                                              &(uint64_t){ 0 }, note, &listed, &f->err),
                       "CALLER_NOT_ALLOWED");

        listed = (Listed){ .left = 99 };
        assert_int_equal(control_delete_sandboxes(f->control, &alice, &(const SandboxFilter){ .selector = selector },
                                                  note, &listed, NULL),
                         0);
        assert_string_equal(listed.ids, "1001 1005 1007 ");
        fixture_turn(f);
        assert_state(f, "sb-1005", "DELETED");
        assert_state(f, "sb-1002", "READY");
}

static void what_nothing_uses_is_stopped(void **state) {
        Fixture *f = *state;

        create(f, "sb-idle", "idle=2000");
        create(f, "sb-busy", "idle=2000");
        create_exec(f, "sb-busy", "exec", "true");
        assert_true(sandbox(f, "sb-idle").idle_deadline > clock_realtime_ns());
        assert_int_equal(sandbox(f, "sb-busy").idle_deadline, 0);
        fixture_wait(f, 2300);
        assert_state(f, "sb-idle", "STOPPED");
        assert_string_equal(sandbox(f, "sb-idle").record->state_message, "nothing used it for its idle time");
        assert_state(f, "sb-busy", "READY");

        fake_end_exec(f, "sb-busy", "exec", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_state(f, "sb-busy", "READY");
        fixture_wait(f, 2300);
        assert_state(f, "sb-busy", "STOPPED");
}

static void idle_time_counts_on_over_a_restart(void **state) {
        Fixture *f = *state;
        uint64_t deadline;

        create(f, "sb-idle", "idle=4000");
        deadline = sandbox(f, "sb-idle").idle_deadline;
        fixture_stop(f);
        (void) sleep(1);
        fixture_start(f);
        fixture_turn(f);
        assert_state(f, "sb-idle", "READY");
        assert_true(sandbox(f, "sb-idle").idle_deadline < deadline + 500 * NSEC_PER_MSEC);
        assert_true(sandbox(f, "sb-idle").idle_deadline + 500 * NSEC_PER_MSEC > deadline);
        fixture_wait(f, 3500);
        assert_state(f, "sb-idle", "STOPPED");
}

static void deadlines_are_the_same_whenever_they_are_read(void **state) {
        Fixture *f = *state;
        SandboxView view;

        create(f, "sb-idle", "idle=60000 life=90000");
        view = sandbox(f, "sb-idle");
        assert_int_equal(view.idle_deadline % NSEC_PER_MSEC, 0);
        assert_int_equal(view.lifetime_deadline % NSEC_PER_MSEC, 0);
        for (int i = 0; i < 10000; i++) {
                assert_int_equal(sandbox(f, "sb-idle").idle_deadline, view.idle_deadline);
                assert_int_equal(sandbox(f, "sb-idle").lifetime_deadline, view.lifetime_deadline);
        }
}

static void a_lifetime_ends_in_a_stop_or_a_delete(void **state) {
        Fixture *f = *state;
        uint64_t deadline;

        create(f, "sb-stop", "life=4000");
        create(f, "sb-delete", "life=4000 delete=1");
        create(f, "sb-long", "life=60000");
        deadline = sandbox(f, "sb-long").lifetime_deadline;
        fixture_stop(f);
        (void) sleep(1);
        fixture_start(f);
        fixture_turn(f);
        assert_true(sandbox(f, "sb-long").lifetime_deadline < deadline + 500 * NSEC_PER_MSEC);
        assert_true(sandbox(f, "sb-long").lifetime_deadline + 500 * NSEC_PER_MSEC > deadline);
        assert_state(f, "sb-stop", "READY");
        fixture_wait(f, 3500);
        assert_state(f, "sb-stop", "STOPPED");
        assert_int_equal(sandbox(f, "sb-stop").record->state_reason, REASON_SANDBOX_EXPIRED);
        assert_state(f, "sb-delete", "DELETED");
        assert_state(f, "sb-long", "READY");
        assert_refused(f, request(f, SANDBOX_REQUEST_RESUME, "sb-stop"), "SANDBOX_EXPIRED");
        fixture_restart(f);
        assert_refused(f, request(f, SANDBOX_REQUEST_RESUME, "sb-stop"), "SANDBOX_EXPIRED");

        /* An update that gives it more lets it live again. */
        assert_int_equal(request(f, SANDBOX_REQUEST_UPDATE, "sb-stop"), 0);
        assert_int_equal(request(f, SANDBOX_REQUEST_RESUME, "sb-stop"), 0);
        fixture_turn(f);
        assert_state(f, "sb-stop", "READY");
}

static void an_update_is_an_event_and_changes_labels(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *events = NULL;

        bring_to(f, "sb-one", SANDBOX_READY);
        assert_int_equal(request(f, SANDBOX_REQUEST_UPDATE, "sb-one"), 0);
        fixture_turn(f);
        assert_string_equal(sandbox(f, "sb-one").record->spec->labels[0].key, "a");
        fixture_restart(f);
        assert_int_equal(sandbox(f, "sb-one").record->spec->n_labels, 1);
        events = events_after(f, 0);
        assert_string_equal(events, "sb-one created; sb-one READY; sb-one updated labels; ");
}

static void a_restart_recovers_and_changes_nothing(void **state) {
        Fixture *f = *state;
        uint64_t sequence;

        bring_to(f, "sb-ready", SANDBOX_READY);
        bring_to(f, "sb-paused", SANDBOX_PAUSED);
        bring_to(f, "sb-stopped", SANDBOX_STOPPED);
        sequence = sandbox(f, "sb-ready").record->sequence;
        fixture_restart(f);
        assert_state(f, "sb-ready", "READY");
        assert_state(f, "sb-paused", "PAUSED");
        assert_state(f, "sb-stopped", "STOPPED");
        assert_int_equal(sandbox(f, "sb-ready").record->sequence, sequence);
        assert_int_equal(fake_sandbox(f, "sb-ready")->n_recover, 1);
        assert_int_equal(fake_sandbox(f, "sb-ready")->n_start, 1);
        assert_true(fake_sandbox(f, "sb-paused")->is_paused);
        assert_false(fake_sandbox(f, "sb-ready")->is_paused);

        /* A pause that was under way, and happened, but was never told. */
        fake_sandbox(f, "sb-ready")->is_paused = true;
        fixture_restart(f);
        assert_false(fake_sandbox(f, "sb-ready")->is_paused);
        assert_state(f, "sb-ready", "READY");

        /* One whose keeper is gone meanwhile. */
        fake_sandbox(f, "sb-ready")->runs = false;
        fixture_restart(f);
        assert_state(f, "sb-ready", "FAILED");
}

static void what_nobody_knows_is_removed(void **state) {
        Fixture *f = *state;
        FakeSandbox *orphan = new0(FakeSandbox, 1);

        append(orphan->id, "sb-orphan");
        orphan->exists = orphan->runs = true;
        orphan->uid_slot = 1;
        f->fake.sandboxes[f->fake.n_sandboxes++] = orphan;
        bring_to(f, "sb-ready", SANDBOX_READY);
        f->fake.hold_remove = true;
        fixture_restart(f);
        assert_int_equal(orphan->n_remove, 1);
        assert_refused(f, create_as(f, &alice, "sb-orphan", NULL, 0, NULL), "ID_TAKEN");
        create(f, "sb-meanwhile", "");
        assert_int_equal(sandbox(f, "sb-meanwhile").record->uid_slot, 2);
        observe(f, SANDBOX_OBSERVED_REMOVED, "sb-orphan");
        fixture_turn(f);
        assert_null(orphan->remote);
        create(f, "sb-afterwards", "");
        assert_int_equal(sandbox(f, "sb-afterwards").record->uid_slot, 1);
        assert_int_equal(fake_sandbox(f, "sb-ready")->n_remove, 0);
}

static void note_usage(const RuntimeUsage *usage, const HutchError *err, void *user) {
        *(uint32_t *) user = usage->processes;
}

static void usage_is_that_of_what_runs(void **state) {
        Fixture *f = *state;
        uint32_t processes = 0;

        bring_to(f, "sb-one", SANDBOX_READY);
        assert_int_equal(control_get_usage(f->control, &alice, "sb-one", note_usage, &processes, NULL), 0);
        assert_int_equal(processes, 7);
        bring_to(f, "sb-two", SANDBOX_STOPPED);
        assert_refused(f, control_get_usage(f->control, &alice, "sb-two", note_usage, &processes, &f->err),
                       "SANDBOX_WRONG_STATE");
}

static void a_list_does_not_look_at_all_that_was_deleted_at_once(void **state) {
        enum { N = 5000 };
        Fixture *f = *state;
        _cleanup_(selector_freep) Selector *selector = NULL;
        SandboxFilter filter = { .states = 1u << SANDBOX_DELETED };
        SandboxRecord record;
        Listed listed = { .left = 99 };
        uint64_t after = 0;
        unsigned n_breaks = 0;

        bring_to(f, "sb-dead", SANDBOX_DELETED);
        record = *sandbox(f, "sb-dead").record;
        for (int i = 0; i < N; i++) {
                (void) snprintf(record.id, sizeof record.id, "sb-%d", i);
                record.serial++;
                assert_int_equal(store_put_sandbox(f->store, &record, NULL), 0);
        }
        assert_int_equal(store_commit(f->store, NULL), 0);

        assert_int_equal(selector_parse("is=missing", 10, &selector, NULL), 0);
        filter.selector = selector;
        for (int r = 1; r > 0; n_breaks += (unsigned) r) {
                r = control_list_sandboxes(f->control, &alice, &filter, &after, note, &listed, NULL);
                assert_in_range(r, 0, 1);
        }
        assert_string_equal(listed.ids, "");
        assert_int_equal(n_breaks, 2);
}

static void history_is_purged(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        SandboxView view;

        bring_to(f, "sb-dead", SANDBOX_DELETED);
        bring_to(f, "sb-live", SANDBOX_READY);
        limits.history_retention = limits.request_retention = 1;
        control_set_limits(f->control, &limits);
        fixture_wait(f, 1200);
        assert_refused(f, control_get_sandbox(f->control, &alice, "sb-dead", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_refused(f, create_as(f, &alice, "sb-dead", NULL, 0, NULL), "ID_TAKEN");
        assert_state(f, "sb-live", "READY");
}

/* Callers may make hundreds of sandboxes and requests in a second; more than that go. */
static void history_goes_faster_than_it_can_come(void **state) {
        enum { N = 5000 };
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        char row_id[16] = "";
        RequestRow row = { .caller = alice.name, .method = "C", .request_id = row_id, .time = 1 };
        SandboxRecord record;
        SandboxView view;
        int r = 0;

        bring_to(f, "sb-dead", SANDBOX_DELETED);
        record = *sandbox(f, "sb-dead").record;
        for (int i = 0; i < N; i++) {
                (void) snprintf(record.id, sizeof record.id, "sb-%d", i);
                (void) snprintf(row_id, sizeof row_id, "r%d", i);
                record.serial++;
                record.state_time = row.time = (uint64_t) i + 1; /* they go in this order */
                assert_int_equal(store_put_sandbox(f->store, &record, NULL), 0);
                assert_int_equal(store_add_request(f->store, &row, NULL), 0);
        }
        assert_int_equal(store_commit(f->store, NULL), 0);
        limits.history_retention = limits.request_retention = NSEC_PER_SEC;
        control_set_limits(f->control, &limits);
        for (int i = 0; i < 600 && r >= 0; i++) {
                fixture_wait(f, 100);
                r = control_get_sandbox(f->control, &alice, record.id, &view, NULL);
        }
        assert_int_equal(r, -ENOENT);
        assert_int_equal(store_find_request(f->store, &row, NULL), -ENOENT);
}

static void ignore_watch(Watch *watch, void *user) {
        (void) watch;
        (void) user;
}

/* How many events are in the store once @id runs. */
static uint64_t events_of_start(Fixture *f, const char *id) {
        char made[ID_LEN_MAX + 1];
        uint64_t before = control_cursor(f->control);

        assert_int_equal(create_as(f, &alice, id, NULL, 0, made), 0);
        fixture_turn(f);
        assert_state(f, id, "READY");
        return control_cursor(f->control) - before;
}

static void that_one_is_ready_is_committed_with_what_follows_unless_somebody_watches(void **state) {
        Fixture *f = *state;
        _cleanup_(watch_freep) Watch *watch = NULL;
        uint64_t cursor, n = 2, end = clock_monotonic_ns() + 60 * NSEC_PER_SEC;
        char id[ID_LEN_MAX + 1];

        /* On a host that stalls it may have waited long enough. */
        for (unsigned i = 0; n != 1 && i < 100; i++) {
                (void) snprintf(id, sizeof(id), "sb-%u", i);
                n = events_of_start(f, id);
        }
        assert_int_equal(n, 1);
        cursor = control_cursor(f->control);
        control_commit(f->control); /* somebody asks */
        assert_int_equal(control_cursor(f->control), cursor + 1);

        cursor = control_cursor(f->control) + 1;
        (void) events_of_start(f, "sb-two");
        while (control_cursor(f->control) == cursor && clock_monotonic_ns() < end)
                fixture_wait(f, 1);
        assert_int_equal(control_cursor(f->control), cursor + 1);

        assert_int_equal(control_watch(f->control, &alice, &(const WatchFilter){}, cursor + 1, ignore_watch, NULL,
                                       &watch, &f->err),
                         0);
        assert_int_equal(events_of_start(f, "sb-three"), 2);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(every_request_does_in_every_state_what_the_table_says),
                test(every_observation_does_in_every_state_what_the_table_says),
                test(a_machine_that_restarted_has_stopped_everything),
                test(that_one_is_ready_is_committed_with_what_follows_unless_somebody_watches),
                test(a_delete_during_a_create_ends_in_deleted),
                test(a_stop_supersedes_and_keeps_its_grace),
                test(a_pause_and_an_unpause_do_not_cross),
                test(a_pause_that_was_accepted_outlives_the_daemon),
                test(a_pause_that_failed_is_not_tried_again_by_the_next_daemon),
                test(what_was_lost_fails_with_its_reason),
                test(a_repeated_request_is_done_once),
                test(ids_are_reserved_for_ever),
                test(others_find_nothing),
                cmocka_unit_test(limits_are_those_of_the_contract),
                test(quotas_say_which),
                test(an_unknown_runtime_is_refused),
                test(uids_are_used_again_after_the_end),
                test(lists_are_in_order_and_by_pages),
                test(what_nothing_uses_is_stopped),
                test(idle_time_counts_on_over_a_restart),
                test(deadlines_are_the_same_whenever_they_are_read),
                test(a_lifetime_ends_in_a_stop_or_a_delete),
                test(an_update_is_an_event_and_changes_labels),
                test(a_restart_recovers_and_changes_nothing),
                test(what_nobody_knows_is_removed),
                test(usage_is_that_of_what_runs),
                test(a_list_does_not_look_at_all_that_was_deleted_at_once),
                test(history_is_purged),
                test(history_goes_faster_than_it_can_come),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
