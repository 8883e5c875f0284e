/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: building a sandbox from outside, ending it, and what is done to it as a whole. What does not: its
 * inside (init.c, rootfs-*.c), the processes put into it (spawn.c), their groups (exec-group.c). */

#include "keeper/box/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd-pass.h"
#include "base/fd.h"
#include "host/user-namespaces.h"
#include "keeper/box/cgroup.h"
#include "keeper/box/init.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/landlock.h"
#include "keeper/box/limit-groups.h"
#include "keeper/box/privileges.h"
#include "keeper/box/rootless.h"
#include "keeper/root/mounts.h"
#include "keeper/root/rootfs.h"

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)
#define N_FDS (N_NAMESPACES + 5) /* the last one is there only if the root is in memory */
#define KEEPER_NAME "keeper"     /* of its cgroup, where it needs one */
#define INIT_NAME "init"         /* of that of PID 1, the same */
#define END_TIMEOUT (10 * NSEC_PER_SEC)
#define FREEZE_TIMEOUT (5 * NSEC_PER_SEC)

static int fail(const KeeperConfig *config, HutchError *err, int r, const char *what) {
        NamespaceObstacle obstacle;
        /* Distributions keep them from users in several ways, and at several places. */
        if (keeper_config_is_rootless(config) && user_namespaces_find_obstacle("", r, &obstacle))
                return error_set(err, r, "RUNTIME_UNAVAILABLE",
                                 "the sandbox cannot be built: %s: %s, probably because %s is %s; as root run: %s",
                                 what, strerror(-r), obstacle.setting, obstacle.value, obstacle.command);
        if (keeper_config_is_rootless(config) && (r == -EPERM || r == -EACCES))
                return error_set(
                        err, r, "RUNTIME_UNAVAILABLE",
                        "the sandbox cannot be built: %s: %s; 'hutch doctor' tells whether this host restricts "
                        "the user namespaces of ordinary users, and what to do",
                        what, strerror(-r));
        if (r == -ELOOP || r == -ESTALE)
                return error_set(err, r, r == -ELOOP ? "SYMLINK_LOOP" : "SOURCE_INVALID",
                                 "the sandbox cannot be built: %s: %s", what,
                                 r == -ELOOP ? "a symlink is on the way to it" : "its source was replaced meanwhile");
        return error_set(err, r,
                         r == -ENOMEM || r == -EAGAIN || r == -ENOSPC || r == -EMFILE ? "HOST_EXHAUSTED" : "INTERNAL",
                         "the sandbox cannot be built: %s: %s", what, strerror(-r));
}

pid_t process_clone(uint64_t flags, int cgroup, int *ret_pidfd) { /* NOLINT(readability-non-const-parameter) */
        struct clone_args args = { .flags = flags };
        /* With CLONE_PARENT the signal is that of the caller. */
        if (!(flags & CLONE_PARENT))
                args.exit_signal = SIGCHLD;
        if (ret_pidfd) {
                args.flags |= CLONE_PIDFD;
                args.pidfd = (uint64_t) (uintptr_t) ret_pidfd;
        }
        if (cgroup >= 0) {
                args.flags |= CLONE_INTO_CGROUP;
                args.cgroup = (uint64_t) cgroup;
        }
        /* The keeper's handlers must not run in the child. */
        sigset_t all, before;
        sigfillset(&all);
        (void) sigprocmask(SIG_SETMASK, &all, &before);
        pid_t pid = (pid_t) syscall(SYS_clone3, &args, sizeof(args));
        int r = pid < 0 ? -errno : pid;
        if (r != 0)
                (void) sigprocmask(SIG_SETMASK, &before, NULL);
        return r;
}

/* ---- Building ---- */

static int write_process_file(pid_t pid, const char *name, const char *text) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return fd_write_all(fd, text, strlen(text));
}

/* Gives PID 1 its range of uids and gids. Without root it takes its only one itself. */
static int map_ids(const KeeperConfig *config, pid_t pid, HutchError *err) {
        if (config->uid_count == 1)
                return 0;
        if (keeper_config_is_rootless(config))
                return rootless_map_ids(config, pid, err);
        char map[64];
        (void) snprintf(map, sizeof(map), "0 %u %u\n", config->uid_base, config->uid_count);
        int r = write_process_file(pid, "uid_map", map);
        if (r >= 0)
                r = write_process_file(pid, "gid_map", map);
        return r < 0 ? fail(config, err, r, "its uids") : 0;
}

/* Takes what PID 1 has to say. */
static int receive_report(KeptSandbox *sandbox, HutchError *err) {
        InitReport report = {};
        int fds[N_FDS + N_MEMORY_PARTS];
        bool has_upper = sandbox->config->root_in_memory;
        size_t n_before = has_upper ? N_FDS : N_FDS - 1;
        size_t n_fds = n_before + (keeper_config_measures_memory(sandbox->config) ? N_MEMORY_PARTS : 0);
        int r = fds_receive(sandbox->init_socket, &report, sizeof(report), fds, n_fds);
        if (r < 0)
                return fail(sandbox->config, err, r, "its PID 1 ended at once");
        if (report.reason[0] != '\0')
                return error_set(err, -report.error, report.reason, "%s", report.what);
        if (report.error != 0)
                return fail(sandbox->config, err, -report.error, report.what);
        if ((size_t) r != n_fds)
                return fail(sandbox->config, err, -EBADMSG, "its PID 1 sent no descriptors");
        memcpy(sandbox->namespaces, fds, sizeof(sandbox->namespaces));
        sandbox->ptmx = fds[N_NAMESPACES];
        sandbox->root = fds[N_NAMESPACES + 1];
        sandbox->message_queues = fds[N_NAMESPACES + 2];
        sandbox->image = fds[N_NAMESPACES + 3];
        sandbox->upper = has_upper ? fds[N_NAMESPACES + 4] : -1;
        if (n_fds > n_before)
                memcpy(sandbox->memory_parts, fds + n_before, sizeof(sandbox->memory_parts));
        return 0;
}

/* From now on the keeper's children are born in the sandbox: one clone is enough for an exec. Without root it is not
 * allowed, and takes two. */
static int move_children(KeptSandbox *sandbox) {
        sandbox->children_are_here = setns(sandbox->namespaces[NAMESPACE_PID], CLONE_NEWPID) == 0;
        return sandbox->children_are_here || errno == EPERM ? 0 : -errno;
}

/* Does for PID 1 what it cannot do itself, while it makes its network. */
static int prepare_init(const KeptSandbox *sandbox, const Rootfs *rootfs, pid_t pid, int socket, HutchError *err) {
        int r = map_ids(sandbox->config, pid, err);
        if (r < 0)
                return r;
        /* Whoever takes too much memory, it is not PID 1 that goes. Without root it is not the least likely one. */
        (void) write_process_file(pid, "oom_score_adj", "-1000");
        r = rootfs_make(rootfs, err);
        if (r < 0)
                return r;
        r = rootfs_hand_over(rootfs, pid, socket);
        /* It has ended, and says why. */
        return r < 0 && r != -EPIPE ? fail(sandbox->config, err, r, "its image") : 0;
}

/* Does for the keeper itself what can be done while PID 1 mounts. */
static int prepare_keeper(const KeeperConfig *config, HutchError *err) {
        int r = privileges_seal(config->keeper_id != 0);
        if (r >= 0)
                r = filter_install(&config->keeper_filter);
        return r < 0 ? error_set(err, r, "INTERNAL", "the keeper cannot give up its rights: %s", strerror(-r)) : 0;
}

/* Clones PID 1, which makes its network at once: that takes as long as all that the keeper does for it meanwhile. */
static int clone_init(KeptSandbox *sandbox, Rootfs *rootfs, pid_t *ret_pid, HutchError *err) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return fail(sandbox->config, err, -errno, "a socket");
        _cleanup_close_ int its = pair[1];
        sandbox->init_socket = pair[0];

        gid_t gid = getegid(); /* in its namespace it cannot know it */
        pid_t pid = process_clone(NAMESPACES, -1, &sandbox->init_pidfd);
        if (pid == -ENOSPC)
                return error_set(
                        err, pid, "RUNTIME_UNAVAILABLE",
                        "the sandbox cannot be built: there are as many namespaces as user.max_user_namespaces "
                        "and its like allow; as root run: sysctl -w user.max_user_namespaces=65536");
        if (pid < 0)
                return fail(sandbox->config, err, pid, "its namespaces");
        if (pid == 0) {
                (void) fd_close(sandbox->init_socket);
                init_run(sandbox, rootfs, its, gid);
        }
        *ret_pid = pid;
        return 0;
}

static int make_cgroups(KeptSandbox *sandbox) {
        const KeeperConfig *config = sandbox->config;
        if (!config->cgroup)
                return 0;
        int r = cgroup_make(config->cgroup, &sandbox->cgroup_above);
        if (r >= 0)
                r = limit_groups_enable(config, sandbox->cgroup_above);
        return r < 0 ? r : cgroup_add(sandbox->cgroup_above, BOX_NAME, &sandbox->cgroup);
}

/* Gives the keeper's user all that it needs from now on. To start processes in a cgroup the keeper must be allowed to
 * move them there from its own one, so that one has to be among what it is given. */
static int delegate(const KeptSandbox *sandbox) {
        const KeeperConfig *config = sandbox->config;
        uid_t id = config->keeper_id;
        int r = limit_groups_delegate(sandbox, id);
        if (r >= 0 && sandbox->cgroup >= 0) {
                _cleanup_close_ int own = -1;
                r = cgroup_delegate(sandbox->cgroup_above, id);
                if (r >= 0)
                        r = cgroup_delegate(sandbox->cgroup, id);
                if (r >= 0 && limit_groups_are_v2(config))
                        r = cgroup_add(sandbox->cgroup_above, KEEPER_NAME, &own);
                if (r >= 0)
                        r = cgroup_write(own >= 0 ? own : sandbox->cgroup_above, "cgroup.procs", "0");
        }
        return r >= 0 && lchown(config->state_folder, id, id) < 0 ? -errno : r;
}

/* Moves PID 1 to where it belongs. */
static int move_init(const KeptSandbox *sandbox, pid_t pid) {
        _cleanup_close_ int own = -1;
        int r = limit_groups_are_v2(sandbox->config) ? cgroup_add(sandbox->cgroup, INIT_NAME, &own) : 0;
        if (r >= 0 && sandbox->cgroup >= 0) {
                char text[16];
                (void) snprintf(text, sizeof(text), "%d", (int) pid);
                r = cgroup_write(own >= 0 ? own : sandbox->cgroup, "cgroup.procs", text);
        }
        if (r >= 0)
                r = limit_groups_move(sandbox, pid);
        /* It has ended, and says why. */
        return r == -ESRCH ? 0 : r;
}

static int make_groups(KeptSandbox *sandbox, pid_t init, HutchError *err) {
        const KeeperConfig *config = sandbox->config;
        int r = make_cgroups(sandbox);
        if (r < 0)
                return fail(config, err, r, "its cgroups");
        r = limit_groups_make(sandbox);
        if (r < 0)
                return fail(config, err, r, "its limits");
        r = config->keeper_id != 0 ? delegate(sandbox) : 0;
        if (r < 0)
                return fail(config, err, r, "its keeper's user");
        r = move_init(sandbox, init);
        return r < 0 ? fail(config, err, r, "its PID 1's cgroup") : 0;
}

/* Acts as root, or as itself again: it has all capabilities still. */
static int act_as(uid_t id) {
        return setresgid((gid_t) -1, id, (gid_t) -1) < 0 || setresuid((uid_t) -1, id, (uid_t) -1) < 0 ? -errno : 0;
}

/* Makes the cgroups as root: most of their files stay root's, so that the keeper cannot change its sandbox's limits.
 * Then tells PID 1, which has mounted meanwhile. */
static int finish_init(KeptSandbox *sandbox, pid_t init, HutchError *err) {
        const KeeperConfig *config = sandbox->config;
        int r = config->keeper_id != 0 ? act_as(0) : 0;
        if (r < 0)
                return fail(config, err, r, "its keeper's user");
        r = make_groups(sandbox, init, err);
        int back = config->keeper_id != 0 ? act_as(config->keeper_id) : 0;
        if (r < 0)
                return r;
        if (back < 0)
                return fail(config, err, back, "its keeper's user");
        r = fds_send(sandbox->init_socket, "", 1, NULL, 0);
        /* It has ended, and says why. */
        return r < 0 && r != -EPIPE ? fail(config, err, r, "its PID 1") : 0;
}

static int begin(KeptSandbox *sandbox, HutchError *err) {
        const KeeperConfig *config = sandbox->config;
        _cleanup_(rootfs_freep) Rootfs *rootfs = NULL;
        pid_t init = 0;
        int r = rootfs_new(config, &rootfs, err);
        if (r < 0)
                return r;
        /* Who clones PID 1 owns its user namespace. */
        r = config->keeper_id != 0 ? user_become(config->keeper_id) : 0;
        if (r < 0)
                return fail(config, err, r, "its keeper's user");
        r = clone_init(sandbox, rootfs, &init, err);
        if (r >= 0)
                r = prepare_init(sandbox, rootfs, init, sandbox->init_socket, err);
        if (r >= 0)
                r = finish_init(sandbox, init, err);
        if (r < 0)
                return r;
        r = rootfs_open_kept(rootfs, &sandbox->kept);
        if (r < 0)
                return fail(config, err, r, "its files");
        sandbox->keeper_pids = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
        if (sandbox->keeper_pids < 0)
                return fail(config, err, -errno, "the keeper's pid namespace");
        return prepare_keeper(config, err);
}

int sandbox_begin(const KeeperConfig *config, KeptSandbox **ret_sandbox, HutchError *err) {
        _cleanup_(sandbox_destroyp) KeptSandbox *sandbox = new0(KeptSandbox, 1);
        sandbox->config = config;
        sandbox->init_pidfd = sandbox->init_socket = sandbox->ptmx = sandbox->root = sandbox->message_queues = -1;
        sandbox->cgroup = sandbox->cgroup_above = sandbox->keeper_pids = sandbox->kept = sandbox->image = -1;
        sandbox->upper = -1;
        for (int i = 0; i < N_NAMESPACES; i++)
                sandbox->namespaces[i] = -1;
        for (int i = 0; i < N_MEMORY_PARTS; i++)
                sandbox->memory_parts[i] = -1;
        limit_groups_init(sandbox);

        int r = begin(sandbox, err);
        if (r < 0)
                return r;
        *ret_sandbox = TAKE_PTR(sandbox);
        return 0;
}

int sandbox_report_fd(const KeptSandbox *sandbox) {
        return sandbox->init_socket;
}

int sandbox_finish(KeptSandbox *sandbox, HutchError *err) {
        int r = receive_report(sandbox, err);
        if (r < 0)
                return r;
        r = move_children(sandbox);
        return r < 0 ? fail(sandbox->config, err, r, "entering its pid namespace") : 0;
}

int sandbox_confine(const KeptSandbox *sandbox, int state_folder) {
        /* Where there are no cgroups processes are found by /proc, and where no controller counts memory, too. */
        bool needs_proc = sandbox->cgroup < 0 || keeper_config_measures_memory(sandbox->config);
        _cleanup_close_ int proc = needs_proc ? open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        bool has_sockets = mounts_have_sockets(sandbox->config);
        LandlockRule rules[7 + N_CONTROLLERS] = {
                { sandbox->root, has_sockets ? LANDLOCK_USE_SOCKETS : LANDLOCK_USE_ALL },
                { sandbox->message_queues, LANDLOCK_USE_ALL },
                { state_folder, LANDLOCK_USE_FILES },
                { sandbox->cgroup_above, LANDLOCK_USE_FOLDERS },
                { proc, LANDLOCK_USE_READ },
                { sandbox->image, LANDLOCK_USE_READ },
                { sandbox->upper, LANDLOCK_USE_READ },
        };
        for (int i = 0; i < N_CONTROLLERS; i++)
                rules[7 + i] = (LandlockRule){ sandbox->limits[i].folder, LANDLOCK_USE_FOLDERS };
        int r = landlock_restrict(rules, sizeof(rules) / sizeof(rules[0]));
        return r < 0 ? r : 0;
}

/* One step that fails keeps none of the others from being taken. */
void sandbox_give_up(const KeeperConfig *config, int state_folder) {
        const LandlockRule rule = { state_folder, LANDLOCK_USE_FILES };
        bool has_capabilities = config->keeper_id != 0; /* others never had any */
        if (has_capabilities)
                (void) user_become(config->keeper_id);
        (void) privileges_seal(has_capabilities);
        if (has_capabilities)
                (void) privileges_drop(0);
        (void) filter_install(&config->keeper_filter);
        (void) landlock_restrict(&rule, 1);
}

/* ---- Ending ---- */

/* Kills PID 1, and with it everything, and waits for the end. PID 1 cannot end before its spawned processes are waited
 * for, and those are the keeper's only other children. */
static void end_processes(const KeptSandbox *sandbox) {
        int init_pidfd = sandbox->init_pidfd;
        (void) syscall(SYS_pidfd_send_signal, init_pidfd, SIGKILL, NULL, 0);
        if (sandbox->cgroup >= 0)
                (void) cgroup_write(sandbox->cgroup, "cgroup.kill", "1");
        /* Those that are just being spawned have it, too. */
        (void) shutdown(sandbox->init_socket, SHUT_RDWR);
        limit_groups_let_end(sandbox);
        uint64_t end = clock_monotonic_ns() + END_TIMEOUT;
        do {
                struct pollfd poll_fd = { .fd = init_pidfd, .events = POLLIN };
                if (poll(&poll_fd, 1, 1) > 0)
                        break;
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
        } while (clock_monotonic_ns() < end);
        (void) waitid((idtype_t) P_PIDFD, (id_t) init_pidfd, &(siginfo_t){}, WEXITED | WNOHANG);
}

KeptSandbox *sandbox_destroy(KeptSandbox *sandbox) {
        if (!sandbox)
                return NULL;
        sandbox_unprepare(sandbox);
        if (sandbox->init_pidfd >= 0)
                end_processes(sandbox);
        if (sandbox->children_are_here)
                (void) setns(sandbox->keeper_pids, CLONE_NEWPID);
        if (sandbox->cgroup >= 0)
                (void) cgroup_remove(sandbox->cgroup_above, BOX_NAME, END_TIMEOUT);
        /* With the keeper in it this one stays, and goes when hutchd has seen the keeper's end. */
        if (sandbox->cgroup_above >= 0)
                (void) rmdir(sandbox->config->cgroup);
        limit_groups_remove(sandbox);
        for (int i = 0; i < N_NAMESPACES; i++)
                fd_close(sandbox->namespaces[i]);
        for (int i = 0; i < N_MEMORY_PARTS; i++)
                fd_close(sandbox->memory_parts[i]);
        fd_close(sandbox->init_pidfd);
        fd_close(sandbox->init_socket);
        fd_close(sandbox->ptmx);
        fd_close(sandbox->root);
        fd_close(sandbox->kept);
        fd_close(sandbox->image);
        fd_close(sandbox->upper);
        fd_close(sandbox->message_queues);
        fd_close(sandbox->cgroup);
        fd_close(sandbox->cgroup_above);
        fd_close(sandbox->keeper_pids);
        free(sandbox);
        return NULL;
}

/* ---- As a whole ---- */

int sandbox_init_pidfd(const KeptSandbox *sandbox) {
        return sandbox->init_pidfd;
}

int sandbox_set_frozen(KeptSandbox *sandbox, bool frozen, HutchError *err) {
        if (sandbox->cgroup < 0)
                return error_set(err, -EOPNOTSUPP, "FEATURE_UNSUPPORTED",
                                 "pausing needs cgroups, which hutchd does not have here");
        int r = cgroup_write(sandbox->cgroup, "cgroup.freeze", frozen ? "1" : "0");
        if (r >= 0)
                r = cgroup_wait(sandbox->cgroup, "frozen", frozen, FREEZE_TIMEOUT);
        if (r >= 0)
                return 0;
        if (frozen)
                (void) cgroup_write(sandbox->cgroup, "cgroup.freeze", "0");
        return error_set(err, r, r == -ETIMEDOUT ? "DEADLINE_EXCEEDED" : "IO_ERROR", "the sandbox cannot be %s: %s",
                         frozen ? "paused" : "unpaused", strerror(-r));
}

void sandbox_get_usage(const KeptSandbox *sandbox, SandboxUsage *ret_usage) {
        SandboxUsage usage = {};
        uint64_t value;
        int cgroup = sandbox->cgroup;
        if (cgroup >= 0) {
                if (cgroup_read(cgroup, "cpu.stat", "usage_usec", &value) >= 0)
                        usage.cpu_time = value * NSEC_PER_USEC;
                uint32_t threads = cgroup_count_threads(cgroup);
                _cleanup_close_ int measure = openat(cgroup, MEASURE_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                /* PID 1, one that waits, and who measures. */
                uint32_t own = (sandbox->prepared ? 2 : 1) + (measure < 0 ? 0 : cgroup_count_threads(measure));
                usage.processes = threads > own ? threads - own : 0;
        }
        usage.memory_bytes = limit_group_memory(&sandbox->limits[CONTROLLER_MEMORY]);
        usage.memory_peak_bytes = limit_group_memory_peak(&sandbox->limits[CONTROLLER_MEMORY]);
        *ret_usage = usage;
}

int sandbox_open_terminal(KeptSandbox *sandbox, uint32_t rows, uint32_t columns, int *ret_master, int *ret_slave,
                          HutchError *err) {
        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", sandbox->ptmx);
        _cleanup_close_ int master = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (master < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot open a terminal: %s", strerror(errno));

        int unlocked = 0;
        struct winsize size = {
                .ws_row = (unsigned short) (rows < 0xffff ? rows : 0xffff),
                .ws_col = (unsigned short) (columns < 0xffff ? columns : 0xffff),
        };
        _cleanup_close_ int slave = -1;
        if (ioctl(master, TIOCSPTLCK, &unlocked) == 0 && ioctl(master, TIOCSWINSZ, &size) == 0)
                slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0)
                return error_set(err, -errno, "INTERNAL", "cannot open a terminal: %s", strerror(errno));
        *ret_master = TAKE_FD(master);
        *ret_slave = TAKE_FD(slave);
        return 0;
}
