/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"
#include "control/control.h"
#include "control/deadlines.h"
#include "control/event-log.h"
#include "control/exec.h"
#include "control/orphans.h"
#include "control/sandbox.h"
#include "control/uid-slots.h"
#include "control/warm.h"
#include "control/watches.h"
#include "runtime/runtime.h"

/* The control plane as a whole: it holds the objects together, and its turn commits what was changed in them. Each kind
 * of object has a header and a state of its own. Nobody outside of the room includes these headers. */

#define LOOKS_MAX 2048 /* rows that one request reads of the store, however few of them it wants */

typedef struct Waiter Waiter; /* a callback of control_when_committed() or control_when_durable() */

struct Control {
        uv_loop_t *loop;
        ControlOptions options;
        uv_prepare_t prepare;
        uv_idle_t idle;
        uv_timer_t linger;
        uv_timer_t sync; /* runs while something that was committed may not be on the disk */
        unsigned n_handles;
        bool is_armed;
        bool lingers; /* what is being changed need not be durable at once */
        bool is_committing;
        void (*free_done)(void *user);
        void *free_user;

        /* The objects. */
        Table sandboxes_by_id;
        SandboxList sandboxes;
        Table owners;
        UidSlots uid_slots;
        uint64_t last_serial;
        ControlCounts counts;
        uint32_t n_pending; /* sandboxes that are PENDING */
        EventLog events;
        Watches watches;
        Deadlines deadlines;
        WarmPool warm;
        Orphan *orphans;

        /* What the next commit is about, and what follows from it. */
        Sandbox *touched, **touched_end;
        Waiter *waiters, **waiters_end;   /* for a commit */
        Waiter *for_disk, **for_disk_end; /* for what was committed to be on the disk */
        Attachment *notify, **notify_end; /* have something to be told */
        size_t n_notify;
        Sandbox **converging; /* what a commit leaves to be done */
        size_t n_converging, converging_size;

        uint64_t wall_offset; /* from the clock that does not jump to the time */

        /* What was read for a caller and is in no list. */
        Sandbox *found_sandbox;
        Exec *found_exec;
};

/* control.c: the turn. */
void control_arm(Control *control);
int control_flush(Control *control, HutchError *err); /* gives the store all that was changed */
void control_forget_waiting(Sandbox *sandbox);        /* it is about to go */

/* sandboxes.c */
Runtime *runtime_find(const Control *control, const char *name); /* empty: the default one; NULL: there is none */

/* recover.c: reads everything back. */
int control_load(Control *control, HutchError *err);

/* requests.c: requests that are accepted once, however often they come, and quotas. */
void id_make(const char *prefix, char ret_id[static ID_LEN_MAX + 1]);
/* 1: it was done before, and @ret_row says what came of it; 0: it is new. */
int request_find(Control *control, const Caller *caller, const RequestKey *key, RequestRow *ret_row, HutchError *err);
int request_add(Control *control, const Caller *caller, const RequestKey *key, const char *sandbox_id,
                const char *exec_id, HutchError *err);
int quota_check(uint64_t used, uint64_t limit, const char *name, const char *what, HutchError *err);
