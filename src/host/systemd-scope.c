/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls to systemd, and the process that keeps a scope alive. What does not: cgroups as such
 * (cgroups.c). */

#include "host/systemd-scope.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "host/cgroup-place.h"

#define CALL_TIMEOUT (5 * NSEC_PER_SEC)
#define CALL_TIMEOUT_TEXT "--timeout=5"
#define RETRY_PAUSE_USEC 50000
#define MOVE_PAUSE_USEC 5000
#define OUTPUT_MAX 4096
#define STOP_USEC "10000000" /* PID 1 of a sandbox heeds no SIGTERM: a shutdown need not wait for it any longer */
#define NO_LIMIT "18446744073709551615"
#define SLICE "hutch.slice"
#define LEAF_PATH ("/" CGROUP_LEAF)

#define MANAGER "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"

bool systemd_is_running(void) {
        return access("/run/systemd/system", F_OK) == 0;
}

static bool is_own_folder(const char *path) {
        struct stat status;

        return stat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

bool systemd_has_session(char **ret_folder) {
        const char *variable = getenv("XDG_RUNTIME_DIR");
        _cleanup_free_ char *folder = NULL, *manager = NULL;

        /* After `su` there is no variable, and the session nevertheless, if the user is logged in or lingers. */
        if (variable && *variable)
                folder = xstrdup(variable);
        else if (asprintf(&folder, "/run/user/%u", geteuid()) < 0)
                abort();
        if (asprintf(&manager, "%s/systemd", folder) < 0)
                abort();
        if (!is_own_folder(folder) || !is_own_folder(manager))
                return false;

        *ret_folder = TAKE_PTR(folder);
        return true;
}

/* ---- Calls ---- */

/* Reads until the end, @deadline, or more than there should be. */
static int read_output(int fd, uint64_t deadline, char ret_output[static OUTPUT_MAX]) {
        size_t len = 0;

        ret_output[0] = '\0';
        while (len < OUTPUT_MAX - 1) {
                struct pollfd waited = { .fd = fd, .events = POLLIN };
                uint64_t now = clock_monotonic_ns();
                ssize_t n;

                if (now >= deadline)
                        return -ETIMEDOUT;
                if (poll(&waited, 1, (int) ((deadline - now) / NSEC_PER_MSEC) + 1) <= 0)
                        continue;
                n = read(fd, ret_output + len, OUTPUT_MAX - 1 - len);
                if (n <= 0)
                        break;
                len += (size_t) n;
                ret_output[len] = '\0';
        }
        return 0;
}

static _Noreturn void run(const char *folder, int output, const char *const *arguments) {
        (void) dup2(output, STDOUT_FILENO);
        (void) dup2(output, STDERR_FILENO);
        (void) setenv("LC_ALL", "C", 1);
        (void) unsetenv("NOTIFY_SOCKET"); /* busctl would tell the service manager about its own failures */
        if (folder) {
                char path[4096];

                /* A desktop's bus of its own does not know systemd. */
                (void) snprintf(path, sizeof(path), "%s/bus", folder);
                if (access(path, F_OK) == 0)
                        (void) unsetenv("DBUS_SESSION_BUS_ADDRESS");
                (void) setenv("XDG_RUNTIME_DIR", folder, 1);
        }
        (void) execvp(arguments[0], (char *const *) arguments);
        (void) dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], strerror(errno));
        _exit(127);
}

/* Replaces the reason. Returns @r. */
static int say(char **ret_error, const char *text, int r) {
        free(*ret_error);
        *ret_error = xstrdup(text);
        return r;
}

/* Runs busctl. Negative, with what it said, when it fails. */
static int call(const char *folder, const char *const *arguments, char **ret_error) {
        char output[OUTPUT_MAX] = "";
        int pair[2], status = 0, r;
        pid_t pid;

        if (pipe2(pair, O_CLOEXEC) < 0)
                return say(ret_error, strerror(errno), -errno);
        pid = fork();
        if (pid == 0)
                run(folder, pair[1], arguments);
        fd_close(pair[1]);
        r = pid < 0 ? -errno : read_output(pair[0], clock_monotonic_ns() + CALL_TIMEOUT, output);
        fd_close(pair[0]);
        if (pid > 0) {
                if (r < 0)
                        (void) kill(pid, SIGKILL);
                while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                        continue;
        }
        if (r == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;

        output[strcspn(output, "\n")] = '\0';
        str_make_printable(output);
        if (r < 0)
                return say(ret_error, r == -ETIMEDOUT ? "systemd did not answer within 5 s" : strerror(-r), r);
        return say(ret_error, *output ? output : "busctl failed", -EIO);
}

static int start_scope(const char *bus, const char *folder, const char *name, const char *pid, char **ret_error) {
        const char *const arguments[] = { "busctl",
                                          bus,
                                          CALL_TIMEOUT_TEXT,
                                          "call",
                                          MANAGER,
                                          "StartTransientUnit",
                                          "ssa(sv)a(sa(sv))",
                                          name,
                                          "fail", /* if there is one */
                                          "7",    /* properties: */
                                          "Description",
                                          "s",
                                          "Sandboxes of hutchd", /**/
                                          "Delegate",
                                          "b",
                                          "true", /**/
                                          "PIDs",
                                          "au",
                                          "1",
                                          pid, /**/
                                          "Slice",
                                          "s",
                                          SLICE, /**/
                                          "CollectMode",
                                          "s",
                                          "inactive-or-failed", /* nobody asks how it ended */
                                          "TasksMax",
                                          "t",
                                          NO_LIMIT, /* sandboxes have their own */
                                          "TimeoutStopUSec",
                                          "t",
                                          STOP_USEC, /**/
                                          "0",
                                          NULL };

        return call(folder, arguments, ret_error);
}

/* Into the leaf: the scope itself has processes no more, since it passes controllers on. */
static int join_scope(const char *bus, const char *folder, const char *name, const char *pid, char **ret_error) {
        const char *const arguments[] = { "busctl", bus,  CALL_TIMEOUT_TEXT, "call", MANAGER, "AttachProcessesToUnit",
                                          "ssau",   name, LEAF_PATH,         "1",    pid,     NULL };

        return call(folder, arguments, ret_error);
}

/* Whether the process is in the scope by now. */
static bool is_in_scope(const char *pid, const char *name) {
        _cleanup_(cgroup_sight_clear) CgroupSight sight = {};
        size_t len = strlen(name);
        const char *at;

        if (cgroup_sight_read(pid, &sight) < 0 || !sight.own)
                return false;
        at = strstr(sight.own, name);
        return at && at[-1] == '/' && (at[len] == '\0' || at[len] == '/');
}

/* systemd answers before it has moved the process. */
static int wait_until_moved(const char *pid, const char *name, uint64_t deadline, char **ret_error) {
        while (!is_in_scope(pid, name)) {
                if (clock_monotonic_ns() >= deadline)
                        return say(ret_error, "systemd did not move the process to the scope within 5 s", -ETIMEDOUT);
                (void) usleep(MOVE_PAUSE_USEC);
        }
        return 0;
}

/* A scope that is there is that of an earlier daemon, whose sandboxes are in it, or it is about to go. */
static int enter(const char *name, bool is_root, pid_t process, char **ret_error) {
        _cleanup_free_ char *folder = NULL, *ignored = NULL;
        const char *bus = is_root ? "--system" : "--user";
        uint64_t deadline = clock_monotonic_ns() + CALL_TIMEOUT;
        char pid[16];
        int r;

        if (!is_root && !systemd_has_session(&folder))
                return say(ret_error, "there is no systemd user session", -ENOENT);

        (void) snprintf(pid, sizeof(pid), "%d", (int) process);
        while ((r = start_scope(bus, folder, name, pid, ret_error)) < 0) {
                if (!*ret_error || !strstr(*ret_error, "already") || clock_monotonic_ns() >= deadline)
                        return r;
                if (join_scope(bus, folder, name, pid, &ignored) == 0)
                        break;
                (void) usleep(RETRY_PAUSE_USEC);
        }
        return wait_until_moved(pid, name, deadline, ret_error);
}

/* ---- The anchor ---- */

/* Waits for the daemon's end, and holds nothing that is the daemon's meanwhile. */
static _Noreturn void be_anchor(pid_t daemon, int socket) {
        char unused;

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) prctl(PR_SET_NAME, "hutch-anchor");
        if (getppid() != daemon)
                _exit(0);
        (void) setsid(); /* what is typed into the daemon's terminal is not for it */
        (void) dup2(socket, STDIN_FILENO);
        (void) close_range(STDIN_FILENO + 1, ~0u, 0);
        (void) !chdir("/");
        while (read(STDIN_FILENO, &unused, 1) < 0 && errno == EINTR)
                continue;
        _exit(0);
}

static int start_anchor(SystemdScope *ret_scope) {
        pid_t daemon = getpid(), pid;
        int pair[2];

        if (pipe2(pair, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid == 0) {
                fd_close(pair[1]);
                be_anchor(daemon, pair[0]);
        }
        fd_close(pair[0]);
        if (pid < 0) {
                fd_close(pair[1]);
                return -errno;
        }

        *ret_scope = (SystemdScope){ .process = pid, .anchor = pair[1] };
        return 0;
}

int systemd_scope_take(const char *name, bool is_root, SystemdScope *ret_scope, char **ret_error) {
        SystemdScope scope = { .process = getpid(), .anchor = -1 };
        _cleanup_free_ char *error = NULL;
        int r = is_root ? start_anchor(&scope) : 0;

        if (r == 0)
                r = enter(name, is_root, scope.process, &error);
        if (r < 0) {
                systemd_scope_release(&scope);
                *ret_error = error ? TAKE_PTR(error) : xstrdup(strerror(-r));
                return r;
        }

        *ret_scope = scope;
        return 0;
}

void systemd_scope_release(SystemdScope *scope) {
        if (scope->anchor >= 0) {
                (void) kill(scope->process, SIGKILL);
                while (waitpid(scope->process, NULL, 0) < 0 && errno == EINTR)
                        continue;
        }
        *scope = (SystemdScope){ .anchor = fd_close(scope->anchor) };
}
