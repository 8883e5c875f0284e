/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/error.h"
#include "model/event.h"
#include "model/exec.h"
#include "model/sandbox.h"
#include "model/selector.h"
#include "store/store.h"

/* The control plane: the only writer of what the daemon knows, on one thread.
 *
 * A request changes memory at once, or is refused with everything as it was. Nothing of it may be told to anybody
 * before it is durable: whoever answers a request does so in control_when_committed(), and calls control_sync() before
 * the answer leaves the process. Once in each turn of the loop control_commit() gives all changes to the store, starts
 * the work that follows from them, answers, and shows the events to watchers. When a commit fails, memory is put back
 * as the store has it, the requests fail with STORE_UNAVAILABLE, and the runtimes are asked again for what they had
 * told.
 *
 * Records and texts that functions give out are valid until control is called the next time. */

typedef struct Control Control;
typedef struct Runtime Runtime;

/* Who asks. */
typedef struct Caller {
        const char *name; /* "uid:1000" */
        bool admin;
        const char *traceparent, *tracestate; /* NULL: none */
} Caller;

/* What makes a request repeatable. */
typedef struct RequestKey {
        const char *method;     /* "CreateSandbox" */
        const char *request_id; /* NULL or empty: a repeat does it again */
        uint8_t fingerprint[FINGERPRINT_SIZE];
} RequestKey;

/* What only the api can do: it alone knows the public contract. */
typedef struct ControlCodec {
        /* Makes specs of what the store kept. -EBADMSG. */
        int (*decode_sandbox_spec)(const StoredSpec *stored, SandboxSpec **ret_spec, HutchError *err);
        int (*decode_exec_spec)(const StoredSpec *stored, ExecSpec **ret_spec, HutchError *err);
        /* The spec of the exec "main", which runs the sandbox's command once, when it is READY for the first time: as a
         * caller's who gave nothing but the argv. */
        ExecSpec *(*make_main_spec)(const SandboxSpec *sandbox);
        /* An event as watchers get it: bytes that the caller frees. -ENOMEM. */
        int (*encode_event)(const Event *event, uint8_t **ret_bytes, size_t *ret_len);
} ControlCodec;

/* 0: no limit, but for the last. */
typedef struct ControlLimits {
        uint32_t sandboxes_per_caller;
        uint32_t sandboxes;
        uint32_t execs_per_sandbox;
        uint32_t execs_per_caller;
        uint32_t execs;
        uint32_t watches_per_caller;
        uint64_t history_retention;  /* nanoseconds */
        uint64_t request_retention;  /* nanoseconds */
        size_t watch_buffer;         /* events that a watcher may be behind */
        uint64_t output_per_sandbox; /* bytes kept of execs that have ended */
        uint32_t warm_sandboxes;     /* that run before anybody asks for them */
} ControlLimits;

extern const ControlLimits control_limits_default;

typedef struct ControlOptions {
        Store *store;
        const ControlCodec *codec;
        Runtime *const *runtimes; /* the default one first; ends with NULL */
        ControlLimits limits;
        const char *instance_id; /* the name of this installation, for ever */
        const char *boot_id;     /* which start of the machine this is; NULL: as the kernel says */
        /* How long after a restart what a call ran waits for its caller to attach again; 0: a minute. */
        uint64_t claim_time;
        /* The same after a lost connection; 0: 15 s, in which a client makes all its tries. */
        uint64_t repeat_time;
        /* How long a sandbox that nobody asked for is kept, and others are made after the latest create; 0: an hour. */
        uint64_t warm_time;
        /* Called before a commit: what runtimes were told to expect goes out, and is done while the store is written.
         * May be NULL. */
        void (*before_commit)(void *user);
        void *user;
} ControlOptions;

/* Reads everything from the store and begins to recover it: what was under way goes on. @options' things outlive it. */
int control_new(uv_loop_t *loop, const ControlOptions *options, Control **ret_control, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Lets go of everything; what runs, runs on. Commit first, and free attachments and watches. Calls @done, which may be
 * NULL, when the loop is free of it. */
void control_free(Control *control, void (*done)(void *user), void *user) __attribute__((nonnull(1)));

/* What may change while it runs. */
void control_set_limits(Control *control, const ControlLimits *limits) __attribute__((nonnull));

/* Has no sandboxes ready before they are asked for any more, whatever the limits say, and removes those there are.
 * Calls @done, never from within, when nothing is left of them, or after a few seconds: the next daemon removes the
 * rest. */
void control_end_warm(Control *control, void (*done)(void *user), void *user) __attribute__((nonnull(1, 2)));

/* Gives all changes to the store, answers who asked for them, and acts on them; nothing to do is quick. What it answers
 * is told to nobody before control_sync(). */
void control_commit(Control *control) __attribute__((nonnull));

/* Waits until all that was committed is on the disk; ends the process when the disk does not take it. By itself after a
 * few milliseconds. */
void control_sync(Control *control) __attribute__((nonnull));
bool control_is_synced(const Control *control) __attribute__((nonnull));

/* Calls @callback in the next control_commit(), when all was committed (@err NULL) or was not. At once when there is
 * nothing to commit: never from within control_when_committed(). */
void control_when_committed(Control *control, void (*callback)(const HutchError *err, void *user), void *user)
        __attribute__((nonnull(1, 2)));

/* The same when it is on the disk, too, by whomever that was waited for: for what is not worth waiting. */
void control_when_durable(Control *control, void (*callback)(const HutchError *err, void *user), void *user)
        __attribute__((nonnull(1, 2)));

/* How many there are. */
typedef struct ControlCounts {
        uint32_t sandboxes;    /* not DELETED */
        uint32_t active_execs; /* PENDING or RUNNING */
} ControlCounts;

ControlCounts control_counts(const Control *control) __attribute__((nonnull));
const char *control_instance_id(const Control *control) __attribute__((nonnull));
Runtime *const *control_runtimes(const Control *control) __attribute__((nonnull));
uint64_t control_cursor(const Control *control) __attribute__((nonnull)); /* of the last durable event */

/* A sandbox as callers see it: the record, and what is not kept. */
typedef struct SandboxView {
        const SandboxRecord *record;
        uint32_t active_execs;
        uint64_t idle_deadline;     /* 0: none */
        uint64_t lifetime_deadline; /* 0: none */
} SandboxView;

/* Requests about sandboxes. Each fails with the reason that spec/behavior.md gives: SANDBOX_NOT_FOUND (also for what is
 * somebody else's), SANDBOX_WRONG_STATE, OPERATION_IN_PROGRESS, ID_TAKEN, REQUEST_ID_REUSED, QUOTA_EXCEEDED,
 * SANDBOX_EXPIRED, STORE_UNAVAILABLE. What they are given has been validated. */

/* What came of a request that was accepted before under the same request id: 1, and here it is as it is now; 0: it was
 * not, or has no request id. To be asked before the request is validated: what it was accepted for stays accepted,
 * whatever would be in its way by now. */
int control_repeat_sandbox(Control *control, const Caller *caller, const RequestKey *key, SandboxView *ret_view,
                           HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* Not a repeat. @id empty: one is made. @spec: a reference is taken. */
int control_create_sandbox(Control *control, const Caller *caller, const RequestKey *key, const char *id,
                           SandboxSpec *spec, SandboxView *ret_view, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4, 5, 6)));
int control_get_sandbox(Control *control, const Caller *caller, const char *id, SandboxView *ret_view, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4)));
int control_stop_sandbox(Control *control, const Caller *caller, const char *id, uint64_t grace, SandboxView *ret_view,
                         HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));
int control_resume_sandbox(Control *control, const Caller *caller, const RequestKey *key, const char *id,
                           SandboxView *ret_view, HutchError *err) __attribute__((nonnull(1, 2, 3, 4, 5)));
int control_pause_sandbox(Control *control, const Caller *caller, const char *id, bool pause, SandboxView *ret_view,
                          HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));
int control_delete_sandbox(Control *control, const Caller *caller, const char *id, SandboxView *ret_view,
                           HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* @spec: what it becomes, made of the one it has; @fields: which fields of it changed, ends with NULL. */
int control_update_sandbox(Control *control, const Caller *caller, const char *id, SandboxSpec *spec,
                           const char *const *fields, SandboxView *ret_view, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4, 5, 6)));

typedef struct SandboxFilter {
        const Selector *selector; /* NULL: any */
        unsigned states;          /* bits by SandboxState; 0: any but DELETED */
        bool all_owners;          /* for admins, else CALLER_NOT_ALLOWED */
} SandboxFilter;

/* Calls @callback with the caller's sandboxes after the serial @after that match, oldest first, until it returns false.
 * Returns 1 when so many of the store were looked at that others are to have their turn: @after tells where to go
 * on. */
typedef bool (*SandboxCallback)(const SandboxView *view, void *user);
int control_list_sandboxes(Control *control, const Caller *caller, const SandboxFilter *filter, uint64_t *after,
                           SandboxCallback callback, void *user, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4, 5)));

/* Deletes what matches; @callback hears of each, as control_list_sandboxes(). */
int control_delete_sandboxes(Control *control, const Caller *caller, const SandboxFilter *filter,
                             SandboxCallback callback, void *user, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4)));

/* Measures. Calls @callback once, now or later. */
typedef struct RuntimeUsage RuntimeUsage;
int control_get_usage(Control *control, const Caller *caller, const char *id,
                      void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user), void *user,
                      HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* An exec as callers see it. */
typedef struct ExecView {
        const ExecRecord *record;
        const char *sandbox_id;
        uint64_t stdout_bytes, stderr_bytes; /* so far */
} ExecView;

/* Requests about execs: also EXEC_NOT_FOUND, EXEC_WRONG_STATE. */

/* As control_repeat_sandbox(). */
int control_repeat_exec(Control *control, const Caller *caller, const RequestKey *key, ExecView *ret_view,
                        HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* Not a repeat. @bound: see ExecRecord. */
int control_create_exec(Control *control, const Caller *caller, const RequestKey *key, const char *sandbox_id,
                        const char *exec_id, ExecSpec *spec, bool bound, ExecView *ret_view, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4, 5, 6, 8)));
int control_get_exec(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id,
                     ExecView *ret_view, HutchError *err) __attribute__((nonnull(1, 2, 3, 4, 5)));
/* @grace UINT64_MAX: the exec's own. */
int control_cancel_exec(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id,
                        uint64_t grace, ExecView *ret_view, HutchError *err) __attribute__((nonnull(1, 2, 3, 4, 6)));

/* A one-shot: a sandbox, and a bound exec in it, both or neither. The sandbox is deleted with control_delete_sandbox()
 * when whoever holds the exec has done with it; its spec sees to that when nobody does. Not a repeat. */
int control_run_once(Control *control, const Caller *caller, const RequestKey *key, SandboxSpec *sandbox,
                     ExecSpec *exec, ExecView *ret_view, HutchError *err) __attribute__((nonnull(1, 2, 3, 4, 5, 6)));

/* As control_repeat_exec(). A repeat finds both until the exec has ended or the sandbox is being deleted: then it is
 * REQUEST_ID_REUSED. */
int control_repeat_once(Control *control, const Caller *caller, const RequestKey *key, ExecView *ret_view,
                        HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* The same of a sandbox's execs. @states: bits by ExecState; 0: any. */
typedef bool (*ExecCallback)(const ExecView *view, void *user);
int control_list_execs(Control *control, const Caller *caller, const char *sandbox_id, unsigned states, uint64_t *after,
                       ExecCallback callback, void *user, HutchError *err) __attribute__((nonnull(1, 2, 3, 5, 6)));

/* Being attached to an exec: hearing how it goes on, reading its output, sending it input. Keeps its sandbox awake, but
 * see AttachmentEvents. */
typedef struct Attachment Attachment;

typedef struct AttachmentEvents {
        /* It changed, durably: it started, or it ended (when all its output is there to be read). */
        void (*changed)(Attachment *attachment, void *user);
        /* There is more output, or none will come: read on. NULL: it waits for no output, and so does not keep the
         * sandbox awake when the exec has ended. */
        void (*readable)(Attachment *attachment, void *user);
        /* attachment_can_send() is true again. */
        void (*writable)(Attachment *attachment, void *user);
        /* Input to an exec that runs is lost, all or some of it, and so is what would be sent now: attach anew. NULL:
         * nothing is ever sent. */
        void (*input_failed)(Attachment *attachment, const HutchError *err, void *user);
} AttachmentEvents;

/* Which output is to be read, and from where. */
typedef struct OutputPosition {
        bool wanted;
        uint64_t offset;
} OutputPosition;

/* @follow: tell when there is more. No event comes before it returns. Also for execs that have ended. */
int control_attach(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id, bool follow,
                   OutputPosition out, OutputPosition err_output, const AttachmentEvents *events, void *user,
                   Attachment **ret_attachment, HutchError *err) __attribute__((nonnull(1, 2, 3, 4, 8, 10)));

/* Begins at the last @lines lines of each stream instead. */
int attachment_seek_tail(Attachment *attachment, uint64_t lines, HutchError *err) __attribute__((nonnull(1)));

/* A bound exec is cancelled when the last who holds it releases it, which returns true then. Freeing an attachment that
 * holds it leaves it to be held by somebody else, as after a restart. */
void attachment_hold(Attachment *attachment) __attribute__((nonnull));
bool attachment_release(Attachment *attachment, const Caller *caller) __attribute__((nonnull));

/* The same, but it is cancelled only when nobody holds it again for the control's repeat_time: the caller has lost the
 * connection, and may come back. */
void attachment_leave(Attachment *attachment) __attribute__((nonnull));

/* Lets go of it. The exec goes on. */
Attachment *attachment_free(Attachment *attachment);
DEFINE_CLEANUP(Attachment *, attachment_free);

ExecView attachment_exec(const Attachment *attachment) __attribute__((nonnull));

/* Reads up to @size bytes of output, from one stream (1 or 2, in turn where both have some): how many; 0: none now;
 * -ENODATA: none now and none will come. OUT_OF_RANGE (-ERANGE) for an offset beyond the end of a stream that ended. */
ssize_t attachment_read(Attachment *attachment, void *buffer, size_t size, int *ret_stream, uint64_t *ret_offset,
                        HutchError *err) __attribute__((nonnull(1, 2, 4, 5)));

/* Sends input, in the order it comes; it waits until the exec has started, and after a restart until the runtime has
 * found it again. After its end it goes nowhere and is no error. NO_SUCH_STREAM; EXEC_WRONG_STATE (signals); -ENOMEM.
 * While attachment_can_send() is false, wait. */
int attachment_send(Attachment *attachment, const void *bytes, size_t len, HutchError *err) __attribute__((nonnull(1)));
bool attachment_can_send(const Attachment *attachment) __attribute__((nonnull));
int attachment_close_stdin(Attachment *attachment, HutchError *err) __attribute__((nonnull(1)));
int attachment_resize(Attachment *attachment, uint32_t rows, uint32_t columns, HutchError *err)
        __attribute__((nonnull(1)));
int attachment_signal(Attachment *attachment, uint32_t number, HutchError *err) __attribute__((nonnull(1)));

/* File work in a sandbox: a call that is carried to whoever does it there. It begins when the sandbox is READY, keeps
 * it awake, and ends with it. Nothing of it is kept in the store. */
typedef struct FileCall FileCall;

typedef struct FileCallRequest {
        const char *path;  /* of the method; outlives the call */
        const char *key;   /* what makes a repeat the same, printable ASCII; NULL: nothing does */
        uint64_t deadline; /* monotonic; UINT64_MAX: none */
        bool is_whole;     /* no message follows the first */
} FileCallRequest;

typedef struct FileCallEvents {
        /* A message that was asked for; comes from malloc() and is the callee's. */
        void (*message)(void *user, uint8_t *bytes, size_t len);
        /* file_call_is_writable() is true again, or for the first time. */
        void (*writable)(void *user);
        /* It is over, after all messages: well (@err NULL), or not: as whoever did the work says, or
         * SANDBOX_WRONG_STATE, KEEPER_UNAVAILABLE. The last event. */
        void (*ended)(void *user, const HutchError *err);
} FileCallEvents;

/* Begins with @first, which comes from malloc() and is taken over, also when it fails. In a PENDING sandbox it waits
 * for READY; other states are refused. No event comes before it returns. */
int control_open_file_call(Control *control, const Caller *caller, const char *sandbox_id,
                           const FileCallRequest *request, uint8_t *first, size_t first_len,
                           const FileCallEvents *events, void *user, FileCall **ret_call, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4, 5, 7, 9)));

/* Lets go of it, and cancels it when it is not over. */
FileCall *file_call_free(FileCall *call);
DEFINE_CLEANUP(FileCall *, file_call_free);

/* Sends a message, which comes from malloc() and is taken over, also when it fails. -EPIPE: it is over, which is told;
 * -ENOMEM. Only while it is writable. */
int file_call_send_taken(FileCall *call, uint8_t *bytes, size_t len) __attribute__((nonnull));
bool file_call_is_writable(const FileCall *call) __attribute__((nonnull));
void file_call_end(FileCall *call) __attribute__((nonnull)); /* no more messages will be sent */

/* Asks for the next message, or for the end behind the last. */
void file_call_read(FileCall *call) __attribute__((nonnull));

/* Watching events. A watcher reads at its own pace, from its cursor on; what it has not read is in the store or in a
 * buffer that all share, so it costs the same however slow it is. */
typedef struct Watch Watch;

typedef struct WatchFilter {
        const char *const *sandbox_ids; /* copied; NULL: any */
        size_t n_sandbox_ids;
        const char *selector; /* copied; NULL or empty: any */
        unsigned types;       /* bits by EventType; 0: all */
        bool all_owners;      /* for admins */
        bool is_sequence;     /* the cursor was told by control_sequence_cursor(), for the one sandbox */
} WatchFilter;

typedef struct WatchedEvent {
        uint64_t cursor;
        const uint8_t *encoded; /* as ControlCodec made it */
        size_t encoded_len;
} WatchedEvent;

/* Watches from after @after_cursor, which control_cursor() or an event told; 0: from the oldest event that is kept.
 * @readable is called when there may be more after watch_next() said that there is none. CURSOR_GONE, with
 * oldest_cursor; CURSOR_INVALID; TOO_MANY_STREAMS; CALLER_NOT_ALLOWED. */
int control_watch(Control *control, const Caller *caller, const WatchFilter *filter, uint64_t after_cursor,
                  void (*readable)(Watch *watch, void *user), void *user, Watch **ret_watch, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 5, 7)));
Watch *watch_free(Watch *watch);
DEFINE_CLEANUP(Watch *, watch_free);

/* The next event: 1, and here it is, valid until the next call; 0: none now. WATCHER_LAGGED (-EOVERFLOW), with the
 * cursor to go on from. */
int watch_next(Watch *watch, WatchedEvent *ret_event, HutchError *err) __attribute__((nonnull(1, 2)));

/* How far it has come. */
uint64_t watch_cursor(const Watch *watch) __attribute__((nonnull));

/* The cursor of a sandbox's event of that sequence, for watching from there on. CURSOR_GONE, CURSOR_INVALID. */
int control_sequence_cursor(Control *control, const Caller *caller, const char *sandbox_id, uint64_t sequence,
                            uint64_t *ret_cursor, HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));
