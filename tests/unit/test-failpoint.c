/* SPDX-License-Identifier: Apache-2.0 */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/failpoint.h"

/* How a process ends that comes to "a.b" @times times: its signal, or 0. */
static int signal_after(const char *wanted, unsigned times) {
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                (void) setenv("HUTCH_FAILPOINT", wanted, 1);
                for (unsigned i = 0; i < times; i++) {
                        failpoint_reached("a.b.c");
                        failpoint_reached("a.b");
                }
                _exit(0);
        }

        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void the_process_dies_where_it_is_told_to(void **state) {
        (void) state;
        assert_int_equal(signal_after("a.b", 1), SIGKILL);
        assert_int_equal(signal_after("a.b:1", 1), SIGKILL);
        assert_int_equal(signal_after("a.b:3", 2), 0);
        assert_int_equal(signal_after("a.b:3", 3), SIGKILL);
        assert_int_equal(signal_after("a", 3), 0);
        assert_int_equal(signal_after("a.b.c.d", 3), 0);
}

static void each_place_is_listed_once(void **state) {
        char path[] = "/tmp/hutch-failpoint-XXXXXX", text[64] = "";
        int fd = mkstemp(path);

        (void) state;
        assert_true(fd >= 0);
        assert_int_equal(setenv("HUTCH_FAILPOINT_LOG", path, 1), 0);
        failpoint_reached("first");
        failpoint_reached("second");
        failpoint_reached("first");
        assert_int_equal(unsetenv("HUTCH_FAILPOINT_LOG"), 0);
        assert_int_equal(read(fd, text, sizeof(text) - 1), strlen("first\nsecond\n"));
        assert_string_equal(text, "first\nsecond\n");
        assert_int_equal(close(fd), 0);
        assert_int_equal(unlink(path), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_process_dies_where_it_is_told_to),
                cmocka_unit_test(each_place_is_listed_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
