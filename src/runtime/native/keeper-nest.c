/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the process that others are forked from, and what it is asked. What does not: what it does then
 * (keeper/keeper/nest.c). */

#include "runtime/native/keeper-nest.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"

#define ANSWER_SECONDS 2 /* it takes a fifth of a millisecond, and the daemon's loop waits for it */
#define REST_MS 60000    /* before another try, when one was of no use */

struct KeeperNest {
        uv_loop_t *loop;
        KeeperProgram *program;
        ChildProcess *child; /* NULL: there is none */
        int socket;
        bool has_answered;
        uint64_t rest_until; /* of uv_now() */
};

KeeperNest *keeper_nest_new(uv_loop_t *loop, KeeperProgram *program) {
        KeeperNest *nest = new0(KeeperNest, 1);

        *nest = (KeeperNest){ .loop = loop, .program = program, .socket = -1 };
        return nest;
}

/* It ends by itself when its socket is closed, unless it is stopped. */
static void end(KeeperNest *nest) {
        if (nest->child)
                child_process_kill(nest->child);
        nest->socket = fd_close(nest->socket);
}

KeeperNest *keeper_nest_free(KeeperNest *nest) {
        if (!nest)
                return NULL;

        end(nest);
        child_process_free(nest->child);
        free(nest);
        return NULL;
}

static void on_ended(void *user, ChildEnd end) {
        KeeperNest *nest = user;
        char text[64];

        log_debug("nest ended", LOG_STR("how", child_end_text(end, text, sizeof(text))));
        nest->child = child_process_free(nest->child);
        nest->socket = fd_close(nest->socket);
}

static int start(KeeperNest *nest) {
        static char name[] = "hutch-keeper", verb[] = "nest";
        static const struct timeval timeout = { .tv_sec = ANSWER_SECONDS };
        int pair[2], r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;

        (void) setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        r = keeper_program_spawn(nest->program, nest->loop,
                                 &(ChildOptions){
                                         .argv = (char *const[]){ name, verb, NULL },
                                         .standard_error = -1,
                                         .descriptors = &pair[1],
                                         .n_descriptors = 1,
                                 },
                                 on_ended, nest, &nest->child, NULL);
        fd_close(pair[1]);
        if (r < 0) {
                fd_close(pair[0]);
                return r;
        }

        nest->socket = pair[0];
        nest->has_answered = false;
        return 0;
}

/* What it was asked for: a pid. */
static pid_t receive(int socket, int flags) {
        pid_t pid;
        ssize_t n;

        do
                n = recv(socket, &pid, sizeof(pid), flags);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return n == sizeof(pid) && pid != 0 ? pid : -EPIPE;
}

/* A file with the arguments in it, each with its NUL. */
static int write_arguments(char *const *arguments) {
        _cleanup_close_ int fd = memfd_create("arguments", MFD_CLOEXEC);
        int r = fd < 0 ? -errno : 0;

        for (; *arguments && r >= 0; arguments++)
                r = fd_write_all(fd, *arguments, strlen(*arguments) + 1);
        return r < 0 ? r : TAKE_FD(fd);
}

/* Has it fork a process: with the descriptors go, at the end, that of the arguments, if there are any, and that of
 * standard error. Returns the pid. */
static pid_t ask(const KeeperNest *nest, const ChildOptions *options) {
        bool has_arguments = options->argv[1];
        _cleanup_close_ int arguments = has_arguments ? write_arguments(options->argv + 1) : -1;
        int fds[PASSED_FDS_MAX];
        size_t n = options->n_descriptors;
        pid_t pid;
        int r;

        if (has_arguments && arguments < 0)
                return arguments;
        if (n > 0)
                memcpy(fds, options->descriptors, sizeof(*fds) * n);
        if (has_arguments)
                fds[n++] = arguments;
        fds[n++] = options->standard_error >= 0 ? options->standard_error : STDERR_FILENO;
        r = fds_send(nest->socket, &has_arguments, sizeof(has_arguments), fds, n);
        if (r < 0)
                return r;

        FAILPOINT("native.nest.asked");
        pid = receive(nest->socket, 0);
        if (pid > 0)
                return pid;

        /* A process says itself that it is there, and ends when it cannot. After this it either has or cannot. */
        (void) shutdown(nest->socket, SHUT_RDWR);
        r = receive(nest->socket, MSG_DONTWAIT);
        return r > 0 ? r : pid;
}

/* One that has answered was killed, or so: the next start has another. All else would go on like this. */
static void give_up(KeeperNest *nest, int r) {
        log_warning("process cannot be forked", LOG_STR("error", strerror(-r)));
        if (!nest->has_answered || r == -EAGAIN)
                nest->rest_until = uv_now(nest->loop) + REST_MS;
        end(nest);
}

/* Returns a pid, or 0: the process is to be had without the nest only. */
static pid_t try_fork(KeeperNest *nest, const ChildOptions *options) {
        pid_t pid = 0;

        if (!keeper_program_is_copied(nest->program) || options->n_descriptors + 2 > PASSED_FDS_MAX ||
            uv_now(nest->loop) < nest->rest_until)
                return 0;
        if (!nest->child)
                pid = start(nest);
        /* One that is about to end has none. */
        if (pid == 0 && nest->socket >= 0)
                pid = ask(nest, options);
        if (pid < 0)
                give_up(nest, pid);

        nest->has_answered = nest->has_answered || pid > 0;
        return pid > 0 ? pid : 0;
}

int keeper_nest_spawn(KeeperNest *nest, const ChildOptions *options, ChildEnded ended, void *user,
                      ChildProcess **ret_child, HutchError *err) {
        int r = keeper_program_load(nest->program, err);
        pid_t pid = r < 0 ? r : try_fork(nest, options);

        if (pid < 0)
                return pid;
        if (pid > 0)
                return child_process_watch(nest->loop, pid, ended, user, ret_child, err);

        return keeper_program_spawn(nest->program, nest->loop, options, ended, user, ret_child, err);
}
