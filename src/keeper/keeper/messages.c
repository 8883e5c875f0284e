/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: from messages to what the keeper works with, and back. What does not: who sends them. */

#include "keeper/keeper/messages.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "model/ids.h"

uint64_t duration_to_ns(const Google__Protobuf__Duration *duration, uint64_t unset) {
        uint64_t seconds, nanos;

        if (!duration)
                return unset;
        if (duration->seconds < 0 || duration->nanos < 0)
                return 0;

        seconds = (uint64_t) duration->seconds;
        nanos = (uint64_t) duration->nanos;
        if (seconds >= (UINT64_MAX - 1 - nanos) / NSEC_PER_SEC)
                return UINT64_MAX - 1;
        return seconds * NSEC_PER_SEC + nanos;
}

Google__Protobuf__Duration duration_from_ns(uint64_t nanoseconds) {
        Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;

        duration.seconds = (int64_t) (nanoseconds / NSEC_PER_SEC);
        duration.nanos = (int32_t) (nanoseconds % NSEC_PER_SEC);
        return duration;
}

Google__Protobuf__Timestamp timestamp_from_ns(uint64_t nanoseconds) {
        Google__Protobuf__Timestamp timestamp = GOOGLE__PROTOBUF__TIMESTAMP__INIT;

        timestamp.seconds = (int64_t) (nanoseconds / NSEC_PER_SEC);
        timestamp.nanos = (int32_t) (nanoseconds % NSEC_PER_SEC);
        return timestamp;
}

Hutch__Keeper__V1__KeeperFailure failure_message(const Failure *failure) {
        Hutch__Keeper__V1__KeeperFailure message = HUTCH__KEEPER__V1__KEEPER_FAILURE__INIT;

        message.error = (uint32_t) failure->error;
        message.reason = (char *) reason_name(failure->reason);
        message.message = failure->message;
        return message;
}

void exec_message_init(ExecMessage *message, const KeptExec *exec) {
        ExecStatus status;

        kept_exec_status(exec, &status);
        message->exec = (Hutch__Keeper__V1__KeeperExec) HUTCH__KEEPER__V1__KEEPER_EXEC__INIT;
        message->exec.exec_id = (char *) status.id;
        message->exec.stdout_bytes = status.out_bytes;
        message->exec.stderr_bytes = status.err_bytes;
        if (status.start_time > 0) {
                message->start_time = timestamp_from_ns(status.start_time);
                message->exec.start_time = &message->start_time;
        }
        if (!status.ended)
                return;

        message->end = (Hutch__Keeper__V1__KeeperExecEnd) HUTCH__KEEPER__V1__KEEPER_EXEC_END__INIT;
        message->end_time = timestamp_from_ns(status.end_time);
        message->cpu_time = duration_from_ns(status.cpu_time);
        message->end.end_time = &message->end_time;
        message->end.cpu_time = &message->cpu_time;
        message->end.cause = (Hutch__Keeper__V1__KeeperEndCause) status.cause;
        message->end.wait_status = status.wait_status;
        message->end.peak_memory_bytes = status.peak_memory;
        message->end.stdout_dropped_bytes = status.out_dropped;
        message->end.stderr_dropped_bytes = status.err_dropped;
        message->end.program_not_found = status.program_not_found;
        message->end.out_of_memory = status.memory_kills > 0;
        message->end.process_limit_hits = status.process_limit_hits;
        if (status.disk_limit)
                message->end.disk_limit = (char *) status.disk_limit;
        if (status.failure) {
                message->failure = failure_message(status.failure);
                message->end.failure = &message->failure;
        }
        message->exec.end = &message->end;
}

/* Counts an argument or variable of @len bytes against what is @left. */
static int take_argument(size_t *left, size_t len, HutchError *err) {
        if (len > EXEC_ARGUMENT_MAX || len + 1 > *left)
                return reason_set(err, -E2BIG, REASON_ARGUMENTS_TOO_LARGE, "arguments and environment are too large");

        *left -= len + 1;
        return 0;
}

static int copy_argv(ExecOrder *order, const Hutch__Keeper__V1__StartExecRequest *request, size_t *left,
                     HutchError *err) {
        if (request->n_argv == 0 || !*request->argv[0])
                return reason_set(err, -EINVAL, REASON_ARGV_EMPTY, "there is no program");

        order->argv = try_new0(char *, request->n_argv + 1);
        if (!order->argv)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory for the arguments");

        for (size_t i = 0; i < request->n_argv; i++) {
                int r = take_argument(left, strlen(request->argv[i]), err);

                if (r < 0)
                        return r;
                order->argv[i] = strdup(request->argv[i]);
                if (!order->argv[i])
                        return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory for the arguments");
        }
        return 0;
}

static int copy_environment(ExecOrder *order, const Hutch__Keeper__V1__StartExecRequest *request, size_t *left,
                            HutchError *err) {
        order->environment = try_new0(char *, request->n_env + 1);
        if (!order->environment)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory for the environment");

        for (size_t i = 0; i < request->n_env; i++) {
                const char *name = request->env[i]->name, *value = request->env[i]->value;
                size_t name_len = strlen(name), value_len = strlen(value);
                char *entry;
                int r;

                if (name_len == 0 || strchr(name, '='))
                        return reason_set(err, -EINVAL, REASON_ENV_NAME_MALFORMED, "a variable has no good name");
                r = take_argument(left, name_len + 1 + value_len, err);
                if (r < 0)
                        return r;

                entry = order->environment[i] = malloc(name_len + value_len + 2);
                if (!entry)
                        return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory for the environment");
                memcpy(entry, name, name_len);
                entry[name_len] = '=';
                memcpy(entry + name_len + 1, value, value_len + 1);
        }
        return 0;
}

static int order_fill(ExecOrder *order, const Hutch__Keeper__V1__StartExecRequest *request, HutchError *err) {
        const Hutch__Keeper__V1__KeeperTerminalSize *terminal = request->terminal;
        size_t left = EXEC_ARGUMENTS_MAX;
        int r;

        r = id_check(request->exec_id, strlen(request->exec_id), err);
        if (r < 0)
                return r;
        if (request->working_directory[0] != '/')
                return reason_set(err, -EINVAL, REASON_PATH_NOT_ABSOLUTE, "the working directory is not absolute");
        if (request->output_limit_bytes == 0)
                return reason_set(err, -EINVAL, REASON_FIELD_OUT_OF_RANGE, "no output may be kept");
        if (request->stdin_stream && request->input.len > 0)
                return reason_set(err, -EINVAL, REASON_FIELD_CONFLICT, "stdin is a stream, and has bytes of its own");
        r = copy_argv(order, request, &left, err);
        if (r < 0)
                return r;
        r = copy_environment(order, request, &left, err);
        if (r < 0)
                return r;

        order->plan = (ExecPlan){
                .id = request->exec_id,
                .argv = order->argv,
                .environment = order->environment,
                .set_home = request->set_home,
                .set_user = request->set_user,
                .working_directory = request->working_directory,
                .user = request->user,
                .timeout = duration_to_ns(request->timeout, UINT64_MAX),
                .kill_grace = duration_to_ns(request->kill_grace, EXEC_DEFAULT_GRACE),
                .stdin_stream = request->stdin_stream,
                .quietly = request->quietly,
                .input = request->input.data,
                .input_len = request->input.len,
                .terminal = terminal != NULL,
                .rows = terminal ? terminal->rows : 0,
                .columns = terminal ? terminal->columns : 0,
                .output_limit = request->output_limit_bytes,
        };
        return 0;
}

int exec_order_init(ExecOrder *order, const Hutch__Keeper__V1__StartExecRequest *request, HutchError *err) {
        int r;

        *order = (ExecOrder){};
        r = order_fill(order, request, err);
        if (r < 0)
                exec_order_clear(order);
        return r;
}

void exec_order_clear(ExecOrder *order) {
        order->argv = strv_free(order->argv);
        order->environment = strv_free(order->environment);
}
