/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what a sandbox's durable state asks of its runtime: at most one operation at a time, but that a stop
 * or a removal supersedes what is under way. What does not: what comes of it (observe.c).
 *
 * It is called after each commit that touched the sandbox, and may be called at any time: it does what is not under way
 * yet. After a start of the daemon, and after a commit that failed, it is the same. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "control/plane.h"

RuntimeSandbox *sandbox_remote(Sandbox *sandbox) {
        if (!sandbox->remote && sandbox->runtime && !sandbox->is_gone)
                sandbox->remote = sandbox->runtime->verbs->attach(sandbox->runtime, sandbox->record.id,
                                                                  &sandbox_runtime_events, sandbox);
        return sandbox->remote;
}

static void start(Sandbox *sandbox) {
        _cleanup_free_ const char **ids = new0(const char *, sandbox->n_active + 1);
        RuntimeSpec spec = {
                .spec = sandbox->record.spec,
                .uid_slot = sandbox->record.uid_slot,
                .owner = sandbox->record.owner,
                .exec_ids = ids,
        };

        for (size_t i = 0, n = 0; i < sandbox->n_execs; i++) {
                const Exec *exec = sandbox->execs[i];

                if (!exec_is_active(exec))
                        continue;
                if (n == 0 && !exec->record.spec->terminal)
                        spec.expected_user = exec_user(sandbox, exec->record.spec);
                ids[n++] = exec->record.id;
        }

        FAILPOINT("control.converge.start");
        sandbox->operation = OPERATION_START;
        sandbox->needs_recovery = false; /* a start finds what runs already */
        sandbox->remote->verbs->start(sandbox->remote, &spec);
}

static void recover(Sandbox *sandbox) {
        _cleanup_free_ const char **ids = new0(const char *, sandbox->n_active + 1);
        size_t n = 0;

        FAILPOINT("control.converge.recover");
        for (size_t i = 0; i < sandbox->n_execs; i++) {
                Exec *exec = sandbox->execs[i];

                if (!exec_is_active(exec))
                        continue;
                exec->start_asked = true;
                exec->cancel_asked = false;
                ids[n++] = exec->record.id;
        }
        sandbox->operation = OPERATION_RECOVER;
        sandbox->needs_recovery = false;
        sandbox->execs_need_converge = true;
        sandbox->remote->verbs->recover(sandbox->remote, ids);
}

static void start_exec(Exec *exec) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char **environment = NULL;
        const Sandbox *sandbox = exec->sandbox;
        const ExecSpec *spec = exec->record.spec;
        int r;

        r = exec_environment(sandbox, spec, &environment, &err);
        if (r < 0) {
                const RuntimeExecEnd end = { .cause = RUNTIME_END_NOT_STARTED, .failure = &err };

                sandbox_runtime_events.exec_ended(exec->sandbox, exec->record.id, &end);
                return;
        }

        FAILPOINT("control.converge.exec");
        exec->start_asked = true;
        sandbox->remote->verbs->start_exec(
                sandbox->remote,
                &(const RuntimeExec){
                        .exec_id = exec->record.id,
                        .spec = spec,
                        .environment = environment,
                        .set_home = exec_wants_default(sandbox, spec, "HOME"),
                        .set_user = exec_wants_default(sandbox, spec, "USER"),
                        .quietly = exec->record.bound && !spec->stdin_stream && !spec->terminal &&
                                   sandbox->control->watches.n == 0,
                        .working_directory = spec->working_directory ? spec->working_directory
                                                                     : sandbox->record.spec->working_directory,
                        .user = exec_user(sandbox, spec),
                        .timeout = exec_timeout(exec),
                });
}

/* Starts, in the order of their creation, what waits, and ends what was cancelled. Nothing can be started in a sandbox
 * that is paused, or may be: it waits for the unpause. */
void sandbox_converge_execs(Sandbox *sandbox) {
        bool can_start = sandbox->record.state == SANDBOX_READY && sandbox->operation == OPERATION_NONE;

        if (!sandbox->execs_need_converge)
                return;
        sandbox->execs_need_converge = false;

        for (size_t i = 0; i < sandbox->n_execs; i++) {
                Exec *exec = sandbox->execs[i];
                bool is_due = exec->record.state == EXEC_PENDING && !exec->start_asked;

                if (exec->is_changed || (is_due && !can_start)) {
                        sandbox->execs_need_converge = true;
                } else if (is_due) {
                        start_exec(exec);
                } else if (exec->record.state == EXEC_RUNNING && exec->record.cancel_time != 0 && !exec->cancel_asked) {
                        FAILPOINT("control.converge.cancel");
                        exec->cancel_asked = true;
                        sandbox->remote->verbs->cancel_exec(sandbox->remote, exec->record.id,
                                                            exec->record.cancel_grace);
                }
        }
}

static void converge_running(Sandbox *sandbox) {
        if (sandbox->operation == OPERATION_NONE && sandbox->needs_recovery) {
                recover(sandbox);
                return;
        }
        if (sandbox->operation == OPERATION_RECOVER)
                return;

        if (sandbox->operation == OPERATION_NONE &&
            (sandbox->record.pause_wanted != PAUSE_WANTED_NONE || sandbox->needs_pause_check)) {
                bool pause = sandbox->record.pause_wanted != PAUSE_WANTED_NONE
                                     ? sandbox->record.pause_wanted == PAUSE_WANTED_PAUSE
                                     : sandbox->record.state == SANDBOX_PAUSED;

                FAILPOINT("control.converge.pause");
                sandbox->needs_pause_check = false;
                sandbox->operation = pause ? OPERATION_PAUSE : OPERATION_UNPAUSE;
                sandbox->remote->verbs->set_paused(sandbox->remote, pause);
        }
        sandbox_converge_execs(sandbox);
}

static void converge_without_runtime(Sandbox *sandbox) {
        _cleanup_(error_clear) HutchError err = {};

        (void) reason_set(&err, -ENOENT, REASON_RUNTIME_UNAVAILABLE, "the runtime '%s' is not there any more",
                          sandbox->record.spec->runtime);
        if (sandbox->record.state == SANDBOX_DELETING)
                log_error("a sandbox waits for its runtime to be deleted", LOG_STR("sandbox", sandbox->record.id),
                          LOG_STR("runtime", sandbox->record.spec->runtime));
        else
                sandbox_runtime_events.lost(sandbox, &err);
}

void sandbox_converge(Sandbox *sandbox) {
        /* What was changed again meanwhile converges after the next commit; what failed, after a pause. */
        if (sandbox->is_changed || sandbox->not_before > clock_monotonic_ns())
                return;
        if (sandbox->record.state == SANDBOX_STOPPED || sandbox->record.state == SANDBOX_FAILED)
                return;
        if (!sandbox_remote(sandbox)) {
                converge_without_runtime(sandbox);
                return;
        }

        switch (sandbox->record.state) {
        case SANDBOX_PENDING:
                if (sandbox->operation == OPERATION_NONE)
                        start(sandbox);
                break;
        case SANDBOX_READY:
        case SANDBOX_PAUSED:
                converge_running(sandbox);
                break;
        case SANDBOX_STOPPING:
                if (sandbox->operation == OPERATION_STOP)
                        break;
                FAILPOINT("control.converge.stop");
                sandbox->operation = OPERATION_STOP;
                sandbox->remote->verbs->stop(sandbox->remote, sandbox->record.stop_grace);
                break;
        case SANDBOX_DELETING:
                if (sandbox->operation == OPERATION_REMOVE)
                        break;
                FAILPOINT("control.converge.remove");
                sandbox->operation = OPERATION_REMOVE;
                sandbox->remote->verbs->remove(sandbox->remote);
                break;
        default:
                break;
        }
}
