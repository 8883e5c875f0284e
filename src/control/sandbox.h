/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"
#include "control/control.h"
#include "runtime/runtime.h"

/* A sandbox in memory, and its owner.
 *
 * An object that was changed since the last commit has a copy of how it was. sandbox_change() and exec_change() are
 * called before a record is changed; they make the copy, and see to it that there is a commit. control.c writes all
 * records at the commit, and puts the copies back when it fails. What a record says may be acted on, by the runtime's
 * verbs or by telling anybody, only when the object is not changed. */

typedef struct Sandbox Sandbox;
typedef struct Exec Exec;
typedef struct Owner Owner;
typedef struct WarmShape WarmShape;
typedef struct UsageQuestion UsageQuestion;

/* Sandboxes in the order of their serials. */
typedef struct SandboxList {
        Sandbox **items;
        size_t n, size;
} SandboxList;

/* What the runtime was asked and has not answered. */
typedef enum Operation {
        OPERATION_NONE,
        OPERATION_START,
        OPERATION_RECOVER,
        OPERATION_STOP,
        OPERATION_REMOVE,
        OPERATION_PAUSE,
        OPERATION_UNPAUSE,
} Operation;

typedef struct SandboxSaved {
        SandboxRecord record; /* holds a reference of its spec */
        uint64_t idle_deadline;
        uint64_t lifetime_deadline;
} SandboxSaved;

struct Sandbox {
        Control *control;
        Owner *owner;
        SandboxRecord record; /* holds a reference of its spec */
        SandboxSaved *saved;  /* as it was at the last commit; NULL: it is so, or is new */
        bool is_changed;
        bool is_unwritten;
        bool is_new;
        bool was_warm;    /* it ran before it was asked for */
        bool waits;       /* to be removed, until the disk has it */
        bool is_gone;     /* only attachments know it */
        bool is_touched;  /* in the control's list */
        bool is_observed; /* something was observed since the last commit */
        Sandbox *next_touched;

        /* Those in memory: all that have not ended, durably, and those that somebody is attached to. */
        Table execs_by_id;
        Exec **execs; /* in the order of their serials */
        size_t n_execs, execs_size;
        Exec *changed_execs;
        uint32_t n_active; /* PENDING or RUNNING */
        uint32_t n_attachments;
        uint32_t n_readers; /* of these: who keeps it awake */
        FileCall *file_calls;
        uint32_t n_file_calls;

        Runtime *runtime;       /* NULL: it is not there any more */
        RuntimeSandbox *remote; /* NULL: not asked yet */
        Operation operation;
        bool needs_recovery;      /* what the runtime knows of it is to be asked for */
        bool needs_pause_check;   /* whether it is paused may differ from what the record says */
        bool execs_need_converge; /* some may have to be started or cancelled */
        UsageQuestion *usage_questions;

        /* By the clock that does not jump; UINT64_MAX: never. */
        uint64_t idle_deadline;
        uint64_t lifetime_deadline;
        uint64_t unclaimed_deadline; /* the first of its execs' */
        uint64_t retry_deadline;
        uint64_t not_before; /* a pause after something failed; @retry_deadline is its end */
        uint64_t deadline;   /* the next of all */
        size_t heap_index;   /* SIZE_MAX: not in the heap */
};

/* Whoever has sandboxes or watches. */
struct Owner {
        char *name;
        SandboxList sandboxes;
        uint32_t n_counted; /* of sandboxes that count for quotas */
        uint32_t n_active;  /* execs in them that are PENDING or RUNNING */
        Watch *watches;     /* that are not for certain sandboxes */
        uint32_t n_watches; /* all of them */
};

/* sandboxes.c: the objects. */
Sandbox *sandbox_new(Control *control, const SandboxRecord *record, SandboxSpec *spec);
void sandbox_insert(Sandbox *sandbox);
void sandbox_drop(Sandbox *sandbox); /* out of memory, when its last attachment is gone */
void sandbox_release(Sandbox *sandbox);
Sandbox *sandbox_free(Sandbox *sandbox);
void sandbox_touch(Sandbox *sandbox); /* has it converge after the next commit */
void sandbox_change(Sandbox *sandbox);
void sandbox_saved_free(SandboxSaved *saved);
void sandbox_count(Sandbox *sandbox, int sign);
size_t sandbox_list_after(const SandboxList *list, uint64_t serial);

/* What @input does: a TransitionAction, or a negative errno. @message NULL, and no reason: they stay as they are. */
int sandbox_apply(Sandbox *sandbox, SandboxInput input, Reason reason, const char *message, const Caller *caller,
                  HutchError *err);
int sandbox_find(Control *control, const Caller *caller, const char *id, Sandbox **ret_sandbox, HutchError *err);
int sandbox_stop(Sandbox *sandbox, uint64_t grace, Reason reason, const char *message, const Caller *caller,
                 HutchError *err);
int sandbox_delete(Sandbox *sandbox, Reason reason, const char *message, const Caller *caller, HutchError *err);
Owner *owner_get(Control *control, const char *name);
void owner_release(Control *control, Owner *owner);

/* requests.c. A new sandbox: whether there may be one; the object, of which nobody knows yet; and what accepts it.
 * @shape is that of warm_choose_id(), and taken over; empty: the id was the caller's choice. */
int sandbox_check_new(Control *control, const Caller *caller, const SandboxSpec *spec, HutchError *err);
Sandbox *sandbox_make(Control *control, const Caller *caller, const char *id, SandboxSpec *spec);
void sandbox_accept(Sandbox *sandbox, const Caller *caller, WarmShape *shape);

/* converge.c */
RuntimeSandbox *sandbox_remote(Sandbox *sandbox); /* NULL: its runtime is not there */
void sandbox_converge(Sandbox *sandbox);
void sandbox_converge_execs(Sandbox *sandbox);
void sandbox_retry(Sandbox *sandbox); /* has it converge again in a while */

/* observe.c: what the runtime tells of it. */
extern const RuntimeEvents sandbox_runtime_events;

/* usage.c */
void sandbox_detach(Sandbox *sandbox); /* from the runtime */

/* file-calls.c */
void file_calls_converge(Sandbox *sandbox); /* starts what waited for the sandbox, ends what it is over for */
void file_calls_end(Sandbox *sandbox);      /* the sandbox is gone */

/* kept-output.c */
void sandbox_bound_output(Sandbox *sandbox); /* has no more kept than allowed: the oldest goes first */
