/* SPDX-License-Identifier: Apache-2.0 */

/* One-shots: a sandbox and its command, both or neither. */

#include "control/control.h"

#include <errno.h>
#include <string.h>

#include "control-fixture.h"

/* Where a one-shot is. */
typedef struct Once {
        char sandbox_id[ID_LEN_MAX + 1];
        char exec_id[ID_LEN_MAX + 1];
} Once;

static int run_once(Fixture *f, const Caller *caller, const char *request_id, const char *text, Once *ret_once) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *sandbox = fixture_spec("");
        _cleanup_(exec_spec_unrefp) ExecSpec *exec = fixture_exec_spec(text);
        RequestKey key = { .method = "Exec", .request_id = request_id, .fingerprint = { (uint8_t) text[0] } };
        ExecView view;
        int r = control_repeat_once(f->control, caller, &key, &view, &f->err);

        if (r == 0)
                r = control_run_once(f->control, caller, &key, sandbox, exec, &view, &f->err);
        if (r >= 0) {
                memcpy(ret_once->sandbox_id, view.sandbox_id, strlen(view.sandbox_id) + 1);
                memcpy(ret_once->exec_id, view.record->id, sizeof(ret_once->exec_id));
        }
        return r < 0 ? r : 0;
}

static void both_are_made_together_and_the_exec_is_bound(void **state) {
        Fixture *f = *state;
        Once once;

        assert_int_equal(run_once(f, &alice, NULL, "true", &once), 0);
        fixture_turn(f);
        assert_state(f, once.sandbox_id, "READY");
        assert_exec_state(f, once.sandbox_id, once.exec_id, "RUNNING");
        assert_true(exec(f, once.sandbox_id, once.exec_id).record->bound);
        assert_string_equal(sandbox(f, once.sandbox_id).record->owner, alice.name);
        assert_int_equal(sandbox(f, once.sandbox_id).record->serial, 1);
}

static void a_quota_that_is_full_leaves_nothing(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        Once once;

        limits.execs = 1;
        control_set_limits(f->control, &limits);
        assert_int_equal(run_once(f, &alice, NULL, "true", &once), 0);
        assert_refused(f, run_once(f, &alice, "r:1", "true", &once), "QUOTA_EXCEEDED");
        assert_int_equal(control_counts(f->control).sandboxes, 1);

        /* The id was not used up. */
        limits.execs = 2;
        limits.sandboxes = 1;
        control_set_limits(f->control, &limits);
        assert_refused(f, run_once(f, &alice, "r:1", "true", &once), "QUOTA_EXCEEDED");
        limits.sandboxes = 2;
        control_set_limits(f->control, &limits);
        assert_int_equal(run_once(f, &alice, "r:1", "true", &once), 0);
        assert_int_equal(control_counts(f->control).sandboxes, 2);
}

static void a_commit_that_fails_takes_both_back(void **state) {
        Fixture *f = *state;
        Once once;

        fixture_break_store(f, true);
        assert_refused(f, run_once(f, &alice, "r:1", "true", &once), "STORE_UNAVAILABLE");
        assert_int_equal(control_counts(f->control).sandboxes, 0);
        assert_int_equal(run_once(f, &alice, NULL, "true", &once), 0);
        fixture_turn(f);
        assert_int_equal(control_counts(f->control).sandboxes, 0);
        assert_int_equal(control_counts(f->control).active_execs, 0);
        fixture_break_store(f, false);
        assert_int_equal(run_once(f, &alice, "r:1", "true", &once), 0);
        fixture_turn(f);
        assert_exec_state(f, once.sandbox_id, once.exec_id, "RUNNING");
}

static void a_repeat_finds_it_until_it_has_ended(void **state) {
        Fixture *f = *state;
        Once first, again;
        SandboxView view;

        assert_int_equal(run_once(f, &alice, "r:1", "true", &first), 0);
        fixture_turn(f);
        assert_refused(f, run_once(f, &alice, "r:1", "other", &again), "REQUEST_ID_REUSED");
        assert_int_equal(run_once(f, &bob, "r:1", "true", &again), 0);
        assert_string_not_equal(first.sandbox_id, again.sandbox_id);
        fixture_restart(f);
        assert_int_equal(run_once(f, &alice, "r:1", "true", &again), 0);
        assert_string_equal(first.sandbox_id, again.sandbox_id);
        assert_string_equal(first.exec_id, again.exec_id);

        fake_end_exec(f, first.sandbox_id, first.exec_id, (RuntimeExecEnd){ .end_time = 1 });
        fixture_turn(f);
        assert_refused(f, run_once(f, &alice, "r:1", "true", &again), "REQUEST_ID_REUSED");
        assert_int_equal(control_delete_sandbox(f->control, &alice, first.sandbox_id, &view, NULL), 0);
        fixture_turn(f);
        assert_refused(f, run_once(f, &alice, "r:1", "true", &again), "REQUEST_ID_REUSED");
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(both_are_made_together_and_the_exec_is_bound),
                test(a_quota_that_is_full_leaves_nothing),
                test(a_commit_that_fails_takes_both_back),
                test(a_repeat_finds_it_until_it_has_ended),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
