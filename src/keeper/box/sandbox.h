/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/memory.h"
#include "keeper/config.h"

/* One sandbox, as the kernel has it: namespaces with a PID 1, a root, a cgroup; and the processes put into it.
 *
 *         sandbox_build(config, &sandbox, &err);
 *         exec_group_new(sandbox, exec_id, &group, &err);
 *         plan = (SpawnPlan){ .argv = …, .group = group, … };
 *         pid = sandbox_spawn(sandbox, &plan, &pidfd, &error_fd, &err);
 *                 error_fd: EOF, or a SpawnFailure          did the program start?
 *                 pidfd readable: wait4(pid, …)             it ended
 *                 exec_group_kill(group)                    and so does all that it started
 *         exec_group_free(group);
 *         sandbox_destroy(sandbox);
 *
 * Nothing here needs a loop, and only what says so blocks. Descriptors are close-on-exec. The keeper has one thread
 * and one sandbox: after sandbox_finish() its children are born in the sandbox's pid namespace, where threads of the
 * keeper cannot be, so the loop's thread pool must not be used. Callers ignore SIGPIPE and do not handle SIGCHLD. */

typedef struct KeptSandbox KeptSandbox;
typedef struct ExecGroup ExecGroup;

/* ---- The sandbox ---- */

/* Begins to build the sandbox: starts its PID 1, which goes on by itself, and makes what that needs, and the root in
 * state_folder/fs when there is none yet. If the keeper has an uid of its own, it becomes that on the way, with all
 * capabilities; it is sealed (privileges.h) and has its list of system calls. Blocks for about a millisecond. On
 * failure nothing is left of it, but for the root. @config must stay as long as the sandbox. */
int sandbox_begin(const KeeperConfig *config, KeptSandbox **ret_sandbox, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Readable once PID 1 is done, or gone. Then sandbox_finish() tells whether the sandbox stands. */
int sandbox_report_fd(const KeptSandbox *sandbox) __attribute__((nonnull));
int sandbox_finish(KeptSandbox *sandbox, HutchError *err) __attribute__((nonnull(1)));

/* Has the calling process, and whatever it starts, get at the files of the sandbox, at those in @state_folder, at its
 * cgroups, and at no others, where the kernel has Landlock. */
int sandbox_confine(const KeptSandbox *sandbox, int state_folder) __attribute__((nonnull));

/* What a keeper whose sandbox could not be built does instead, at whatever point that failed: it becomes the keeper's
 * user, without a capability, with the keeper's list of system calls, and gets at no file but those in
 * @state_folder. */
void sandbox_give_up(const KeeperConfig *config, int state_folder) __attribute__((nonnull));

/* The pidfd of PID 1, the sandbox's own: readable once PID 1 and all other processes are gone. Those that were spawned
 * count as there until they are waited for. */
int sandbox_init_pidfd(const KeptSandbox *sandbox) __attribute__((nonnull));

/* Kills everything in it, waits for that, removes its cgroups and frees it. Bounded: 10 s. Spawned processes that
 * nobody waited for are waited for here, and how they ended is lost. Takes NULL. Returns NULL.
 * The keeper's end kills everything as well; only the cgroups stay, empty. */
KeptSandbox *sandbox_destroy(KeptSandbox *sandbox);
DEFINE_CLEANUP(KeptSandbox *, sandbox_destroy);

/* Freezes or thaws all processes; blocks until they are, at most 5 s: -ETIMEDOUT, and they run. -EOPNOTSUPP without
 * cgroups. What is spawned into a frozen sandbox starts frozen and says nothing until it is thawed. */
int sandbox_set_frozen(KeptSandbox *sandbox, bool frozen, HutchError *err) __attribute__((nonnull(1)));

/* The same for the processes of execs that were started before, without waiting. Independent of the other: what either
 * froze does not run. Nothing without cgroups. */
void sandbox_set_execs_frozen(const KeptSandbox *sandbox, bool frozen) __attribute__((nonnull));

/* What it uses. 0: not known. */
typedef struct SandboxUsage {
        uint64_t cpu_time; /* nanoseconds */
        uint64_t memory_bytes;
        uint64_t memory_peak_bytes;
        uint32_t processes; /* and threads; without PID 1 */
        uint64_t disk_bytes;
        uint64_t disk_inodes;
} SandboxUsage;

/* But for the disk, which keeper/disk/disk-watch.h knows. */
void sandbox_get_usage(const KeptSandbox *sandbox, SandboxUsage *ret_usage) __attribute__((nonnull));

/* How often a process could not be made because there were as many as allowed, and a descriptor, borrowed, that polls
 * with POLLPRI when it happened again since that was asked for. -1: there is none, and it is always 0. */
uint64_t sandbox_process_limit_hits(const KeptSandbox *sandbox) __attribute__((nonnull));
int sandbox_process_limit_fd(const KeptSandbox *sandbox) __attribute__((nonnull));

/* Opens a new terminal of the sandbox, of that size. @ret_master does not block; @ret_slave is for SpawnPlan, to be
 * closed after sandbox_spawn(). The spawned process makes its user the terminal's owner. */
int sandbox_open_terminal(KeptSandbox *sandbox, uint32_t rows, uint32_t columns, int *ret_master, int *ret_slave,
                          HutchError *err) __attribute__((nonnull(1, 4, 5)));

/* ---- The processes of one exec ---- */

/* A group for an exec's processes, which none of them can leave: a cgroup. Where there are no cgroups it is what can be
 * reached from the first process, while that lives: its descendants and its session. */
int exec_group_new(KeptSandbox *sandbox, const char *exec_id, ExecGroup **ret_group, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Has a group ready, and a process waiting in it, for a program that @user may start next: that takes less time then.
 * Only while nothing else runs in the sandbox; it does not count as a process meanwhile. @used is taken over: a group
 * that is empty, for which there may be a use again; or NULL. -EBUSY: there is one, or the sandbox has no memory to
 * spare for it; -EOPNOTSUPP: there are no cgroups. */
int sandbox_prepare(KeptSandbox *sandbox, const char *user, ExecGroup *used, HutchError *err)
        __attribute__((nonnull(1, 2)));
/* Readable when the process that waits has ended, which is of no use then; borrowed. -1: there is none. */
int sandbox_prepared_pidfd(const KeptSandbox *sandbox) __attribute__((nonnull));
/* Ends it, if there is one. */
void sandbox_unprepare(KeptSandbox *sandbox) __attribute__((nonnull));

/* Makes a group to be used for that, also before the sandbox stands. */
int sandbox_prepare_group(KeptSandbox *sandbox, ExecGroup **ret_group, HutchError *err) __attribute__((nonnull(1, 2)));

/* The group that is ready for @user, or a new one, also when @user is NULL. What was ready for another is ended. */
int sandbox_take_group(KeptSandbox *sandbox, const char *exec_id, const char *user, ExecGroup **ret_group,
                       HutchError *err) __attribute__((nonnull(1, 2, 4)));

/* Sends @signal to each of its processes, or KILLs them all at once, also those that are just being made; does not wait
 * for their end. A frozen process gets them when it is thawed, but for KILL. */
int exec_group_signal(ExecGroup *group, int signal) __attribute__((nonnull));
int exec_group_kill(ExecGroup *group) __attribute__((nonnull));

/* Whether there are processes in it; a main process that was not waited for does not count. */
bool exec_group_is_populated(ExecGroup *group) __attribute__((nonnull));

/* Polls with POLLPRI when that changed; borrowed. Read exec_group_is_populated() before each wait. -1: it must be asked
 * for from time to time. */
int exec_group_events_fd(const ExecGroup *group) __attribute__((nonnull));

/* CPU time of all its processes so far, in nanoseconds, and the most memory they used. 0: not known. */
uint64_t exec_group_cpu_time(const ExecGroup *group) __attribute__((nonnull));
uint64_t exec_group_peak_memory(const ExecGroup *group) __attribute__((nonnull));

/* How many of its processes the kernel killed for want of memory. */
uint64_t exec_group_memory_kills(const ExecGroup *group) __attribute__((nonnull));

/* Removes the group if it is empty and frees it, before the sandbox. When it is not, its processes run on, and go with
 * the sandbox. Takes NULL. Returns NULL. */
ExecGroup *exec_group_free(ExecGroup *group);
DEFINE_CLEANUP(ExecGroup *, exec_group_free);

/* ---- A process ---- */

typedef struct SpawnPlan SpawnPlan;
struct SpawnPlan {
        ExecGroup *group;
        char *const *argv;                  /* argv[0] without a slash is searched in the environment's PATH, inside */
        char *const *environment;           /* NAME=VALUE, ordered by name, ends with NULL */
        bool set_home, set_user;            /* the user's HOME and USER are added to it, in their place */
        const char *working_directory;      /* absolute, inside */
        const char *user;                   /* "agent", "1000", "1000:1000", "agent:staff", … */
        int stdin_fd, stdout_fd, stderr_fd; /* borrowed; all three the slave of a terminal when @terminal */
        bool terminal;                      /* stdin_fd becomes the controlling terminal */
        bool files_must_not_grow;           /* it can write to no file: EFBIG */

        /* Instead of all this: what the child, a copy of the keeper inside the namespaces, does, with all its rights
         * and descriptors; it gives them up itself. It exits when this returns. NULL: the program. @error_fd is the
         * other end of sandbox_spawn()'s. */
        void (*run)(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd);
};

/* Where starting a program stopped. */
typedef enum SpawnStage {
        SPAWN_STAGE_OTHER = 1, /* descriptors, limits, privileges */
        SPAWN_STAGE_ENTER,     /* the sandbox could not be entered: it is ending */
        SPAWN_STAGE_USER,      /* ENOENT: no such user or group; else what reading /etc/passwd or becoming it said */
        SPAWN_STAGE_CHDIR,     /* the working directory */
        SPAWN_STAGE_EXEC,      /* ENOENT: no such program; EACCES, ENOEXEC, …: found, and cannot be executed; E2BIG */
} SpawnStage;

/* What @ret_error_fd carries when the program was not started; whole or not at all. */
typedef struct SpawnFailure {
        uint32_t stage; /* SpawnStage */
        int32_t error;  /* errno, positive */
} SpawnFailure;

/* Starts a process in the sandbox; it is a child of the caller, leader of a session of its own, and without any
 * capability. Does not wait for the program: @ret_error_fd, which does not block, reads EOF when it was started or the
 * process was killed before, or else a SpawnFailure, after which the process exits. Returns the pid, whatever becomes
 * of it: it must be waited for. -ESHUTDOWN: the sandbox has ended. */
pid_t sandbox_spawn(KeptSandbox *sandbox, const SpawnPlan *plan, int *ret_pidfd, int *ret_error_fd, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4)));
