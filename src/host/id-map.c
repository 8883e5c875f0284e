/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: running newuidmap and newgidmap, and user namespaces with what they map. What does not: which ids a
 * user has (subordinate-ids.c), sandboxes. */

#include "host/id-map.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"

#define PROGRAM_TIMEOUT_MS 10000 /* it may have to ask a directory on the network */
#define SAID_MAX 512

void id_map_clear(IdMap *map) {
        free(map->newuidmap);
        free(map->newgidmap);
        *map = (IdMap){};
}

/* ---- Texts ---- */

char *id_ranges_format(const IdRanges *ranges) {
        StringBuilder builder = {};

        for (size_t i = 0; i < ranges->n; i++)
                string_builder_appendf(&builder, "%s%u:%u", i > 0 ? "," : "", ranges->list[i].first,
                                       ranges->list[i].count);
        return string_builder_take(&builder);
}

int id_ranges_parse(const char *text, IdRanges *ret_ranges) {
        IdRanges ranges = {};
        int len = 0;

        for (;; text += len + 1) {
                IdRange *range = &ranges.list[ranges.n++];

                if (sscanf(text, "%" SCNu32 ":%" SCNu32 "%n", &range->first, &range->count, &len) != 2) /* NOLINT */
                        return -EINVAL;
                if (text[len] == '\0')
                        break;
                if (text[len] != ',' || ranges.n == ID_RANGES_MAX)
                        return -EINVAL;
        }
        *ret_ranges = ranges;
        return 0;
}

/* ---- The programs ---- */

typedef char Number[12];
typedef Number Numbers[2 + 3 + 3 * ID_RANGES_MAX];

/* Writes the arguments: the program, the process, and for each range where it begins inside, outside, and its size. */
static void make_arguments(const char *program, pid_t pid, uint32_t own, const IdRanges *ranges, Numbers numbers,
                           char **ret_argv) {
        size_t n = 0;
        uint32_t inside = 1;

        ret_argv[n++] = (char *) program;
        (void) snprintf(numbers[n], sizeof(Number), "%d", (int) pid);
        n++;
        for (size_t i = 0; i <= ranges->n; i++) {
                IdRange range = i == 0 ? (IdRange){ own, 1 } : ranges->list[i - 1];

                (void) snprintf(numbers[n++], sizeof(Number), "%u", i == 0 ? 0 : inside);
                (void) snprintf(numbers[n++], sizeof(Number), "%u", range.first);
                (void) snprintf(numbers[n++], sizeof(Number), "%u", range.count);
                inside += i == 0 ? 0 : range.count;
        }
        for (size_t i = 1; i < n; i++)
                ret_argv[i] = numbers[i];
        ret_argv[n] = NULL;
}

static int spawn(char *const *argv, int said_fd, pid_t *ret_pid) {
        char *const environment[] = { NULL };
        posix_spawn_file_actions_t files;
        posix_spawnattr_t attributes;
        sigset_t all, none;
        int r = posix_spawn_file_actions_init(&files);

        if (r != 0)
                return -r;
        r = posix_spawnattr_init(&attributes);
        if (r == 0) {
                sigfillset(&all);
                sigemptyset(&none);
                (void) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
                (void) posix_spawnattr_setsigdefault(&attributes, &all);
                (void) posix_spawnattr_setsigmask(&attributes, &none);
                r = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
                if (r == 0)
                        r = posix_spawn_file_actions_adddup2(&files, said_fd, STDOUT_FILENO);
                if (r == 0)
                        r = posix_spawn_file_actions_adddup2(&files, said_fd, STDERR_FILENO);
                if (r == 0)
                        r = posix_spawn(ret_pid, argv[0], &files, &attributes, argv, environment);
                (void) posix_spawnattr_destroy(&attributes);
        }
        (void) posix_spawn_file_actions_destroy(&files);
        return -r;
}

/* Reads the first line of what a program says, until it has closed @fd. */
static int read_said(int fd, char ret_line[static SAID_MAX]) {
        struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
        size_t len = 0;
        ssize_t n = 1;

        while (n > 0 && len < SAID_MAX - 1) {
                int ready = poll(&poll_fd, 1, PROGRAM_TIMEOUT_MS);

                if (ready < 0 && errno == EINTR)
                        continue;
                if (ready <= 0)
                        return ready < 0 ? -errno : -ETIMEDOUT;
                n = read(fd, ret_line + len, SAID_MAX - 1 - len);
                len += n > 0 ? (size_t) n : 0;
        }
        ret_line[len] = '\0';
        ret_line[strcspn(ret_line, "\n")] = '\0';
        return 0;
}

static int wait_for(pid_t pid) {
        int status;

        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int run(const char *program, pid_t pid, uint32_t own, const IdRanges *ranges, HutchError *err) {
        char *argv[sizeof(Numbers) / sizeof(Number) + 1], said[SAID_MAX] = "";
        _cleanup_close_ int read_fd = -1, write_fd = -1;
        Numbers numbers;
        int pair[2], r, ended;
        pid_t child;

        if (!program)
                return error_set(err, -ENOENT, "RUNTIME_UNAVAILABLE", "newuidmap and newgidmap are not installed");
        if (pipe2(pair, O_CLOEXEC) < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a pipe: %s", strerror(errno));

        read_fd = pair[0];
        write_fd = pair[1];
        make_arguments(program, pid, own, ranges, numbers, argv);
        r = spawn(argv, write_fd, &child);
        fd_closep(&write_fd);
        if (r < 0)
                return error_set(err, r, "RUNTIME_UNAVAILABLE", "cannot run %s: %s", program, strerror(-r));

        r = read_said(read_fd, said);
        if (r < 0)
                (void) kill(child, SIGKILL); /* its real user is ours */
        ended = wait_for(child);
        r = r < 0 ? r : ended;
        return r < 0 ? error_set(err, r, "RUNTIME_UNAVAILABLE", "%s", *said ? said : program) : 0;
}

int id_map_apply(const IdMap *map, pid_t pid, HutchError *err) {
        int r = run(map->newuidmap, pid, getuid(), &map->uids, err);

        return r < 0 ? r : run(map->newgidmap, pid, getgid(), &map->gids, err);
}

/* ---- For the calling process ---- */

typedef struct Report {
        int error;
        char text[SAID_MAX];
} Report;

static void send_report(int fd, int r, const HutchError *err) {
        Report report = { .error = -r };

        if (r < 0)
                (void) snprintf(report.text, sizeof(report.text), "%s", error_message(err));
        (void) !write(fd, &report, sizeof(report));
}

static int receive_report(int fd, HutchError *err) {
        Report report;

        if (read(fd, &report, sizeof(report)) != (ssize_t) sizeof(report))
                return error_set(err, -EPIPE, "RUNTIME_UNAVAILABLE", "a process ended early");
        return report.error ? error_set(err, -report.error, "RUNTIME_UNAVAILABLE", "%s", report.text) : 0;
}

/* Maps its parent, once that says so: it stays outside. */
static _Noreturn void map_parent(const IdMap *map, pid_t parent, int fd) {
        _cleanup_(error_clear) HutchError err = {};
        char byte;

        if (read(fd, &byte, 1) == 1)
                send_report(fd, id_map_apply(map, parent, &err), &err);
        _exit(0);
}

static int unshare_mapped(int helper, HutchError *err) {
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWUSER) < 0)
                return error_set(err, -errno, "RUNTIME_UNAVAILABLE", "cannot make a user namespace: %s",
                                 strerror(errno));
        if (write(helper, "", 1) != 1)
                return error_set(err, -EPIPE, "RUNTIME_UNAVAILABLE", "a process ended early");
        return receive_report(helper, err);
}

int id_map_enter(const IdMap *map, HutchError *err) {
        _cleanup_close_ int ours = -1, its = -1;
        int pair[2], r;
        pid_t self = getpid(), child;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a socket: %s", strerror(errno));

        ours = pair[0];
        its = pair[1];
        child = fork();
        if (child < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a process: %s", strerror(errno));
        if (child == 0) {
                fd_closep(&ours);
                map_parent(map, self, its);
        }

        fd_closep(&its);
        r = unshare_mapped(ours, err);
        fd_closep(&ours);
        (void) wait_for(child);
        if (r < 0)
                return r;
        if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                return error_set(err, -errno, "RUNTIME_UNAVAILABLE", "cannot be root in a user namespace: %s",
                                 strerror(errno));
        return 0;
}

int id_map_try(const IdMap *map, HutchError *err) {
        _cleanup_close_ int ours = -1, its = -1;
        int pair[2], r;
        pid_t child;

        if (pipe2(pair, O_CLOEXEC) < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a pipe: %s", strerror(errno));

        ours = pair[0];
        its = pair[1];
        child = fork();
        if (child < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a process: %s", strerror(errno));
        if (child == 0) {
                _cleanup_(error_clear) HutchError failure = {};

                send_report(its, id_map_enter(map, &failure), &failure);
                _exit(0);
        }

        fd_closep(&its);
        r = receive_report(ours, err);
        (void) wait_for(child);
        return r;
}
