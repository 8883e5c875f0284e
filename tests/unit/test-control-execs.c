/* SPDX-License-Identifier: Apache-2.0 */

/* The life of execs: when they start, how they end, who is attached to them. */

#include "control/control.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "base/utf8.h"

#include "control-fixture.h"

static int create_as(Fixture *f, const Caller *caller, const char *exec_id, const char *request_id, const char *text,
                     bool bound, char ret_id[ID_LEN_MAX + 1]) {
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = fixture_exec_spec(text);
        RequestKey key = { .method = "CreateExec", .request_id = request_id, .fingerprint = { (uint8_t) text[0] } };
        ExecView view;
        int r = control_repeat_exec(f->control, caller, &key, &view, &f->err);

        if (r == 0)
                r = control_create_exec(f->control, caller, &key, "sb-one", exec_id, spec, bound, &view, &f->err);
        if (r >= 0 && ret_id)
                (void) snprintf(ret_id, ID_LEN_MAX + 1, "%s", view.record->id);
        return r < 0 ? r : 0;
}

static int cancel(Fixture *f, const char *exec_id, uint64_t grace) {
        ExecView view;

        return control_cancel_exec(f->control, &alice, "sb-one", exec_id, grace, &view, &f->err);
}

static void execs_wait_for_ready_and_start_in_order(void **state) {
        Fixture *f = *state;
        void *user;
        const RuntimeEvents *events;
        FakeSandbox *fake;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        create_exec(f, "sb-one", "bbbb", "true");
        create_exec(f, "sb-one", "aaaa", "true");
        assert_exec_state(f, "sb-one", "bbbb", "PENDING");
        fake = fake_sandbox(f, "sb-one");
        assert_int_equal(fake->n_execs, 0);

        events = fake_events(fake, &user);
        events->started(user);
        assert_string_equal(fake->execs[0].id, "bbbb");
        assert_string_equal(fake->execs[1].id, "aaaa");
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "aaaa", "RUNNING");
        assert_int_equal(exec(f, "sb-one", "aaaa").record->start_time, 1000);
        assert_int_equal(sandbox(f, "sb-one").active_execs, 2);
}

static void execs_are_expected_before_they_are_durable(void **state) {
        Fixture *f = *state;
        void *user;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        create_exec(f, "sb-one", "one", "true");
        assert_string_equal(fake_sandbox(f, "sb-one")->expected, "agent "); /* also while the sandbox starts */
        fake_events(fake_sandbox(f, "sb-one"), &user)->started(user);
        fixture_turn(f);
        /* One runs already; and a terminal is not like others. */
        create_exec(f, "sb-one", "two", "true");
        fake_end_exec(f, "sb-one", "one", (RuntimeExecEnd){ .end_time = 1 });
        fake_end_exec(f, "sb-one", "two", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_int_equal(create_as(f, &alice, "tty", NULL, "true tty=1", false, NULL), 0);
        assert_string_equal(fake_sandbox(f, "sb-one")->expected, "agent ");
        fixture_turn(f);
        fake_end_exec(f, "sb-one", "tty", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_int_equal(create_as(f, &alice, "last", NULL, "true", false, NULL), 0);
        assert_string_equal(fake_sandbox(f, "sb-one")->expected, "agent agent ");
}

static void execs_that_wait_for_a_start_are_expected_with_it(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        create_exec(f, "sb-one", "waits", "true");
        fake_sandbox(f, "sb-one")->expected[0] = '\0';
        fixture_restart(f);
        assert_string_equal(fake_sandbox(f, "sb-one")->expected, "agent ");
}

/* What runs in a sandbox that is READY, but not durably, goes on after a crash, and after a commit that failed. */
static void execs_of_a_start_that_is_not_durable_go_on(void **state) {
        Fixture *f = *state;
        FakeSandbox *fake;
        void *user;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        create_exec(f, "sb-one", "early", "true");
        fake = fake_sandbox(f, "sb-one");
        fake_events(fake, &user)->started(user);
        assert_int_equal(fake->n_execs, 1);
        fixture_restart(f);
        assert_string_equal(fake->spared, "early ");
        assert_state(f, "sb-one", "PENDING");
        fixture_break_store(f, true);
        fake_events(fake, &user)->started(user);
        control_commit(f->control);
        fixture_break_store(f, false);
        assert_state(f, "sb-one", "PENDING");
        f->fake.hold_start = false;
        fixture_wait(f, 1500);
        assert_string_equal(fake->spared, "early ");
        assert_state(f, "sb-one", "READY");
        assert_int_equal(fake->n_execs, 1);
        assert_exec_state(f, "sb-one", "early", "RUNNING");
}

static void the_environment_has_its_layers(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "plain", "true");
        create_exec(f, "sb-one", "terminal", "true tty=1");
        assert_string_equal(fake_exec(f, "sb-one", "plain")->environment,
                            "HUTCH_SANDBOX_ID=sb-one LANG=C.UTF-8 "
                            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin WHERE=sandbox ");
        assert_non_null(strstr(fake_exec(f, "sb-one", "terminal")->environment, "TERM=xterm-256color"));
        assert_int_equal(create_as(f, &alice, "", NULL, "large", false, NULL), -E2BIG);
        assert_refused(f, -1, "ARGUMENTS_TOO_LARGE");
}

static void what_the_inside_knows_is_added_unless_it_is_given_or_unset(void **state) {
        Fixture *f = *state;
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = fixture_exec_spec("true");
        const RequestKey key = { .method = "CreateExec" };
        const FakeExec *fake;
        ExecView view;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "plain", "true");
        fake = fake_exec(f, "sb-one", "plain");
        assert_true(fake->set_home && fake->set_user);

        spec->env = new0(EnvVariable, 1);
        spec->env[spec->n_env++] = (EnvVariable){ xstrdup("HOME"), xstrdup("") };
        spec->unset_env = new0(char *, 2);
        spec->unset_env[0] = xstrdup("USER");
        assert_int_equal(control_create_exec(f->control, &alice, &key, "sb-one", "asked", spec, false, &view, NULL), 0);
        fixture_turn(f);
        fake = fake_exec(f, "sb-one", "asked");
        assert_false(fake->set_home || fake->set_user);
}

static void timeouts_are_clamped_to_the_sandboxs(void **state) {
        Fixture *f = *state;

        create(f, "sb-one", "timeout=100");
        create_exec(f, "sb-one", "none", "true");
        create_exec(f, "sb-one", "more", "true timeout=200");
        create_exec(f, "sb-one", "less", "true timeout=50");
        assert_int_equal(fake_exec(f, "sb-one", "none")->timeout, 100 * NSEC_PER_MSEC);
        assert_int_equal(fake_exec(f, "sb-one", "more")->timeout, 100 * NSEC_PER_MSEC);
        assert_int_equal(fake_exec(f, "sb-one", "less")->timeout, 50 * NSEC_PER_MSEC);
}

static void what_is_unknown_while_it_is_cancelled_is_lost(void **state) {
        Fixture *f = *state;
        const RuntimeEvents *events;
        void *user;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "exec", "true");
        assert_int_equal(cancel(f, "exec", 0), 0);
        assert_exec_state(f, "sb-one", "exec", "RUNNING");
        events = fake_events(fake_sandbox(f, "sb-one"), &user);
        events->exec_unknown(user, "exec");
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "exec", "LOST");
        assert_int_equal(sandbox(f, "sb-one").active_execs, 0);
}

static void ends_are_told_as_they_were(void **state) {
        Fixture *f = *state;
        _cleanup_(error_clear) HutchError not_found = {}, refused = {};
        const struct {
                const char *id;
                RuntimeExecEnd end;
                const char *state;
                ExecEndReason reason;
                int exit_code;
                uint32_t signal;
        } cases[] = {
                { "zero", { .cause = RUNTIME_END_EXITED }, "EXITED", EXEC_END_EXITED, 0, 0 },
                { "three", { .cause = RUNTIME_END_EXITED, .wait_status = 3 << 8 }, "EXITED", EXEC_END_EXITED, 3, 0 },
                { "killed", { .cause = RUNTIME_END_EXITED, .wait_status = 9 }, "EXITED", EXEC_END_EXITED, 137, 9 },
                { "memory",
                  { .cause = RUNTIME_END_EXITED, .wait_status = 9, .out_of_memory = true },
                  "EXITED",
                  EXEC_END_OUT_OF_MEMORY,
                  137,
                  9 },
                { "disk",
                  { .cause = RUNTIME_END_DISK_LIMIT, .wait_status = 9, .disk_limit = "disk_bytes" },
                  "EXITED",
                  EXEC_END_DISK_FULL,
                  137,
                  9 },
                { "timeout",
                  { .cause = RUNTIME_END_TIMED_OUT, .wait_status = 15 },
                  "TIMED_OUT",
                  EXEC_END_TIMED_OUT,
                  124,
                  15 },
                { "cancelled",
                  { .cause = RUNTIME_END_CANCELLED, .wait_status = 15 },
                  "CANCELLED",
                  EXEC_END_CANCELLED,
                  143,
                  15 },
                { "missing",
                  { .cause = RUNTIME_END_NOT_STARTED, .failure = &not_found, .program_not_found = true },
                  "FAILED",
                  EXEC_END_NOT_STARTED,
                  127,
                  0 },
                { "nowhere",
                  { .cause = RUNTIME_END_NOT_STARTED, .failure = &not_found },
                  "FAILED",
                  EXEC_END_NOT_STARTED,
                  126,
                  0 },
                { "refused",
                  { .cause = RUNTIME_END_NOT_STARTED, .failure = &refused },
                  "FAILED",
                  EXEC_END_NOT_STARTED,
                  126,
                  0 },
        };

        (void) error_set(&not_found, -ENOENT, "FILE_NOT_FOUND", "no such file");
        (void) error_set(&refused, -EACCES, "FILE_PERMISSION", "not executable");
        bring_to(f, "sb-one", SANDBOX_READY);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const ExecRecord *record;

                f->fake.hold_exec = cases[i].end.cause == RUNTIME_END_NOT_STARTED;
                create_exec(f, "sb-one", cases[i].id, "true");
                fake_end_exec(f, "sb-one", cases[i].id, cases[i].end);
                fixture_turn(f);
                record = exec(f, "sb-one", cases[i].id).record;
                assert_string_equal(exec_state_name(record->state), cases[i].state);
                assert_int_equal(record->result.end_reason, cases[i].reason);
                assert_true(record->result.has_exit_code);
                assert_int_equal(record->result.exit_code, cases[i].exit_code);
                assert_int_equal(record->result.signal, cases[i].signal);
                assert_true(record->end_time > 0);
                assert_true(fake_exec(f, "sb-one", cases[i].id)->forgotten);
        }
        assert_string_equal(exec(f, "sb-one", "missing").record->result.message, "no such file");
        assert_int_equal(exec(f, "sb-one", "missing").record->result.failure, REASON_FILE_NOT_FOUND);
        assert_int_equal(sandbox(f, "sb-one").active_execs, 0);
        assert_int_equal(control_counts(f->control).active_execs, 0);
}

static void an_end_without_a_start_is_both(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *events = NULL;
        uint64_t cursor;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        cursor = control_cursor(f->control);
        fake_end_exec(f, "sb-one", "exec", (RuntimeExecEnd){ .end_time = 5 });
        fixture_turn(f);
        events = events_after(f, cursor);
        assert_string_equal(events, "sb-one/exec RUNNING; sb-one/exec EXITED; ");
}

static void a_cancel_ends_what_runs_and_what_waits(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        create_exec(f, "sb-one", "waits", "true");
        assert_int_equal(cancel(f, "waits", UINT64_MAX), 0);
        assert_exec_state(f, "sb-one", "waits", "CANCELLED");
        assert_false(exec(f, "sb-one", "waits").record->result.has_exit_code);
        fixture_turn(f);

        bring_to(f, "sb-two", SANDBOX_READY);
        {
                void *user;
                const RuntimeEvents *events = fake_events(fake_sandbox(f, "sb-one"), &user);

                events->started(user);
        }
        fixture_turn(f);
        assert_int_equal(fake_sandbox(f, "sb-one")->n_execs, 0);
        create_exec(f, "sb-one", "runs", "true");
        assert_int_equal(cancel(f, "runs", 0), 0);
        assert_exec_state(f, "sb-one", "runs", "RUNNING");
        assert_true(exec(f, "sb-one", "runs").record->cancel_time > 0);
        assert_false(fake_exec(f, "sb-one", "runs")->cancelled);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "runs", "CANCELLED");
        assert_int_equal(exec(f, "sb-one", "runs").record->result.exit_code, 137);
        assert_int_equal(cancel(f, "runs", 0), 0); /* again, of one that is in the store only */
        assert_refused(f, cancel(f, "none", 0), "EXEC_NOT_FOUND");
}

static void a_cancel_goes_on_after_a_restart(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        assert_int_equal(cancel(f, "exec", 5), 0);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "exec", "PENDING"); /* the runtime was told of it: it may run */
        fake_exec(f, "sb-one", "exec")->started = true;
        fixture_restart(f);
        assert_exec_state(f, "sb-one", "exec", "CANCELLED");
        assert_true(fake_exec(f, "sb-one", "exec")->cancelled);
}

static void the_end_of_the_sandbox_ends_its_execs(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *events = NULL;
        SandboxView view;
        uint64_t cursor;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "runs", "true");
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "hangs", "true");
        cursor = control_cursor(f->control);
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-one", 0, &view, NULL), 0);
        fixture_turn(f);
        assert_int_equal(exec(f, "sb-one", "runs").record->result.end_reason, EXEC_END_SANDBOX_STOPPED);
        assert_int_equal(exec(f, "sb-one", "runs").record->result.exit_code, 143);
        assert_int_equal(exec(f, "sb-one", "hangs").record->result.end_reason, EXEC_END_SANDBOX_STOPPED);
        assert_false(exec(f, "sb-one", "hangs").record->result.has_exit_code);
        events = events_after(f, cursor);
        assert_string_equal(events, "sb-one STOPPING; sb-one/runs CANCELLED; sb-one/hangs CANCELLED; sb-one STOPPED; ");
}

static void the_command_runs_once_as_main(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *events = NULL;
        SandboxView view;

        f->fake.hold_start = true;
        create(f, "sb-one", "command=serve");
        assert_int_equal(create_as(f, &alice, "main", NULL, "true", false, NULL), -EEXIST);
        assert_refused(f, -1, "ID_TAKEN");
        f->fake.hold_start = false;
        fixture_restart(f);
        assert_exec_state(f, "sb-one", "main", "RUNNING");
        events = events_after(f, 0);
        assert_string_equal(events, "sb-one created; sb-one READY; sb-one/main created; sb-one/main RUNNING; ");

        fake_end_exec(f, "sb-one", "main", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_state(f, "sb-one", "READY");
        assert_int_equal(control_stop_sandbox(f->control, &alice, "sb-one", 0, &view, NULL), 0);
        fixture_turn(f);
        assert_int_equal(
                control_resume_sandbox(f->control, &alice, &(const RequestKey){ .method = "R" }, "sb-one", &view, NULL),
                0);
        fixture_turn(f);
        assert_state(f, "sb-one", "READY");
        assert_exec_state(f, "sb-one", "main", "EXITED");
        assert_int_equal(sandbox(f, "sb-one").active_execs, 0);
}

static void a_start_that_nobody_waits_for_is_made_durable_with_the_end(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *events = NULL;
        uint64_t cursor, begun;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        cursor = control_cursor(f->control);
        begun = clock_monotonic_ns();
        fake_start_exec(f, "sb-one", "exec");
        fixture_turn(f);
        if (clock_monotonic_ns() - begun < 3 * NSEC_PER_MSEC) /* on a machine that is too busy it is over by now */
                assert_int_equal(control_cursor(f->control), cursor);
        fake_end_exec(f, "sb-one", "exec", (RuntimeExecEnd){ .end_time = 2000 });
        fixture_turn(f);
        assert_int_equal(control_cursor(f->control), cursor + 2);
        events = events_after(f, cursor);
        assert_string_equal(events, "sb-one/exec RUNNING; sb-one/exec EXITED; ");
}

static void a_start_does_not_wait_for_long(void **state) {
        Fixture *f = *state;
        uint64_t cursor, end = clock_monotonic_ns() + 60 * NSEC_PER_SEC;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        cursor = control_cursor(f->control);
        fake_start_exec(f, "sb-one", "exec");
        while (control_cursor(f->control) == cursor && clock_monotonic_ns() < end)
                fixture_wait(f, 1);
        assert_int_equal(control_cursor(f->control), cursor + 1);
}

static void ignore_watch(Watch *watch, void *user) {
        (void) watch;
        (void) user;
}

static void a_start_that_is_watched_is_durable_at_once(void **state) {
        Fixture *f = *state;
        _cleanup_(watch_freep) Watch *watch = NULL;
        uint64_t cursor;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        cursor = control_cursor(f->control);
        assert_int_equal(
                control_watch(f->control, &alice, &(const WatchFilter){}, cursor, ignore_watch, NULL, &watch, &f->err),
                0);
        fake_start_exec(f, "sb-one", "exec");
        fixture_turn(f);
        assert_int_equal(control_cursor(f->control), cursor + 1);
}

static void a_repeated_exec_is_run_once(void **state) {
        Fixture *f = *state;
        char first[ID_LEN_MAX + 1], second[ID_LEN_MAX + 1];

        bring_to(f, "sb-one", SANDBOX_READY);
        assert_int_equal(create_as(f, &alice, "", "r-1", "true", false, first), 0);
        fixture_turn(f);
        assert_int_equal(create_as(f, &alice, "", "r-1", "true", false, second), 0);
        assert_string_equal(first, second);
        assert_refused(f, create_as(f, &alice, "", "r-1", "other", false, NULL), "REQUEST_ID_REUSED");
        fake_end_exec(f, "sb-one", first, (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        fixture_restart(f);
        assert_int_equal(create_as(f, &alice, "", "r-1", "true", false, second), 0);
        assert_string_equal(first, second);
        assert_refused(f, create_as(f, &alice, first, NULL, "true", false, NULL), "ID_TAKEN");
        assert_int_equal(fake_sandbox(f, "sb-one")->n_execs, 1);
}

static void a_caller_cannot_have_all_execs_that_there_may_be(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        _cleanup_(exec_spec_unrefp) ExecSpec *exec_spec = fixture_exec_spec("true");
        RequestKey key = { .method = "C" };
        SandboxView view;
        ExecView once;

        limits.execs_per_caller = 2;
        control_set_limits(f->control, &limits);
        f->options.limits = limits; /* of the next daemon */
        bring_to(f, "sb-one", SANDBOX_READY);
        bring_to(f, "sb-two", SANDBOX_READY);
        create_exec(f, "sb-one", "first", "true");
        create_exec(f, "sb-two", "second", "true");
        assert_refused(f, create_as(f, &alice, "", NULL, "true", false, NULL), "QUOTA_EXCEEDED");
        assert_refused(f, control_run_once(f->control, &alice, &key, spec, exec_spec, &once, &f->err),
                       "QUOTA_EXCEEDED");
        assert_int_equal(control_run_once(f->control, &bob, &key, spec, exec_spec, &once, NULL), 0);

        /* Those of a sandbox go with it, and a new daemon counts anew. */
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-two", &view, NULL), 0);
        fixture_turn(f);
        fixture_restart(f);
        fixture_turn(f);
        create_exec(f, "sb-one", "third", "true");
        assert_refused(f, create_as(f, &alice, "", NULL, "true", false, NULL), "QUOTA_EXCEEDED");
}

static void quotas_of_execs_count_those_that_run(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;

        limits.execs_per_sandbox = 1;
        control_set_limits(f->control, &limits);
        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "first", "true");
        assert_refused(f, create_as(f, &alice, "", NULL, "true", false, NULL), "QUOTA_EXCEEDED");
        fake_end_exec(f, "sb-one", "first", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        create_exec(f, "sb-one", "second", "true");
}

static bool note(const ExecView *view, void *user) {
        append_text(user, 256, view->record->id);
        append_text(user, 256, " ");
        return true;
}

static void a_list_does_not_look_at_all_there_ever_was_at_once(void **state) {
        enum { N = 5000 };
        Fixture *f = *state;
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = fixture_exec_spec("true");
        RequestKey key = { .method = "C" };
        char id[16], ids[256] = "";
        uint64_t after = 0;
        unsigned n_breaks = 0;
        ExecView view;

        bring_to(f, "sb-one", SANDBOX_PENDING);
        for (int i = 0; i < N; i++) {
                (void) snprintf(id, sizeof id, "exec%d", i);
                assert_int_equal(control_create_exec(f->control, &alice, &key, "sb-one", id, spec, false, &view, NULL),
                                 0);
                if (i < N - 1)
                        assert_int_equal(control_cancel_exec(f->control, &alice, "sb-one", id, 0, &view, NULL), 0);
        }
        for (int r = 1; r > 0; n_breaks += (unsigned) r) {
                assert_string_equal(ids, "");
                r = control_list_execs(f->control, &alice, "sb-one", 1u << EXEC_PENDING, &after, note, ids, NULL);
                assert_in_range(r, 0, 1);
        }
        assert_string_equal(ids, "exec4999 ");
        assert_int_equal(n_breaks, 2);
}

static void lists_have_what_runs_and_what_has_ended(void **state) {
        Fixture *f = *state;
        char ids[256] = "";

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "one1", "true");
        create_exec(f, "sb-one", "two2", "true");
        create_exec(f, "sb-one", "tri3", "true");
        fake_end_exec(f, "sb-one", "two2", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_int_equal(control_list_execs(f->control, &alice, "sb-one", 0, &(uint64_t){ 0 }, note, ids, NULL), 0);
        assert_string_equal(ids, "one1 two2 tri3 ");
        ids[0] = '\0';
        assert_int_equal(
                control_list_execs(f->control, &alice, "sb-one", 1u << EXEC_RUNNING, &(uint64_t){ 1 }, note, ids, NULL),
                0);
        assert_string_equal(ids, "tri3 ");
        assert_refused(f, control_list_execs(f->control, &bob, "sb-one", 0, &(uint64_t){ 0 }, note, ids, &f->err),
                       "SANDBOX_NOT_FOUND");
}

static void execs_survive_a_restart(void **state) {
        Fixture *f = *state;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "runs", "true");
        create_exec(f, "sb-one", "ends", "true");
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "begins", "true");
        fixture_stop(f);
        fake_end_exec(f, "sb-one", "ends", (RuntimeExecEnd){ .wait_status = 4 << 8, .end_time = 9 });
        fake_sandbox(f, "sb-one")->n_execs--; /* the keeper was not told of the last one */
        f->fake.hold_exec = false;
        fixture_start(f);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "runs", "RUNNING");
        assert_exec_state(f, "sb-one", "ends", "EXITED");
        assert_int_equal(exec(f, "sb-one", "ends").record->result.exit_code, 4);
        assert_exec_state(f, "sb-one", "begins", "RUNNING");
}

/* Clients cannot read a message with a text that is not UTF-8. */
static void what_is_said_of_an_end_is_cut_between_characters(void **state) {
        _cleanup_(error_clear) HutchError failure = {};
        Fixture *f = *state;
        const char *message;

        (void) error_set(&failure, -ENOENT, "FILE_NOT_FOUND", "%0127d\u20ac", 0);
        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        fake_end_exec(
                f, "sb-one", "exec",
                (RuntimeExecEnd){ .cause = RUNTIME_END_NOT_STARTED, .failure = &failure, .process_limit_hits = 1 });
        fixture_turn(f);
        message = exec(f, "sb-one", "exec").record->result.message;
        assert_true(utf8_valid(message, strlen(message)));
        assert_non_null(strstr(message, "processes"));
}

static void limits_that_were_hit_are_events(void **state) {
        Fixture *f = *state;
        _cleanup_free_ char *events = NULL;
        uint64_t cursor;
        void *user;

        bring_to(f, "sb-one", SANDBOX_READY);
        cursor = control_cursor(f->control);
        fake_events(fake_sandbox(f, "sb-one"), &user)->limit_hit(user, "memory_bytes", 2, "");
        fixture_turn(f);
        events = events_after(f, cursor);
        assert_string_equal(events, "sb-one limit memory_bytes; ");
}

/* Attachments. */

typedef struct Attached {
        Attachment *attachment;
        unsigned n_changed, n_readable, n_writable;
        char failure[64]; /* of its input: the reason */
        bool let_go;      /* at the next change */
} Attached;

static void on_changed(Attachment *attachment, void *user) {
        Attached *attached = user;

        attached->n_changed++;
        if (attached->let_go)
                attached->attachment = attachment_free(attachment);
}

static void on_readable(Attachment *attachment, void *user) {
        ((Attached *) user)->n_readable++;
}

static void on_writable(Attachment *attachment, void *user) {
        ((Attached *) user)->n_writable++;
}

static void on_input_failed(Attachment *attachment, const HutchError *err, void *user) {
        Attached *attached = user;

        append(attached->failure, err->reason);
        if (attached->let_go)
                attached->attachment = attachment_free(attachment);
}

static const AttachmentEvents attachment_events = { on_changed, on_readable, on_writable, on_input_failed };

static int attach(Fixture *f, const char *exec_id, bool follow, uint64_t offset, Attached *attached) {
        return control_attach(f->control, &alice, "sb-one", exec_id, follow, (OutputPosition){ true, offset },
                              (OutputPosition){ true, 0 }, &attachment_events, attached, &attached->attachment,
                              &f->err);
}

/* Reads what there is: "1@0:text 2@0:text "; ends with "." when no more will come. */
static const char *read_all(Fixture *f, Attachment *attachment) {
        static char text[512];
        char buffer[64];
        uint64_t offset;
        ssize_t n;
        int stream;

        text[0] = '\0';
        while ((n = attachment_read(attachment, buffer, sizeof buffer, &stream, &offset, &f->err)) > 0)
                (void) snprintf(text + strlen(text), sizeof text - strlen(text), "%d@%d:%.*s ", stream, (int) offset,
                                (int) n, buffer);
        if (n < 0)
                append(text, n == -ENODATA ? "." : f->err.reason);
        return text;
}

static void output_is_read_live_until_the_durable_end(void **state) {
        Fixture *f = *state;
        Attached a = {}, late = {};

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true");
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        assert_string_equal(read_all(f, a.attachment), "");
        fake_start_exec(f, "sb-one", "exec");
        fixture_turn(f);
        assert_int_equal(fake_exec(f, "sb-one", "exec")->following, 1);
        fixture_wait(f, 20);
        assert_int_equal(a.n_changed, 1);

        a.n_readable = 0;
        fake_write(f, "sb-one", "exec", 1, "abc");
        fake_write(f, "sb-one", "exec", 2, "err");
        fixture_turn(f);
        assert_int_equal(a.n_readable, 1);
        assert_string_equal(read_all(f, a.attachment), "1@0:abc 2@0:err ");
        assert_int_equal(exec(f, "sb-one", "exec").stdout_bytes, 3);

        fake_write(f, "sb-one", "exec", 1, "de");
        fake_end_exec(f, "sb-one", "exec",
                      (RuntimeExecEnd){ .end_time = 1, .out = { .total = 5 }, .err = { .total = 3 } });
        {
                void *user;

                fake_events(fake_sandbox(f, "sb-one"), &user)
                        ->exec_ended(user, "exec", &fake_exec(f, "sb-one", "exec")->end);
        }
        assert_string_equal(read_all(f, a.attachment), "1@3:de "); /* it has ended, but that is not durable */
        fixture_turn(f);
        assert_int_equal(a.n_changed, 2);
        assert_string_equal(read_all(f, a.attachment), ".");
        assert_int_equal(fake_exec(f, "sb-one", "exec")->following, 0);
        a.attachment = attachment_free(a.attachment);

        assert_int_equal(attach(f, "exec", false, 2, &late), 0);
        assert_string_equal(read_all(f, late.attachment), "1@2:cde 2@0:err .");
        late.attachment = attachment_free(late.attachment);
        assert_int_equal(attach(f, "exec", false, 6, &late), 0);
        assert_string_equal(read_all(f, late.attachment), "OFFSET_OUT_OF_RANGE");
        error_clear(&f->err);
        late.attachment = attachment_free(late.attachment);
}

static void the_last_lines_can_be_asked_for(void **state) {
        Fixture *f = *state;
        Attached a = {};

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "exec", "true");
        fake_write(f, "sb-one", "exec", 1, "one\ntwo\nthree\n");
        assert_int_equal(attach(f, "exec", false, 0, &a), 0);
        assert_int_equal(attachment_seek_tail(a.attachment, 2, NULL), 0);
        assert_string_equal(read_all(f, a.attachment), "1@4:two\nthree\n ");
        (void) attachment_free(a.attachment);
}

/* Runs an exec that writes ten bytes. */
static void write_ten(Fixture *f, const char *id) {
        create_exec(f, "sb-one", id, "true");
        fake_write(f, "sb-one", id, 1, "1234567");
        fake_write(f, "sb-one", id, 2, "890");
        fake_end_exec(f, "sb-one", id, (RuntimeExecEnd){ .end_time = 1, .out = { .total = 7 }, .err = { .total = 3 } });
        fixture_turn(f);
        fixture_turn(f);
}

static const char *output_of(Fixture *f, const char *id) {
        Attached a = {};
        const char *text;

        assert_int_equal(attach(f, id, false, 0, &a), 0);
        text = read_all(f, a.attachment);
        (void) attachment_free(a.attachment);
        return text;
}

static void output_beyond_what_a_sandbox_may_keep_goes_from_the_oldest_on(void **state) {
        static const char all[] = "1@0:1234567 2@0:890 .";
        Fixture *f = *state;
        Attached a = {};

        f->options.limits = control_limits_default;
        f->options.limits.output_per_sandbox = 25;
        control_set_limits(f->control, &f->options.limits);
        bring_to(f, "sb-one", SANDBOX_READY);
        write_ten(f, "first");
        write_ten(f, "second");
        assert_string_equal(output_of(f, "first"), all);

        /* As much as has to go, and no more; what is told of it is that it was dropped. */
        write_ten(f, "third");
        assert_string_equal(output_of(f, "first"), ".");
        assert_int_equal(exec(f, "sb-one", "first").record->result.out.total, 7);
        assert_int_equal(exec(f, "sb-one", "first").record->result.out.dropped, 7);
        assert_int_equal(exec(f, "sb-one", "first").record->result.err.dropped, 3);
        assert_string_equal(output_of(f, "second"), all);

        /* A new daemon goes on counting. What somebody reads stays, and so does the newest's. */
        fixture_restart(f);
        fixture_turn(f);
        assert_int_equal(attach(f, "second", false, 0, &a), 0);
        write_ten(f, "fourth");
        assert_string_equal(read_all(f, a.attachment), all);
        (void) attachment_free(a.attachment);
        assert_string_equal(output_of(f, "third"), ".");
        f->options.limits.output_per_sandbox = 1;
        control_set_limits(f->control, &f->options.limits);
        write_ten(f, "fifth");
        assert_string_equal(output_of(f, "second"), ".");
        assert_string_equal(output_of(f, "fourth"), ".");
        assert_string_equal(output_of(f, "fifth"), all);
}

static void input_waits_for_the_start_and_keeps_its_order(void **state) {
        Fixture *f = *state;
        Attached a = {};
        FakeSandbox *fake;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true stdin=1 tty=1");
        fake = fake_sandbox(f, "sb-one");
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        assert_int_equal(attachment_send(a.attachment, "ab", 2, NULL), 0);
        assert_int_equal(attachment_resize(a.attachment, 1, 2, NULL), 0);
        assert_int_equal(attachment_signal(a.attachment, SIGINT, &f->err), -EBUSY);
        assert_refused(f, -1, "EXEC_WRONG_STATE");
        assert_string_equal(fake->input, "");
        fake_start_exec(f, "sb-one", "exec");
        fixture_turn(f);
        assert_string_equal(fake->input, "ab#");

        assert_int_equal(attachment_send(a.attachment, "c", 1, NULL), 0);
        fake->input_is_full = true;
        assert_false(attachment_can_send(a.attachment));
        assert_int_equal(attachment_signal(a.attachment, SIGINT, NULL), 0);
        assert_int_equal(attachment_close_stdin(a.attachment, NULL), 0);
        assert_string_equal(fake->input, "ab#c!|");

        fake_end_exec(f, "sb-one", "exec", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_true(attachment_can_send(a.attachment));
        assert_int_equal(attachment_send(a.attachment, "d", 1, NULL), 0); /* as into a closed pipe */
        assert_string_equal(fake->input, "ab#c!|");
        (void) attachment_free(a.attachment);

        f->fake.hold_exec = false;
        create_exec(f, "sb-one", "deaf", "true");
        assert_int_equal(attach(f, "deaf", true, 0, &a), 0);
        assert_refused(f, attachment_send(a.attachment, "ab", 2, &f->err), "NO_SUCH_STREAM");
        assert_refused(f, attachment_resize(a.attachment, 2, 2, &f->err), "NO_SUCH_STREAM");
        (void) attachment_free(a.attachment);
}

static void input_waits_until_the_sandbox_is_recovered(void **state) {
        Fixture *f = *state;
        Attached a = {}, b = {};
        const FakeSandbox *fake;
        void *user;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "runs", "true stdin=1");
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "starts", "true stdin=1");
        fake = fake_sandbox(f, "sb-one");
        f->fake.hold_recover = true;
        fixture_stop(f);
        fixture_start(f);
        assert_int_equal(attach(f, "runs", true, 0, &a), 0);
        assert_int_equal(attachment_send(a.attachment, "ab", 2, NULL), 0); /* the runtime was not even asked */
        fixture_turn(f);
        assert_int_equal(fake->n_recover, 1);
        assert_int_equal(attachment_signal(a.attachment, SIGINT, NULL), 0);
        assert_true(attachment_can_send(a.attachment));
        assert_int_equal(attachment_close_stdin(a.attachment, NULL), 0);

        /* That one has started is told before the sandbox is there. */
        assert_int_equal(attach(f, "starts", true, 0, &b), 0);
        assert_int_equal(attachment_send(b.attachment, "c", 1, NULL), 0);
        fake_exec(f, "sb-one", "starts")->started = true;
        fake_events(fake_sandbox(f, "sb-one"), &user)->exec_started(user, "starts", 1000);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "starts", "RUNNING");
        assert_string_equal(fake->input, "");

        a.n_writable = 0;
        fake_events(fake_sandbox(f, "sb-one"), &user)->started(user);
        fixture_turn(f);
        assert_string_equal(fake->input, "ab!|c");
        assert_int_equal(a.n_writable, 1);
        assert_int_equal(attachment_send(b.attachment, "d", 1, NULL), 0);
        assert_string_equal(fake->input, "ab!|cd");
        (void) attachment_free(a.attachment);
        (void) attachment_free(b.attachment);
}

static void input_that_waits_is_bounded(void **state) {
        Fixture *f = *state;
        Attached a = {};
        unsigned n = 0;

        bring_to(f, "sb-one", SANDBOX_READY);
        f->fake.hold_exec = true;
        create_exec(f, "sb-one", "exec", "true tty=1");
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        for (; attachment_can_send(a.attachment) && n < 65536; n++)
                assert_int_equal(attachment_resize(a.attachment, 1, 2, NULL), 0);
        assert_in_range(n, 100, 10000);
        (void) attachment_free(a.attachment);
}

static void input_that_broke_is_told(void **state) {
        Fixture *f = *state;
        Attached a = {}, b = { .let_go = true };
        void *user;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "exec", "true stdin=1");
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        assert_int_equal(attachment_send(a.attachment, "a", 1, NULL), 0);
        fake_break_input(f, "sb-one");
        assert_string_equal(a.failure, ""); /* never from within */
        fixture_turn(f);
        assert_string_equal(a.failure, "KEEPER_UNAVAILABLE");
        (void) attachment_free(a.attachment);

        assert_int_equal(attach(f, "exec", true, 0, &b), 0);
        assert_int_equal(attachment_send(b.attachment, "b", 1, NULL), 0);
        fake_break_input(f, "sb-one");
        fixture_turn(f);
        assert_string_equal(b.failure, "KEEPER_UNAVAILABLE");
        assert_null(b.attachment);

        /* The end of the exec says it all. */
        a = (Attached){};
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        assert_int_equal(attachment_send(a.attachment, "c", 1, NULL), 0);
        fake_break_input(f, "sb-one");
        fake_events(fake_sandbox(f, "sb-one"), &user)->exec_ended(user, "exec", &(RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "exec", "EXITED");
        assert_string_equal(a.failure, "");
        (void) attachment_free(a.attachment);
}

static void an_attachment_keeps_the_sandbox_awake(void **state) {
        Fixture *f = *state;
        Attached a = {};

        create(f, "sb-one", "idle=2000");
        create_exec(f, "sb-one", "exec", "true");
        fake_end_exec(f, "sb-one", "exec", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        fixture_wait(f, 2300);
        assert_state(f, "sb-one", "READY");
        (void) attachment_free(a.attachment);
        fixture_wait(f, 2300);
        assert_state(f, "sb-one", "STOPPED");
}

/* That it is idle is durable with the end, and is not written once more when whoever waited has gone. */
static void who_waits_for_no_output_keeps_no_sandbox_awake(void **state) {
        static const AttachmentEvents waits = { .changed = on_changed, .writable = on_writable };
        const OutputPosition none = {};
        Fixture *f = *state;
        Attached a = {};

        create(f, "sb-one", "idle=60000");
        create_exec(f, "sb-one", "exec", "true");
        assert_int_equal(control_attach(f->control, &alice, "sb-one", "exec", false, none, none, &waits, &a,
                                        &a.attachment, NULL),
                         0);
        assert_int_equal(sandbox(f, "sb-one").idle_deadline, 0);
        fake_end_exec(f, "sb-one", "exec", (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_true(a.n_changed > 0);
        assert_true(sandbox(f, "sb-one").idle_deadline > 0);
        fixture_break_store(f, true);
        (void) attachment_free(a.attachment);
        control_commit(f->control);
        fixture_break_store(f, false);
        assert_true(sandbox(f, "sb-one").idle_deadline > 0);
}

static void an_attachment_outlives_its_sandbox(void **state) {
        Fixture *f = *state;
        Attached a = {}, b = { .let_go = true };
        SandboxView view;

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "exec", "true stdin=1");
        fake_write(f, "sb-one", "exec", 1, "abc");
        assert_int_equal(attach(f, "exec", true, 0, &a), 0);
        assert_int_equal(attach(f, "exec", true, 0, &b), 0);
        assert_int_equal(attachment_send(a.attachment, "x", 1, NULL), 0);
        assert_string_equal(read_all(f, a.attachment), "1@0:abc ");
        assert_int_equal(control_delete_sandbox(f->control, &alice, "sb-one", &view, NULL), 0);
        fixture_turn(f);
        assert_state(f, "sb-one", "DELETED");
        assert_null(b.attachment);
        assert_int_equal(attachment_exec(a.attachment).record->state, EXEC_CANCELLED);
        assert_string_equal(read_all(f, a.attachment), ".");
        assert_int_equal(attachment_send(a.attachment, "x", 1, NULL), 0);
        (void) attachment_free(a.attachment);

        assert_refused(f, attach(f, "exec", false, 0, &a), "SANDBOX_WRONG_STATE");
}

static void output_of_what_was_lost_is_counted(void **state) {
        Fixture *f = *state;
        Attached a = {};

        bring_to(f, "sb-one", SANDBOX_READY);
        create_exec(f, "sb-one", "exec", "true");
        fake_write(f, "sb-one", "exec", 1, "abc");
        fake_lose(f, "sb-one");
        fixture_turn(f);
        assert_int_equal(exec(f, "sb-one", "exec").stdout_bytes, 3);
        assert_int_equal(attach(f, "exec", false, 1, &a), 0);
        assert_string_equal(read_all(f, a.attachment), "1@1:bc .");
        (void) attachment_free(a.attachment);
}

static void what_a_lost_call_ran_is_ended_unless_claimed(void **state) {
        Fixture *f = *state;
        Attached a = {}, reader = {};

        bring_to(f, "sb-one", SANDBOX_READY);
        assert_int_equal(create_as(f, &alice, "claimed", NULL, "true", true, NULL), 0);
        assert_int_equal(create_as(f, &alice, "left", NULL, "true", true, NULL), 0);
        assert_int_equal(create_as(f, &alice, "read", NULL, "true", true, NULL), 0);
        fixture_wait(f, 200);
        assert_exec_state(f, "sb-one", "left", "RUNNING"); /* while the daemon lives that is the call's business */
        f->options.claim_time = 2 * NSEC_PER_SEC;
        fixture_restart(f);
        assert_int_equal(attach(f, "claimed", true, 0, &a), 0);
        attachment_hold(a.attachment);
        assert_int_equal(attach(f, "read", true, 0, &reader), 0);
        fixture_wait(f, 2300);
        assert_exec_state(f, "sb-one", "claimed", "RUNNING");
        assert_exec_state(f, "sb-one", "left", "CANCELLED");
        assert_exec_state(f, "sb-one", "read", "CANCELLED");
        (void) attachment_free(a.attachment);
        (void) attachment_free(reader.attachment);
}

static void what_was_left_is_ended_unless_held_again(void **state) {
        Fixture *f = *state;
        Attached held = {}, left = {}, again = {};

        f->options.repeat_time = 2 * NSEC_PER_SEC;
        fixture_restart(f);
        bring_to(f, "sb-one", SANDBOX_READY);
        assert_int_equal(create_as(f, &alice, "held", NULL, "true", true, NULL), 0);
        assert_int_equal(create_as(f, &alice, "left", NULL, "true", true, NULL), 0);
        fixture_turn(f);
        assert_int_equal(attach(f, "held", true, 0, &held), 0);
        assert_int_equal(attach(f, "left", true, 0, &left), 0);
        attachment_hold(held.attachment);
        attachment_hold(left.attachment);
        attachment_leave(held.attachment);
        attachment_leave(left.attachment);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "left", "RUNNING");
        assert_int_equal(attach(f, "held", true, 0, &again), 0);
        attachment_hold(again.attachment);
        fixture_wait(f, 2300);
        assert_exec_state(f, "sb-one", "held", "RUNNING");
        assert_exec_state(f, "sb-one", "left", "CANCELLED");
        attachment_release(again.attachment, &alice);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "held", "CANCELLED");
        (void) attachment_free(held.attachment);
        (void) attachment_free(left.attachment);
        (void) attachment_free(again.attachment);
}

static void what_is_bound_ends_when_the_last_who_holds_it_releases_it(void **state) {
        Fixture *f = *state;
        Attached a = {}, b = {}, reader = {};

        bring_to(f, "sb-one", SANDBOX_READY);
        assert_int_equal(create_as(f, &alice, "bound", NULL, "true", true, NULL), 0);
        assert_int_equal(create_as(f, &alice, "free", NULL, "true", false, NULL), 0);
        fixture_turn(f);
        assert_int_equal(attach(f, "bound", true, 0, &a), 0);
        assert_int_equal(attach(f, "bound", true, 0, &b), 0);
        assert_int_equal(attach(f, "bound", true, 0, &reader), 0);
        attachment_hold(a.attachment);
        attachment_hold(a.attachment);
        attachment_hold(b.attachment);

        /* One is freed as a daemon does that shuts down. */
        (void) attachment_free(b.attachment);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "bound", "RUNNING");
        assert_int_equal(exec(f, "sb-one", "bound").record->cancel_time, 0);
        attachment_release(a.attachment, &alice);
        fixture_turn(f);
        assert_exec_state(f, "sb-one", "bound", "CANCELLED");
        attachment_release(a.attachment, &alice);
        (void) attachment_free(a.attachment);
        (void) attachment_free(reader.attachment);

        assert_int_equal(attach(f, "free", true, 0, &a), 0);
        attachment_hold(a.attachment);
        attachment_release(a.attachment, &alice);
        fixture_turn(f);
        assert_int_equal(exec(f, "sb-one", "free").record->cancel_time, 0);
        (void) attachment_free(a.attachment);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(execs_wait_for_ready_and_start_in_order),
                test(execs_are_expected_before_they_are_durable),
                test(execs_that_wait_for_a_start_are_expected_with_it),
                test(execs_of_a_start_that_is_not_durable_go_on),
                test(the_environment_has_its_layers),
                test(what_the_inside_knows_is_added_unless_it_is_given_or_unset),
                test(timeouts_are_clamped_to_the_sandboxs),
                test(what_is_unknown_while_it_is_cancelled_is_lost),
                test(ends_are_told_as_they_were),
                test(an_end_without_a_start_is_both),
                test(a_cancel_ends_what_runs_and_what_waits),
                test(a_cancel_goes_on_after_a_restart),
                test(the_end_of_the_sandbox_ends_its_execs),
                test(the_command_runs_once_as_main),
                test(a_start_that_nobody_waits_for_is_made_durable_with_the_end),
                test(a_start_does_not_wait_for_long),
                test(a_start_that_is_watched_is_durable_at_once),
                test(a_repeated_exec_is_run_once),
                test(quotas_of_execs_count_those_that_run),
                test(a_caller_cannot_have_all_execs_that_there_may_be),
                test(lists_have_what_runs_and_what_has_ended),
                test(a_list_does_not_look_at_all_there_ever_was_at_once),
                test(execs_survive_a_restart),
                test(what_is_said_of_an_end_is_cut_between_characters),
                test(limits_that_were_hit_are_events),
                test(output_is_read_live_until_the_durable_end),
                test(the_last_lines_can_be_asked_for),
                test(output_beyond_what_a_sandbox_may_keep_goes_from_the_oldest_on),
                test(input_waits_for_the_start_and_keeps_its_order),
                test(input_waits_until_the_sandbox_is_recovered),
                test(input_that_waits_is_bounded),
                test(input_that_broke_is_told),
                test(an_attachment_keeps_the_sandbox_awake),
                test(who_waits_for_no_output_keeps_no_sandbox_awake),
                test(an_attachment_outlives_its_sandbox),
                test(output_of_what_was_lost_is_counted),
                test(what_a_lost_call_ran_is_ended_unless_claimed),
                test(what_was_left_is_ended_unless_held_again),
                test(what_is_bound_ends_when_the_last_who_holds_it_releases_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
