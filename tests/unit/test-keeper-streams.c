/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/execs/input.h"
#include "keeper/execs/pump.h"
#include "keeper/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "test.h"

static uv_loop_t loop;

static int start_loop(void **state) {
        signal(SIGPIPE, SIG_IGN);
        return uv_loop_init(&loop);
}

/* Everything that a test has let go of is closed, and nothing else is left. */
static int end_loop(void **state) {
        uv_run(&loop, UV_RUN_DEFAULT);
        return uv_loop_close(&loop);
}

static void turn(void) {
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* A pipe whose end @ours does not block. */
static void make_pipe(int ours, int fds[2]) {
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_int_equal(fcntl(fds[ours], F_SETFL, O_NONBLOCK), 0);
}

/* ---- Pumps ---- */

static void count(void *user) {
        ++*(int *) user;
}

/* A pump from a pipe to the file "output" in a folder of its own. */
typedef struct PumpFixture {
        char path[32];
        int folder;
        int source; /* what a process would write to */
        int ended;
        Pump *pump;
} PumpFixture;

static void pump_set_up_with(PumpFixture *f, PumpBudget *budget) {
        int fds[2];

        *f = (PumpFixture){ .path = "/tmp/hutch-test-XXXXXX" };
        assert_non_null(mkdtemp(f->path));
        f->folder = open(f->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(f->folder >= 0);
        make_pipe(0, fds);
        f->source = fds[1];
        f->pump = pump_new(&loop, budget, fds[0], f->folder, "output", 100, count, &f->ended);
        assert_non_null(f->pump);
}

static void pump_set_up(PumpFixture *f) {
        pump_set_up_with(f, NULL);
}

static void pump_write_to(PumpFixture *f, const char *text) {
        assert_int_equal(write(f->source, text, strlen(text)), strlen(text));
        turn();
}

static void pump_end_source(PumpFixture *f) {
        f->source = fd_close(f->source);
        turn();
        turn();
}

static void pump_tear_down(PumpFixture *f) {
        pump_free(f->pump);
        (void) unlinkat(f->folder, "output", 0);
        fd_close(f->folder);
        assert_int_equal(rmdir(f->path), 0);
}

static void expect_file(const PumpFixture *f, const char *bytes, size_t len) {
        _cleanup_close_ int fd = openat(f->folder, "output", O_RDONLY | O_CLOEXEC);
        char buffer[100] = "";

        assert_int_equal(pread(fd, buffer, sizeof(buffer), 0), len);
        assert_memory_equal(buffer, bytes, len);
}

static void a_pump_makes_its_file_with_the_first_byte(void **state) {
        PumpFixture f;

        pump_set_up(&f);
        turn();
        assert_int_equal(faccessat(f.folder, "output", F_OK, 0), -1);
        pump_write_to(&f, "a");
        expect_file(&f, "a", 1);
        pump_end_source(&f);
        pump_tear_down(&f);
}

static void a_pump_counts_what_no_file_can_be_made_for(void **state) {
        PumpFixture f;

        pump_set_up(&f);
        assert_int_equal(mkdirat(f.folder, "output", 0700), 0);
        pump_write_to(&f, "lost");
        assert_int_equal(pump_total(f.pump), 4);

        /* As soon as one can be, what comes then is kept. */
        assert_int_equal(unlinkat(f.folder, "output", AT_REMOVEDIR), 0);
        pump_write_to(&f, "kept");
        assert_int_equal(pump_total(f.pump), 8);
        expect_file(&f, "\0\0\0\0kept", 8);
        pump_end_source(&f);
        pump_tear_down(&f);
}

static void a_pump_carries_until_the_source_ends(void **state) {
        PumpFixture f;

        pump_set_up(&f);
        pump_write_to(&f, "one ");
        assert_int_equal(pump_total(f.pump), 4);
        pump_write_to(&f, "two");
        assert_int_equal(f.ended, 0);
        pump_end_source(&f);
        assert_int_equal(f.ended, 1);
        assert_int_equal(pump_total(f.pump), 7);
        assert_int_equal(pump_dropped(f.pump), 0);
        expect_file(&f, "one two", 7);
        pump_tear_down(&f);
}

static void a_pump_that_is_let_go_of_keeps_its_source_going(void **state) {
        PumpFixture f;
        char piece[4096] = "";

        pump_set_up(&f);
        assert_int_equal(write(f.source, "kept", 4), 4);
        pump_catch_up(f.pump);
        assert_int_equal(pump_total(f.pump), 4);
        f.pump = pump_free(f.pump);

        /* More than a pipe holds: whoever writes is neither stalled nor told. */
        assert_int_equal(fcntl(f.source, F_SETFL, O_NONBLOCK), 0);
        for (int i = 0; i < 100; i++) {
                assert_int_equal(write(f.source, piece, sizeof(piece)), sizeof(piece));
                turn();
        }
        pump_end_source(&f);
        assert_int_equal(f.ended, 0);
        expect_file(&f, "kept", 4);
        pump_tear_down(&f);
}

/* Writes until the pump waits for its budget, which is small. Returns how much. */
static size_t pump_write_until_it_waits(PumpFixture *f) {
        size_t n = 0;

        do {
                pump_write_to(f, "x");
                n++;
        } while (pump_total(f->pump) == n);
        return n;
}

static void a_pump_without_time_waits_for_the_next_period(void **state) {
        _cleanup_free_ PumpBudget *budget = pump_budget_new(&loop, 1);
        PumpFixture f;
        size_t written;

        assert_null(pump_budget_new(&loop, 0));
        pump_set_up_with(&f, budget);
        written = pump_write_until_it_waits(&f);
        while (pump_total(f.pump) < written)
                uv_run(&loop, UV_RUN_ONCE);
        f.source = fd_close(f.source);
        while (f.ended == 0)
                uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(pump_total(f.pump), written);
        pump_tear_down(&f);
}

static void a_pump_that_waits_can_be_let_go_of(void **state) {
        _cleanup_free_ PumpBudget *budget = pump_budget_new(&loop, 1);
        PumpFixture others[3];

        for (size_t i = 0; i < 3; i++) {
                pump_set_up_with(&others[i], budget);
                (void) pump_write_until_it_waits(&others[i]);
        }
        others[1].source = fd_close(others[1].source);
        others[1].pump = pump_free(others[1].pump);
        for (size_t i = 0; i < 3; i += 2) {
                others[i].source = fd_close(others[i].source);
                while (others[i].ended == 0)
                        uv_run(&loop, UV_RUN_ONCE);
        }
        assert_int_equal(others[1].ended, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        for (size_t i = 0; i < 3; i++)
                pump_tear_down(&others[i]);
}

/* ---- Inputs ---- */

typedef struct TestItem {
        InputItem item; /* first */
        int taken;
} TestItem;

static void on_taken(InputItem *item) {
        assert_null(item->input);
        ((TestItem *) item)->taken++;
}

static TestItem test_item(const void *bytes, size_t len, bool close) {
        return (TestItem){ .item = { .bytes = bytes, .len = len, .close = close, .taken = on_taken } };
}

static void input_is_taken_in_order_as_there_is_room(void **state) {
        static char large[200000], buffer[200000];
        TestItem first = test_item("ab", 2, false), second = test_item(large, sizeof(large), false);
        TestItem third = test_item("c", 1, true);
        size_t total = 0;
        ssize_t n = 0;
        Input *input;
        int fds[2];

        memset(large, 'x', sizeof(large));
        make_pipe(1, fds);
        input = input_new(&loop, fds[1], false);
        input_send(input, &first.item);
        input_send(input, &second.item);
        input_send(input, &third.item);
        turn();
        assert_int_equal(first.taken, 1);
        assert_int_equal(second.taken + third.taken, 0);

        while ((n = read(fds[0], buffer, sizeof(buffer))) > 0) {
                assert_int_equal(buffer[0], total == 0 ? 'a' : 'x');
                total += (size_t) n;
                if (total == 2 + sizeof(large) + 1)
                        assert_int_equal(buffer[n - 1], 'c');
                turn();
        }
        assert_int_equal(n, 0);
        assert_int_equal(total, 2 + sizeof(large) + 1);
        assert_int_equal(second.taken, 1);
        assert_int_equal(third.taken, 1);
        input_free(input);
        close(fds[0]);
}

static void input_that_nobody_reads_is_thrown_away(void **state) {
        static char large[200000];
        TestItem waiting = test_item(large, sizeof(large), false), next = test_item("a", 1, false);
        Input *input;
        int fds[2];

        make_pipe(1, fds);
        input = input_new(&loop, fds[1], false);
        input_send(input, &waiting.item);
        assert_int_equal(waiting.taken, 0);
        close(fds[0]);
        turn();
        assert_int_equal(waiting.taken, 1);
        input_send(input, &next.item);
        assert_int_equal(next.taken, 1);
        input_free(input);
}

static void what_waits_can_be_taken_back(void **state) {
        static char large[200000];
        TestItem items[] = { test_item(large, sizeof(large), false), test_item("b", 1, false),
                             test_item("c", 1, true) };
        char buffer[70000];
        ssize_t n, last = 0;
        Input *input;
        int fds[2];

        make_pipe(1, fds);
        input = input_new(&loop, fds[1], false);
        for (int i = 0; i < 3; i++)
                input_send(input, &items[i].item);
        input_item_remove(&items[1].item);
        input_item_remove(&items[0].item);
        input_item_remove(&items[0].item);
        while ((n = read(fds[0], buffer, sizeof(buffer))) > 0) {
                last = n;
                turn();
        }
        assert_int_equal(buffer[last - 1], 'c');
        assert_int_equal(items[0].taken + items[1].taken, 0);
        assert_int_equal(items[2].taken, 1);
        input_free(input);
        close(fds[0]);
}

static void the_end_of_an_input_takes_what_waits(void **state) {
        static char large[200000];
        TestItem items[] = { test_item(large, sizeof(large), false), test_item("b", 1, true) };
        Input *input;
        int fds[2];

        make_pipe(1, fds);
        input = input_new(&loop, fds[1], false);
        input_send(input, &items[0].item);
        input_send(input, &items[1].item);
        input_free(input);
        assert_int_equal(items[0].taken, 1);
        assert_int_equal(items[1].taken, 1);
        close(fds[0]);
}

/* ---- Alarms ---- */

static void an_alarm_rings_once_and_not_before(void **state) {
        int rang = 0;
        Alarm *alarm = alarm_new(&loop, count, &rang);
        uint64_t began = clock_monotonic_ns();

        alarm_set(alarm, 0);
        alarm_set(alarm, 20 * NSEC_PER_MSEC);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(rang, 1);
        assert_true(clock_monotonic_ns() - began >= 19 * NSEC_PER_MSEC);
        alarm_set(alarm, 0);
        alarm_set(alarm, UINT64_MAX);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(rang, 1);
        alarm_free(alarm);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_pump_makes_its_file_with_the_first_byte, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(a_pump_counts_what_no_file_can_be_made_for, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(a_pump_carries_until_the_source_ends, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(a_pump_that_is_let_go_of_keeps_its_source_going, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(a_pump_without_time_waits_for_the_next_period, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(a_pump_that_waits_can_be_let_go_of, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(input_is_taken_in_order_as_there_is_room, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(input_that_nobody_reads_is_thrown_away, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(what_waits_can_be_taken_back, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(the_end_of_an_input_takes_what_waits, start_loop, end_loop),
                cmocka_unit_test_setup_teardown(an_alarm_rings_once_and_not_before, start_loop, end_loop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
