/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "control/control.h"

/* An exec in memory: all that have not ended, durably, and those that somebody is attached to. exec_change() is called
 * before its record is changed (sandbox.h says why). */

typedef struct Sandbox Sandbox;
typedef struct Exec Exec;

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

/* execs.c: the objects. */
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
const char *exec_user(const Sandbox *sandbox, const ExecSpec *spec);
int exec_main_is_due(Sandbox *sandbox, HutchError *err); /* 1 or 0 */
void exec_create_main(Sandbox *sandbox);
int exec_check_new(Sandbox *sandbox, const char *id, const ExecSpec *spec, HutchError *err); /* whether it may be */
void exec_expect(Sandbox *sandbox, const ExecSpec *spec); /* the runtime can get ready while that is committed */
Exec *exec_accept(Sandbox *sandbox, const char *id, ExecSpec *spec, bool bound, const Caller *caller);
int exec_find(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id, Exec **ret_exec,
              HutchError *err);
int exec_load(Sandbox *sandbox, const char *exec_id, Exec **ret_exec, HutchError *err);
ExecView exec_view(const Exec *exec);
void exec_cancel(Exec *exec, uint64_t grace, const Caller *caller);

/* attachments.c: who is attached to it. */
void exec_detach(Exec *exec); /* from the runtime */
void exec_update_follow(Exec *exec);
void exec_tell_started(Exec *exec); /* or that the runtime has found it again */
void exec_tell_changed(Exec *exec);
void exec_tell_grew(Exec *exec);
void attachments_notify(Control *control);
