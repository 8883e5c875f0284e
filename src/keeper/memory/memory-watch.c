/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: counting while something runs, and finding whom to kill. What does not: counting itself
 * (memory-usage.c), when (memory-rule.c), and the ends of execs (keeper.c). */

#include "keeper/memory/memory-watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/loop.h"
#include "keeper/memory/memory-rule.h"
#include "keeper/memory/memory-usage.h"

#define COUNT_TIME (250 * NSEC_PER_MSEC) /* for counting exactly */
#define END_TIME (500 * NSEC_PER_MSEC)   /* for what was killed to be gone, before the next is */
#define CERTAIN_TIME (50 * NSEC_PER_MSEC)
#define EXECS_MAX 1024 /* that are told apart */

struct MemoryWatch {
        const KeptSandbox *sandbox;
        const MemoryWatchEvents *events;
        MemorySources sources;
        MemoryCount count;
        MemoryRule rule;
        Alarm *alarm;
        bool is_active, is_counting;
        uint64_t over_since; /* 0: it is not over */
        uint64_t killed_at;  /* 0: nothing is ending */
};

/* ---- Whom to kill ---- */

/* The number that the sandbox has for a process of the host, which the keeper can see in the host's /proc. */
static pid_t inner_pid(pid_t pid) {
        char path[64], text[8192];
        (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n < 0)
                return 0;
        text[n] = '\0';
        const char *line = strstr(text, "\nNSpid:");
        size_t len = line ? strcspn(line + 1, "\n") : 0;
        const char *last = line ? (const char *) memrchr(line + 1, '\t', len) : NULL;
        return last ? (pid_t) strtol(last, NULL, 10) : 0;
}

/* Finds which exec each process belongs to: @ret_owners has a number of @mains for each, or @n_mains. */
static void find_owners(const MemoryCount *count, const pid_t *mains, size_t n_mains, size_t *ret_owners) {
        for (size_t i = 0; i < count->n; i++)
                ret_owners[i] = n_mains;
        for (bool is_changed = true; is_changed;) {
                is_changed = false;
                for (size_t i = 0; i < count->n; i++) {
                        const MemoryProcess *process = &count->processes[i];
                        size_t owner = n_mains;
                        if (ret_owners[i] < n_mains)
                                continue;
                        for (size_t j = 0; j < n_mains && owner == n_mains; j++)
                                if (mains[j] > 0 && (process->pid == mains[j] || process->session == mains[j]))
                                        owner = j;
                        for (size_t j = 0; j < count->n && owner == n_mains; j++)
                                if (count->processes[j].pid == process->parent)
                                        owner = ret_owners[j];
                        is_changed |= owner < n_mains;
                        ret_owners[i] = owner;
                }
        }
}

/* Kills what the sandbox's /proc has under that number. A descriptor of that folder is one of the process. */
static void kill_process(const MemoryWatch *watch, pid_t pid) {
        char name[16];
        (void) snprintf(name, sizeof(name), "%d", (int) pid);
        _cleanup_close_ int fd = openat(watch->sources.proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
                (void) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

static void kill_most(MemoryWatch *watch) {
        const MemoryCount *count = &watch->count;
        pid_t pids[EXECS_MAX], mains[EXECS_MAX];
        size_t n = watch->events->list(pids, EXECS_MAX, watch->events->user), most = n;
        _cleanup_free_ uint64_t *sums = new0(uint64_t, n + 1);
        _cleanup_free_ size_t *owners = new0(size_t, count->n + 1);
        for (size_t i = 0; i < n; i++)
                mains[i] = inner_pid(pids[i]);
        find_owners(count, mains, n, owners);
        for (size_t i = 0; i < count->n; i++)
                sums[owners[i]] += count->processes[i].bytes;
        for (size_t i = 0; i < n; i++)
                if (sums[i] > sums[most])
                        most = i;

        log_info("more memory than allowed", LOG_STR("sandbox", watch->sandbox->config->sandbox_id),
                 LOG_UINT("bytes", count->total));
        watch->killed_at = clock_monotonic_ns();
        for (size_t i = 0; most == n && i < count->n; i++)
                if (owners[i] == n)
                        kill_process(watch, count->processes[i].pid);
        watch->events->hit(most == n ? 0 : pids[most], watch->events->user);
}

/* ---- Counting ---- */

/* Returns the time until the next count. */
static uint64_t count_now(MemoryWatch *watch) {
        uint64_t begin = clock_monotonic_ns(), limit = watch->rule.limit > 0 ? watch->rule.limit : UINT64_MAX;
        memory_count(&watch->sources, limit, begin + COUNT_TIME, &watch->count);
        return memory_rule_take(&watch->rule, watch->count.total, clock_monotonic_ns() - begin);
}

/* Whether it is too much for sure. Processes are not all looked at in the same moment: what those share that are just
 * being made can seem more than it is. What one process has is certain. */
static bool is_certain(const MemoryWatch *watch, uint64_t now) {
        const MemoryCount *count = &watch->count;
        uint64_t most = 0;
        for (size_t i = 0; i < count->n; i++)
                most = count->processes[i].bytes > most ? count->processes[i].bytes : most;
        return count->shared + most > watch->rule.limit || now - watch->over_since > CERTAIN_TIME;
}

static void on_alarm(void *user) {
        MemoryWatch *watch = user;
        uint64_t interval = count_now(watch), now = clock_monotonic_ns();
        bool is_over = watch->count.total > watch->rule.limit;
        if (!is_over || now - watch->killed_at > END_TIME)
                watch->killed_at = 0;
        if (!is_over || watch->over_since == 0)
                watch->over_since = is_over ? now : 0;
        watch->is_counting = watch->is_active || watch->count.n > 0;
        alarm_set(watch->alarm, watch->is_counting ? interval : UINT64_MAX);
        if (is_over && watch->killed_at == 0 && is_certain(watch, now))
                kill_most(watch);
}

void memory_watch_set_active(MemoryWatch *watch, bool active) {
        if (watch->is_active == active || watch->rule.limit == 0)
                return;
        watch->is_active = active;
        if (!active || watch->is_counting)
                return;
        watch->is_counting = true;
        watch->rule.n_quiet = 0;
        alarm_set(watch->alarm, 0);
}

void memory_watch_usage(MemoryWatch *watch, uint64_t *ret_bytes, uint64_t *ret_peak) {
        /* Exactly: what processes share is not to be told several times. */
        memory_count(&watch->sources, 0, clock_monotonic_ns() + COUNT_TIME, &watch->count);
        watch->rule.peak = watch->count.total > watch->rule.peak ? watch->count.total : watch->rule.peak;
        *ret_bytes = watch->count.total;
        *ret_peak = watch->rule.peak;
}

/* ---- Its beginning and its end ---- */

/* A folder of the sandbox's that is in memory; -1: it is not. */
static int open_in_memory(const KeptSandbox *sandbox, const char *path) {
        struct statfs info;
        int fd = openat(sandbox->root, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd >= 0 && fstatfs(fd, &info) == 0 && info.f_type == TMPFS_MAGIC ? fd : fd_close(fd);
}

int memory_watch_new(uv_loop_t *loop, const KeptSandbox *sandbox, const MemoryWatchEvents *events,
                     MemoryWatch **ret_watch) {
        int proc = openat(sandbox->root, "proc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (proc < 0)
                return -errno;
        MemoryWatch *watch = new0(MemoryWatch, 1);
        *watch = (MemoryWatch){
                .sandbox = sandbox,
                .events = events,
                .sources = {
                        .proc = proc,
                        .pids = sandbox->namespaces[NAMESPACE_PID],
                        .files = { open_in_memory(sandbox, "dev/shm"), open_in_memory(sandbox, "tmp") },
                },
                .rule.limit = sandbox->config->memory_bytes,
                .alarm = alarm_new(loop, on_alarm, watch),
        };
        memcpy(watch->sources.parts, sandbox->memory_parts, sizeof(watch->sources.parts));
        watch->sources.sockets_before = memory_count_sockets(&watch->sources);
        *ret_watch = watch;
        return 0;
}

MemoryWatch *memory_watch_free(MemoryWatch *watch) {
        if (!watch)
                return NULL;
        alarm_free(watch->alarm);
        fd_close(watch->sources.proc);
        for (size_t i = 0; i < sizeof(watch->sources.files) / sizeof(watch->sources.files[0]); i++)
                fd_close(watch->sources.files[i]);
        free(watch->sources.text);
        memory_count_clear(&watch->count);
        free(watch);
        return NULL;
}
