/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/box/sandbox.h"
#include "keeper/box/user.h"
#include "keeper/execs/starter.h"
#include "keeper/memory/memory-usage.h"

/* What a KeptSandbox and an ExecGroup are, for the files that make them up. */

/* The namespaces of a sandbox, in the order they are entered: the user namespace gives the right to enter the others.
 * Execs make their cgroup namespace themselves. */
typedef enum SandboxNamespace {
        NAMESPACE_USER,
        NAMESPACE_MOUNT,
        NAMESPACE_NET,
        NAMESPACE_IPC,
        NAMESPACE_UTS,
        NAMESPACE_PID,
        N_NAMESPACES,
} SandboxNamespace;

/* Where one controller limits the sandbox. */
typedef struct LimitGroup {
        int folder; /* -1: nowhere */
        bool is_v2; /* it is the cgroup of what is inside: processes are born in it, or below */
        int procs;  /* cgroup.procs in a v1 hierarchy, into which processes move themselves; or -1 */
} LimitGroup;

struct KeptSandbox {
        const KeeperConfig *config;
        LimitGroup limits[N_CONTROLLERS];
        int process_events; /* pids.events, or -1 */
        int init_pidfd;
        int namespaces[N_NAMESPACES];
        int ptmx;               /* of the sandbox's own devpts, with O_PATH */
        int root;               /* the sandbox's /, with O_PATH */
        int kept;               /* its own files, with O_PATH (rootfs.h) */
        int upper;              /* where changes to the root are, if not among them: in memory; or -1 */
        int image;              /* what they lie over, read-only, with O_PATH */
        int message_queues;     /* its file system of these, which is mounted nowhere */
        int init_socket;        /* PID 1 ends when it is closed */
        int cgroup;             /* of what is inside; -1: there are none */
        int cgroup_above;       /* of all of it: that one and the keeper's; or -1 */
        int keeper_pids;        /* the keeper's own pid namespace */
        bool children_are_here; /* the keeper's children are born in the sandbox's pid namespace */
        ExecGroup *prepared;    /* for the next exec; NULL: none */
        uint64_t n_prepared;    /* so far */

        /* Where the keeper measures memory, what tells of it (memory-usage.h); or -1. */
        int memory_parts[N_MEMORY_PARTS];
};

struct ExecGroup {
        KeptSandbox *sandbox;
        char *name; /* of its cgroups */
        int cgroup; /* -1: there are none */
        int events; /* cgroup.events, or -1 */
        LimitGroup memory;
        bool shares_memory;    /* it is in the sandbox's own group of memory: there was no room for another */
        bool was_killed;       /* the kernel may kill whoever is cloned into its cgroup, for ever */
        uint64_t cpu_before;   /* that others used in it */
        uint64_t kills_before; /* that were counted in that */
        pid_t main_pid;        /* 0: nothing was spawned yet */
        Starter *starter;      /* that waits in it for its program; or NULL */
};

#define BOX_NAME "box"      /* of the cgroup of what is inside */
#define MEASURE_NAME "disk" /* of the one in it of who measures the sandbox's files (disk-watch.h) */

/* Clones the calling process into @cgroup, unless that is -1; no memory is shared. Returns a negative errno, the
 * child's pid, or 0 in the child, where all signals are blocked. @ret_pidfd may be NULL. */
pid_t process_clone(uint64_t flags, int cgroup, int *ret_pidfd);

/* What a process that was spawned does, once it is in the sandbox: it becomes the plan's user and gives up everything;
 * and it executes the program. When that fails it says so to @error_fd and ends. */
User *spawned_give_up(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd);
_Noreturn void spawned_execute(const SpawnPlan *plan, const User *user, int error_fd);
