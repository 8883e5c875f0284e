/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: starting processes, hearing of their end, killing them. What does not: what they are for. */

#include "runtime/native/child-process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "model/reason.h"

#define FIRST_DESCRIPTOR (STDERR_FILENO + 1) /* of those that a process is given */

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

struct ChildProcess {
        uv_poll_t poll;
        int pidfd;
        ChildEnded ended;
        void *user;
};

/* Reaps it, when it is a child of ours. */
static ChildEnd reap(int pidfd) {
        siginfo_t info = {};

        if (waitid((idtype_t) P_PIDFD, (id_t) pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
                return (ChildEnd){};

        return (ChildEnd){ .known = true, .signaled = info.si_code != CLD_EXITED, .status = info.si_status };
}

static void on_ended(uv_poll_t *poll, int status, int events) {
        ChildProcess *child = poll->data;

        (void) status;
        (void) events;
        (void) uv_poll_stop(poll);
        child->ended(child->user, reap(child->pidfd));
}

int child_process_adopt(uv_loop_t *loop, int pidfd, ChildEnded ended, void *user, ChildProcess **ret_child) {
        ChildProcess *child = new0(ChildProcess, 1);
        int r;

        *child = (ChildProcess){ .pidfd = pidfd, .ended = ended, .user = user };
        r = uv_poll_init(loop, &child->poll, pidfd);
        if (r < 0) {
                fd_close(pidfd);
                free(child);
                return r;
        }

        child->poll.data = child;
        r = uv_poll_start(&child->poll, UV_READABLE, on_ended);
        if (r < 0) {
                child_process_free(child);
                return r;
        }

        *ret_child = child;
        return 0;
}

int child_process_watch(uv_loop_t *loop, pid_t pid, ChildEnded ended, void *user, ChildProcess **ret_child,
                        HutchError *err) {
        /* Nobody else reaps it, so the number is still its own. */
        int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        int r = pidfd < 0 ? -errno : child_process_adopt(loop, pidfd, ended, user, ret_child);

        if (r < 0) {
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
                return reason_set(err, r, REASON_HOST_EXHAUSTED, "cannot watch a process: %s", strerror(-r));
        }
        return 0;
}

/* Descriptors that are out of the way of those that a process is given. */
typedef struct Moved {
        int standard_error; /* -1: none */
        int *descriptors;
        size_t n;
} Moved;

static void moved_clear(Moved *moved) {
        for (size_t i = 0; i < moved->n; i++)
                fd_close(moved->descriptors[i]);
        fd_close(moved->standard_error);
        free(moved->descriptors);
}

static int move_up(const ChildOptions *options, Moved *moved) {
        moved->descriptors = new0(int, options->n_descriptors + 1);
        for (; moved->n < options->n_descriptors; moved->n++) {
                int fd = fcntl(options->descriptors[moved->n], F_DUPFD_CLOEXEC, CHILD_FREE_DESCRIPTOR);

                if (fd < 0)
                        return -errno;
                moved->descriptors[moved->n] = fd;
        }
        if (options->standard_error >= 0)
                moved->standard_error = fcntl(options->standard_error, F_DUPFD_CLOEXEC, CHILD_FREE_DESCRIPTOR);
        return options->standard_error >= 0 && moved->standard_error < 0 ? -errno : 0;
}

static int prepare_files(posix_spawn_file_actions_t *files, const Moved *moved) {
        int r = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

        if (r == 0 && moved->standard_error >= 0)
                r = posix_spawn_file_actions_adddup2(files, moved->standard_error, STDOUT_FILENO);
        if (r == 0 && moved->standard_error >= 0)
                r = posix_spawn_file_actions_adddup2(files, moved->standard_error, STDERR_FILENO);
        for (size_t i = 0; r == 0 && i < moved->n; i++)
                r = posix_spawn_file_actions_adddup2(files, moved->descriptors[i], FIRST_DESCRIPTOR + (int) i);
        return -r;
}

static int prepare_attributes(posix_spawnattr_t *attributes) {
        sigset_t none, all;
        int r;

        sigemptyset(&none);
        sigfillset(&all);
        r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        if (r == 0)
                r = posix_spawnattr_setsigmask(attributes, &none);
        if (r == 0)
                r = posix_spawnattr_setsigdefault(attributes, &all);
        return -r;
}

static int spawn(const ChildOptions *options, const Moved *moved, pid_t *ret_pid) {
        static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        char *environment[] = { path, NULL };
        posix_spawn_file_actions_t files;
        posix_spawnattr_t attributes;
        int r;

        r = -posix_spawn_file_actions_init(&files);
        if (r < 0)
                return r;
        r = -posix_spawnattr_init(&attributes);
        if (r == 0) {
                r = prepare_files(&files, moved);
                if (r == 0)
                        r = prepare_attributes(&attributes);
                if (r == 0)
                        r = -posix_spawn(ret_pid, options->program, &files, &attributes, options->argv, environment);
                (void) posix_spawnattr_destroy(&attributes);
        }
        (void) posix_spawn_file_actions_destroy(&files);
        return r;
}

int child_process_spawn(uv_loop_t *loop, const ChildOptions *options, ChildEnded ended, void *user,
                        ChildProcess **ret_child, HutchError *err) {
        _cleanup_(moved_clear) Moved moved = { .standard_error = -1 };
        pid_t pid = 0;
        int r = move_up(options, &moved);

        if (r == 0)
                r = spawn(options, &moved, &pid);
        if (r < 0)
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE, "cannot start '%s': %s", options->program,
                                  strerror(-r));

        return child_process_watch(loop, pid, ended, user, ret_child, err);
}

void child_process_kill(ChildProcess *child) {
        (void) syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}

static void on_closed(uv_handle_t *handle) {
        free(handle->data);
}

ChildProcess *child_process_free(ChildProcess *child) {
        if (child) {
                uv_close((uv_handle_t *) &child->poll, on_closed);
                child->pidfd = fd_close(child->pidfd);
        }
        return NULL;
}

const char *child_end_text(ChildEnd end, char *buffer, size_t size) {
        if (!end.known)
                (void) snprintf(buffer, size, "ended");
        else if (end.signaled)
                (void) snprintf(buffer, size, "was killed by signal %d", end.status);
        else
                (void) snprintf(buffer, size, "exited with %d", end.status);
        return buffer;
}
