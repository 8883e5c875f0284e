/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: starting a process that outlives us. What does not: which process that is (user-daemon.c). */

#include "client/detached.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

/* What the process tells us before it is the program: who it is, or why it is not. */
typedef struct Told {
        pid_t pid;
        int error; /* an errno; 0: none so far */
} Told;

/* From here to the exec other threads are gone and may have held locks: only what signal handlers may call. */

_Noreturn static void give_up(int told_fd) {
        const Told told = { .error = errno };

        (void) !write(told_fd, &told, sizeof(told));
        _exit(1);
}

_Noreturn static void become(const Detached *detached, int told_fd) {
        const struct sigaction standard = { .sa_handler = SIG_DFL };
        const Told told = { .pid = getpid() };
        sigset_t none;
        int in, log;

        (void) !write(told_fd, &told, sizeof(told));
        for (int i = 1; i < NSIG; i++)
                (void) sigaction(i, &standard, NULL);
        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);

        in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        log = open(detached->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (in < 0 || log < 0 || dup2(in, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || chdir("/") < 0)
                give_up(told_fd);
        (void) close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC);
        (void) execve(detached->program, detached->argv, detached->environment);
        give_up(told_fd);
}

/* Makes the process and ends, so that it is nobody's child. */
_Noreturn static void part(const Detached *detached, int told_fd) {
        pid_t pid;

        (void) setsid();
        pid = _Fork();
        if (pid == 0)
                become(detached, told_fd);
        if (pid < 0)
                give_up(told_fd);
        _exit(0);
}

/* ---- */

/* Reads what the process tells. Returns whether there was something. */
static bool read_told(int fd, Told *ret_told) {
        ssize_t n;

        do
                n = read(fd, ret_told, sizeof(*ret_told));
        while (n < 0 && errno == EINTR);
        return n == sizeof(*ret_told);
}

int detached_start(const Detached *detached) {
        _cleanup_close_ int pid_fd = -1;
        int told_fds[2];
        Told told = {};
        pid_t pid;
        int r = 0;

        if (pipe2(told_fds, O_CLOEXEC) < 0)
                return -errno;

        pid = _Fork();
        if (pid == 0)
                part(detached, told_fds[1]);
        if (pid < 0)
                r = -errno;
        (void) fd_close(told_fds[1]);

        /* Its pid first; then, at the exec, the pipe's end, or an error. */
        if (r == 0 && read_told(told_fds[0], &told) && told.error == 0) {
                pid_fd = (int) syscall(SYS_pidfd_open, told.pid, 0);
                r = pid_fd < 0 ? -errno : 0;
                (void) read_told(told_fds[0], &told);
        } else if (r == 0) {
                r = -EAGAIN;
        }
        if (told.error > 0)
                r = -told.error;
        (void) fd_close(told_fds[0]);

        /* Where the caller ignores SIGCHLD, or waits for any child, there is nothing left to wait for. */
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return r < 0 ? r : TAKE_FD(pid_fd);
}
