/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "model/exec.h"
#include "model/sandbox.h"
#include "model/unenforced-limit.h"

/* Runtimes: what makes sandboxes. One table of verbs for each kind.
 *
 * The verbs start work and return at once; what came of it is told by RuntimeEvents, later, from the loop, never from
 * within a verb. They are idempotent: a daemon that does not remember how far it came asks for the same again. A verb
 * that supersedes another (stop, remove) makes the earlier one's outcome of no interest: it is not told. Nothing is
 * told after free(). Whoever calls sees to it that at most one of start, recover, stop, remove and set_paused is under
 * way, but for stop and remove, which may come at any time. */

typedef struct Runtime Runtime;               /* each kind's own, beginning with its verbs */
typedef struct RuntimeSandbox RuntimeSandbox; /* its side of one sandbox, beginning with the verbs */
typedef struct RuntimeInput RuntimeInput;     /* a way into an exec */
typedef struct RuntimeCall RuntimeCall;       /* a call that is carried to the sandbox */

/* What ended an exec. */
typedef enum RuntimeEndCause {
        RUNTIME_END_EXITED,
        RUNTIME_END_CANCELLED,
        RUNTIME_END_TIMED_OUT,
        RUNTIME_END_SHUTDOWN, /* the sandbox's end */
        RUNTIME_END_NOT_STARTED,
        RUNTIME_END_DISK_LIMIT, /* the sandbox had more on disk than it may */
} RuntimeEndCause;

/* How an exec ended. */
typedef struct RuntimeExecEnd {
        RuntimeEndCause cause;
        int wait_status; /* as wait(2) gave it */
        uint64_t end_time;
        const HutchError *failure; /* why it was not started; else NULL */
        bool program_not_found;    /* that is why */
        bool out_of_memory;
        uint64_t process_limit_hits; /* of the sandbox, while it ran */
        const char *disk_limit;      /* that the sandbox was at or over while it ran; a constant, or NULL */
        StreamSummary out, err;
        uint64_t cpu_time;
        uint64_t peak_memory; /* 0: not known */
} RuntimeExecEnd;

/* What happens to a sandbox. All are needed. */
typedef struct RuntimeEvents {
        void (*started)(void *user);
        void (*start_failed)(void *user, const HutchError *err); /* and nothing is left but its files */
        void (*stopped)(void *user);
        void (*removed)(void *user);
        void (*pause_done)(void *user, bool paused);             /* set_paused() */
        void (*pause_failed)(void *user, const HutchError *err); /* it is as it was before */
        void (*lost)(void *user, const HutchError *err);         /* it is gone without having been told to */
        void (*exec_started)(void *user, const char *exec_id, uint64_t start_time);
        void (*exec_ended)(void *user, const char *exec_id, const RuntimeExecEnd *end); /* or was never started */
        /* An exec that it was told of, by recover() or start_exec(), is not there any more. */
        void (*exec_unknown)(void *user, const char *exec_id);
        void (*limit_hit)(void *user, const char *limit, uint64_t count, const char *exec_id);
        void (*output_grew)(void *user, const char *exec_id); /* while follow_output() asked for it */
} RuntimeEvents;

/* What to start a sandbox from. Borrowed for the verb. */
typedef struct RuntimeSpec {
        const SandboxSpec *spec;
        uint32_t uid_slot;
        const char *owner; /* whose home "~/" is */
        /* Execs that an earlier start may have come to, which ends with NULL: these go on where the sandbox runs
         * already, if start_exec() asks for them as soon as `started` is told. NULL: there are none. */
        const char *const *exec_ids;
        /* Who an exec runs as that waits for the start, as expect_exec() tells it. NULL: none waits. */
        const char *expected_user;
        bool expects_patiently; /* it does not wait, but comes at any time */
} RuntimeSpec;

/* What to start an exec from. Borrowed for the verb. */
typedef struct RuntimeExec {
        const char *exec_id;
        const ExecSpec *spec;
        char *const *environment; /* merged, NAME=VALUE, ordered by name, ends with NULL */
        bool set_home, set_user;  /* HOME and USER, which only the inside knows, are to be added to it */
        bool quietly;             /* exec_started may come some milliseconds later */
        const char *working_directory;
        const char *user;
        uint64_t timeout; /* 0: none */
} RuntimeExec;

/* What a sandbox uses. */
typedef struct RuntimeUsage {
        uint64_t memory_bytes, memory_peak_bytes;
        uint64_t cpu_time;
        uint32_t processes;
        uint64_t disk_bytes, disk_inodes;
} RuntimeUsage;

/* What happens to an input. All are needed. */
typedef struct RuntimeInputEvents {
        void (*writable)(void *user);
        /* It is gone: the exec ended, or has no stdin or terminal that this could go to (NO_SUCH_STREAM), or the
         * connection to it broke (KEEPER_UNAVAILABLE), which is told when there is another. @err is NULL when all was
         * taken. Not told when the sandbox is lost: that is. */
        void (*closed)(void *user, const HutchError *err);
} RuntimeInputEvents;

/* A call to what serves hutch.v1.FileService for the sandbox. Borrowed for the verb. */
typedef struct RuntimeCallRequest {
        const char *path;  /* "/hutch.v1.FileService/StatFile" */
        const char *user;  /* whose work it is, inside */
        const char *key;   /* what makes a repeat of it the same: printable ASCII; NULL: nothing does */
        uint64_t deadline; /* monotonic, nanoseconds; UINT64_MAX: none */
} RuntimeCallRequest;

/* What happens to a call. All are needed. */
typedef struct RuntimeCallEvents {
        /* A message that was asked for; comes from malloc() and is the callee's. */
        void (*message)(void *user, uint8_t *bytes, size_t len);
        /* call_is_writable() is true again. */
        void (*writable)(void *user);
        /* It is over, after all messages: well (@err NULL), or not. KEEPER_UNAVAILABLE: the connection broke, or there
         * is none now. Not told when the sandbox is let go of. */
        void (*ended)(void *user, const HutchError *err);
} RuntimeCallEvents;

/* A sandbox that exists. */
typedef void (*RuntimeFound)(const char *id, int64_t uid_slot, void *user);

typedef struct RuntimeVerbs {
        const char *name;                    /* "native" */
        const char *const *features;         /* beyond the least, as in hutch.v1.RuntimeInfo; ends with NULL */
        const UnenforcedLimit *not_enforced; /* here; ends with one without a limit */

        /* Whether sandboxes can be started now; if not, why, and what to do. */
        int (*check)(Runtime *runtime, HutchError *err);

        /* Everything that exists of sandboxes, also of half made ones: calls @callback with each id, and with the uid
         * slot as far as that shows; -1: it does not. */
        int (*list)(Runtime *runtime, RuntimeFound callback, void *user, HutchError *err);

        /* What makes two sandboxes the same as long as nobody has used them: bytes that the caller frees, equal for
         * specs whose start gives the same but for the id and the uid slot. -EOPNOTSUPP: there is no other like it, for
         * it has files of the host. */
        int (*get_shape)(Runtime *runtime, const SandboxSpec *spec, uint8_t **ret_shape, size_t *ret_len);

        /* The runtime's side of a sandbox; nothing is started or looked at yet. */
        RuntimeSandbox *(*attach)(Runtime *runtime, const char *id, const RuntimeEvents *events, void *user);
        /* Has somebody else told from now on, also of what is under way. */
        void (*rebind)(RuntimeSandbox *sandbox, const RuntimeEvents *events, void *user);
        /* Lets go of it; what runs, runs on. */
        void (*free)(RuntimeSandbox *sandbox);

        /* Makes it, or starts it again on its files: started or start_failed. When it runs already, that is found. */
        void (*start)(RuntimeSandbox *sandbox, const RuntimeSpec *spec);
        /* Finds a sandbox that was started before the daemon was: started, or lost. Execs that are in @exec_ids (which
         * ends with NULL) are told as they are: exec_started and exec_ended, or exec_unknown, all before started.
         * Others that run there are ended. */
        void (*recover)(RuntimeSandbox *sandbox, const char *const *exec_ids);
        /* Ends all its processes and keeps its files: stopped, always. TERM, and KILL after @grace. */
        void (*stop)(RuntimeSandbox *sandbox, uint64_t grace);
        /* Removes all that is left of it: removed, always. */
        void (*remove)(RuntimeSandbox *sandbox);
        void (*set_paused)(RuntimeSandbox *sandbox, bool paused);
        /* Calls @callback once; @usage is NULL when it fails. */
        void (*get_usage)(RuntimeSandbox *sandbox,
                          void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user), void *user);

        /* A process of @user will be started before long, or not: what is the same for all of them may be done
         * meanwhile. Nothing is told. */
        void (*expect_exec)(RuntimeSandbox *sandbox, const char *user);
        /* Starts a process: exec_started, then exec_ended; or exec_ended alone. Repeating it with an id is a
         * question. When the keeper cannot be asked nothing is told: `lost` is. */
        void (*start_exec)(RuntimeSandbox *sandbox, const RuntimeExec *exec);
        /* Ends its whole tree: TERM, and KILL after @grace: exec_ended, or exec_unknown. */
        void (*cancel_exec)(RuntimeSandbox *sandbox, const char *exec_id, uint64_t grace);
        /* It has ended, and that is durable: the runtime need not remember how. Its output stays. */
        void (*forget_exec)(RuntimeSandbox *sandbox, const char *exec_id);

        /* A way into an exec that has started, in a sandbox that was started or recovered; NULL when memory is out.
         * Until @events say closed or it is freed. */
        RuntimeInput *(*open_input)(RuntimeSandbox *sandbox, const char *exec_id, const RuntimeInputEvents *events,
                                    void *user);
        void (*free_input)(RuntimeInput *input);
        /* -EPIPE: it is closed; -ENOMEM. */
        int (*send_input)(RuntimeInput *input, const void *bytes, size_t len);
        bool (*input_is_writable)(const RuntimeInput *input);
        int (*close_stdin)(RuntimeInput *input);
        int (*resize)(RuntimeInput *input, uint32_t rows, uint32_t columns);
        int (*send_signal)(RuntimeInput *input, uint32_t number);

        /* A call, in a sandbox that was started or recovered, until @events say ended or it is freed, which cancels it.
         * Messages are asked for one at a time, and once more for the end. */
        RuntimeCall *(*open_call)(RuntimeSandbox *sandbox, const RuntimeCallRequest *request,
                                  const RuntimeCallEvents *events, void *user);
        void (*free_call)(RuntimeCall *call);
        /* -EPIPE: it is over; -ENOMEM. The second takes @bytes over, which come from malloc(), also when it fails. */
        int (*send_call)(RuntimeCall *call, const void *bytes, size_t len);
        int (*send_call_taken)(RuntimeCall *call, uint8_t *bytes, size_t len);
        bool (*call_is_writable)(const RuntimeCall *call);
        void (*end_call)(RuntimeCall *call); /* no more messages will be sent */
        void (*read_call)(RuntimeCall *call);

        /* The file of a stream of an exec's output (1 is stdout, 2 stderr), to be read by output/output-file.h: a
         * descriptor that the caller closes. -ENOENT: there is none (yet). */
        int (*open_output)(RuntimeSandbox *sandbox, const char *exec_id, int stream);
        /* Removes both streams of an exec that has ended; 0 also when there are none. */
        int (*drop_output)(RuntimeSandbox *sandbox, const char *exec_id);
        /* Whether output_grew is to be told of an exec. Counts: as often off as on. */
        void (*follow_output)(RuntimeSandbox *sandbox, const char *exec_id, bool follow);
} RuntimeVerbs;

struct Runtime {
        const RuntimeVerbs *verbs;
};

struct RuntimeSandbox {
        const RuntimeVerbs *verbs;
};

struct RuntimeInput {
        const RuntimeVerbs *verbs;
};

struct RuntimeCall {
        const RuntimeVerbs *verbs;
};
