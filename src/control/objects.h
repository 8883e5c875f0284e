/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"
#include "control/control.h"
#include "runtime/runtime.h"

/* The objects of the control plane, and what its files call of each other. Nobody outside of the room includes this.
 *
 * An object that was changed since the last commit has a copy of how it was. sandbox_change() and exec_change() are
 * called before a record is changed; they make the copy, and see to it that there is a commit. control.c writes all
 * records at the commit, and puts the copies back when it fails. What a record says may be acted on, by the runtime's
 * verbs or by telling anybody, only when the object is not changed. */

#define LOOKS_MAX 2048 /* rows that one request reads of the store, however few of them it wants */

typedef struct Sandbox Sandbox;
typedef struct Exec Exec;
typedef struct Owner Owner;
typedef struct EventItem EventItem;

/* Sandboxes in the order of their serials. */
typedef struct SandboxList {
        Sandbox **items;
        size_t n, size;
} SandboxList;

struct Exec {
        Sandbox *sandbox;
        ExecRecord record; /* holds a reference of its spec */
        ExecRecord *saved; /* as it was at the last commit; NULL: it is so, or is new */
        bool is_changed;   /* since the last commit */
        bool is_unwritten; /* since the store was given the record */
        bool is_new;       /* never committed */
        bool is_gone;      /* only its attachments know it */
        bool start_asked;  /* of the runtime */
        bool cancel_asked;
        bool is_followed; /* its output, for attachments */
        Exec *next_changed;
        Attachment *attachments;
        uint32_t n_holds; /* attachments that keep it from being cancelled, if it is bound */

        /* It is bound to a call whose caller or daemon is gone: when it is cancelled unless somebody holds it again. 0:
         * it is not so. */
        uint64_t claim_deadline;
};

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

typedef struct UsageQuestion UsageQuestion;

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

/* An event, encoded, with its texts behind it. */
struct EventItem {
        EventItem *next;
        EventRow row;
};

/* What sandboxes of the warm pool have in common with those that they can be taken for. */
typedef struct WarmShape {
        Runtime *runtime;
        uint8_t *bytes; /* as RuntimeVerbs.get_shape() gave them; NULL: there is nothing like it in the pool, ever */
        size_t len;
} WarmShape;

typedef struct WarmSandbox WarmSandbox;

/* Sandboxes that run already and belong to nobody: warm.c. Times are by the clock that does not jump. */
typedef struct WarmPool {
        uv_timer_t timer;
        RuntimeEvents events; /* of those in it */
        WarmSandbox *oldest;  /* the others follow in the order of their age */
        size_t n;
        SandboxSpec *spec; /* of the latest create that could be served by the pool, NULL: there was none; */
        WarmShape shape;   /* and its shape */
        bool missed;       /* there was none for it */
        uint64_t last_create;
        uint64_t not_before; /* the next is made */
        uint64_t pause;      /* that followed the latest failure */
        uint64_t end_latest; /* when @end_done is called at the latest */
        bool is_ended;
        void (*end_done)(void *user); /* of control_end_warm(), until it was called */
        void *end_user;
} WarmPool;

typedef struct Waiter Waiter; /* a callback of control_when_committed() or control_when_durable() */
typedef struct Orphan Orphan;

struct Control {
        uv_loop_t *loop;
        ControlOptions options;
        uv_prepare_t prepare;
        uv_idle_t idle;
        uv_timer_t timer;
        uv_timer_t linger;
        uv_timer_t sync; /* runs while something that was committed may not be on the disk */
        WarmPool warm;
        unsigned n_handles;
        bool is_armed;
        bool lingers; /* what is being changed need not be durable at once */
        bool is_committing;
        void (*free_done)(void *user);
        void *free_user;

        Table sandboxes_by_id;
        SandboxList sandboxes;
        Table owners;
        uint64_t *uid_slots; /* bits */
        size_t n_uid_words;
        uint64_t last_serial;
        ControlCounts counts;
        uint32_t n_pending; /* sandboxes that are PENDING */

        Sandbox *touched, **touched_end;
        Waiter *waiters, **waiters_end;   /* for a commit */
        Waiter *for_disk, **for_disk_end; /* for what was committed to be on the disk */
        Attachment *notify, **notify_end; /* have something to be told */
        size_t n_notify;
        Sandbox **converging; /* what a commit leaves to be done */
        size_t n_converging, converging_size;

        uint64_t last_cursor;    /* given out */
        uint64_t durable_cursor; /* the last that may be seen */
        EventItem *pending, **pending_end;
        EventItem **unwritten; /* where those begin that the store does not have */
        EventItem **ring;      /* by cursor modulo its size */
        size_t ring_size;
        uint64_t ring_first;     /* the oldest in it */
        Watch *watches;          /* everybody's that are for all sandboxes */
        Table watched_ids;       /* lists of WatchLink */
        size_t n_watches;        /* all of them */
        Watch *wake, **wake_end; /* have something to read */
        size_t n_wake;
        size_t looks_left; /* events that watches may look at in this turn */

        Sandbox **heap;
        size_t n_heap, heap_size;
        uint64_t purge_deadline;
        uint64_t wall_offset; /* from the clock that does not jump to the time */

        Orphan *orphans;

        /* What was read for a caller and is in no list. */
        Sandbox *found_sandbox;
        Exec *found_exec;
};

/* control.c */
void control_arm(Control *control);
void sandbox_retry(Sandbox *sandbox);                 /* has it converge again in a while */
int control_flush(Control *control, HutchError *err); /* gives the store all that was changed */
void control_forget_waiting(Sandbox *sandbox);        /* it is about to go */

/* sandboxes.c: the objects. */
Runtime *runtime_find(const Control *control, const char *name); /* empty: the default one; NULL: there is none */
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
uint32_t uid_slot_take(Control *control);
void uid_slot_mark(Control *control, uint32_t slot, bool used);
bool uid_slot_is_used(const Control *control, uint32_t slot);

/* requests.c */
void id_make(const char *prefix, char ret_id[static ID_LEN_MAX + 1]);
/* 1: it was done before, and @ret_row says what came of it; 0: it is new. */
int request_find(Control *control, const Caller *caller, const RequestKey *key, RequestRow *ret_row, HutchError *err);
int request_add(Control *control, const Caller *caller, const RequestKey *key, const char *sandbox_id,
                const char *exec_id, HutchError *err);
/* A new sandbox: whether there may be one; the object, of which nobody knows yet; and what accepts it. @shape is that
 * of warm_choose_id(), and taken over; empty: the id was the caller's choice. */
int sandbox_check_new(Control *control, const Caller *caller, const SandboxSpec *spec, HutchError *err);
Sandbox *sandbox_make(Control *control, const Caller *caller, const char *id, SandboxSpec *spec);
void sandbox_accept(Sandbox *sandbox, const Caller *caller, WarmShape *shape);
int quota_check(uint64_t used, uint64_t limit, const char *name, const char *what, HutchError *err);

/* execs.c */
Exec *exec_new(Sandbox *sandbox, const ExecRecord *record, ExecSpec *spec);
void exec_insert(Exec *exec);
void exec_drop(Exec *exec);
Exec *exec_free(Exec *exec);
void exec_change(Exec *exec);
void exec_record_free(ExecRecord *record);
void exec_count(Exec *exec, int sign);
static inline bool exec_is_active(const Exec *exec) {
        return exec->record.state == EXEC_PENDING || exec->record.state == EXEC_RUNNING;
}
/* @result: how it ended, when @input ends it. */
int exec_apply(Exec *exec, ExecInput input, const ExecResult *result, const Caller *caller, HutchError *err);
/* Ends every exec that has not ended. @input: EXEC_OBSERVED_SANDBOX_ENDED or _REBOOTED. */
void execs_end(Sandbox *sandbox, ExecInput input, bool only_waiting);
int exec_environment(const Sandbox *sandbox, const ExecSpec *spec, char ***ret_environment, HutchError *err);
/* Whether a default that only the inside of the sandbox knows, HOME or USER, is to be added to that. */
bool exec_wants_default(const Sandbox *sandbox, const ExecSpec *spec, const char *name);
uint64_t exec_timeout(const Exec *exec);
int exec_main_is_due(Sandbox *sandbox, HutchError *err); /* 1 or 0 */
void exec_create_main(Sandbox *sandbox);
int exec_check_new(Sandbox *sandbox, const char *id, const ExecSpec *spec, HutchError *err); /* whether it may be */
const char *exec_user(const Sandbox *sandbox, const ExecSpec *spec);
void exec_expect(Sandbox *sandbox, const ExecSpec *spec); /* the runtime can get ready while that is committed */
Exec *exec_accept(Sandbox *sandbox, const char *id, ExecSpec *spec, bool bound, const Caller *caller);
int exec_find(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id, Exec **ret_exec,
              HutchError *err);
int exec_load(Sandbox *sandbox, const char *exec_id, Exec **ret_exec, HutchError *err);
ExecView exec_view(const Exec *exec);
void exec_cancel(Exec *exec, uint64_t grace, const Caller *caller);

/* converge.c */
RuntimeSandbox *sandbox_remote(Sandbox *sandbox); /* NULL: its runtime is not there */
void sandbox_converge(Sandbox *sandbox);
void sandbox_converge_execs(Sandbox *sandbox);

/* usage.c */
void sandbox_detach(Sandbox *sandbox); /* from the runtime */

/* observe.c */
extern const RuntimeEvents sandbox_runtime_events;

/* recover.c */
int control_load(Control *control, HutchError *err);
int control_remove_orphans(Control *control, HutchError *err);
extern const RuntimeEvents orphan_runtime_events;
bool orphan_is_there(const Control *control, const char *id);
/* Has what is there of a sandbox removed, and keeps its uid slot from others until then. @remote is taken over. */
void orphan_add(Control *control, const char *id, RuntimeSandbox *remote, uint32_t uid_slot);
void orphans_free(Control *control, bool all);

/* events.c */
void event_add(Sandbox *sandbox, Event *event, const Caller *caller);
void events_publish(Control *control); /* after the commit */
void events_drop(Control *control);    /* after one that failed */
void events_free(Control *control);
void ring_resize(Control *control, size_t size);

/* watches.c */
void watches_tell(Control *control, const EventRow *row);
void watches_wake(Control *control);

/* timers.c */
void timers_start(Control *control);
void sandbox_update_idle(Sandbox *sandbox); /* whether it is in use has perhaps changed */
/* The same of file work, which comes and goes too often to be written down each time. @sign: 1 or -1. */
void sandbox_count_file_call(Sandbox *sandbox, int sign);
void sandbox_arm(Sandbox *sandbox);
void sandbox_disarm(Sandbox *sandbox);
/* Has it cancelled after @time, unless somebody holds it by then. The sandbox is to be armed afterwards. */
void exec_await_claim(Exec *exec, uint64_t time);
void sandbox_init_times(Sandbox *sandbox, uint64_t lifetime_left);
uint64_t sandbox_lifetime_left(const Sandbox *sandbox, uint64_t now);
uint64_t deadline_after(uint64_t now, uint64_t duration);

/* warm.c */
void warm_init(Control *control);
void warm_shape_clear(WarmShape *shape);
/* An id for a new sandbox of @spec: that of a warm one if one will do, which sandbox_accept() then takes. */
void warm_choose_id(Control *control, const SandboxSpec *spec, WarmShape *ret_shape,
                    char ret_id[static ID_LEN_MAX + 1]);
bool warm_is_there(const Control *control, const char *id);
/* A create was accepted: true, and the sandbox has what was the pool's, if that has its id. @shape is taken over. */
bool warm_take(Sandbox *sandbox, WarmShape *shape);
void warm_tell_started(Control *control); /* of what was taken, so that it is durable together with its create */
void warm_update(Control *control);       /* after the limits were changed, or the last orphan is gone */
void warm_free(Control *control);         /* all but the timer */

/* file-calls.c */
void file_calls_converge(Sandbox *sandbox); /* starts what waited for the sandbox, ends what it is over for */
void file_calls_end(Sandbox *sandbox);      /* the sandbox is gone */

/* kept-output.c */
void sandbox_bound_output(Sandbox *sandbox); /* has no more kept than allowed: the oldest goes first */

/* attachments.c */
void exec_detach(Exec *exec); /* from the runtime */
void exec_update_follow(Exec *exec);
void exec_tell_started(Exec *exec); /* or that the runtime has found it again */
void exec_tell_changed(Exec *exec);
void exec_tell_grew(Exec *exec);
void attachments_notify(Control *control);
