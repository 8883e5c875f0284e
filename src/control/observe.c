/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what runtimes tell of sandboxes and execs, and what that does to them. What does not: what they were
 * asked (converge.c). */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "control/plane.h"
#include "control/text.h"

/* An operation that was asked for has been answered; what waits for it can go on. */
static void operation_done(Sandbox *sandbox, Operation operation) {
        if (sandbox->operation == operation)
                sandbox->operation = OPERATION_NONE;
        sandbox_touch(sandbox);
}

static void observe(Sandbox *sandbox, SandboxInput input, Reason reason, const char *message) {
        sandbox_touch(sandbox);
        sandbox->is_observed = true;
        (void) sandbox_apply(sandbox, input, reason, message, NULL, NULL);
}

static Reason reason_of(const HutchError *err) {
        Reason reason = err ? reason_from_name(err->reason) : REASON_UNSPECIFIED;

        return reason == REASON_UNSPECIFIED ? REASON_INTERNAL : reason;
}

static const char *message_of(const HutchError *err) {
        return err ? error_message(err) : "no reason was given";
}

/* As with execs, below: that it is READY is made durable with what follows it soon, unless something waits for that. */
static void on_started(void *user) {
        _cleanup_(error_clear) HutchError err = {};
        Sandbox *sandbox = user;
        int runs_main;

        FAILPOINT("control.observe.started");
        if (sandbox->operation == OPERATION_RECOVER) {
                /* A pause that was under way when the daemon ended may have happened or not. */
                operation_done(sandbox, OPERATION_RECOVER);
                sandbox->needs_pause_check = true;
                for (size_t i = 0; i < sandbox->n_execs; i++)
                        if (sandbox->execs[i]->record.state == EXEC_RUNNING)
                                exec_tell_started(sandbox->execs[i]);
                return;
        }

        if (sandbox->record.state != SANDBOX_PENDING) {
                operation_done(sandbox, OPERATION_START);
                return;
        }

        runs_main = exec_main_is_due(sandbox, &err);
        if (runs_main < 0) {
                log_error("a sandbox waits for the store", LOG_STR("sandbox", sandbox->record.id),
                          LOG_STR("error", error_message(&err)));
                operation_done(sandbox, OPERATION_START);
                sandbox_retry(sandbox);
                return;
        }
        sandbox->control->lingers = sandbox->control->watches.n == 0 && !runs_main && sandbox->n_file_calls == 0 &&
                                    sandbox->record.pause_wanted == PAUSE_WANTED_NONE;
        operation_done(sandbox, OPERATION_START);
        observe(sandbox, SANDBOX_OBSERVED_STARTED, REASON_UNSPECIFIED, "");
        sandbox->control->lingers = false;
        if (runs_main)
                exec_create_main(sandbox);
        /* Execs that are durable need not wait until it is that the sandbox is READY: whoever starts it again, as it is
         * not, is told of them. What was asked for before is asked for again, which is a question. */
        for (size_t i = 0; i < sandbox->n_execs; i++)
                if (sandbox->execs[i]->record.state == EXEC_PENDING)
                        sandbox->execs[i]->start_asked = false;
        sandbox->execs_need_converge = true;
        sandbox_converge_execs(sandbox);
}

static void on_start_failed(void *user, const HutchError *err) {
        Sandbox *sandbox = user;

        FAILPOINT("control.observe.start-failed");
        operation_done(sandbox, OPERATION_START);
        observe(sandbox, SANDBOX_OBSERVED_START_FAILED, reason_of(err), message_of(err));
        if (sandbox->record.state == SANDBOX_FAILED)
                execs_end(sandbox, EXEC_OBSERVED_SANDBOX_ENDED, false);
}

static void on_stopped(void *user) {
        Sandbox *sandbox = user;

        FAILPOINT("control.observe.stopped");
        operation_done(sandbox, OPERATION_STOP);
        if (sandbox->record.state != SANDBOX_STOPPING)
                return;
        execs_end(sandbox, EXEC_OBSERVED_SANDBOX_ENDED, false);
        observe(sandbox, SANDBOX_OBSERVED_STOPPED, REASON_UNSPECIFIED, NULL);
}

static void on_removed(void *user) {
        Sandbox *sandbox = user;

        FAILPOINT("control.observe.removed");
        operation_done(sandbox, OPERATION_REMOVE);
        if (sandbox->record.state != SANDBOX_DELETING)
                return;
        execs_end(sandbox, EXEC_OBSERVED_SANDBOX_ENDED, false);
        observe(sandbox, SANDBOX_OBSERVED_REMOVED, REASON_UNSPECIFIED, NULL);
}

static void on_pause_done(void *user, bool paused) {
        Sandbox *sandbox = user;

        FAILPOINT("control.observe.paused");
        operation_done(sandbox, paused ? OPERATION_PAUSE : OPERATION_UNPAUSE);
        observe(sandbox, paused ? SANDBOX_OBSERVED_PAUSED : SANDBOX_OBSERVED_UNPAUSED, REASON_UNSPECIFIED, "");
}

static void on_pause_failed(void *user, const HutchError *err) {
        Sandbox *sandbox = user;
        PauseWanted failed = sandbox->operation == OPERATION_PAUSE ? PAUSE_WANTED_PAUSE : PAUSE_WANTED_UNPAUSE;

        FAILPOINT("control.observe.pause-failed");
        log_warning("a sandbox cannot be paused or unpaused", LOG_STR("sandbox", sandbox->record.id),
                    LOG_STR("error", message_of(err)));
        if (sandbox->operation == OPERATION_PAUSE || sandbox->operation == OPERATION_UNPAUSE) {
                if (sandbox->record.pause_wanted == failed) {
                        sandbox_change(sandbox);
                        sandbox->record.pause_wanted = PAUSE_WANTED_NONE;
                }
                operation_done(sandbox, sandbox->operation);
        }
}

static void on_lost(void *user, const HutchError *err) {
        Sandbox *sandbox = user;

        FAILPOINT("control.observe.lost");
        /* A stop or a removal goes on, and is told. */
        if (sandbox->record.state == SANDBOX_DELETING)
                return;
        sandbox->operation = OPERATION_NONE;
        /* What was warm and is not durable yet is started anew. */
        if (sandbox->is_new)
                return;
        observe(sandbox, SANDBOX_OBSERVED_LOST, reason_of(err), message_of(err));
        if (sandbox->record.state == SANDBOX_FAILED)
                execs_end(sandbox, EXEC_OBSERVED_SANDBOX_ENDED, false);
}

/* Execs. */

static Exec *exec_of(Sandbox *sandbox, const char *id) {
        Exec *exec = table_get(&sandbox->execs_by_id, id);

        if (!exec)
                return NULL;
        sandbox_touch(sandbox);
        sandbox->is_observed = true;
        return exec;
}

static void exec_observe_started(Exec *exec, uint64_t start_time) {
        if (exec->record.state != EXEC_PENDING)
                return;
        exec_change(exec);
        exec->start_asked = true;
        exec->record.start_time = start_time;
        (void) exec_apply(exec, EXEC_OBSERVED_STARTED, NULL, NULL, NULL);
        if (exec->record.cancel_time != 0)
                exec->sandbox->execs_need_converge = true;
        exec_tell_started(exec);
}

/* Many execs end right after they started: when nobody watches, that one has started is made durable with what follows
 * it soon. Whoever asks meanwhile is answered after that. */
static void on_exec_started(void *user, const char *exec_id, uint64_t start_time) {
        Sandbox *sandbox = user;
        Exec *exec = table_get(&sandbox->execs_by_id, exec_id);

        FAILPOINT("control.observe.exec-started");
        if (!exec)
                return;

        sandbox->control->lingers = sandbox->control->watches.n == 0;
        sandbox_touch(sandbox);
        sandbox->is_observed = true;
        exec_observe_started(exec, start_time);
        sandbox->control->lingers = false;
}

static void set_message(ExecResult *result, const char *message) {
        text_copy(result->message, sizeof result->message, message);
}

static void set_exit(ExecResult *result, int wait_status) {
        result->has_exit_code = true;
        if (WIFSIGNALED(wait_status)) {
                result->signal = (uint32_t) WTERMSIG(wait_status);
                result->exit_code = 128 + WTERMSIG(wait_status);
        } else {
                result->exit_code = WEXITSTATUS(wait_status);
        }
}

static void describe_timeout(const Exec *exec, ExecResult *result) {
        uint64_t timeout = exec_timeout(exec);
        char text[DURATION_TEXT_SIZE], message[EXEC_MESSAGE_MAX + 1];

        duration_format((Duration){ .seconds = (int64_t) (timeout / NSEC_PER_SEC),
                                    .nanos = (int32_t) (timeout % NSEC_PER_SEC) },
                        text);
        (void) snprintf(message, sizeof message, "it was ended when its timeout of %s had passed", text);
        set_message(result, message);
}

/* What the end of a process means for its exec. */
static ExecInput read_end(const Exec *exec, const RuntimeExecEnd *end, ExecResult *ret_result) {
        ExecResult *result = ret_result;
        SandboxState state = exec->sandbox->record.state;

        *result = (ExecResult){
                .out = end->out,
                .err = end->err,
                .cpu_time = end->cpu_time,
                .peak_memory = end->peak_memory,
        };
        if (end->cause != RUNTIME_END_NOT_STARTED)
                set_exit(result, end->wait_status);

        switch (end->cause) {
        case RUNTIME_END_NOT_STARTED:
                result->end_reason = EXEC_END_NOT_STARTED;
                result->failure = reason_of(end->failure);
                result->has_exit_code = true;
                result->exit_code = end->program_not_found ? 127 : 126;
                set_message(result, message_of(end->failure));
                return EXEC_OBSERVED_START_FAILED;
        case RUNTIME_END_CANCELLED:
                result->end_reason = EXEC_END_CANCELLED;
                set_message(result, "it was cancelled");
                return EXEC_OBSERVED_CANCELLED;
        case RUNTIME_END_TIMED_OUT:
                result->end_reason = EXEC_END_TIMED_OUT;
                result->exit_code = 124;
                describe_timeout(exec, result);
                return EXEC_OBSERVED_TIMED_OUT;
        case RUNTIME_END_SHUTDOWN:
                result->end_reason = state == SANDBOX_DELETING   ? EXEC_END_SANDBOX_DELETED
                                     : state == SANDBOX_STOPPING ? EXEC_END_SANDBOX_STOPPED
                                                                 : EXEC_END_SANDBOX_FAILED;
                set_message(result, state == SANDBOX_DELETING   ? "its sandbox was deleted"
                                    : state == SANDBOX_STOPPING ? "its sandbox was stopped"
                                                                : "its sandbox failed");
                return EXEC_OBSERVED_SANDBOX_ENDED;
        case RUNTIME_END_DISK_LIMIT:
                result->end_reason = EXEC_END_DISK_FULL;
                set_message(result, "it was killed because its sandbox had more on disk than allowed");
                return EXEC_OBSERVED_EXITED;
        case RUNTIME_END_EXITED:
                break;
        }

        result->end_reason = end->out_of_memory ? EXEC_END_OUT_OF_MEMORY : EXEC_END_EXITED;
        if (end->out_of_memory)
                set_message(result, "it ran out of memory and was killed for it");
        return EXEC_OBSERVED_EXITED;
}

/* Adds to what is said of the end. */
static void add_message(ExecResult *result, const char *text) {
        char message[EXEC_MESSAGE_MAX + 1];

        (void) snprintf(message, sizeof message, "%.*s%s%s", (int) utf8_prefix(result->message, 128), result->message,
                        *result->message ? "; " : "", text);
        set_message(result, message);
}

static void tell_process_limit(const Exec *exec, const RuntimeExecEnd *end, ExecResult *result) {
        char text[120];

        if (end->process_limit_hits == 0)
                return;

        (void) snprintf(text, sizeof text, "while it ran its sandbox reached the limit of %" PRIu32 " processes",
                        exec->sandbox->record.spec->limits.max_processes);
        add_message(result, text);
}

static void tell_disk_limit(const Exec *exec, const RuntimeExecEnd *end, ExecResult *result) {
        const SandboxLimits *limits = &exec->sandbox->record.spec->limits;
        bool is_bytes = end->disk_limit && str_equal(end->disk_limit, "disk_bytes");
        char text[120];

        if (!end->disk_limit || end->cause == RUNTIME_END_NOT_STARTED)
                return;

        (void) snprintf(text, sizeof text, "while it ran its sandbox reached the limit of %" PRIu64 " %s on disk",
                        is_bytes ? limits->disk_bytes : limits->disk_inodes, is_bytes ? "bytes" : "files and folders");
        add_message(result, text);
}

/* Output beyond its limit is told in words, and by an event before that of the end. */
static void tell_truncated(Exec *exec, ExecResult *result) {
        Event event = {
                .type = EVENT_LIMIT_HIT,
                .exec = &exec->record,
                .limit = "output_limit_bytes",
                .limit_value = exec->record.spec->output_limit,
                .limit_count = 1,
        };
        char text[120];

        if (result->out.dropped == 0 && result->err.dropped == 0)
                return;

        (void) snprintf(text, sizeof text, "it wrote more than the %" PRIu64 " bytes that are kept of a stream",
                        event.limit_value);
        add_message(result, text);
        event_add(exec->sandbox, &event, NULL);
}

static void on_exec_ended(void *user, const char *exec_id, const RuntimeExecEnd *end) {
        Exec *exec = exec_of(user, exec_id);
        ExecResult result;
        ExecInput input;

        FAILPOINT("control.observe.exec-ended");
        if (!exec || !exec_is_active(exec))
                return;

        exec_change(exec);
        exec->start_asked = true;
        exec->record.end_time = end->end_time != 0 ? end->end_time : clock_realtime_ns();
        if (end->cause != RUNTIME_END_NOT_STARTED)
                exec_observe_started(exec, exec->record.end_time);
        input = read_end(exec, end, &result);
        tell_process_limit(exec, end, &result);
        tell_disk_limit(exec, end, &result);
        tell_truncated(exec, &result);
        (void) exec_apply(exec, input, &result, NULL, NULL);
}

static void on_exec_unknown(void *user, const char *exec_id) {
        static const ExecResult result = {
                .end_reason = EXEC_END_MACHINE_DOWN,
                .message = "its keeper does not know it any more",
        };
        Exec *exec = exec_of(user, exec_id);

        FAILPOINT("control.observe.exec-unknown");
        if (!exec)
                return;

        /* One that was about to be started never was: it is started now, unless it has been cancelled since. */
        if (exec->record.state == EXEC_PENDING) {
                exec->start_asked = false;
                exec->sandbox->execs_need_converge = true;
                if (exec->record.cancel_time != 0)
                        exec_cancel(exec, exec->record.cancel_grace, NULL);
        } else {
                (void) exec_apply(exec, EXEC_OBSERVED_REBOOTED, &result, NULL, NULL);
        }
}

/* Limits. */

static uint64_t limit_value(const Sandbox *sandbox, const Exec *exec, const char *limit) {
        const SandboxLimits *limits = &sandbox->record.spec->limits;
        const struct {
                const char *name;
                uint64_t value;
        } values[] = {
                { "memory_bytes", limits->memory_bytes },
                { "max_processes", limits->max_processes },
                { "disk_bytes", limits->disk_bytes },
                { "disk_inodes", limits->disk_inodes },
                { "tmp_bytes", limits->tmp_bytes },
                { "max_open_files", limits->max_open_files },
                { "exec_timeout", limits->exec_timeout },
                { "cpu_millis", limits->cpu_millis },
                { "output_limit_bytes", exec ? exec->record.spec->output_limit : 0 },
        };

        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
                if (str_equal(values[i].name, limit))
                        return values[i].value;
        return 0;
}

static void on_limit_hit(void *user, const char *limit, uint64_t count, const char *exec_id) {
        Sandbox *sandbox = user;
        const Exec *exec = exec_id && *exec_id ? table_get(&sandbox->execs_by_id, exec_id) : NULL;
        Event event = {
                .type = EVENT_LIMIT_HIT,
                .exec = exec ? &exec->record : NULL,
                .limit = limit,
                .limit_value = limit_value(sandbox, exec, limit),
                .limit_count = count,
        };

        FAILPOINT("control.observe.limit-hit");
        if (sandbox->record.state != SANDBOX_DELETED)
                event_add(sandbox, &event, NULL);
}

static void on_output_grew(void *user, const char *exec_id) {
        Sandbox *sandbox = user;
        Exec *exec = table_get(&sandbox->execs_by_id, exec_id);

        if (exec)
                exec_tell_grew(exec);
}

const RuntimeEvents sandbox_runtime_events = {
        .started = on_started,
        .start_failed = on_start_failed,
        .stopped = on_stopped,
        .removed = on_removed,
        .pause_done = on_pause_done,
        .pause_failed = on_pause_failed,
        .lost = on_lost,
        .exec_started = on_exec_started,
        .exec_ended = on_exec_ended,
        .exec_unknown = on_exec_unknown,
        .limit_hit = on_limit_hit,
        .output_grew = on_output_grew,
};
