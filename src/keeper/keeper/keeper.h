/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "keeper/box/sandbox.h"
#include "keeper/config.h"
#include "keeper/disk/disk-watch.h"
#include "keeper/execs/exec.h"
#include "keeper/memory/memory-watch.h"

/* The keeper: one sandbox and its execs, from the start of the sandbox to its end.
 *
 *         STARTING ──► RUNNING ⇄ PAUSED ──► STOPPING ──► gone
 *             └──────► FAILED ◄─┘ (PID 1 is gone) ─────────┘
 *
 * Every change, of the sandbox or of an exec, has a number, in the order in which they came. Times are nanoseconds. */

#define KEEPER_EXECS_MAX 4096 /* that are not forgotten */
#define INCARNATION_SIZE 33

/* Numbered as hutch.keeper.v1.KeeperState. */
typedef enum KeeperState {
        KEEPER_STARTING = 1,
        KEEPER_RUNNING = 2,
        KEEPER_PAUSED = 3,
        KEEPER_STOPPING = 4,
        KEEPER_FAILED = 5,
} KeeperState;

typedef struct KeeperEvents {
        /* Something has a new number. */
        void (*changed)(void *user);
        /* A limit, a field of KeeperLimits, took effect @count times; for the exec, or the sandbox as a whole (""). */
        void (*limit_hit)(const char *limit, uint64_t count, const char *exec_id, void *user);
        /* The sandbox has more on disk than @limit allows: whoever writes its files, beside execs, is to stop. */
        void (*disk_full)(const char *limit, void *user);
        /* Nothing is left of the sandbox, and the keeper has no more to do. */
        void (*gone)(void *user);
        void *user;
} KeeperEvents;

typedef struct LeftOver LeftOver;

typedef struct Keeper {
        uv_loop_t *loop;
        const KeeperConfig *config;
        const KeeperEvents *events;
        char incarnation[INCARNATION_SIZE];

        KeeperState state;
        uint64_t state_change;
        Failure failure; /* why it FAILED */
        KeptSandbox *sandbox;
        struct Watch *init_watch;

        KeptSandbox *building; /* it is STARTING */
        bool files_are_new;
        struct Watch *build_watch;
        struct Alarm *build_alarm;
        char *expected_user; /* of an exec that is expected then; or NULL */
        bool expects_patiently;
        ExecGroup *expected_group;

        ExecOwner owner;
        KeptExec *first, *last; /* the one that changed last is the last */
        size_t n_execs;
        uint64_t n_started;
        char *last_user; /* of the exec that was started last */
        uint64_t n_changes;
        LeftOver *left_over;
        struct Watch *prepared_watch;
        struct Alarm *prepared_alarm;

        uint64_t process_hits; /* that were told */
        struct Watch *process_watch;
        struct Alarm *process_alarm; /* until which nothing is told again; NULL: nothing was told for a while */

        DiskWatch *disk; /* NULL: there is nothing to watch */
        DiskWatchEvents disk_events;
        MemoryWatch *memory; /* NULL: cgroups do it */
        MemoryWatchEvents memory_events;
        size_t n_running; /* execs */
        size_t n_writing; /* calls that write files */

        bool ending; /* everything is to go */
        uint64_t stop_at;
        struct Alarm *stop_alarm;
} Keeper;

/* Begins to keep a sandbox, which is not built yet. @config and @events outlive it. */
int keeper_init(Keeper *keeper, uv_loop_t *loop, const KeeperConfig *config, const KeeperEvents *events,
                HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* Begins to build it: it becomes RUNNING or FAILED, at once or later. Blocks for about a millisecond. */
void keeper_build(Keeper *keeper) __attribute__((nonnull));

/* NULL: there is none of that id. */
KeptExec *keeper_find_exec(const Keeper *keeper, const char *id) __attribute__((nonnull));

/* Starts an exec, or finds it. What kept_exec_start() says; -EBUSY: the sandbox does not run; -EMFILE: too many. */
int keeper_start_exec(Keeper *keeper, const ExecPlan *plan, KeptExec **ret_exec, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* An exec of @user will be started before long, or at any time, @patiently: has a process wait for it, if nothing
 * runs. */
void keeper_expect_exec(Keeper *keeper, const char *user, bool patiently) __attribute__((nonnull));

/* Forgets an exec that has ended, or is not known. -EBUSY: it runs. */
int keeper_forget_exec(Keeper *keeper, const char *id, HutchError *err) __attribute__((nonnull(1, 2)));

/* Blocks until it is done. */
int keeper_set_paused(Keeper *keeper, bool paused, HutchError *err) __attribute__((nonnull(1)));

/* Somebody begins to write files, beside execs, and ends. DISK_FULL. */
int keeper_begin_writing(Keeper *keeper, HutchError *err) __attribute__((nonnull));
void keeper_end_writing(Keeper *keeper) __attribute__((nonnull));

/* What the sandbox uses, which is RUNNING or PAUSED. */
void keeper_get_usage(Keeper *keeper, SandboxUsage *ret_usage) __attribute__((nonnull));

/* Ends everything: TERM, and KILL after @grace; then `gone`. Repeating it can only make the time shorter. */
void keeper_stop(Keeper *keeper, uint64_t grace) __attribute__((nonnull));
