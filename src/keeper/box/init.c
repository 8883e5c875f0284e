/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the life of a sandbox's PID 1. What does not: what the keeper does for it from outside (sandbox.c),
 * what it mounts (rootfs-enter.c). */

#include "keeper/box/init.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd-pass.h"
#include "base/fd.h"
#include "keeper/box/bare-wait.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/landlock.h"
#include "keeper/box/privileges.h"
#include "keeper/root/rootfs-parts.h"

#define N_FDS (N_NAMESPACES + 5) /* the last one is there only if the root is in memory */

static const char *const namespace_names[N_NAMESPACES] = {
        [NAMESPACE_USER] = "user", [NAMESPACE_MOUNT] = "mnt", [NAMESPACE_NET] = "net",
        [NAMESPACE_IPC] = "ipc",   [NAMESPACE_UTS] = "uts",   [NAMESPACE_PID] = "pid",
};

/* Makes the keeper's death this process's, until it waits for that itself. Becoming somebody else undoes it. That the
 * keeper is gone already shows when the report cannot be sent. */
static int die_with_keeper(void) {
        return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? -errno : 0;
}

static int write_file(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* Without root: maps the keeper's own uid and gid, which anybody may. The files are this process's only while it is
 * dumpable; nobody is inside yet who could make use of that. */
static int map_own_ids(uid_t uid, gid_t gid) {
        char uids[32], gids[32];
        (void) snprintf(uids, sizeof(uids), "%u %u 1\n", AGENT_UID, (unsigned) uid);
        (void) snprintf(gids, sizeof(gids), "%u %u 1\n", AGENT_UID, (unsigned) gid);
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                return -errno;
        int r = write_file("/proc/self/setgroups", "deny");
        if (r >= 0)
                r = write_file("/proc/self/uid_map", uids);
        if (r >= 0)
                r = write_file("/proc/self/gid_map", gids);
        return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : r;
}

static int become_owner(const KeeperConfig *config) {
        uid_t id = config->uid_count > 1 ? 0 : AGENT_UID;
        if (config->uid_count > 1 && setgroups(0, NULL) < 0)
                return -errno;
        if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
                return -errno;
        return die_with_keeper();
}

int raise_loopback(void) {
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
        return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int set_host_name(const char *id) {
        return sethostname(id, strnlen(id, 63)) < 0 ? -errno : 0;
}

static int open_namespaces(int fds[static N_NAMESPACES]) {
        _cleanup_close_ int folder = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
                return -errno;
        for (int i = 0; i < N_NAMESPACES; i++) {
                fds[i] = openat(folder, namespace_names[i], O_RDONLY | O_CLOEXEC);
                if (fds[i] < 0)
                        return -errno;
        }
        return 0;
}

static int open_path(const char *path, int *ret_fd) {
        int fd = open(path, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

/* What can be done while the keeper does its part. The network is the most costly of the namespaces. */
static int set_up_first(const KeptSandbox *sandbox, int fds[static N_NAMESPACES], const char **ret_what) {
        *ret_what = "a life of its own";
        umask(0);
        /* Who maps subordinate ids can do so only while it is dumpable. */
        int dumpable = sandbox->config->subordinate_ids.uids.n > 0;
        if (prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0) < 0 || prctl(PR_SET_NAME, "init", 0, 0, 0) < 0)
                return -errno;
        int r = die_with_keeper();
        if (r < 0)
                return r;
        *ret_what = "its network";
        if (unshare(CLONE_NEWNET) < 0)
                return -errno;
        r = raise_loopback();
        if (r < 0)
                return r;
        *ret_what = "its host name";
        r = set_host_name(sandbox->config->sandbox_id);
        if (r < 0)
                return r;
        *ret_what = "its namespaces";
        return open_namespaces(fds);
}

/* Waits until the keeper has moved this process to its cgroups, the first of which becomes the root of what it sees. */
static int wait_for_cgroups(int socket) {
        char byte;
        int r = fds_receive(socket, &byte, 1, NULL, 0);
        if (r < 0)
                return r;
        return unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

#if defined(__x86_64__) && !IS_SANITIZED
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && !IS_SANITIZED
#define MACHINE AUDIT_ARCH_AARCH64
#endif

#ifdef MACHINE
#define IS_CALL(name)                                                                                                  \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Has the kernel do what this process does from here on, which is little, and nothing else: it reports, closes, and
 * waits. */
static int forbid_calls(const KeeperConfig *config) {
        static struct sock_filter instructions[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                IS_CALL(rt_sigaction),
                IS_CALL(sendmsg),
                IS_CALL(close_range),
                IS_CALL(rseq),
                IS_CALL(munmap),
                IS_CALL(recvfrom),
                IS_CALL(exit_group),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        };
        const Filter filter = { .instructions = instructions, .len = sizeof(instructions) / sizeof(instructions[0]) };
        (void) config;
        return filter_install(&filter);
}
#else
static int forbid_calls(const KeeperConfig *config) {
        return filter_install(&config->filter);
}
#endif

/* The descriptors of a report, without those that tell of memory. */
static size_t n_fds_before(const KeeperConfig *config) {
        return config->root_in_memory ? N_FDS : N_FDS - 1;
}

/* Makes the sandbox. @gid is the keeper's. @ret_what: what it is at, in case of failure. */
static int set_up(const KeptSandbox *sandbox, Rootfs *rootfs, int socket, gid_t gid,
                  int fds[static N_FDS + N_MEMORY_PARTS], const char **ret_what) {
        const KeeperConfig *config = sandbox->config;
        int r = set_up_first(sandbox, fds, ret_what);
        if (r < 0)
                return r;
        *ret_what = "its files";
        r = rootfs_receive(rootfs, socket);
        if (r < 0)
                return r;
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return -errno;
        *ret_what = "its uids";
        r = config->uid_count == 1 ? map_own_ids(config->uid_base, gid) : 0;
        if (r >= 0)
                r = become_owner(config);
        if (r < 0)
                return r;

        r = rootfs_enter(rootfs, ret_what);
        if (r < 0)
                return r;
        fds[N_NAMESPACES + 3] = rootfs->image_clone;
        fds[N_NAMESPACES + 4] = rootfs->upper;
        *ret_what = "its terminals";
        r = open_path("/dev/pts/ptmx", &fds[N_NAMESPACES]);
        if (r >= 0)
                r = open_path("/", &fds[N_NAMESPACES + 1]);
        if (r < 0)
                return r;
        *ret_what = "its message queues";
        r = rootfs_open_message_queues(&fds[N_NAMESPACES + 2]);
        if (r < 0)
                return r;
        *ret_what = "what tells of its memory";
        r = keeper_config_measures_memory(config) ? memory_parts_open(fds + n_fds_before(config)) : 0;
        if (r < 0)
                return r;
        *ret_what = "its cgroups";
        r = wait_for_cgroups(socket);
        if (r < 0)
                return r;
        *ret_what = "its privileges";
        r = privileges_bound(0);
        if (r >= 0)
                r = privileges_drop(0);
        if (r >= 0)
                r = die_with_keeper();
        if (r >= 0)
                r = landlock_restrict(NULL, 0);
        return r < 0 ? r : forbid_calls(config);
}

void init_run(const KeptSandbox *sandbox, Rootfs *rootfs, int socket, gid_t gid) {
        int fds[N_FDS + N_MEMORY_PARTS];
        size_t n_fds = n_fds_before(sandbox->config);
        const char *what = "";
        InitReport report = {};
        signals_reset();
        int r = set_up(sandbox, rootfs, socket, gid, fds, &what);
        if (r < 0) {
                report.error = -r;
                (void) snprintf(report.what, sizeof(report.what), "%s", what);
                (void) snprintf(report.reason, sizeof(report.reason), "%s", rootfs->reason ? rootfs->reason : "");
        }
        if (keeper_config_measures_memory(sandbox->config))
                n_fds += N_MEMORY_PARTS;
        /* The kernel reaps for a parent that ignores its children's ends, so that PID 1 need not even wake up. */
        (void) signal(SIGCHLD, SIG_IGN);
        r = fds_send(socket, &report, sizeof(report), fds, report.error == 0 ? n_fds : 0);
        if (r < 0 || report.error != 0)
                _exit(1);

        /* Signals do not reach it over the keeper's wall: it is not behind that one. */
        if (socket > 0)
                (void) close_range(0, (unsigned) socket - 1, 0);
        (void) close_range((unsigned) socket + 1, UINT_MAX, 0);
        bare_wait(socket);
}
