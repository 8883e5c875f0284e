/* SPDX-License-Identifier: Apache-2.0 */

/* A store that fails: what was asked is taken back and says so, what was observed is asked for again. */

#include "control/control.h"

#include <errno.h>
#include <string.h>

#include "control-fixture.h"

static void on_durable(const HutchError *err, void *user) {
        Fixture *f = user;

        if (err) {
                f->n_not_durable++;
                assert_string_equal(err->reason, "STORE_UNAVAILABLE");
        } else {
                f->n_durable++;
        }
}

static void create_sandbox(Fixture *f) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        SandboxView view;

        assert_int_equal(control_create_sandbox(f->control, &alice, &(const RequestKey){ .method = "C" }, "sb-one",
                                                spec, &view, NULL),
                         0);
}

static void answers_wait_for_the_commit(void **state) {
        Fixture *f = *state;

        create_sandbox(f);
        control_when_committed(f->control, on_durable, f);
        assert_int_equal(f->n_durable, 0);
        control_commit(f->control);
        assert_int_equal(f->n_durable, 1);

        control_when_committed(f->control, on_durable, f); /* nothing to be made durable */
        assert_int_equal(f->n_durable, 1);
        fixture_turn(f);
        assert_int_equal(f->n_durable, 2);
}

static void what_nobody_sends_for_is_synced_before_long(void **state) {
        Fixture *f = *state;

        create_sandbox(f);
        control_when_durable(f->control, on_durable, f);
        control_commit(f->control);
        assert_false(control_is_synced(f->control));
        assert_int_equal(f->n_durable, 0);
        while (!control_is_synced(f->control))
                (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->n_durable, 1);

        /* There is nothing to wait for. */
        control_when_durable(f->control, on_durable, f);
        control_commit(f->control);
        assert_int_equal(f->n_durable, 2);
}

static void what_is_durable_stays_so_when_the_next_commit_fails(void **state) {
        Fixture *f = *state;
        SandboxView view;

        create_sandbox(f);
        control_when_durable(f->control, on_durable, f);
        control_commit(f->control);
        control_sync(f->control);
        fixture_break_store(f, true);
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-one", 0, &view, NULL), 0);
        control_when_durable(f->control, on_durable, f);
        control_commit(f->control);
        assert_int_equal(f->n_durable, 1);
        assert_int_equal(f->n_not_durable, 1);
        fixture_break_store(f, false);
}

static void what_is_removed_is_synced_before(void **state) {
        Fixture *f = *state;
        SandboxView view;

        create(f, "sb-one", "");
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-one", &view, NULL), 0);
        control_commit(f->control);
        control_commit(f->control);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 0);
        control_sync(f->control);
        control_commit(f->control);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 1);
}

static void delete_it(const HutchError *err, void *user) {
        Fixture *f = user;
        SandboxView view;

        assert_null(err);
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-one", &view, NULL), 0);
}

static void nothing_is_done_for_what_is_not_durable(void **state) {
        Fixture *f = *state;
        SandboxView view;

        create(f, "sb-one", "");
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-one", 0, &view, NULL), 0);
        control_when_committed(f->control, delete_it, f); /* asked while the stop is answered */
        control_commit(f->control);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 0);
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_remove, 1);
        assert_state(f, "sb-one", "DELETED");
}

static void a_request_that_is_not_durable_never_was(void **state) {
        Fixture *f = *state;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        _cleanup_free_ char *events = NULL;
        RequestKey key = { .method = "CreateSandbox" };
        SandboxView view;
        ExecView exec_view;
        _cleanup_(exec_spec_unrefp) ExecSpec *exec_spec = fixture_exec_spec("true");

        create(f, "sb-old", "");
        fixture_break_store(f, true);
        assert_int_equal(control_create_sandbox(f->control, &alice, &key, "sb-new", spec, &view, NULL), 0);
        assert_int_equal(
                control_create_exec(f->control, &alice, &key, "sb-new", "exec", exec_spec, false, &exec_view, NULL), 0);
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-old", 0, &view, NULL), 0);
        control_when_committed(f->control, on_durable, f);
        control_commit(f->control);
        assert_int_equal(f->n_not_durable, 1);
        assert_refused(f, control_get_sandbox(f->control, &alice, "sb-new", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_state(f, "sb-old", "READY");
        assert_int_equal(sandbox(f, "sb-old").record->sequence, 2);
        assert_int_equal(control_counts(f->control).sandboxes, 1);
        assert_int_equal(control_counts(f->control).active_execs, 0);
        assert_int_equal(fake_sandbox(f, "sb-old")->n_stop, 0);

        /* And when it works again, all is well. */
        fixture_break_store(f, false);
        create(f, "sb-new", "");
        assert_int_equal(fake_sandbox(f, "sb-new")->uid_slot, 1);
        events = events_after(f, 0);
        assert_string_equal(events, "sb-old created; sb-old READY; sb-new created; sb-new READY; ");
        fixture_restart(f);
        assert_state(f, "sb-new", "READY");
}

static void a_request_with_an_id_fails_at_once_and_may_be_repeated(void **state) {
        Fixture *f = *state;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        RequestKey key = { .method = "CreateSandbox", .request_id = "r-1" };
        SandboxView view;
        int r;

        fixture_break_store(f, true);
        r = control_create_sandbox(f->control, &alice, &key, "sb-one", spec, &view, &f->err);
        if (r == 0) {
                control_when_committed(f->control, on_durable, f);
                control_commit(f->control);
                assert_int_equal(f->n_not_durable, 1);
        } else {
                assert_refused(f, r, "STORE_UNAVAILABLE");
        }
        fixture_turn(f);
        fixture_break_store(f, false);
        assert_int_equal(control_create_sandbox(f->control, &alice, &key, "sb-one", spec, &view, &f->err), 0);
        fixture_turn(f);
        assert_state(f, "sb-one", "READY");
}

static void what_was_observed_is_asked_for_again(void **state) {
        Fixture *f = *state;
        uint64_t cursor;

        create(f, "sb-exec", "");
        create_exec(f, "sb-exec", "ends", "true");
        create_exec(f, "sb-exec", "runs", "true");
        create(f, "sb-lost", "");
        f->fake.hold_start = true;
        create(f, "sb-start", "");
        cursor = control_cursor(f->control);

        fixture_break_store(f, true);
        fake_end_exec(f, "sb-exec", "ends", (RuntimeExecEnd){ .wait_status = 3 << 8, .end_time = 7 });
        fake_lose(f, "sb-lost");
        {
                void *user;

                fake_events(fake_sandbox(f, "sb-start"), &user)->started(user);
        }
        f->fake.hold_start = false;
        fixture_turn(f);
        assert_exec_state(f, "sb-exec", "ends", "RUNNING");
        assert_false(fake_exec(f, "sb-exec", "ends")->forgotten);
        assert_state(f, "sb-lost", "READY");
        assert_state(f, "sb-start", "PENDING");

        fixture_break_store(f, false);
        fixture_wait(f, 1300);
        assert_exec_state(f, "sb-exec", "ends", "EXITED");
        assert_int_equal(exec(f, "sb-exec", "ends").record->result.exit_code, 3);
        assert_exec_state(f, "sb-exec", "runs", "RUNNING");
        assert_state(f, "sb-lost", "FAILED");
        assert_state(f, "sb-start", "READY");
        assert_true(fake_exec(f, "sb-exec", "ends")->forgotten);
        assert_int_equal(fake_sandbox(f, "sb-exec")->n_recover, 1);
        assert_int_equal(control_cursor(f->control), cursor + 3); /* each once */
}

static void a_stop_and_a_removal_are_done_again(void **state) {
        Fixture *f = *state;
        SandboxView view;

        create(f, "sb-stop", "");
        create(f, "sb-gone", "");
        f->fake.hold_stop = f->fake.hold_remove = true;
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-stop", 0, &view, NULL), 0);
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-gone", &view, NULL), 0);
        fixture_turn(f);
        fixture_break_store(f, true);
        {
                void *user;

                fake_events(fake_sandbox(f, "sb-stop"), &user)->stopped(user);
                fake_events(fake_sandbox(f, "sb-gone"), &user)->removed(user);
        }
        fixture_turn(f);
        assert_state(f, "sb-stop", "STOPPING");
        assert_state(f, "sb-gone", "DELETING");
        fixture_break_store(f, false);
        f->fake.hold_stop = f->fake.hold_remove = false;
        fixture_wait(f, 1300);
        assert_state(f, "sb-stop", "STOPPED");
        assert_state(f, "sb-gone", "DELETED");
}

static void an_idle_stop_is_tried_again_without_haste(void **state) {
        Fixture *f = *state;

        create(f, "sb-idle", "idle=50");
        fixture_break_store(f, true);
        fixture_wait(f, 600); /* each try waits for the lock */
        assert_state(f, "sb-idle", "READY");
        fixture_break_store(f, false);
        fixture_wait(f, 1300);
        assert_state(f, "sb-idle", "STOPPED");
}

static void ignore(Attachment *attachment, void *user) {
        (void) attachment;
        (void) user;
}

static void attachments_survive_what_is_taken_back(void **state) {
        Fixture *f = *state;
        static const AttachmentEvents attachment_events = { ignore, ignore, ignore, NULL };
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        _cleanup_(exec_spec_unrefp) ExecSpec *exec_spec = fixture_exec_spec("true stdin=1");
        RequestKey key = { .method = "C" };
        Attachment *attachment = NULL;
        SandboxView view;
        ExecView exec_view;

        fixture_break_store(f, true);
        assert_int_equal(control_create_sandbox(f->control, &alice, &key, "sb-new", spec, &view, NULL), 0);
        assert_int_equal(
                control_create_exec(f->control, &alice, &key, "sb-new", "exec", exec_spec, true, &exec_view, NULL), 0);
        assert_int_equal(control_attach(f->control, &alice, "sb-new", "exec", true, (OutputPosition){ .wanted = true },
                                        (OutputPosition){}, &attachment_events, NULL, &attachment, NULL),
                         0);
        assert_int_equal(attachment_send(attachment, "x", 1, NULL), 0);
        control_commit(f->control);
        assert_refused(f, control_get_sandbox(f->control, &alice, "sb-new", &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_string_equal(attachment_exec(attachment).record->id, "exec");
        (void) attachment_free(attachment);
        fixture_break_store(f, false);
}

static Attachment *attach(Fixture *f, const char *sandbox_id, const char *exec_id) {
        static const AttachmentEvents attachment_events = { ignore, ignore, ignore, NULL };
        const OutputPosition none = {};
        Attachment *attachment = NULL;

        assert_int_equal(control_attach(f->control, &alice, sandbox_id, exec_id, true, none, none, &attachment_events,
                                        NULL, &attachment, NULL),
                         0);
        return attachment;
}

/* Its caller has gone, and will not ask again. */
static void a_bound_exec_is_cancelled_once_the_store_works(void **state) {
        Fixture *f = *state;
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = fixture_exec_spec("true");
        RequestKey key = { .method = "C" };
        Attachment *attachment;
        ExecView view;

        create(f, "sb-bound", "");
        assert_int_equal(control_create_exec(f->control, &alice, &key, "sb-bound", "exec", spec, true, &view, NULL), 0);
        attachment = attach(f, "sb-bound", "exec");
        attachment_hold(attachment);
        fixture_turn(f);
        assert_exec_state(f, "sb-bound", "exec", "RUNNING");

        fixture_break_store(f, true);
        assert_true(attachment_release(attachment, &alice));
        (void) attachment_free(attachment);
        control_commit(f->control);
        assert_false(fake_exec(f, "sb-bound", "exec")->cancelled);
        fixture_break_store(f, false);
        fixture_wait(f, 1300);
        assert_true(fake_exec(f, "sb-bound", "exec")->cancelled);
}

static void whoever_comes_or_goes_while_the_store_fails_counts(void **state) {
        Fixture *f = *state;
        Attachment *attachment;

        create(f, "sb-used", "idle=2500");
        create_exec(f, "sb-used", "exec", "true");
        fake_end_exec(f, "sb-used", "exec", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);

        fixture_break_store(f, true);
        attachment = attach(f, "sb-used", "exec");
        control_commit(f->control);
        fixture_break_store(f, false);
        fixture_wait(f, 4500);
        assert_state(f, "sb-used", "READY");

        fixture_break_store(f, true);
        (void) attachment_free(attachment);
        control_commit(f->control);
        fixture_break_store(f, false);
        fixture_wait(f, 4500);
        assert_state(f, "sb-used", "STOPPED");
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(answers_wait_for_the_commit),
                test(what_nobody_sends_for_is_synced_before_long),
                test(what_is_durable_stays_so_when_the_next_commit_fails),
                test(what_is_removed_is_synced_before),
                test(nothing_is_done_for_what_is_not_durable),
                test(a_request_that_is_not_durable_never_was),
                test(a_request_with_an_id_fails_at_once_and_may_be_repeated),
                test(what_was_observed_is_asked_for_again),
                test(a_stop_and_a_removal_are_done_again),
                test(an_idle_stop_is_tried_again_without_haste),
                test(attachments_survive_what_is_taken_back),
                test(a_bound_exec_is_cancelled_once_the_store_works),
                test(whoever_comes_or_goes_while_the_store_fails_counts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
