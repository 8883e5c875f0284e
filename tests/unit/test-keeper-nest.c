/* SPDX-License-Identifier: Apache-2.0 */

/* Keepers by a nest, and without it. This program is both, when it is called hutch-keeper: a nest that does what it is
 * told by the first descriptor that a keeper would have, and keepers that end at once and tell by that where they come
 * from. */

#include "runtime/native/keeper-nest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"

#include "test.h"

#define NEST_FD 3
#define FORKED 7  /* a keeper's exit code */
#define SPAWNED 3 /* the same */
#define LATE_SECONDS 4
#define LIMIT_NS (60 * NSEC_PER_SEC)

/* ---- The fake ---- */

static bool tell(pid_t pid) {
        return send(NEST_FD, &pid, sizeof(pid), MSG_NOSIGNAL) == sizeof(pid);
}

static pid_t clone_sibling(void) {
        return (pid_t) syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, NULL);
}

/* What the keeper writes into its log, when it comes too late. */
static _Noreturn void be_late(int log) {
        sleep(LATE_SECONDS);
        (void) !write(log, tell(getpid()) ? "was heard" : "not heard", 9);
        _exit(0);
}

/* What the nest was sent as arguments goes into the log. */
static void show(int arguments, int log) {
        char text[64];
        ssize_t n = pread(arguments, text, sizeof(text), 0);

        (void) !write(log, text, n > 0 ? (size_t) n : 0);
}

static void obey(const char *order, bool has_arguments, const int *fds, int n) {
        int log = fds[n - 1];

        if (has_arguments)
                show(fds[n - 2], log);
        if (str_equal(order, "die"))
                _exit(0);
        if (str_equal(order, "refuse"))
                (void) tell(-EPERM);
        while (str_equal(order, "hang"))
                (void) pause();
        if (str_equal(order, "be late") && clone_sibling() == 0)
                be_late(log);
        if (str_equal(order, "fork") && clone_sibling() == 0)
                _exit(tell(getpid()) ? FORKED : 1);
}

static int fake_main(int argc) {
        int fds[PASSED_FDS_MAX], n;
        bool has_arguments;
        char order[16];

        if (argc == 1)
                return SPAWNED;
        while ((n = fds_receive(NEST_FD, &has_arguments, sizeof(has_arguments), fds, PASSED_FDS_MAX)) > 0) {
                ssize_t len = pread(fds[0], order, sizeof(order) - 1, 0);

                order[len > 0 ? len : 0] = '\0';
                obey(order, has_arguments, fds, n);
                (void) close_range(NEST_FD + 1, ~0U, 0);
        }
        return 0;
}

/* ---- The test ---- */

typedef struct Fixture {
        uv_loop_t loop;
        KeeperProgram *program;
        KeeperNest *nest;
        ChildProcess *keeper;
        ChildEnd end;
        bool ended;
        int log;
} Fixture;

static int set_up_program(void **state, const char *path) {
        Fixture *fixture = new0(Fixture, 1);

        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        fixture->program = keeper_program_new(path);
        fixture->nest = keeper_nest_new(&fixture->loop, fixture->program);
        fixture->log = memfd_create("log", MFD_CLOEXEC);
        assert_true(fixture->log >= 0);
        *state = fixture;
        return 0;
}

static int set_up(void **state) {
        return set_up_program(state, "/proc/self/exe");
}

static int tear_down(void **state) {
        Fixture *fixture = *state;
        uint64_t limit = clock_monotonic_ns() + LIMIT_NS;

        keeper_nest_free(fixture->nest);
        keeper_program_free(fixture->program);
        while (uv_run(&fixture->loop, UV_RUN_NOWAIT) != 0)
                assert_true(clock_monotonic_ns() < limit);
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        /* The nest ends with its socket at the latest. */
        while (waitpid(-1, NULL, WNOHANG) >= 0) {
                assert_true(clock_monotonic_ns() < limit);
                usleep(1000);
        }
        fd_close(fixture->log);
        free(fixture);
        return 0;
}

static void on_ended(void *user, ChildEnd end) {
        Fixture *fixture = user;

        fixture->end = end;
        fixture->ended = true;
        fixture->keeper = child_process_free(fixture->keeper);
}

/* Starts a keeper with @order in each of @n_descriptors, and waits for its end. Returns its exit code. */
static int spawn_as(Fixture *fixture, char *const *argv, const char *order, size_t n_descriptors) {
        _cleanup_close_ int fd = memfd_create("order", MFD_CLOEXEC);
        _cleanup_free_ int *descriptors = new0(int, n_descriptors);

        assert_int_equal(fd_write_all(fd, order, strlen(order)), 0);
        for (size_t i = 0; i < n_descriptors; i++)
                descriptors[i] = fd;
        fixture->ended = false;
        assert_int_equal(keeper_nest_spawn(fixture->nest,
                                           &(ChildOptions){
                                                   .argv = argv,
                                                   .standard_error = fixture->log,
                                                   .descriptors = descriptors,
                                                   .n_descriptors = n_descriptors,
                                           },
                                           on_ended, fixture, &fixture->keeper, NULL),
                         0);
        while (!fixture->ended)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        assert_true(fixture->end.known); /* it was a child, and has been reaped */
        assert_false(fixture->end.signaled);
        return fixture->end.status;
}

static char name[] = "hutch-keeper";

static int spawn_with(Fixture *fixture, const char *order, size_t n_descriptors) {
        return spawn_as(fixture, (char *const[]){ name, NULL }, order, n_descriptors);
}

static int spawn(Fixture *fixture, const char *order) {
        return spawn_with(fixture, order, 2);
}

/* The only child: where no keeper runs, the nest. 0: there is none. */
static pid_t find_nest(void) {
        char path[64];
        pid_t pid = 0, other;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
        file = fopen(path, "re");
        assert_non_null(file);
        if (fscanf(file, "%d", &pid) == 1)
                assert_int_equal(fscanf(file, "%d", &other), EOF);
        fclose(file);
        return pid;
}

/* Lets the end of what has died be seen. */
static void wait_for_end_of(Fixture *fixture, pid_t pid) {
        while (kill(pid, 0) == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
}

static void one_nest_forks_all_keepers(void **state) {
        Fixture *fixture = *state;
        pid_t nest;

        assert_int_equal(find_nest(), 0);
        assert_int_equal(spawn(fixture, "fork"), FORKED);
        nest = find_nest();
        assert_int_not_equal(nest, 0);
        for (int i = 0; i < 5; i++)
                assert_int_equal(spawn(fixture, "fork"), FORKED);
        assert_int_equal(find_nest(), nest);
}

static void a_nest_that_was_killed_is_replaced(void **state) {
        Fixture *fixture = *state;
        pid_t nest;

        assert_int_equal(spawn(fixture, "fork"), FORKED);
        nest = find_nest();
        assert_int_equal(kill(nest, SIGKILL), 0);
        wait_for_end_of(fixture, nest);
        assert_int_equal(spawn(fixture, "fork"), FORKED);
        assert_int_not_equal(find_nest(), nest);
}

static void what_a_dying_nest_was_asked_for_is_done_without_it(void **state) {
        Fixture *fixture = *state;
        pid_t nest;

        assert_int_equal(spawn(fixture, "fork"), FORKED);
        nest = find_nest();
        assert_int_equal(spawn(fixture, "die"), SPAWNED);
        wait_for_end_of(fixture, nest);
        assert_int_equal(spawn(fixture, "fork"), FORKED);
}

static void a_nest_that_was_stopped_is_killed_and_not_tried_again_soon(void **state) {
        Fixture *fixture = *state;
        pid_t nest;

        assert_int_equal(spawn(fixture, "fork"), FORKED);
        nest = find_nest();
        assert_int_equal(kill(nest, SIGSTOP), 0);
        assert_int_equal(spawn(fixture, "fork"), SPAWNED);
        wait_for_end_of(fixture, nest);
        assert_int_equal(spawn(fixture, "fork"), SPAWNED);
        assert_int_equal(find_nest(), 0);
}

static void a_nest_that_is_of_no_use_is_not_tried_again_soon(void **state) {
        static const char *const orders[] = { "die", "refuse", "hang" };

        for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
                Fixture *fixture;
                pid_t nest;

                (void) set_up(state);
                fixture = *state;
                assert_int_equal(spawn(fixture, orders[i]), SPAWNED);
                nest = find_nest();
                if (nest != 0)
                        wait_for_end_of(fixture, nest);
                assert_int_equal(spawn(fixture, "fork"), SPAWNED);
                assert_int_equal(find_nest(), 0);
                (void) tear_down(state);
        }
}

/* There must not be two keepers of one sandbox. */
static void a_keeper_that_comes_too_late_is_not_heard(void **state) {
        Fixture *fixture = *state;
        char text[16] = "";

        assert_int_equal(spawn(fixture, "be late"), SPAWNED);
        for (int i = 0; i < 600 && pread(fixture->log, text, sizeof(text) - 1, 0) == 0; i++)
                usleep(100 * 1000);
        assert_string_equal(text, "not heard");
}

static void what_does_not_fit_into_a_message_is_done_without_it(void **state) {
        Fixture *fixture = *state;

        assert_int_equal(spawn_with(fixture, "fork", PASSED_FDS_MAX - 2), FORKED);
        assert_int_equal(spawn_with(fixture, "fork", PASSED_FDS_MAX - 1), SPAWNED);
        assert_int_equal(spawn(fixture, "fork"), FORKED);
}

static void arguments_are_sent_as_they_are(void **state) {
        Fixture *fixture = *state;
        char one[] = "one", empty[] = "", two[] = "two words", text[32];
        static const char expected[] = "one\0\0two words";

        assert_int_equal(spawn_as(fixture, (char *const[]){ name, one, empty, two, NULL }, "fork", 1), FORKED);
        assert_int_equal(pread(fixture->log, text, sizeof(text), 0), sizeof(expected));
        assert_memory_equal(text, expected, sizeof(expected));
        assert_int_equal(spawn(fixture, "fork"), FORKED);
        assert_int_equal(pread(fixture->log, text, sizeof(text), 0), sizeof(expected));
}

static void a_script_has_no_nest(void **state) {
        char path[] = "/tmp/hutch-nest-XXXXXX";
        int fd = mkstemp(path);
        static const char script[] = "#!/bin/sh\n[ $# -eq 0 ] || echo nest >&2\nexit 3\n";
        Fixture *fixture;

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, script, strlen(script)), 0);
        assert_int_equal(fchmod(fd, 0700), 0);
        fd_close(fd);
        (void) set_up_program(state, path);
        fixture = *state;
        assert_int_equal(spawn(fixture, "fork"), SPAWNED);
        assert_int_equal(find_nest(), 0);
        assert_int_equal(lseek(fixture->log, 0, SEEK_END), 0);
        (void) tear_down(state);
        (void) unlink(path);
}

static void a_program_that_is_being_written_is_not_taken(void **state) {
        char path[] = "/tmp/hutch-nest-XXXXXX";
        int fd = mkstemp(path);
        KeeperProgram *program = keeper_program_new(path);

        (void) state;
        assert_true(fd >= 0);
        assert_int_equal(fchmod(fd, 0700), 0);
        assert_int_equal(keeper_program_load(program, NULL), -ENOEXEC);
        assert_false(keeper_program_is_copied(program));
        assert_int_equal(fd_write_all(fd, "\177ELF", 4), 0);
        assert_int_equal(keeper_program_load(program, NULL), 0);
        assert_true(keeper_program_is_copied(program));
        fd_close(fd);
        (void) unlink(path);
        (void) keeper_program_free(program);
}

int main(int argc, char *argv[]) {
#define NEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                NEST(one_nest_forks_all_keepers),
                NEST(a_nest_that_was_killed_is_replaced),
                NEST(what_a_dying_nest_was_asked_for_is_done_without_it),
                NEST(a_nest_that_was_stopped_is_killed_and_not_tried_again_soon),
                cmocka_unit_test(a_nest_that_is_of_no_use_is_not_tried_again_soon),
                NEST(a_keeper_that_comes_too_late_is_not_heard),
                NEST(what_does_not_fit_into_a_message_is_done_without_it),
                NEST(arguments_are_sent_as_they_are),
                cmocka_unit_test(a_script_has_no_nest),
                cmocka_unit_test(a_program_that_is_being_written_is_not_taken),
        };

        if (str_equal(argv[0], "hutch-keeper"))
                return fake_main(argc);

        log_default.level = LOG_LEVEL_ERROR;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
