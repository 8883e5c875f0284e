/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/box/bare-wait.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "test.h"

#define PATIENCE 6000 /* times a hundredth of a second */

typedef struct Waiter {
        pid_t pid;
        int socket;
} Waiter;

static Waiter waiter_start(void) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void) close(pair[0]);
                bare_wait(pair[1]);
        }
        (void) close(pair[1]);
        return (Waiter){ .pid = pid, .socket = pair[0] };
}

static void waiter_must_exit(Waiter *waiter) {
        int status = -1;
        for (int i = 0; i < PATIENCE && waitpid(waiter->pid, &status, WNOHANG) == 0; i++)
                (void) usleep(10000);
        if (status < 0)
                (void) kill(waiter->pid, SIGKILL);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        fd_close(waiter->socket);
}

/* Where a process has memory, but for what is the kernel's own. */
static int count_mappings(pid_t pid) {
        char path[64], line[512];
        (void) snprintf(path, sizeof(path), "/proc/%d/maps", (int) pid);
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        int count = 0;
        while (fgets(line, sizeof(line), file))
                count += !strstr(line, "[vsyscall]");
        (void) fclose(file);
        return count;
}

static int wait_for_mappings(pid_t pid, int wanted) {
        int count = count_mappings(pid);
        for (int i = 0; i < PATIENCE && count != wanted; i++, count = count_mappings(pid))
                (void) usleep(10000);
        return count;
}

static void it_ends_with_the_other_end(void **state) {
        Waiter waiter = waiter_start();
        assert_int_equal(waitpid(waiter.pid, NULL, WNOHANG), 0);
        waiter.socket = fd_close(waiter.socket);
        waiter_must_exit(&waiter);
}

static void it_ends_when_something_comes(void **state) {
        Waiter waiter = waiter_start();
        assert_int_equal(send(waiter.socket, "x", 1, 0), 1);
        waiter_must_exit(&waiter);
}

static void it_has_one_page_and_outlives_what_interrupts_it(void **state) {
#ifndef __x86_64__
        skip();
#endif
        Waiter waiter = waiter_start();
        assert_int_equal(wait_for_mappings(waiter.pid, 1), 1);
        for (int i = 0; i < 10; i++) {
                int status;
                assert_int_equal(kill(waiter.pid, SIGSTOP), 0);
                assert_int_equal(waitpid(waiter.pid, &status, WUNTRACED), waiter.pid);
                assert_true(WIFSTOPPED(status));
                assert_int_equal(kill(waiter.pid, SIGCONT), 0);
                assert_int_equal(waitpid(waiter.pid, &status, WCONTINUED), waiter.pid);
                assert_true(WIFCONTINUED(status));
        }
        assert_int_equal(count_mappings(waiter.pid), 1);
        waiter.socket = fd_close(waiter.socket);
        waiter_must_exit(&waiter);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_ends_with_the_other_end),
                cmocka_unit_test(it_ends_when_something_comes),
                cmocka_unit_test(it_has_one_page_and_outlives_what_interrupts_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
