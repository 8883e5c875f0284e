/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "host/cgroups.h"
#include "host/id-map.h"
#include "runtime/native/calls.h"
#include "runtime/native/child-process.h"
#include "runtime/native/input.h"
#include "runtime/native/keeper-client.h"
#include "runtime/native/keeper-nest.h"
#include "runtime/native/keeper-program.h"
#include "runtime/native/limit-hits.h"
#include "runtime/native/output-watch.h"
#include "runtime/native/remover.h"
#include "runtime/native/sources.h"
#include "runtime/native/task-queue.h"
#include "runtime/runtime.h"

/* One sandbox, inside of the runtime: what is wanted of it (goal), how far that is (phase), its keeper and its execs.
 *
 *   IDLE ──► CONNECTING ──► RUNNING ──► SHUTTING ──► ENDING ──► CLEANING ──► IDLE, or REMOVING ──► IDLE
 *    └─────────────────────────────────────────────────────────────┘
 *
 * Whatever goes wrong leads to ENDING, where the keeper is killed, and through CLEANING, where everything it left is,
 * to the event that tells. Verbs only note the goal; the work is done from the loop. */

typedef struct NativeRuntime {
        Runtime base;
        RuntimeVerbs verbs;
        uv_loop_t *loop;
        ChannelHub *hub;
        char *state_folder, *instance_id;
        KeeperProgram *keeper_program;
        KeeperNest *nest;
        bool uid_ranges;
        const SourceRules *sources;
        bool has_namespaces;      /* they can be made */
        IdMap subordinate_ids;    /* what the daemon's user has, when it is not root */
        bool has_subordinate_ids; /* and they can be mapped: new sandboxes have some */
        HostCgroups cgroups;
        ChildProcess *anchor;     /* keeps the scope alive that they are in; NULL: there is none */
        int favored_moves;        /* of cgroup_favor_moves(), or -1 */
        const char *features[12]; /* ends with NULL */
        bool private_files;       /* those of the host can have inodes of the sandbox's own */
        bool root_in_memory;      /* the state folder cannot hold changes to the root */
        uint32_t disk_projects;   /* the first of the projects for sandboxes; 0: there are no quotas */
        int sandboxes_fd;
        uint8_t *seccomp_filter; /* for all sandboxes */
        size_t seccomp_filter_size;
        uint8_t *keeper_filter; /* for all keepers */
        size_t keeper_filter_size;
        uint8_t *entered_filter; /* for what has the keeper's */
        size_t entered_filter_size;
        uint64_t start_timeout, answer_timeout;
        TaskQueue queue;
        Remover *remover;
        uint64_t last_dropped; /* the number of the latest output in the trash */
        OutputWatch *outputs;
        void (*done)(void *user); /* of native_runtime_free() */
        void *done_user;
} NativeRuntime;

typedef enum Phase {
        PHASE_IDLE,       /* nothing is known to run */
        PHASE_CONNECTING, /* to a keeper that has not told all it knows, or still builds; or waits to try that again */
        PHASE_RUNNING,
        PHASE_SHUTTING, /* the keeper was asked to end everything */
        PHASE_ENDING,   /* the keeper's end is waited for */
        PHASE_CLEANING, /* the end of everything that it left is */
        PHASE_REMOVING, /* its files are being removed */
} Phase;

typedef enum Goal {
        GOAL_NONE,
        GOAL_START,
        GOAL_RECOVER,
        GOAL_STOP,
        GOAL_REMOVE,
        GOAL_START_FAILED, /* to tell that, with nothing left */
        GOAL_LOST,         /* the same */
} Goal;

typedef struct NativeExec NativeExec;
typedef struct NativeUsage NativeUsage;

typedef struct NativeSandbox {
        RuntimeSandbox base;
        NativeRuntime *runtime;
        char *id;
        const RuntimeEvents *events;
        void *user;

        Goal goal;
        bool goal_is_new; /* nothing was done for it yet */
        Phase phase;
        uint64_t deadline;      /* of uv_now(): for CONNECTING and CLEANING */
        uint64_t pause_ms;      /* before the latest try to connect, or to clean */
        uint64_t running_since; /* of uv_now(): this connection */
        uint64_t grace;         /* of stop() */
        HutchError error;       /* what to tell, once it is known */
        Task task;
        uv_timer_t timer;

        uint8_t *config; /* an encoded KeeperConfig, until a keeper is started with it */
        size_t config_len;
        NativeSources sources;   /* for that keeper */
        HutchError source_error; /* why there are none, although it needs some */
        ChildProcess *keeper;    /* NULL: it is gone, or known by its connection only */
        bool spawned;            /* for this goal */
        bool killed;
        KeeperClient *client;
        bool described; /* by this client */
        Hutch__Keeper__V1__KeeperState state;

        bool pausing, paused; /* set_paused() has asked for that */
        bool pause_is_asked;  /* the keeper was */
        LimitHits limit_hits;
        NativeUsage *usages;
        NativeInput *inputs;
        NativeCall *calls;
        NativeExec *execs, *last_exec; /* in the order they came */
        uint64_t expecting_until;      /* of uv_now(): the keeper has a process wait by itself */
        char *expected_user;           /* to be told to the keeper when it is started; or NULL */
        bool expects_patiently;
        unsigned n_started; /* execs, by this keeper */
        bool freed;
} NativeSandbox;

RuntimeSandbox *native_sandbox_attach(Runtime *runtime, const char *id, const RuntimeEvents *events, void *user);
void native_sandbox_free(RuntimeSandbox *sandbox);
void native_sandbox_start(RuntimeSandbox *sandbox, const RuntimeSpec *spec);
void native_sandbox_recover(RuntimeSandbox *sandbox, const char *const *exec_ids);
void native_sandbox_stop(RuntimeSandbox *sandbox, uint64_t grace);
void native_sandbox_remove(RuntimeSandbox *sandbox);
void native_sandbox_set_paused(RuntimeSandbox *sandbox, bool paused);

/* For execs.c and usage.c: whether the keeper can be asked for something. */
static inline bool sandbox_is_connected(const NativeSandbox *sandbox) {
        return sandbox->phase == PHASE_RUNNING && sandbox->client;
}

/* For execs.c and usage.c: has execs_run() and usages_fail() called from the loop. */
void sandbox_wake(NativeSandbox *sandbox) __attribute__((nonnull));
