/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the files of controllers, of both versions of cgroups. What does not: folders as such (cgroup.c),
 * and what becomes of a limit that was hit (exec.c, keeper.c). */

#include "keeper/box/limit-groups.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "keeper/box/cgroup.h"

#define CPU_PERIOD_USEC 100000
#define BFQ_WEIGHT_MAX 1000u
#define RESIDUE_MAX (1024 * 1024) /* bytes that nobody misses in the most memory that an exec used */
#define REMOVE_TIMEOUT 0          /* there is nothing in them */

void limit_group_init(LimitGroup *group) {
        *group = (LimitGroup){ .folder = -1, .procs = -1 };
}

void limit_groups_init(KeptSandbox *sandbox) {
        for (int i = 0; i < N_CONTROLLERS; i++)
                limit_group_init(&sandbox->limits[i]);
        sandbox->process_events = -1;
}

static void limit_group_close(LimitGroup *group) {
        fd_close(group->folder);
        fd_close(group->procs);
        limit_group_init(group);
}

static int duplicate(int fd, int *ret_fd) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
                return -errno;
        *ret_fd = copy;
        return 0;
}

static int open_procs(LimitGroup *group) {
        group->procs = openat(group->folder, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        return group->procs < 0 ? -errno : 0;
}

/* ---- Limits ---- */

static int set_number(const LimitGroup *group, const char *file, uint64_t value) {
        char text[32];
        (void) snprintf(text, sizeof(text), "%" PRIu64, value);
        return cgroup_write(group->folder, file, text);
}

static int limit_cpu(const LimitGroup *group, const KeeperConfig *config) {
        uint64_t quota = (uint64_t) config->cpu_millis * (CPU_PERIOD_USEC / 1000);
        int r = 0;
        if (quota > 0 && group->is_v2) {
                char text[64];
                (void) snprintf(text, sizeof(text), "%" PRIu64 " %d", quota, CPU_PERIOD_USEC);
                r = cgroup_write(group->folder, "cpu.max", text);
        } else if (quota > 0) {
                /* The period is that of all new groups. */
                r = set_number(group, "cpu.cfs_quota_us", quota);
        }
        if (r < 0 || config->cpu_weight == 0 || group->is_v2)
                return r;
        /* What is 100 in v2 is 1024 in v1. */
        return set_number(group, "cpu.shares", (uint64_t) config->cpu_weight * 1024 / 100);
}

/* In v2. A weight is one among siblings', so it is that of all the sandbox has. */
static int weigh_cpu(const KeptSandbox *sandbox, uint32_t weight) {
        char text[32];
        (void) snprintf(text, sizeof(text), "%" PRIu32, weight);
        return cgroup_write(sandbox->cgroup_above, "cpu.weight", text);
}

/* In v1 what sockets of the network hold is not counted as memory, but can have a limit of its own: in the group where
 * the processes are, to be counted, and in that above for all of them. */
static int limit_sockets(const LimitGroup *group, const KeeperConfig *config) {
        if (group->is_v2 || config->memory_bytes == 0)
                return 0;
        int r = set_number(group, "memory.kmem.tcp.limit_in_bytes", config->memory_bytes);
        return r == -ENOENT ? 0 : r;
}

static int limit_memory(const LimitGroup *group, const KeeperConfig *config) {
        if (config->memory_bytes == 0)
                return 0;
        int r = set_number(group, group->is_v2 ? "memory.max" : "memory.limit_in_bytes", config->memory_bytes);
        if (r < 0)
                return r;
        r = limit_sockets(group, config);
        if (r < 0)
                return r;
        /* No swap beyond it. Kernels that cannot swap have neither of these files. */
        r = group->is_v2 ? set_number(group, "memory.swap.max", 0)
                         : set_number(group, "memory.memsw.limit_in_bytes", config->memory_bytes);
        return r == -ENOENT ? 0 : r;
}

static int limit_processes(const LimitGroup *group, const KeeperConfig *config) {
        /* PID 1 is not counted. */
        return config->max_processes == 0 ? 0 : set_number(group, "pids.max", (uint64_t) config->max_processes + 1);
}

/* In v2 there is a file for each of the two schedulers that know weights, if the kernel has it. Who asks for nothing
 * has 100. */
static int limit_io(const LimitGroup *group, const KeeperConfig *config) {
        uint32_t weight = config->io_weight, bfq_weight = weight < BFQ_WEIGHT_MAX ? weight : BFQ_WEIGHT_MAX;
        if (weight == 0)
                return 0;
        if (!group->is_v2)
                return set_number(group, "blkio.bfq.weight", bfq_weight);
        int cost = set_number(group, "io.weight", weight), bfq = set_number(group, "io.bfq.weight", bfq_weight);
        return cost < 0 && bfq < 0 ? cost : 0;
}

static int (*const limit_functions[N_CONTROLLERS])(const LimitGroup *group, const KeeperConfig *config) = {
        [CONTROLLER_MEMORY] = limit_memory,
        [CONTROLLER_PIDS] = limit_processes,
        [CONTROLLER_IO] = limit_io,
        [CONTROLLER_CPU] = limit_cpu,
};

/* ---- The sandbox's ---- */

/* The group of a controller before @i that is in the same hierarchy; NULL: there is none. */
static const LimitGroup *find_shared(const KeptSandbox *sandbox, int i) {
        for (int j = 0; j < i; j++)
                if (sandbox->limits[j].folder >= 0 &&
                    str_equal(sandbox->config->controllers[j], sandbox->config->controllers[i]))
                        return &sandbox->limits[j];
        return NULL;
}

int limit_groups_enable(const KeeperConfig *config, int cgroup_above) {
        static const char *const names[N_CONTROLLERS] = {
                [CONTROLLER_MEMORY] = "+memory",
                [CONTROLLER_PIDS] = "+pids",
                [CONTROLLER_CPU] = "+cpu",
        };
        for (int i = 0; i < N_CONTROLLERS; i++) {
                if (!names[i] || !config->controllers[i] || !str_equal(config->controllers[i], config->cgroup))
                        continue;
                int r = cgroup_write(cgroup_above, "cgroup.subtree_control", names[i]);
                if (r < 0)
                        return r;
        }
        return 0;
}

bool limit_groups_are_v2(const KeeperConfig *config) {
        for (int i = 0; i < N_CONTROLLERS; i++)
                if (config->cgroup && config->controllers[i] && str_equal(config->controllers[i], config->cgroup))
                        return true;
        return false;
}

static int make_group(KeptSandbox *sandbox, int i) {
        LimitGroup *group = &sandbox->limits[i];
        const char *path = sandbox->config->controllers[i];
        group->is_v2 = sandbox->cgroup >= 0 && str_equal(path, sandbox->config->cgroup);
        /* As the weight of CPUs. */
        if (group->is_v2)
                return duplicate(i == CONTROLLER_IO ? sandbox->cgroup_above : sandbox->cgroup, &group->folder);
        const LimitGroup *shared = find_shared(sandbox, i);
        if (shared)
                return duplicate(shared->folder, &group->folder);
        int r = cgroup_make(path, &group->folder);
        return r < 0 ? r : open_procs(group);
}

int limit_groups_make(KeptSandbox *sandbox) {
        for (int i = 0; i < N_CONTROLLERS; i++) {
                LimitGroup *group = &sandbox->limits[i];
                if (!sandbox->config->controllers[i])
                        continue;
                int r = make_group(sandbox, i);
                if (r >= 0)
                        r = limit_functions[i](group, sandbox->config);
                if (r >= 0 && i == CONTROLLER_MEMORY && group->is_v2)
                        r = cgroup_write(group->folder, "cgroup.subtree_control", "+memory");
                if (r >= 0 && i == CONTROLLER_CPU && group->is_v2 && sandbox->config->cpu_weight > 0)
                        r = weigh_cpu(sandbox, sandbox->config->cpu_weight);
                if (r < 0)
                        return r;
        }
        if (sandbox->limits[CONTROLLER_PIDS].folder >= 0)
                sandbox->process_events =
                        openat(sandbox->limits[CONTROLLER_PIDS].folder, "pids.events", O_RDONLY | O_CLOEXEC);
        return 0;
}

/* What the end of a sandbox needs: limit_groups_let_end(). */
static int delegate_cpu(const KeptSandbox *sandbox, uid_t id) {
        static const char *const names[] = { "cpu.max", "cpu.cfs_quota_us", "cpu.shares" };
        const LimitGroup *group = &sandbox->limits[CONTROLLER_CPU];
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (fchownat(group->folder, names[i], id, id, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
                        return -errno;
        if (!group->is_v2)
                return 0;
        return fchownat(sandbox->cgroup_above, "cpu.weight", id, id, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int limit_groups_delegate(const KeptSandbox *sandbox, uid_t id) {
        for (int i = 0; i < N_CONTROLLERS; i++) {
                int r = sandbox->limits[i].procs < 0 ? 0 : cgroup_delegate(sandbox->limits[i].folder, id);
                if (r < 0)
                        return r;
        }
        return sandbox->limits[CONTROLLER_CPU].folder < 0 ? 0 : delegate_cpu(sandbox, id);
}

void limit_groups_let_end(const KeptSandbox *sandbox) {
        const LimitGroup *group = &sandbox->limits[CONTROLLER_CPU];
        if (group->folder < 0)
                return;
        (void) cgroup_write(group->folder, group->is_v2 ? "cpu.max" : "cpu.cfs_quota_us", group->is_v2 ? "max" : "-1");
        if (group->is_v2)
                (void) weigh_cpu(sandbox, 10000);
        else
                (void) set_number(group, "cpu.shares", 262144);
}

void limit_groups_remove(KeptSandbox *sandbox) {
        for (int i = 0; i < N_CONTROLLERS; i++) {
                if (sandbox->limits[i].procs >= 0)
                        (void) cgroup_remove(AT_FDCWD, sandbox->config->controllers[i], REMOVE_TIMEOUT);
                limit_group_close(&sandbox->limits[i]);
        }
        sandbox->process_events = fd_close(sandbox->process_events);
}

int limit_groups_move(const KeptSandbox *sandbox, pid_t init) {
        char text[16];
        (void) snprintf(text, sizeof(text), "%d", (int) init);
        for (int i = 0; i < N_CONTROLLERS; i++) {
                int procs = sandbox->limits[i].procs;
                int r = procs < 0 ? 0 : fd_write_all(procs, text, strlen(text));
                if (r < 0)
                        return r;
        }
        return 0;
}

int limit_groups_enter(const KeptSandbox *sandbox, const ExecGroup *exec) {
        for (int i = 0; i < N_CONTROLLERS; i++) {
                int procs = i == CONTROLLER_MEMORY ? exec->memory.procs : sandbox->limits[i].procs;
                int r = procs < 0 ? 0 : fd_write_all(procs, "0", 1);
                if (r < 0)
                        return r;
        }
        return 0;
}

uint64_t sandbox_process_limit_hits(const KeptSandbox *sandbox) {
        /* Reading this descriptor is also what makes it poll for the next change. */
        char text[256];
        ssize_t n = sandbox->process_events < 0 ? -1 : pread(sandbox->process_events, text, sizeof(text) - 1, 0);
        if (n < 0)
                return 0;
        text[n] = '\0';
        return str_has_prefix(text, "max ") ? strtoull(text + strlen("max "), NULL, 10) : 0;
}

int sandbox_process_limit_fd(const KeptSandbox *sandbox) {
        return sandbox->process_events;
}

/* ---- An exec's ---- */

/* Whether the sandbox has memory left, or such as the kernel takes back at once, for what belongs to another group. */
static bool has_room(const LimitGroup *group, const KeeperConfig *config) {
        uint64_t limit = config->memory_bytes, room = limit / 8, used = limit_group_memory(group), value = 0;
        if (limit == 0 || used + room <= limit)
                return true;
        static const char *const kept_files[] = { "total_inactive_file", "total_active_file" };
        for (size_t i = 0; i < sizeof(kept_files) / sizeof(kept_files[0]); i++)
                if (cgroup_read(group->folder, "memory.stat", kept_files[i], &value) >= 0)
                        used -= value < used ? value : used;
        return used + room <= limit;
}

/* Has the exec be in the sandbox's own group. */
static int share(const LimitGroup *above, ExecGroup *exec) {
        exec->shares_memory = true;
        exec->kills_before = limit_group_memory_kills(above);
        int r = duplicate(above->folder, &exec->memory.folder);
        return r < 0 ? r : duplicate(above->procs, &exec->memory.procs);
}

int limit_group_add_exec(ExecGroup *exec) {
        const LimitGroup *above = &exec->sandbox->limits[CONTROLLER_MEMORY];
        LimitGroup *group = &exec->memory;
        if (above->folder < 0)
                return 0;
        group->is_v2 = above->is_v2;
        if (group->is_v2) {
                int r = duplicate(exec->cgroup, &group->folder);
                /* An exec that lost one of its processes is not what it was. */
                return r < 0 ? r : cgroup_write(group->folder, "memory.oom.group", "1");
        }
        /* The kernel counts a new group as memory of the one above it. Where that is at its limit it looks for memory
         * to take back, and for whom to kill, while nobody on the host can make or remove a cgroup. */
        if (!has_room(above, exec->sandbox->config))
                return share(above, exec);
        int r = cgroup_add(above->folder, exec->name, &group->folder);
        if (r >= 0)
                r = limit_sockets(group, exec->sandbox->config);
        return r < 0 ? r : open_procs(group);
}

bool limit_group_reset_exec(const ExecGroup *exec) {
        const LimitGroup *group = &exec->memory;
        if (group->folder < 0)
                return true;
        /* What files it has read or written are in memory still is not to be taken for the next one's. In v2 what was
         * counted cannot be forgotten. */
        return !group->is_v2 && !exec->shares_memory && limit_group_memory(group) <= RESIDUE_MAX &&
               set_number(group, "memory.max_usage_in_bytes", 0) >= 0;
}

void limit_group_remove_exec(ExecGroup *exec) {
        if (exec->memory.folder >= 0 && !exec->memory.is_v2 && !exec->shares_memory)
                (void) unlinkat(exec->sandbox->limits[CONTROLLER_MEMORY].folder, exec->name, AT_REMOVEDIR);
        limit_group_close(&exec->memory);
}

/* ---- Use ---- */

static uint64_t read_number(const LimitGroup *group, const char *v2_file, const char *v1_file, const char *key) {
        uint64_t value;
        if (group->folder < 0 || cgroup_read(group->folder, group->is_v2 ? v2_file : v1_file, key, &value) < 0)
                return 0;
        return value;
}

uint64_t limit_group_memory(const LimitGroup *group) {
        return read_number(group, "memory.current", "memory.usage_in_bytes", NULL);
}

uint64_t limit_group_memory_peak(const LimitGroup *group) {
        return read_number(group, "memory.peak", "memory.max_usage_in_bytes", NULL);
}

uint64_t limit_group_memory_kills(const LimitGroup *group) {
        uint64_t value;
        /* In v2 an exec is killed whole, and oom_kill has its processes, the first of them twice. Since Linux 5.17: */
        if (group->is_v2 && group->folder >= 0 &&
            cgroup_read(group->folder, "memory.events", "oom_group_kill", &value) >= 0)
                return value;
        return read_number(group, "memory.events", "memory.oom_control", "oom_kill");
}
