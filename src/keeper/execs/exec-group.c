/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the processes of one exec as a group: a cgroup, or what process-tree.h finds. What does not:
 * starting them (spawn.c), when to end them. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strings.h"
#include "keeper/box/cgroup.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/limit-groups.h"
#include "keeper/execs/process-tree.h"
#include "keeper/execs/starter.h"

#define BATCH_MAX 64   /* processes that are signalled at once */
#define PREFIX "exec-" /* keeps ids apart from `init` and from the names that the kernel has for itself */

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

static int fail(HutchError *err, int r) {
        return error_set(err, r,
                         r == -ENOSPC || r == -ENOMEM || r == -EMFILE || r == -EAGAIN ? "HOST_EXHAUSTED" : "INTERNAL",
                         "cannot make a cgroup for the exec: %s", strerror(-r));
}

int exec_group_new(KeptSandbox *sandbox, const char *exec_id, ExecGroup **ret_group, HutchError *err) {
        _cleanup_(exec_group_freep) ExecGroup *group = new0(ExecGroup, 1);
        group->sandbox = sandbox;
        group->cgroup = group->events = -1;
        limit_group_init(&group->memory);
        if (asprintf(&group->name, PREFIX "%s", exec_id) < 0)
                abort();
        if (sandbox->cgroup >= 0) {
                int r = cgroup_add(sandbox->cgroup, group->name, &group->cgroup);
                if (r < 0)
                        return fail(err, r);
                group->events = openat(group->cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
                if (group->events < 0)
                        return fail(err, -errno);
        }
        int r = limit_group_add_exec(group);
        if (r < 0)
                return fail(err, r);
        *ret_group = TAKE_PTR(group);
        return 0;
}

/* Has everything counted from 0 again. Returns whether the group is as good as new. */
static bool exec_group_reset(ExecGroup *group) {
        if (group->cgroup < 0 || group->was_killed || !limit_group_reset_exec(group))
                return false;
        group->cpu_before += exec_group_cpu_time(group);
        group->kills_before += exec_group_memory_kills(group);
        group->main_pid = 0;
        return true;
}

int sandbox_prepare_group(KeptSandbox *sandbox, ExecGroup **ret_group, HutchError *err) {
        char name[32];
        /* No exec has such an id. */
        (void) snprintf(name, sizeof(name), ".%" PRIu64, ++sandbox->n_prepared);
        return exec_group_new(sandbox, name, ret_group, err);
}

int sandbox_prepare(KeptSandbox *sandbox, const char *user, ExecGroup *used, HutchError *err) {
        _cleanup_(exec_group_freep) ExecGroup *group = used;
        if (sandbox->prepared)
                return error_set(err, -EBUSY, "INTERNAL", "a process waits already");
        if (sandbox->cgroup < 0)
                return error_set(err, -EOPNOTSUPP, "FEATURE_UNSUPPORTED", "nobody knows what runs in the sandbox");
        if (group && group->main_pid != 0 && !exec_group_reset(group))
                group = exec_group_free(group);
        int r = group ? 0 : sandbox_prepare_group(sandbox, &group, err);
        if (r < 0 || !group)
                return r;
        if (group->shares_memory)
                return error_set(err, -EBUSY, "HOST_EXHAUSTED", "the sandbox has no memory to spare");
        r = starter_new(sandbox, group, user, &group->starter, err);
        if (r < 0)
                return r;
        sandbox->prepared = TAKE_PTR(group);
        return 0;
}

int sandbox_prepared_pidfd(const KeptSandbox *sandbox) {
        return sandbox->prepared ? starter_pidfd(sandbox->prepared->starter) : -1;
}

void sandbox_unprepare(KeptSandbox *sandbox) {
        sandbox->prepared = exec_group_free(sandbox->prepared);
}

int sandbox_take_group(KeptSandbox *sandbox, const char *exec_id, const char *user, ExecGroup **ret_group,
                       HutchError *err) {
        if (sandbox->prepared && (!user || !starter_fits(sandbox->prepared->starter, user)))
                sandbox_unprepare(sandbox);
        if (!sandbox->prepared)
                return exec_group_new(sandbox, exec_id, ret_group, err);
        *ret_group = TAKE_PTR(sandbox->prepared);
        return 0;
}

void sandbox_set_execs_frozen(const KeptSandbox *sandbox, bool frozen) {
        int fd = sandbox->cgroup < 0 ? -1 : openat(sandbox->cgroup, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(closedirp) DIR *groups = fd < 0 ? NULL : fdopendir(fd);
        if (!groups) {
                fd_close(fd);
                return;
        }
        for (const struct dirent *entry; (entry = readdir(groups));) {
                _cleanup_close_ int group = -1;
                /* The keeper waits for one that is prepared. */
                if (!str_has_prefix(entry->d_name, PREFIX) ||
                    (frozen && sandbox->prepared && str_equal(entry->d_name, sandbox->prepared->name)))
                        continue;
                group = openat(dirfd(groups), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (group >= 0)
                        (void) cgroup_write(group, "cgroup.freeze", frozen ? "1" : "0");
        }
}

ExecGroup *exec_group_free(ExecGroup *group) {
        if (!group)
                return NULL;
        (void) starter_free(group->starter);
        fd_close(group->events);
        if (group->cgroup >= 0)
                (void) unlinkat(group->sandbox->cgroup, group->name, AT_REMOVEDIR);
        fd_close(group->cgroup);
        limit_group_remove_exec(group);
        free(group->name);
        free(group);
        return NULL;
}

/* Processes that were in the group a moment ago. */
typedef struct Batch {
        size_t n;
        pid_t pids[BATCH_MAX];
        int pidfds[BATCH_MAX];
} Batch;

static FILE *open_processes(const ExecGroup *group) {
        int fd = openat(group->cgroup, "cgroup.procs", O_RDONLY | O_CLOEXEC);
        FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
        if (!file)
                fd_close(fd);
        return file;
}

static pid_t next_process(FILE *file) {
        char line[32];
        return fgets(line, sizeof(line), file) ? (pid_t) strtol(line, NULL, 10) : 0;
}

/* Signals those that are in the group still. The number of one may have passed on since it was read: whoever has it now
 * is in the group and is what the pidfd holds, or that one is dead and gets nothing. */
static void batch_signal(Batch *batch, const ExecGroup *group, int number) {
        FILE *file = open_processes(group);
        for (pid_t pid; file && (pid = next_process(file)) > 0;)
                for (size_t i = 0; i < batch->n; i++)
                        if (batch->pids[i] == pid)
                                (void) syscall(SYS_pidfd_send_signal, batch->pidfds[i], number, NULL, 0);
        if (file)
                (void) fclose(file);
        while (batch->n > 0)
                fd_close(batch->pidfds[--batch->n]);
}

int exec_group_signal(ExecGroup *group, int number) {
        if (group->cgroup < 0)
                return process_tree_signal(group->main_pid, number);
        FILE *file = open_processes(group);
        if (!file)
                return -errno;
        Batch batch = {};
        for (pid_t pid; (pid = next_process(file)) > 0;) {
                int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
                if (pidfd < 0)
                        continue;
                batch.pids[batch.n] = pid;
                batch.pidfds[batch.n++] = pidfd;
                if (batch.n == BATCH_MAX)
                        batch_signal(&batch, group, number);
        }
        batch_signal(&batch, group, number);
        (void) fclose(file);
        return 0;
}

int exec_group_kill(ExecGroup *group) {
        if (group->cgroup < 0)
                return process_tree_kill(group->main_pid);
        group->was_killed = true;
        return cgroup_write(group->cgroup, "cgroup.kill", "1");
}

bool exec_group_is_populated(ExecGroup *group) {
        if (group->cgroup < 0)
                return process_tree_is_populated(group->main_pid);
        /* Reading this descriptor is also what makes it poll for the next change. */
        char text[256];
        ssize_t n = pread(group->events, text, sizeof(text) - 1, 0);
        if (n < 0)
                return false;
        text[n] = '\0';
        return strstr(text, "populated 1") != NULL;
}

int exec_group_events_fd(const ExecGroup *group) {
        return group->events;
}

uint64_t exec_group_cpu_time(const ExecGroup *group) {
        uint64_t value;
        if (group->cgroup < 0 || cgroup_read(group->cgroup, "cpu.stat", "usage_usec", &value) < 0)
                return 0;
        return value * NSEC_PER_USEC - group->cpu_before;
}

uint64_t exec_group_peak_memory(const ExecGroup *group) {
        if (group->shares_memory)
                return 0;
        uint64_t peak = limit_group_memory_peak(&group->memory), limit = group->sandbox->config->memory_bytes;
        /* In v2 it also has what was asked for last and refused, because the limit is in the cgroup above. */
        return limit > 0 && peak > limit ? limit : peak;
}

uint64_t exec_group_memory_kills(const ExecGroup *group) {
        return limit_group_memory_kills(&group->memory) - group->kills_before;
}
