/* SPDX-License-Identifier: Apache-2.0 */

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

#include "test.h"

static bool is_open(int fd) {
        return fcntl(fd, F_GETFD) >= 0;
}

static void close_accepts_none_and_keeps_errno(void **state) {
        errno = ENOENT;
        assert_int_equal(fd_close(-1), -1);
        assert_int_equal(errno, ENOENT);

        /* close() itself fails here. */
        assert_int_equal(fd_close(1 << 20), -1);
        assert_int_equal(errno, ENOENT);
}

static void cleanup_closes_what_was_not_taken(void **state) {
        int kept, closed, taken = -1;

        {
                _cleanup_close_ int a = open("/dev/null", O_RDONLY | O_CLOEXEC);
                _cleanup_close_ int b = open("/dev/null", O_RDONLY | O_CLOEXEC);

                kept = a;
                closed = b;
                taken = TAKE_FD(a);
                assert_int_equal(a, -1);
        }

        assert_int_equal(taken, kept);
        assert_true(is_open(taken));
        assert_false(is_open(closed));
        fd_close(taken);
}

#define MUCH (1 << 20) /* bytes; more than a pipe holds */

static atomic_int n_signals;

static void count_signal(int signal) {
        n_signals++;
}

/* Reads all from the pipe, but not before the writer, which waits for it, was interrupted a few times. */
static void *read_late(void *argument) {
        int fd = *(int *) argument;
        char *bytes = new0(char, MUCH + 1);
        size_t len = 0;
        ssize_t n;

        while (n_signals < 3)
                usleep(1000);
        while ((n = read(fd, bytes + len, MUCH + 1 - len)) > 0)
                len += (size_t) n;

        return len == MUCH ? bytes : NULL;
}

static void write_all_goes_on_after_short_and_interrupted_writes(void **state) {
        static const struct itimerval every_millisecond = { { .tv_usec = 1000 }, { .tv_usec = 1000 } };
        _cleanup_free_ char *written = new0(char, MUCH), *read_back = NULL;
        struct sigaction action = { .sa_handler = count_signal };
        void *result = NULL;
        pthread_t reader;
        sigset_t alarm;
        int pipe_fds[2];

        for (size_t i = 0; i < MUCH; i++)
                written[i] = (char) (i % 251);

        /* The reader inherits the blocked signal: only the writer is interrupted. */
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        assert_int_equal(pthread_sigmask(SIG_BLOCK, &alarm, NULL), 0);
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_int_equal(pthread_create(&reader, NULL, read_late, &pipe_fds[0]), 0);
        assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL), 0);
        assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &every_millisecond, NULL), 0);

        assert_int_equal(fd_write_all(pipe_fds[1], written, MUCH), 0);

        assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){}, NULL), 0);
        fd_close(pipe_fds[1]);
        assert_int_equal(pthread_join(reader, &result), 0);
        fd_close(pipe_fds[0]);
        read_back = result;
        assert_non_null(read_back);
        assert_memory_equal(read_back, written, MUCH);
}

static void write_all_reports_the_errno(void **state) {
        _cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

        assert_int_equal(fd_write_all(fd, "x", 1), -EBADF);
        assert_int_equal(fd_write_all(full, "x", 1), -ENOSPC);
        assert_int_equal(fd_write_all(full, NULL, 0), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(close_accepts_none_and_keeps_errno),
                cmocka_unit_test(cleanup_closes_what_was_not_taken),
                cmocka_unit_test(write_all_goes_on_after_short_and_interrupted_writes),
                cmocka_unit_test(write_all_reports_the_errno),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
