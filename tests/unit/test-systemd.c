/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/systemd.h"

/* A manager's socket at @address. */
static int listen_at(const char *path, size_t len) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        memcpy(address.sun_path, path, len);
        assert_true(fd >= 0);
        assert_int_equal(
                bind(fd, (struct sockaddr *) &address, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + len)), 0);
        return fd;
}

static void check_told(int fd, const char *state) {
        char text[64] = "";

        assert_int_equal(recv(fd, text, sizeof(text) - 1, 0), strlen(state));
        assert_string_equal(text, state);
}

static void a_manager_is_told_by_its_path(void **state) {
        char folder[] = "/tmp/hutch-systemd-XXXXXX", path[64];
        _cleanup_close_ int fd = -1;

        (void) state;
        assert_non_null(mkdtemp(folder));
        (void) snprintf(path, sizeof(path), "%s/notify", folder);
        fd = listen_at(path, strlen(path));
        assert_int_equal(setenv("NOTIFY_SOCKET", path, 1), 0);
        assert_int_equal(systemd_notify("READY=1"), 0);
        check_told(fd, "READY=1");

        assert_int_equal(unlink(path), 0);
        assert_int_equal(systemd_notify("READY=1"), -ENOENT);
        assert_int_equal(rmdir(folder), 0);
        assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
}

static void a_manager_is_told_by_its_abstract_name(void **state) {
        char name[64];
        _cleanup_close_ int fd = -1;

        (void) state;
        (void) snprintf(name, sizeof(name), "@hutch-test-%d", (int) getpid());
        assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
        name[0] = '\0';
        fd = listen_at(name, 1 + strlen(name + 1));
        assert_int_equal(systemd_notify("WATCHDOG=1"), 0);
        check_told(fd, "WATCHDOG=1");
        assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
}

static void without_a_manager_nothing_is_told(void **state) {
        (void) state;
        assert_int_equal(systemd_notify("READY=1"), 0);
        assert_int_equal(setenv("NOTIFY_SOCKET", "relative", 1), 0);
        assert_int_equal(systemd_notify("READY=1"), -EINVAL);
        assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
        assert_int_equal(systemd_watchdog_interval(), 0);
        assert_int_equal(systemd_listen_fds(), 0);
}

static void the_watchdog_is_told_twice_as_often_as_it_asks(void **state) {
        char pid[16];

        (void) state;
        assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
        assert_int_equal(systemd_watchdog_interval(), 1500 * NSEC_PER_MSEC);
        (void) snprintf(pid, sizeof(pid), "%d", (int) getpid());
        assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
        assert_int_equal(systemd_watchdog_interval(), 1500 * NSEC_PER_MSEC);
        assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
        assert_int_equal(systemd_watchdog_interval(), 0);
        assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
        assert_int_equal(setenv("WATCHDOG_USEC", "often", 1), 0);
        assert_int_equal(systemd_watchdog_interval(), 0);
        assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
}

static void sockets_of_other_processes_are_left_alone(void **state) {
        (void) state;
        assert_int_equal(setenv("LISTEN_FDS", "1", 1), 0);
        assert_int_equal(setenv("LISTEN_PID", "1", 1), 0);
        assert_int_equal(systemd_listen_fds(), 0);
        assert_null(getenv("LISTEN_FDS"));
}

static void sockets_that_were_passed_on_go_no_further(void **state) {
        char pid[16];
        int saved = fcntl(SYSTEMD_FIRST_FD, F_DUPFD_CLOEXEC, 100);

        (void) state;
        assert_int_equal(dup2(STDERR_FILENO, SYSTEMD_FIRST_FD), SYSTEMD_FIRST_FD);
        (void) snprintf(pid, sizeof(pid), "%d", (int) getpid());
        assert_int_equal(setenv("LISTEN_PID", pid, 1), 0);
        assert_int_equal(setenv("LISTEN_FDS", "1", 1), 0);
        assert_int_equal(systemd_listen_fds(), 1);
        assert_int_equal(fcntl(SYSTEMD_FIRST_FD, F_GETFD), FD_CLOEXEC);
        assert_int_equal(systemd_listen_fds(), 0);

        if (saved >= 0) {
                assert_int_equal(dup2(saved, SYSTEMD_FIRST_FD), SYSTEMD_FIRST_FD);
                (void) close(saved);
        } else
                (void) close(SYSTEMD_FIRST_FD);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_manager_is_told_by_its_path),
                cmocka_unit_test(a_manager_is_told_by_its_abstract_name),
                cmocka_unit_test(without_a_manager_nothing_is_told),
                cmocka_unit_test(the_watchdog_is_told_twice_as_often_as_it_asks),
                cmocka_unit_test(sockets_of_other_processes_are_left_alone),
                cmocka_unit_test(sockets_that_were_passed_on_go_no_further),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
