/* SPDX-License-Identifier: Apache-2.0 */

/* The warm pool: who gets a sandbox out of it and who does not, how it is filled, and that nothing of it is left. */

#include "control/control.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#include "control-fixture.h"

#define LIMIT (20 * NSEC_PER_SEC) /* of what takes its time */

static void set_size(Fixture *f, uint32_t size) {
        f->options.limits.warm_sandboxes = size;
        control_set_limits(f->control, &f->options.limits);
}

/* Of the runtime's sandboxes, those that run and are nobody's, oldest first. */
static size_t list_warm(Fixture *f, FakeSandbox *ret[static 8]) {
        SandboxView view;
        size_t n = 0;

        for (size_t i = 0; i < f->fake.n_sandboxes; i++) {
                FakeSandbox *one = f->fake.sandboxes[i];

                if (one->exists && one->runs && control_get_sandbox(f->control, &root, one->id, &view, NULL) < 0)
                        ret[n++] = one;
        }
        return n;
}

static size_t count_warm(Fixture *f) {
        FakeSandbox *warm[8];

        return list_warm(f, warm);
}

static FakeSandbox *first_warm(Fixture *f) {
        FakeSandbox *warm[8];

        assert_true(list_warm(f, warm) > 0);
        return warm[0];
}

static void wait_for_warm(Fixture *f, size_t n) {
        uint64_t end = clock_monotonic_ns() + LIMIT;

        while (count_warm(f) != n && clock_monotonic_ns() < end)
                fixture_wait(f, 5);
        assert_int_equal(count_warm(f), n);
        fixture_wait(f, 60); /* and it stays so */
        assert_int_equal(count_warm(f), n);
}

/* Creates one of @memory bytes for alice; @ret_id is what it is called. */
static int try_create(Fixture *f, const char *request_id, const char *id, uint64_t memory, char ret_id[static 64]) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        const RequestKey key = { .method = "CreateSandbox", .request_id = request_id };
        SandboxView view;
        int r = control_repeat_sandbox(f->control, &alice, &key, &view, &f->err);

        spec->limits.memory_bytes = memory;
        if (r == 0) {
                r = control_create_sandbox(f->control, &alice, &key, id, spec, &view, &f->err);
                assert_true(r < 0 || view.record->state == SANDBOX_PENDING);
        }
        if (r < 0)
                return r;
        ret_id[0] = '\0';
        append_text(ret_id, 64, view.record->id);
        return 0;
}

static void make(Fixture *f, uint64_t memory, char ret_id[static 64]) {
        assert_int_equal(try_create(f, "", "", memory, ret_id), 0);
        fixture_turn(f);
        assert_state(f, ret_id, "READY");
}

/* A pool of two, after a create that found it empty. */
static void fill(Fixture *f) {
        char id[64];

        set_size(f, 2);
        make(f, 0, id);
        wait_for_warm(f, 2);
}

static bool count_one(const SandboxView *view, void *user) {
        ++*(size_t *) user;
        return true;
}

static void it_is_empty_until_somebody_asks_for_a_sandbox_and_nobody_sees_it(void **state) {
        _cleanup_free_ char *events = NULL;
        Fixture *f = *state;
        size_t n_listed = 0;
        uint64_t after = 0;
        char id[64];

        set_size(f, 2);
        fixture_wait(f, 60);
        assert_int_equal(f->fake.n_sandboxes, 0);
        make(f, 0, id);
        wait_for_warm(f, 2);

        assert_int_equal(control_counts(f->control).sandboxes, 1);
        assert_int_equal(control_list_sandboxes(f->control, &root, &(SandboxFilter){ .all_owners = true }, &after,
                                                count_one, &n_listed, NULL),
                         0);
        assert_int_equal(n_listed, 1);
        events = events_after(f, 0);
        assert_null(strstr(events, first_warm(f)->id));
}

static void a_create_takes_the_oldest_and_it_is_as_any_other(void **state) {
        _cleanup_free_ char *cold_events = NULL, *warm_events = NULL;
        FakeSandbox *warm[8], *taken;
        Fixture *f = *state;
        char cold[64], id[64];
        uint64_t cursor;
        uint32_t slot;

        set_size(f, 2);
        make(f, 0, cold);
        cold_events = events_after(f, 0);
        wait_for_warm(f, 2);
        assert_int_equal(list_warm(f, warm), 2);
        taken = warm[0];
        slot = taken->uid_slot;
        cursor = control_cursor(f->control);

        make(f, 0, id);
        assert_string_equal(id, taken->id);
        assert_int_equal(taken->n_start, 1); /* by the pool */
        assert_int_equal(sandbox(f, id).record->uid_slot, slot);
        assert_int_equal(taken->uid_slot, slot);
        warm_events = events_after(f, cursor);
        for (char *at; (at = strstr(warm_events, id));)
                memcpy(at, cold, strlen(cold)); /* they are of one length */
        assert_string_equal(warm_events, cold_events);
        assert_true(sandbox(f, id).record->create_time > sandbox(f, cold).record->create_time);

        wait_for_warm(f, 2);
        create_exec(f, id, "x", "true");
        assert_exec_state(f, id, "x", "RUNNING");
        fake_lose(f, id);
        fixture_turn(f);
        assert_state(f, id, "FAILED");
}

static void a_one_shot_takes_one_too(void **state) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        _cleanup_(exec_spec_unrefp) ExecSpec *exec_spec = fixture_exec_spec("true");
        Fixture *f = *state;
        FakeSandbox *warm;
        ExecView view;

        fill(f);
        warm = first_warm(f);
        assert_int_equal(control_run_once(f->control, &alice, &(RequestKey){ .method = "Exec" }, spec, exec_spec, &view,
                                          &f->err),
                         0);
        assert_string_equal(view.sandbox_id, warm->id);
        fixture_turn(f);
        assert_int_equal(warm->n_execs, 1);
}

static void an_id_of_the_callers_own_or_files_of_the_host_are_never_served_by_it(void **state) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        Fixture *f = *state;
        SandboxView view;
        char id[64];

        fill(f);
        assert_int_equal(try_create(f, "", "my-own", 0, id), 0);
        assert_string_equal(id, "my-own");
        spec->mounts = new0(SandboxMount, 1);
        spec->n_mounts = 1;
        assert_int_equal(control_create_sandbox(f->control, &alice, &(RequestKey){ .method = "CreateSandbox" }, "",
                                                spec, &view, &f->err),
                         0);
        fixture_turn(f);
        assert_int_equal(count_warm(f), 2);
        assert_refused(f, try_create(f, "", first_warm(f)->id, 0, id), "ID_TAKEN");
        wait_for_warm(f, 2);
}

static void another_shape_replaces_the_oldest_that_nobody_asked_for(void **state) {
        FakeSandbox *before[8], *after[8];
        Fixture *f = *state;
        char id[64];

        fill(f);
        assert_int_equal(list_warm(f, before), 2);
        make(f, 4096, id);
        assert_int_equal(count_warm(f), 2);
        for (uint64_t end = clock_monotonic_ns() + LIMIT; before[0]->exists && clock_monotonic_ns() < end;)
                fixture_wait(f, 5);
        assert_int_equal(before[0]->n_remove, 1);
        wait_for_warm(f, 2);
        assert_int_equal(list_warm(f, after), 2);
        assert_ptr_equal(after[0], before[1]);

        make(f, 4096, id);
        assert_string_equal(id, after[1]->id);
        make(f, 0, id);
        assert_string_equal(id, after[0]->id);
}

static void none_is_made_while_something_else_is_started(void **state) {
        Fixture *f = *state;
        void *user;
        char id[64];

        set_size(f, 1);
        f->fake.hold_start = true;
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        fixture_wait(f, 100);
        assert_int_equal(f->fake.n_sandboxes, 1);
        f->fake.hold_start = false;
        fake_events(fake_sandbox(f, id), &user)->started(user);
        wait_for_warm(f, 1);
}

static void one_that_has_not_started_is_not_taken(void **state) {
        Fixture *f = *state;
        char id[64];
        void *user;

        set_size(f, 1);
        make(f, 0, id);
        f->fake.hold_start = true;
        wait_for_warm(f, 1);
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        assert_string_not_equal(id, first_warm(f)->id);

        fake_events(first_warm(f), &user)->started(user);
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        fixture_turn(f);
        assert_int_equal(count_warm(f), 0);
}

static void one_that_dies_is_removed_and_another_made(void **state) {
        Fixture *f = *state;
        FakeSandbox *dead;
        char id[64];

        fill(f);
        dead = first_warm(f);
        fake_lose(f, dead->id);
        fixture_turn(f);
        assert_int_equal(dead->n_remove, 1);
        assert_false(dead->exists);
        wait_for_warm(f, 2);
        make(f, 0, id);
        assert_string_not_equal(id, dead->id);
}

static void one_that_dies_as_it_is_taken_is_started_anew(void **state) {
        Fixture *f = *state;
        FakeSandbox *warm;
        char id[64];
        void *user;

        fill(f);
        warm = first_warm(f);
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        assert_string_equal(id, warm->id);
        warm->runs = false;
        fake_events(warm, &user)->lost(user, NULL);
        fixture_turn(f);
        assert_state(f, id, "READY");
        assert_true(warm->runs);
        assert_int_equal(warm->n_start, 2);
}

static void what_is_durable_is_ready_and_its_command_waits_for_nothing(void **state) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("command=serve");
        Fixture *f = *state;
        FakeSandbox *warm;
        SandboxView view;

        fill(f);
        warm = first_warm(f);
        assert_int_equal(control_create_sandbox(f->control, &alice, &(RequestKey){ .method = "CreateSandbox" }, "",
                                                spec, &view, &f->err),
                         0);
        assert_string_equal(view.record->id, warm->id);
        control_commit(f->control);
        assert_state(f, warm->id, "READY");
        assert_int_equal(warm->n_execs, 1);
        assert_string_equal(warm->execs[0].id, "main");
}

static void a_delete_right_after_its_create_is_done(void **state) {
        Fixture *f = *state;
        SandboxView view;
        char id[64];

        fill(f);
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        assert_int_equal(control_delete_sandbox(f->control, &alice, id, &view, &f->err), 0);
        fixture_turn(f);
        assert_state(f, id, "DELETED");
        assert_false(fake_sandbox(f, id)->exists);
}

static void other_limits_are_in_force_at_once(void **state) {
        Fixture *f = *state;

        fill(f);
        set_size(f, 1);
        fixture_turn(f);
        assert_int_equal(count_warm(f), 1);
        set_size(f, 3);
        wait_for_warm(f, 3);
        set_size(f, 0);
        wait_for_warm(f, 0);
        for (size_t i = 0; i < f->fake.n_sandboxes; i++)
                assert_true(f->fake.sandboxes[i]->exists == (i == 0));
}

static void they_are_gone_after_a_time_without_a_create(void **state) {
        Fixture *f = *state;
        FakeSandbox *old;
        char id[64];

        fixture_stop(f);
        f->options.warm_time = NSEC_PER_SEC;
        fixture_start(f);
        set_size(f, 1);
        make(f, 0, id);
        for (uint64_t end = clock_monotonic_ns() + LIMIT; f->fake.n_sandboxes < 2 && clock_monotonic_ns() < end;)
                fixture_wait(f, 5);
        old = f->fake.sandboxes[1];
        for (uint64_t end = clock_monotonic_ns() + LIMIT; old->exists && clock_monotonic_ns() < end;)
                fixture_wait(f, 5);
        fixture_wait(f, 1100);
        wait_for_warm(f, 0);
}

static void a_request_that_is_refused_takes_none(void **state) {
        Fixture *f = *state;
        FakeSandbox *warm;
        char id[64];

        fill(f);
        warm = first_warm(f);
        f->options.limits.sandboxes = 1;
        set_size(f, 2);
        assert_refused(f, try_create(f, "", "", 0, id), "QUOTA_EXCEEDED");
        fixture_turn(f);
        assert_int_equal(count_warm(f), 2);
        f->options.limits.sandboxes = 10;
        set_size(f, 2);
        make(f, 0, id);
        assert_string_equal(id, warm->id);
}

static void one_whose_create_was_not_durable_is_removed(void **state) {
        Fixture *f = *state;
        FakeSandbox *warm;
        SandboxView view;
        uint32_t slot;
        char id[64];

        fill(f);
        warm = first_warm(f);
        slot = warm->uid_slot;
        f->fake.hold_remove = true;
        fixture_break_store(f, true);
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        assert_string_equal(id, warm->id);
        control_commit(f->control);
        fixture_break_store(f, false);
        assert_refused(f, control_get_sandbox(f->control, &alice, id, &view, &f->err), "SANDBOX_NOT_FOUND");
        assert_int_equal(warm->n_remove, 1);

        /* Nobody else has its ids, or its id, meanwhile. */
        create(f, "other", "");
        assert_int_not_equal(sandbox(f, "other").record->uid_slot, slot);
        assert_refused(f, try_create(f, "", id, 0, id), "ID_TAKEN");
}

static void a_repeat_is_answered_with_the_first(void **state) {
        Fixture *f = *state;
        char first[64], again[64];

        fill(f);
        assert_int_equal(try_create(f, "r:1", "", 0, first), 0);
        assert_int_equal(try_create(f, "r:1", "", 0, again), 0);
        fixture_turn(f);
        assert_string_equal(first, again);
        assert_int_equal(count_warm(f), 1);
}

static void a_crash_leaves_none_but_those_that_were_taken(void **state) {
        Fixture *f = *state;
        char id[64];

        fill(f);
        assert_int_equal(try_create(f, "", "", 0, id), 0);
        control_commit(f->control);
        fixture_restart(f);
        assert_int_equal(count_warm(f), 0);
        assert_state(f, id, "READY");
        assert_true(fake_sandbox(f, id)->runs);
        assert_int_equal(fake_sandbox(f, id)->n_remove, 0);
}

static void count_end(void *user) {
        ++*(unsigned *) user;
}

static void at_the_end_all_are_removed_and_no_more_are_made(void **state) {
        Fixture *f = *state;
        unsigned n_ends = 0;
        char id[64];

        fill(f);
        control_end_warm(f->control, count_end, &n_ends);
        assert_int_equal(n_ends, 0);
        fixture_wait(f, 5);
        assert_int_equal(n_ends, 1);
        assert_int_equal(count_warm(f), 0);
        make(f, 0, id);
        wait_for_warm(f, 0);
}

static void the_end_waits_for_one_that_does_not_go_but_not_for_ever(void **state) {
        uint64_t end = clock_monotonic_ns() + LIMIT;
        Fixture *f = *state;
        unsigned n_ends = 0;

        fill(f);
        f->fake.hold_remove = true;
        control_end_warm(f->control, count_end, &n_ends);
        fixture_wait(f, 50);
        assert_int_equal(n_ends, 0);
        while (n_ends == 0 && clock_monotonic_ns() < end)
                fixture_wait(f, 50);
        assert_int_equal(n_ends, 1);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(it_is_empty_until_somebody_asks_for_a_sandbox_and_nobody_sees_it),
                test(a_create_takes_the_oldest_and_it_is_as_any_other),
                test(a_one_shot_takes_one_too),
                test(an_id_of_the_callers_own_or_files_of_the_host_are_never_served_by_it),
                test(another_shape_replaces_the_oldest_that_nobody_asked_for),
                test(none_is_made_while_something_else_is_started),
                test(one_that_has_not_started_is_not_taken),
                test(one_that_dies_is_removed_and_another_made),
                test(one_that_dies_as_it_is_taken_is_started_anew),
                test(what_is_durable_is_ready_and_its_command_waits_for_nothing),
                test(a_delete_right_after_its_create_is_done),
                test(other_limits_are_in_force_at_once),
                test(they_are_gone_after_a_time_without_a_create),
                test(a_request_that_is_refused_takes_none),
                test(one_whose_create_was_not_durable_is_removed),
                test(a_repeat_is_answered_with_the_first),
                test(a_crash_leaves_none_but_those_that_were_taken),
                test(at_the_end_all_are_removed_and_no_more_are_made),
                test(the_end_waits_for_one_that_does_not_go_but_not_for_ever),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
