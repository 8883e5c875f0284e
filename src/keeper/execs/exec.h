/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "base/memory.h"
#include "keeper/box/sandbox.h"
#include "keeper/execs/pump-budget.h"
#include "model/reason.h"

/* One exec: a process of the sandbox, what it started, its output and its input.
 *
 *         starting ──► running ──► ended
 *             └───────────────────► ended, and was not started
 *
 * It has ended when its main process has, and its output was collected: until nobody can write any more, or for 1 s.
 * What else it left running, runs on. When it was killed it has ended when nothing of it runs any more. Times are
 * nanoseconds: moments since 1970, durations. */

typedef struct KeptExec KeptExec;
typedef struct InputItem InputItem;

#define EXEC_START_TIMEOUT (10 * NSEC_PER_SEC)  /* for the program to be executed */
#define EXEC_COLLECT_TIMEOUT (1 * NSEC_PER_SEC) /* for output after the main process has ended */
#define EXEC_DEFAULT_GRACE (5 * NSEC_PER_SEC)   /* between TERM and KILL */
#define EXEC_ARGUMENT_MAX 131071                /* bytes of an argument or NAME=VALUE, without its NUL */
#define EXEC_ARGUMENTS_MAX (1024 * 1024)        /* bytes of all of them, each with its NUL */

/* Numbered as hutch.keeper.v1.KeeperEndCause. */
typedef enum ExecEndCause {
        EXEC_END_CAUSE_NONE = 0,
        EXEC_END_CAUSE_EXITED = 1,
        EXEC_END_CAUSE_CANCELLED = 2,
        EXEC_END_CAUSE_TIMED_OUT = 3,
        EXEC_END_CAUSE_SHUTDOWN = 4,
        EXEC_END_CAUSE_NOT_STARTED = 5,
        EXEC_END_CAUSE_DISK_LIMIT = 6,
} ExecEndCause;

/* Why something could not be done. */
typedef struct Failure {
        int error; /* errno, positive */
        Reason reason;
        char *message;
} Failure;

#define FAILURE_MESSAGE_MAX 320 /* bytes; a longer one is cut, so that many of them fit into one answer */

/* Sets @failure, which is empty, from @err. */
void failure_set(Failure *failure, const HutchError *err) __attribute__((nonnull));
void failure_clear(Failure *failure) __attribute__((nonnull));

/* What to run. */
typedef struct ExecPlan {
        const char *id;
        char *const *argv;        /* ends with NULL */
        char *const *environment; /* ends with NULL */
        bool set_home, set_user;  /* see SpawnPlan */
        const char *working_directory;
        const char *user;
        uint64_t timeout; /* UINT64_MAX: none */
        uint64_t kill_grace;
        bool stdin_stream;
        const void *input; /* for stdin, which is then closed; without @stdin_stream */
        size_t input_len;
        bool terminal;
        uint32_t rows, columns;
        uint64_t output_limit; /* bytes of each stream */
        bool quietly;          /* its start may be told a little later: with its end, if that is sooner */
} ExecPlan;

/* How it is. */
typedef struct ExecStatus {
        const char *id;
        uint64_t start_time; /* 0: it has not started */
        uint64_t out_bytes, err_bytes;

        bool ended; /* if so: */
        uint64_t end_time;
        ExecEndCause cause;
        int wait_status;
        const Failure *failure; /* why it was not started; NULL: it was */
        bool program_not_found; /* that is why */
        uint64_t cpu_time;
        uint64_t peak_memory;        /* bytes; 0: not known */
        uint64_t memory_kills;       /* processes of it that were killed for want of memory */
        uint64_t process_limit_hits; /* of the sandbox, while it ran */
        const char *disk_limit;      /* that the sandbox was at or over while it ran; NULL: none */
        uint64_t out_dropped, err_dropped;
} ExecStatus;

typedef struct ExecOwner {
        uv_loop_t *loop;
        KeptSandbox *sandbox;
        PumpBudget *budget; /* NULL: none */
        int output_folder;
        int null;                 /* /dev/null, which the keeper does not get at any more */
        bool files_must_not_grow; /* those that are started now can write to none; they can remove */
        /* It started, or ended. */
        void (*changed)(KeptExec *exec, void *user);
        /* It has ended; this is what it leaves: those of its processes that run on, if there are any. */
        void (*left_over)(ExecGroup *group, void *user);
        void *user;
} ExecOwner;

/* Starts @plan, which is borrowed for the call; @owner outlives it. -EEXIST: there is output of an exec of that id.
 * Everything else that fails is how the exec ended. */
int kept_exec_start(const ExecOwner *owner, const ExecPlan *plan, KeptExec **ret_exec, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Frees @exec, which has ended, or whose sandbox is gone. Takes NULL. Returns NULL. */
KeptExec *kept_exec_free(KeptExec *exec);
DEFINE_CLEANUP(KeptExec *, kept_exec_free);

/* For its owner's list. */
typedef struct ExecLink {
        KeptExec *prev, *next;
        uint64_t change; /* when it changed last, among all changes */
} ExecLink;

ExecLink *kept_exec_link(KeptExec *exec) __attribute__((nonnull, returns_nonnull));

bool kept_exec_is_starting(const KeptExec *exec) __attribute__((nonnull));
bool kept_exec_has_ended(const KeptExec *exec) __attribute__((nonnull));
const char *kept_exec_id(const KeptExec *exec) __attribute__((nonnull));
void kept_exec_status(const KeptExec *exec, ExecStatus *ret_status) __attribute__((nonnull));

/* Ends it because of @cause: TERM for all of it, and KILL for what is left after @grace; UINT64_MAX: its own. When that
 * is under way already, only the time can become shorter. */
void kept_exec_kill(KeptExec *exec, ExecEndCause cause, uint64_t grace) __attribute__((nonnull));

/* KILLs all of it, because its sandbox has more memory than it may, and it has most of that: it ends as one that the
 * kernel has killed for that. */
void kept_exec_kill_for_memory(KeptExec *exec) __attribute__((nonnull));

/* Its first process, as the host numbers it; 0: that has ended. */
pid_t kept_exec_pid(const KeptExec *exec) __attribute__((nonnull));

/* Its sandbox was at or over @limit, which is a constant, while it ran. */
void kept_exec_note_disk_limit(KeptExec *exec, const char *limit) __attribute__((nonnull));

/* Its sandbox is gone, and so are its processes, but that could not be observed: has it end. */
void kept_exec_give_up(KeptExec *exec) __attribute__((nonnull));

/* Input. After its end all of this succeeds and does nothing. -ENXIO and NO_SUCH_STREAM: it has no stdin that takes
 * input, or no terminal. */
int kept_exec_send(KeptExec *exec, InputItem *item, HutchError *err) __attribute__((nonnull(1, 2)));
int kept_exec_resize(KeptExec *exec, uint32_t rows, uint32_t columns, HutchError *err) __attribute__((nonnull(1)));
/* -EINVAL: there is no such signal. */
int kept_exec_signal(KeptExec *exec, uint32_t number, HutchError *err) __attribute__((nonnull(1)));
