/* SPDX-License-Identifier: Apache-2.0 */

/* Watching events: what is told, to whom, from where on, and what happens to those who are slow. */

#include "control/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control-fixture.h"

typedef struct Watcher {
        Watch *watch;
        unsigned n_readable;
        struct Watcher *lets_go; /* of this one, when called */
} Watcher;

static void on_readable(Watch *watch, void *user) {
        Watcher *watcher = user;

        watcher->n_readable++;
        if (watcher->lets_go)
                watcher->lets_go->watch = watch_free(watcher->lets_go->watch);
}

static int watch(Fixture *f, const Caller *caller, WatchFilter filter, uint64_t cursor, Watcher *watcher) {
        *watcher = (Watcher){};
        return control_watch(f->control, caller, &filter, cursor, on_readable, watcher, &watcher->watch, &f->err);
}

static void assert_reads(Watcher *watcher, const char *expected) {
        _cleanup_free_ char *text = read_watch(watcher->watch);

        assert_string_equal(text, expected);
}

static void events_are_pushed_once_they_are_durable(void **state) {
        Fixture *f = *state;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        SandboxView view;
        Watcher w;

        assert_int_equal(watch(f, &alice, (WatchFilter){}, control_cursor(f->control), &w), 0);
        assert_reads(&w, "");
        f->fake.hold_start = true;
        assert_int_equal(control_create_sandbox(f->control, &alice, &(const RequestKey){ .method = "C" }, "sb-one",
                                                spec, &view, NULL),
                         0);
        assert_reads(&w, "");
        assert_int_equal(w.n_readable, 0);
        fixture_turn(f);
        assert_int_equal(w.n_readable, 1);
        assert_reads(&w, "sb-one created; ");
        assert_int_equal(watch_cursor(w.watch), control_cursor(f->control));
        (void) watch_free(w.watch);
}

static void filters_hold(void **state) {
        Fixture *f = *state;
        const char *ids[] = { "sb-two", "sb-two", "sb-none" };
        Watcher all, mine, bobs, by_id, by_label, by_type, bobs_id;

        assert_int_equal(watch(f, &root, (WatchFilter){ .all_owners = true }, 0, &all), 0);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &mine), 0);
        assert_int_equal(watch(f, &bob, (WatchFilter){}, 0, &bobs), 0);
        assert_int_equal(watch(f, &root, (WatchFilter){ .sandbox_ids = ids, .n_sandbox_ids = 3 }, 0, &by_id), 0);
        assert_int_equal(watch(f, &bob, (WatchFilter){ .sandbox_ids = ids, .n_sandbox_ids = 3 }, 0, &bobs_id), 0);
        assert_int_equal(watch(f, &alice, (WatchFilter){ .selector = "a in (b,c),d" }, 0, &by_label), 0);
        assert_int_equal(watch(f, &alice, (WatchFilter){ .types = 1u << EVENT_SANDBOX_CREATED }, 0, &by_type), 0);
        assert_refused(f, watch(f, &alice, (WatchFilter){ .all_owners = true }, 0, &(Watcher){}), "CALLER_NOT_ALLOWED");
        assert_reads(&all, "");
        assert_reads(&by_id, "");

        create(f, "sb-one", "labels=d=,a=b");
        create(f, "sb-two", "labels=a=b");
        assert_reads(&all, "sb-one created; sb-one READY; sb-two created; sb-two READY; ");
        assert_reads(&mine, "sb-one created; sb-one READY; sb-two created; sb-two READY; ");
        assert_reads(&bobs, "");
        assert_reads(&by_id, "sb-two created; sb-two READY; ");
        assert_reads(&bobs_id, "");
        assert_reads(&by_label, "sb-one created; sb-one READY; ");
        assert_reads(&by_type, "sb-one created; sb-two created; ");

        /* The same out of the store. */
        for (Watcher **w = (Watcher *[]){ &all, &mine, &bobs, &by_id, &bobs_id, &by_label, &by_type, NULL }; *w; w++)
                (*w)->watch = watch_free((*w)->watch);
        fixture_restart(f);
        assert_int_equal(watch(f, &alice, (WatchFilter){ .selector = "a in (b,c),d" }, 0, &by_label), 0);
        assert_reads(&by_label, "sb-one created; sb-one READY; ");
        (void) watch_free(by_label.watch);
        assert_int_equal(watch(f, &root, (WatchFilter){ .sandbox_ids = ids, .n_sandbox_ids = 3 }, 1, &by_id), 0);
        assert_reads(&by_id, "sb-two created; sb-two READY; ");
        create(f, "sb-tri", "");
        assert_reads(&by_id, "");
        (void) watch_free(by_id.watch);
}

static void a_watch_goes_on_from_its_cursor(void **state) {
        Fixture *f = *state;
        uint64_t cursor;
        Watcher w;

        create(f, "sb-one", "");
        assert_int_equal(control_sequence_cursor(f->control, &alice, "sb-one", 1, &cursor, NULL), 0);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, cursor, &w), 0);
        assert_reads(&w, "sb-one READY; ");
        (void) watch_free(w.watch);
        assert_int_equal(control_sequence_cursor(f->control, &alice, "sb-one", 0, &cursor, NULL), 0);
        assert_int_equal(cursor, 0);
        assert_refused(f, control_sequence_cursor(f->control, &alice, "sb-one", 3, &cursor, &f->err), "CURSOR_INVALID");
        assert_refused(f, watch(f, &alice, (WatchFilter){}, 99, &w), "CURSOR_INVALID");
}

static void a_cursor_that_was_purged_is_gone(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        Watcher w;

        bring_to(f, "sb-dead", SANDBOX_DELETED);
        limits.history_retention = 1;
        control_set_limits(f->control, &limits);
        fixture_wait(f, 1200);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 1, &w), -ERANGE);
        assert_string_equal(f->err.pairs[0].key, "oldest_cursor");
        assert_string_equal(f->err.pairs[0].value, "4");
        assert_refused(f, -1, "CURSOR_GONE");
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 4, &w), 0);
        (void) watch_free(w.watch);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &w), 0);
        assert_reads(&w, "");
        (void) watch_free(w.watch);
}

static void a_sandbox_that_is_there_has_all_its_events(void **state) {
        static const char *const ids[] = { "sb-old" };
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        WatchFilter filter = { .sandbox_ids = ids, .n_sandbox_ids = 1, .is_sequence = true };
        uint64_t cursor;
        Watcher w;

        create(f, "sb-old", "");
        bring_to(f, "sb-dead", SANDBOX_DELETED);
        limits.history_retention = 1;
        control_set_limits(f->control, &limits);
        fixture_wait(f, 1200);
        for (int restarted = 0; restarted < 2; restarted++) {
                assert_int_equal(control_sequence_cursor(f->control, &alice, "sb-old", 0, &cursor, NULL), 0);
                assert_int_equal(watch(f, &alice, filter, cursor, &w), 0);
                assert_reads(&w, "sb-old created; sb-old READY; ");
                (void) watch_free(w.watch);
                assert_int_equal(control_sequence_cursor(f->control, &alice, "sb-old", 1, &cursor, NULL), 0);
                assert_int_equal(watch(f, &alice, filter, cursor, &w), 0);
                assert_reads(&w, "sb-old READY; ");
                (void) watch_free(w.watch);
                if (restarted == 0) {
                        fixture_restart(f);
                        fixture_turn(f);
                }
        }
}

/* A turn is short, however many look for events that there are none of among all that there were. */
static void what_watches_look_at_in_a_turn_is_bounded(void **state) {
        enum { N = 40, N_EVENTS = 1200 };
        static const char *const fields[] = { "labels", NULL };
        Fixture *f = *state;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        Watcher watchers[N];
        uint64_t first;
        SandboxView view;

        create(f, "sb-busy", "");
        first = control_cursor(f->control);
        for (int i = 0; i < N_EVENTS; i++)
                assert_int_equal(control_update_sandbox(f->control, &alice, "sb-busy", spec, fields, &view, NULL), 0);
        fixture_turn(f);
        for (int in_store = 0; in_store < 2; in_store++) {
                uint64_t before = N * first, after;
                bool done;

                for (int i = 0; i < N; i++)
                        assert_int_equal(
                                watch(f, &alice, (WatchFilter){ .selector = "is=missing" }, first, &watchers[i]), 0);
                do {
                        after = 0;
                        done = true;
                        for (int i = 0; i < N; i++) {
                                assert_reads(&watchers[i], "");
                                after += watch_cursor(watchers[i].watch);
                                done &= watch_cursor(watchers[i].watch) == control_cursor(f->control);
                        }
                        assert_in_range(after - before, 1, N * N_EVENTS / 2);
                        before = after;
                        control_commit(f->control);
                } while (!done);
                for (int i = 0; i < N; i++)
                        (void) watch_free(watchers[i].watch);
                fixture_restart(f);
                fixture_turn(f);
        }
}

static void who_does_not_read_lags_and_nobody_else(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        Watcher slow, fast, other, history;
        WatchedEvent event;
        uint64_t seen;

        limits.watch_buffer = 16;
        control_set_limits(f->control, &limits);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &slow), 0);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &fast), 0);
        assert_int_equal(watch(f, &bob, (WatchFilter){}, 0, &other), 0);
        create(f, "sb-0000", "");
        assert_reads(&fast, "sb-0000 created; sb-0000 READY; ");
        assert_reads(&other, "");
        assert_int_equal(watch_next(slow.watch, &event, NULL), 1);
        seen = event.cursor;

        for (int i = 1; i < 20; i++) {
                char id[16], expected[64];

                (void) snprintf(id, sizeof id, "sb-%04d", i);
                (void) snprintf(expected, sizeof expected, "%s created; %s READY; ", id, id);
                create(f, id, "");
                assert_reads(&fast, expected);
        }
        assert_int_equal(watch_next(slow.watch, &event, &f->err), -EOVERFLOW);
        assert_string_equal(f->err.pairs[0].key, "cursor");
        assert_int_equal(strtoul(f->err.pairs[0].value, NULL, 10), seen);
        assert_refused(f, -1, "WATCHER_LAGGED");
        assert_reads(&other, ""); /* what is not for it does not count */

        /* From that cursor on everything is there. */
        assert_int_equal(watch(f, &alice, (WatchFilter){}, seen, &history), 0);
        for (uint64_t cursor = seen + 1; cursor <= 40; cursor++) {
                assert_int_equal(watch_next(history.watch, &event, NULL), 1);
                assert_int_equal(event.cursor, cursor);
        }
        assert_int_equal(watch_next(history.watch, &event, NULL), 0);
        for (Watcher **w = (Watcher *[]){ &slow, &fast, &other, &history, NULL }; *w; w++)
                (*w)->watch = watch_free((*w)->watch);
}

static void who_waits_does_not_fall_behind(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        const char *ids[] = { "sb-late" };
        Watcher w;

        limits.watch_buffer = 16;
        control_set_limits(f->control, &limits);
        assert_int_equal(watch(f, &alice, (WatchFilter){ .sandbox_ids = ids, .n_sandbox_ids = 1 }, 0, &w), 0);
        assert_reads(&w, "");
        for (int i = 0; i < 20; i++) {
                char id[16];

                (void) snprintf(id, sizeof id, "sb-%04d", i);
                create(f, id, "");
        }
        create(f, "sb-late", "");
        assert_int_equal(w.n_readable, 1);
        assert_reads(&w, "sb-late created; sb-late READY; ");
        (void) watch_free(w.watch);
}

static void what_is_not_durable_is_not_read_from_the_store_either(void **state) {
        Fixture *f = *state;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec("");
        const char *ids[] = { "sb-new" };
        SandboxView view;
        uint64_t cursor;
        Watcher w;

        create(f, "sb-old", "");
        fixture_restart(f);
        assert_int_equal(control_create_sandbox(f->control, &alice, &(const RequestKey){ .method = "C" }, "sb-new",
                                                spec, &view, NULL),
                         0);
        assert_int_equal(control_sequence_cursor(f->control, &alice, "sb-new", 1, &cursor, NULL), 0); /* writes it */
        assert_int_equal(watch(f, &alice, (WatchFilter){ .sandbox_ids = ids, .n_sandbox_ids = 1 }, 0, &w), 0);
        assert_reads(&w, "");
        fixture_turn(f);
        assert_reads(&w, "sb-new created; sb-new READY; ");
        (void) watch_free(w.watch);
}

static void a_watcher_may_let_go_of_another(void **state) {
        Fixture *f = *state;
        Watcher a, b;

        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &a), 0);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &b), 0);
        assert_reads(&a, "");
        assert_reads(&b, "");
        a.lets_go = &b;
        b.lets_go = &a;
        create(f, "sb-one", "");
        assert_int_equal(a.n_readable + b.n_readable, 1);
        assert_true(!a.watch != !b.watch);
        (void) watch_free(a.watch);
        (void) watch_free(b.watch);
}

static void a_caller_has_so_many_watches(void **state) {
        Fixture *f = *state;
        ControlLimits limits = control_limits_default;
        Watcher a, b;

        limits.watches_per_caller = 1;
        control_set_limits(f->control, &limits);
        assert_int_equal(watch(f, &alice, (WatchFilter){}, 0, &a), 0);
        assert_refused(f, watch(f, &alice, (WatchFilter){}, 0, &b), "TOO_MANY_STREAMS");
        assert_int_equal(watch(f, &bob, (WatchFilter){}, 0, &b), 0);
        (void) watch_free(a.watch);
        (void) watch_free(b.watch);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(events_are_pushed_once_they_are_durable),
                test(filters_hold),
                test(a_watch_goes_on_from_its_cursor),
                test(a_cursor_that_was_purged_is_gone),
                test(a_sandbox_that_is_there_has_all_its_events),
                test(what_watches_look_at_in_a_turn_is_bounded),
                test(who_does_not_read_lags_and_nobody_else),
                test(who_waits_does_not_fall_behind),
                test(what_is_not_durable_is_not_read_from_the_store_either),
                test(a_watcher_may_let_go_of_another),
                test(a_caller_has_so_many_watches),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
