/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what a sandbox costs at least: the same work as one program that does nothing else, without a
 * daemon, a keeper, a store or any call. What does not: what hutchd takes for it (sandbox-client.c).
 *
 *         sandbox-floor spawn ROUNDS PROGRAM [ARGUMENT]...            spawns it and waits for its end
 *         sandbox-floor namespaces ROUNDS PROGRAM [ARGUMENT]...       the same in the namespaces of a sandbox
 *         sandbox-floor sandbox FOLDER ROUNDS PROGRAM [ARGUMENT]...   the same with its files and mounts as well
 *         sandbox-floor sync FILE ROUNDS                              writes a page and waits until it is on the disk
 *         sandbox-floor nothing                                       ends at once: a static program to spawn
 *
 * Prints the microseconds of each round. Files and mounts are made by the keeper's own code, so that they are the same
 * ones. Needs root, except for spawn and sync. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "keeper/root/remove.h"
#include "keeper/root/rootfs.h"
#include "keeper/root/shared-sys.h"

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
#define UID_BASE 0x40000000u
#define UID_COUNT 65536u
#define PAGE 4096

/* Returns 1 when the program did not end well. */
static int wait_for(pid_t pid) {
        int status;

        return waitpid(pid, &status, 0) < 0 ? -errno : status != 0;
}

static int spawn(char *const *argv) {
        pid_t pid;
        int r = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);

        return r == 0 ? wait_for(pid) : -r;
}

static pid_t clone_into(uint64_t namespaces) {
        struct clone_args args = { .flags = namespaces, .exit_signal = SIGCHLD };
        pid_t pid = (pid_t) syscall(SYS_clone3, &args, sizeof(args));

        return pid < 0 ? -errno : pid;
}

static int run_in_namespaces(char *const *argv) {
        pid_t pid = clone_into(NAMESPACES | CLONE_NEWCGROUP);

        if (pid == 0) {
                (void) execvp(argv[0], argv);
                _exit(127);
        }
        return pid < 0 ? pid : wait_for(pid);
}

static int write_process_file(pid_t pid, const char *name, const char *text) {
        _cleanup_close_ int fd = -1;
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static int map_ids(pid_t pid) {
        char map[64];
        int r;

        (void) snprintf(map, sizeof(map), "0 %u %u\n", UID_BASE, UID_COUNT);
        r = write_process_file(pid, "uid_map", map);
        return r < 0 ? r : write_process_file(pid, "gid_map", map);
}

/* What the sandbox's PID 1 does, which here is the program itself. It has its uids when it has its root. */
static int enter(Rootfs *rootfs, int socket) {
        const char *what;
        int r;

        if (unshare(CLONE_NEWCGROUP) < 0)
                return -errno;
        r = rootfs_receive(rootfs, socket);
        if (r < 0)
                return r;
        if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                return -errno;
        return rootfs_enter(rootfs, &what);
}

static int shared_sys; /* what keepers are forked with, which each has once */

static int run_in_sandbox(const KeeperConfig *config, char *const *argv) {
        _cleanup_(rootfs_freep) Rootfs *rootfs = NULL;
        int pair[2], r;
        pid_t pid;

        if (dup2(shared_sys, SHARED_SYS_FD) < 0)
                return -errno;
        r = rootfs_new(config, &rootfs, NULL);
        if (r >= 0)
                r = rootfs_make(rootfs, NULL);
        if (r < 0)
                return r;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        _cleanup_close_ int ours = pair[0], its = pair[1];

        pid = clone_into(NAMESPACES);
        if (pid == 0) {
                fd_closep(&ours);
                if (enter(rootfs, its) == 0)
                        (void) execvp(argv[0], argv);
                _exit(127);
        }
        if (pid < 0)
                return pid;

        fd_closep(&its);
        r = map_ids(pid);
        if (r == 0)
                r = rootfs_hand_over(rootfs, pid, ours);
        fd_closep(&ours);
        return r < 0 ? r : wait_for(pid);
}

static int sync_page(const char *path) {
        static const char page[PAGE];
        _cleanup_close_ int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        int r = fd < 0 ? -errno : fd_write_all(fd, page, sizeof(page));

        return r == 0 && fdatasync(fd) < 0 ? -errno : r;
}

/* Does once what @mode says. @place is its file or folder. */
static int run_once(const char *mode, char *place, char *const *argv) {
        char images[PATH_MAX];

        (void) snprintf(images, sizeof(images), "%s/images", place);
        const KeeperConfig config = {
                .sandbox_id = (char *) "floor",
                .state_folder = place,
                .image_folder = images,
                .workspace = (char *) "/workspace",
                .uid_base = UID_BASE,
                .uid_count = UID_COUNT,
        };

        if (str_equal(mode, "spawn"))
                return spawn(argv);
        if (str_equal(mode, "namespaces"))
                return run_in_namespaces(argv);
        if (str_equal(mode, "sandbox"))
                return run_in_sandbox(&config, argv);
        return sync_page(place);
}

/* Removes what a round of "sandbox" has left. */
static int clean(const char *folder) {
        _cleanup_free_ char *files = NULL;

        if (asprintf(&files, "%s/fs", folder) < 0)
                return -ENOMEM;
        return folder_remove(files, NULL);
}

static int usage(void) {
        (void) fprintf(stderr, "usage: sandbox-floor spawn|namespaces ROUNDS PROGRAM [ARGUMENT]...\n"
                               "       sandbox-floor sandbox FOLDER ROUNDS PROGRAM [ARGUMENT]...\n"
                               "       sandbox-floor sync FILE ROUNDS\n"
                               "       sandbox-floor nothing\n");
        return 2;
}

int main(int argc, char *argv[]) {
        const char *mode = argc > 1 ? argv[1] : "";
        bool is_sandbox = str_equal(mode, "sandbox"), is_sync = str_equal(mode, "sync");
        int at = is_sandbox || is_sync ? 3 : 2; /* of ROUNDS */
        unsigned long rounds;

        if (str_equal(mode, "nothing"))
                return 0;
        if (!is_sandbox && !is_sync && !str_equal(mode, "spawn") && !str_equal(mode, "namespaces"))
                return usage();
        if (argc < at + (is_sync ? 1 : 2))
                return usage();

        rounds = strtoul(argv[at], NULL, 10);
        if (is_sandbox) {
                shared_sys_make();
                shared_sys = fcntl(SHARED_SYS_FD, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        }
        for (unsigned long i = 0; i < rounds; i++) {
                uint64_t started = clock_monotonic_ns();
                int r = run_once(mode, argv[2], argv + at + 1);
                uint64_t ended = clock_monotonic_ns();

                if (r == 0 && is_sandbox)
                        r = clean(argv[2]);
                if (r != 0) {
                        (void) fprintf(stderr, "sandbox-floor: %s failed: %s\n", mode,
                                       r < 0 ? strerror(-r) : "the program did not end well");
                        return 1;
                }
                printf("%.1f\n", (double) (ended - started) / NSEC_PER_USEC);
        }
        return 0;
}
