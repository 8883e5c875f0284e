/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: starting the daemon when none answers. What does not: where it listens (base/paths.c). */

#include "client/local-daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/paths.h"
#include "base/program.h"
#include "base/strings.h"

#define START_TIMEOUT_MSEC 30000

int local_daemon_is_there(const char *socket_path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (strlen(socket_path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;

        memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) == 0)
                return 1;
        return errno == ENOENT || errno == ECONNREFUSED ? 0 : -errno;
}

/* A socket on which the daemon says that it is ready, in sd_notify(3)'s way, and its name. */
static int open_notify_socket(char ret_name[static 32]) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        socklen_t len = sizeof(sa_family_t); /* the kernel chooses an abstract name */
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, len) < 0)
                return -errno;

        len = sizeof(address);
        if (getsockname(fd, (struct sockaddr *) &address, &len) < 0)
                return -errno;

        snprintf(ret_name, 32, "@%.*s", (int) (len - offsetof(struct sockaddr_un, sun_path) - 1), address.sun_path + 1);
        return TAKE_FD(fd);
}

/* The caller's environment, and where to say that it is ready. */
static char **daemon_environment(char *notify) {
        size_t n = 0, kept = 0;
        char **environment;

        while (environ[n])
                n++;
        environment = new0(char *, n + 2);
        for (size_t i = 0; i < n; i++)
                if (!str_has_prefix(environ[i], "NOTIFY_SOCKET=") && !str_has_prefix(environ[i], "LISTEN_"))
                        environment[kept++] = environ[i];
        environment[kept] = notify;
        return environment;
}

static int spawn_daemon(const char *program, const char *socket_path, const char *log, char *notify, pid_t *ret_pid) {
        char *const argv[] = { (char *) "hutchd", (char *) "--socket", (char *) socket_path, NULL };
        _cleanup_free_ char **environment = daemon_environment(notify);
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        sigset_t none;
        int r;

        (void) sigemptyset(&none);
        (void) posix_spawnattr_init(&attributes);
        (void) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
        (void) posix_spawnattr_setsigmask(&attributes, &none);
        (void) posix_spawn_file_actions_init(&actions);
        (void) posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        (void) posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        (void) posix_spawn_file_actions_adddup2(&actions, 1, 2);
        (void) posix_spawn_file_actions_addchdir_np(&actions, "/");
        r = posix_spawn(ret_pid, program, &actions, &attributes, argv, environment);
        (void) posix_spawn_file_actions_destroy(&actions);
        (void) posix_spawnattr_destroy(&attributes);
        return -r;
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

/* Waits until the daemon says that it is ready, or ends. */
static int wait_until_ready(int fd, pid_t pid, const char *log, HutchError *err) {
        enum { STEP_MSEC = 100 };
        char text[256];

        for (unsigned waited = 0; waited < START_TIMEOUT_MSEC; waited += STEP_MSEC) {
                struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
                ssize_t n = poll(&poll_fd, 1, STEP_MSEC) > 0 ? recv(fd, text, sizeof(text) - 1, 0) : 0;

                if (n > 0) {
                        text[n] = '\0';
                        if (strstr(text, "READY=1"))
                                return 0;
                }
                if (waitpid(pid, NULL, WNOHANG) == pid) {
                        last_line(log, text, sizeof(text));
                        return error_set_code(err, STATUS_UNAVAILABLE, -EIO, "DAEMON_UNREACHABLE",
                                              "the daemon could not be started: %s", text);
                }
        }

        return error_set_code(err, STATUS_UNAVAILABLE, -ETIMEDOUT, "DAEMON_UNREACHABLE",
                              "the daemon was started but does not serve; see %s", log);
}

int local_daemon_start(const char *socket_path, HutchError *err) {
        _cleanup_free_ char *program = program_find("hutchd", HUTCH_BINDIR);
        _cleanup_free_ char *state = NULL, *log = NULL, *notify = NULL;
        _cleanup_close_ int fd = -1;
        char name[32];
        pid_t pid;
        int r;

        if (!program)
                return error_set_code(err, STATUS_UNAVAILABLE, -ENOENT, "DAEMON_UNREACHABLE",
                                      "no daemon answers on %s, and there is no hutchd to start", socket_path);

        state = path_of_state(NULL, NULL, err);
        if (!state)
                return -ENOENT;
        r = make_private_folder(state, err);
        if (r < 0)
                return r;

        fd = open_notify_socket(name);
        if (fd < 0 || asprintf(&log, "%s/hutchd.log", state) < 0 || asprintf(&notify, "NOTIFY_SOCKET=%s", name) < 0)
                return error_set(err, fd < 0 ? fd : -ENOMEM, "HOST_EXHAUSTED", "cannot start the daemon");

        r = spawn_daemon(program, socket_path, log, notify, &pid);
        if (r < 0)
                return error_set(err, r, "DAEMON_UNREACHABLE", "cannot start %s: %s", program, strerror(-r));
        return wait_until_ready(fd, pid, log, err);
}
