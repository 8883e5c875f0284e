/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: whether the daemon of this user runs, starting and ending it. What does not: the process that is
 * started (detached.c), and where the daemon listens (local/paths.c). */

#include "client/user-daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "client/detached.h"
#include "local/paths.h"
#include "local/program.h"

#define START_TIMEOUT (30 * NSEC_PER_SEC)
#define STOP_TIMEOUT (60 * NSEC_PER_SEC)
#define IDLE_EXIT "10m"
#define NOTIFY_NAME_SIZE 32

/* Connects to @path. -ENOENT, -ECONNREFUSED: nobody listens there. */
static int connect_to(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;

        memcpy(address.sun_path, path, strlen(path) + 1);
        while (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                if (errno != EINTR)
                        return -errno;
        return TAKE_FD(fd);
}

/* Whether somebody listens on @path: 1, 0, or an error when one may not ask. */
static int is_there(const char *path, HutchError *err) {
        _cleanup_close_ int fd = connect_to(path);

        if (fd >= 0)
                return 1;
        if (fd == -ENOENT || fd == -ECONNREFUSED)
                return 0;
        return error_set_code(err, STATUS_UNAVAILABLE, fd, "DAEMON_UNREACHABLE", "cannot connect to unix:%s: %s", path,
                              strerror(-fd));
}

/* Waits until @fd can be read or @other can, for as long as @until says: 1 or 2; 0: neither came. */
static int wait_for_either(int fd, int other, uint64_t until) {
        struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = other, .events = POLLIN } };

        for (;;) {
                uint64_t now = clock_monotonic_ns(), left = until > now ? until - now : 0;
                int limit = left / NSEC_PER_MSEC < INT32_MAX ? (int) ((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC) : -1;

                if (poll(fds, 2, limit) > 0)
                        return fds[0].revents ? 1 : 2;
                if (left == 0)
                        return 0;
        }
}

/* ---- Starting ---- */

/* A socket on which the daemon says that it is ready, in sd_notify(3)'s way, and its name. */
static int open_notify_socket(char ret_name[static NOTIFY_NAME_SIZE]) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        socklen_t len = sizeof(sa_family_t); /* the kernel chooses an abstract name */
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, len) < 0)
                return -errno;

        len = sizeof(address);
        if (getsockname(fd, (struct sockaddr *) &address, &len) < 0)
                return -errno;

        snprintf(ret_name, NOTIFY_NAME_SIZE, "@%.*s", (int) (len - offsetof(struct sockaddr_un, sun_path) - 1),
                 address.sun_path + 1);
        return TAKE_FD(fd);
}

/* The caller's environment, and where to say that it is ready. */
static char **daemon_environment(char *notify) {
        size_t n = 0, kept = 0;
        char **environment;

        while (environ[n])
                n++;
        environment = try_new0(char *, n + 2);
        for (size_t i = 0; environment && i < n; i++)
                if (!str_has_prefix(environ[i], "NOTIFY_SOCKET=") && !str_has_prefix(environ[i], "LISTEN_"))
                        environment[kept++] = environ[i];
        if (environment)
                environment[kept] = notify;
        return environment;
}

/* The last line of the file, without its end. */
static void last_line(const char *path, char *ret_line, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
        ssize_t n = end < 0 ? -1 : pread(fd, ret_line, size - 1, end > (off_t) size - 1 ? end - (off_t) size + 1 : 0);
        char *newline;

        ret_line[n > 0 ? n : 0] = '\0';
        while (n > 0 && ret_line[n - 1] == '\n')
                ret_line[--n] = '\0';
        newline = strrchr(ret_line, '\n');
        if (newline)
                memmove(ret_line, newline + 1, strlen(newline));
}

/* Waits until the daemon says that it is ready. -EIO: it ended before that. */
static int wait_until_ready(int notify_fd, int pid_fd, const char *log, HutchError *err) {
        uint64_t until = clock_monotonic_ns() + START_TIMEOUT;
        char text[256];

        for (;;) {
                int ready = wait_for_either(notify_fd, pid_fd, until);
                ssize_t n = ready == 1 ? recv(notify_fd, text, sizeof(text) - 1, 0) : 0;

                text[n > 0 ? n : 0] = '\0';
                if (strstr(text, "READY=1"))
                        return 0;
                if (ready == 2) {
                        last_line(log, text, sizeof(text));
                        return error_set_code(err, STATUS_UNAVAILABLE, -EIO, "DAEMON_UNREACHABLE",
                                              "the daemon could not be started: %s", text);
                }
                if (ready == 0)
                        return error_set_code(err, STATUS_UNAVAILABLE, -ETIMEDOUT, "DAEMON_UNREACHABLE",
                                              "the daemon was started but does not serve; see %s", log);
        }
}

/* After how much time without use the daemon ends. */
static const char *idle_exit(void) {
        const char *own = getenv("HUTCH_IDLE_EXIT");

        return own && *own ? own : IDLE_EXIT;
}

/* Starts a daemon and waits until it serves. */
static int start(const char *path, const char *state, HutchError *err) {
        _cleanup_free_ char *program = program_find("hutchd", HUTCH_BINDIR);
        _cleanup_free_ char *log = NULL, *notify = NULL, **environment = NULL;
        _cleanup_close_ int notify_fd = -1, pid_fd = -1;
        char name[NOTIFY_NAME_SIZE];

        if (!program)
                return error_set_code(err, STATUS_UNAVAILABLE, -ENOENT, "DAEMON_UNREACHABLE",
                                      "no daemon answers on %s, and there is no hutchd to start", path);

        notify_fd = open_notify_socket(name);
        if (notify_fd < 0)
                return error_set(err, notify_fd, "HOST_EXHAUSTED", "cannot make a socket: %s", strerror(-notify_fd));
        if (asprintf(&log, "%s/hutchd.log", state) < 0 || asprintf(&notify, "NOTIFY_SOCKET=%s", name) < 0)
                return -ENOMEM;
        environment = daemon_environment(notify);
        if (!environment)
                return -ENOMEM;

        pid_fd = detached_start(&(Detached){
                .program = program,
                .argv = (char *[]){ (char *) "hutchd", (char *) "--socket", (char *) path, (char *) "--idle-exit",
                                    (char *) idle_exit(), NULL },
                .environment = environment,
                .log = log,
        });
        if (pid_fd < 0)
                return error_set_code(err, STATUS_UNAVAILABLE, pid_fd, "DAEMON_UNREACHABLE", "cannot start %s: %s",
                                      program, strerror(-pid_fd));
        return wait_until_ready(notify_fd, pid_fd, log, err);
}

/* Waits for whoever else is starting a daemon with this state folder. The lock goes with the descriptor. */
static int lock_start(const char *state, HutchError *err) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -1;

        if (asprintf(&path, "%s/start.lock", state) < 0)
                return -ENOMEM;

        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        while (fd >= 0 && flock(fd, LOCK_EX) < 0)
                if (errno != EINTR)
                        fd = fd_close(fd);
        if (fd < 0)
                return error_set(err, -errno, "FILE_PERMISSION", "cannot lock %s: %s", path, strerror(errno));
        return TAKE_FD(fd);
}

static int start_if_none(const char *path, HutchError *err) {
        _cleanup_free_ char *state = NULL;
        _cleanup_close_ int lock = -1;
        int r = is_there(path, err);

        if (r != 0)
                return r < 0 ? r : 0;

        state = path_of_state(NULL, NULL, err);
        if (!state)
                return err->error > 0 ? -err->error : -ENOMEM;
        r = make_private_folder(state, err);
        if (r < 0)
                return r;
        lock = lock_start(state, err);
        if (lock < 0)
                return lock;

        /* Others may have started it meanwhile. */
        r = is_there(path, err);
        if (r != 0)
                return r < 0 ? r : 0;
        r = start(path, state, err);
        if (r == 0)
                return 1;

        /* It refuses when one that others started has the state folder: then that one may listen here. */
        if (r == -EIO && is_there(path, NULL) > 0)
                return 0;
        return r;
}

int user_daemon_start(const char *path, Failure *failure) {
        HutchError *err = &failure->error, why;
        int r = start_if_none(path, err);

        if (r >= 0 || r == -ENOMEM || str_equal(err->reason, "DAEMON_UNREACHABLE"))
                return r;

        /* Whatever kept it from being started, for callers it is one thing: nobody serves them. */
        why = *err;
        *err = (HutchError){};
        (void) error_set_code(err, STATUS_UNAVAILABLE, r, "DAEMON_UNREACHABLE", "the daemon could not be started: %s",
                              error_message(&why));
        error_clear(&why);
        return r;
}

/* ---- Which it is, and ending it ---- */

/* The pid in the lock of the state folder, which its daemon holds. 0: none does. */
static pid_t pid_of_lock(void) {
        _cleanup_free_ char *state = path_of_state(NULL, NULL, NULL), *path = NULL;
        _cleanup_close_ int fd = -1;
        char text[32] = "";

        if (!state || asprintf(&path, "%s/lock", state) < 0)
                return 0;

        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) == 0 || pread(fd, text, sizeof(text) - 1, 0) < 0)
                return 0;
        return (pid_t) strtol(text, NULL, 10);
}

/* The daemon's pid; 0: none listens. */
static int find_pid(const char *path, HutchError *err) {
        _cleanup_close_ int fd = connect_to(path);
        struct ucred peer = {};
        socklen_t len = sizeof(peer);
        pid_t pid;

        if (fd == -ENOENT || fd == -ECONNREFUSED)
                return 0;
        if (fd < 0)
                return error_set_code(err, STATUS_UNAVAILABLE, fd, "DAEMON_UNREACHABLE",
                                      "cannot connect to unix:%s: %s", path, strerror(-fd));

        /* The kernel tells who listens. With socket activation that is the service manager, and the daemon is who
         * holds the state folder. */
        (void) getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
        pid = peer.pid > 1 ? peer.pid : pid_of_lock();
        if (pid <= 1)
                return error_set_code(err, STATUS_FAILED_PRECONDITION, -ESRCH, "DAEMON_UNREACHABLE",
                                      "a service manager listens on %s; ask it for the daemon", path);
        return pid;
}

int hutch_daemon_socket(char **ret_path, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        char *path = path_of_socket(NULL, NULL, &failure.error);

        if (!path)
                return failure_tell(&failure, failure.error.error > 0 ? -failure.error.error : -ENOMEM, ret_error);

        *ret_path = path;
        return 0;
}

int hutch_daemon_pid(const char *socket, int *ret_pid, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = find_pid(socket, &failure.error);

        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        *ret_pid = r;
        return 0;
}

int hutch_daemon_start(const char *socket, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = user_daemon_start(socket, &failure);

        return failure_tell(&failure, r, ret_error);
}

/* Ends the process @pid and waits for that. */
static int end_process(pid_t pid, uint64_t timeout, HutchError *err) {
        _cleanup_close_ int pid_fd = (int) syscall(SYS_pidfd_open, pid, 0);
        uint64_t now = clock_monotonic_ns();

        if (pid_fd < 0 && errno == ESRCH)
                return 0; /* it has just ended */
        if (pid_fd < 0 || syscall(SYS_pidfd_send_signal, pid_fd, SIGTERM, NULL, 0) < 0)
                return error_set(err, -errno, "CALLER_NOT_ALLOWED", "cannot end the daemon (pid %d): %s", (int) pid,
                                 strerror(errno));

        if (wait_for_either(pid_fd, -1, timeout < UINT64_MAX - now ? now + timeout : UINT64_MAX) == 0)
                return error_set(err, -ETIMEDOUT, "DEADLINE_EXCEEDED", "the daemon (pid %d) has not ended in time",
                                 (int) pid);
        return 0;
}

int hutch_daemon_stop(const char *socket, uint64_t timeout, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = find_pid(socket, &failure.error);

        if (r > 0)
                r = end_process(r, timeout > 0 ? timeout : STOP_TIMEOUT, &failure.error) < 0 ? -failure.error.error : 1;
        return failure_tell(&failure, r, ret_error);
}
