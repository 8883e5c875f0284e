/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: one-shots: what is asked for, and running one to its end. What does not: the stream (exec-stream.c).
 */

#include <errno.h>
#include <hutch/hutch.h>
#include <stdlib.h>

#include "base/memory.h"
#include "client/checks.h"
#include "client/exec-stream.h"
#include "client/output.h"
#include "client/pairs.h"
#include "client/views.h"

#define COLLECTED_MAX ((size_t) 8 << 20) /* bytes of each stream */
#define REQUEST_MAX ((size_t) 64 << 20)  /* bytes in memory of a request that is given encoded */
#define ANSWER_MAX ((size_t) 64 << 20)

DEFINE_CLEANUP(HutchExecStream *, hutch_exec_stream_free);

/* A request with all that it points to. */
typedef struct OnceMessage {
        Hutch__V1__ExecRequest request;
        Google__Protobuf__Duration timeout;
        Pair **env, **labels;
} OnceMessage;

static void once_message_clear(OnceMessage *message) {
        free(message->env);
        free(message->labels);
}

static char *text_or_empty(const char *text) {
        return (char *) (text ? text : protobuf_c_empty_string);
}

static int fill(OnceMessage *message, const HutchOnceSpec *spec, Failure *failure) {
        _cleanup_(checks_clear) Checks checks = {};
        Hutch__V1__ExecRequest *request = &message->request;
        int r;

        checks_duration(&checks, "timeout", spec->timeout);
        checks_pairs(&checks, "env", "ENV_NAME_MALFORMED", spec->env);
        checks_pairs(&checks, "labels", "LABEL_MALFORMED", spec->labels);
        r = checks_result(&checks, failure);
        if (r < 0)
                return r;

        *request = (Hutch__V1__ExecRequest) HUTCH__V1__EXEC_REQUEST__INIT;
        request->argv = (char **) spec->argv;
        request->n_argv = texts_count(spec->argv);
        request->profile = text_or_empty(spec->profile);
        request->image = text_or_empty(spec->image);
        request->working_directory = text_or_empty(spec->working_directory);
        request->request_id = text_or_empty(spec->request_id);
        request->input = (ProtobufCBinaryData){ .len = spec->input_len, .data = (uint8_t *) spec->input };
        if (spec->timeout > 0)
                request->timeout = duration_from_ns(spec->timeout, &message->timeout);
        r = pairs_from_texts(spec->env, &hutch__v1__exec_request__env_entry__descriptor, &message->env,
                             &request->n_env);
        if (r == 0)
                r = pairs_from_texts(spec->labels, &hutch__v1__exec_request__labels_entry__descriptor, &message->labels,
                                     &request->n_labels);
        request->env = (Hutch__V1__ExecRequest__EnvEntry **) message->env;
        request->labels = (Hutch__V1__ExecRequest__LabelsEntry **) message->labels;
        return r;
}

static int start(HutchClient *client, const Hutch__V1__ExecRequest *request, void *user, HutchExecStream **ret_stream,
                 Failure *failure) {
        _cleanup_(checks_clear) Checks checks = {};
        int r;

        checks_once(&checks, request);
        r = checks_result(&checks, failure);
        return r < 0 ? r : exec_stream_once(client, request, user, ret_stream, failure);
}

int hutch_once_start(HutchClient *client, const HutchOnceSpec *spec, void *user, HutchExecStream **ret_stream,
                     HutchError **ret_error) {
        _cleanup_(once_message_clear) OnceMessage message = {};
        _cleanup_(failure_clear) Failure failure = {};
        int r = fill(&message, spec, &failure);

        if (r == 0)
                r = start(client, &message.request, user, ret_stream, &failure);
        return failure_tell(&failure, r, ret_error);
}

int hutch_once_start_encoded(HutchClient *client, const void *request, size_t request_len, void *user,
                             HutchExecStream **ret_stream, HutchError **ret_error) {
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        int r = protobuf_unpack(&hutch__v1__exec_request__descriptor, request, request_len, REQUEST_MAX, &message);

        if (r == 0)
                r = start(client, (const Hutch__V1__ExecRequest *) message, user, ret_stream, &failure);
        else if (r != -ENOMEM)
                r = error_set(&failure.error, -EINVAL, "FIELD_INVALID", "the request is no hutch.v1.ExecRequest");
        return failure_tell(&failure, r, ret_error);
}

/* ---- Running to the end ---- */

static Hutch__V1__CollectedOutput summary_of(const Collector *collector, uint64_t total) {
        Hutch__V1__CollectedOutput summary = HUTCH__V1__COLLECTED_OUTPUT__INIT;

        summary.total_bytes = total;
        summary.dropped_bytes = total - collector->len;
        summary.truncated = summary.dropped_bytes > 0;
        return summary;
}

/* Makes the output of what was collected, as RunCommand would have told it. */
static int make_output(const HutchExecStream *stream, const Collector streams[2], HutchOutput **ret_output) {
        Hutch__V1__RunCommandResponse answer = HUTCH__V1__RUN_COMMAND_RESPONSE__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *exec = NULL;
        const HutchExec *told = hutch_exec_stream_exec(stream);
        Hutch__V1__CollectedOutput out = summary_of(&streams[0], told->stdout_bytes);
        Hutch__V1__CollectedOutput err = summary_of(&streams[1], told->stderr_bytes);
        _cleanup_free_ uint8_t *bytes = NULL;
        ProtobufCMessage *whole;
        size_t len;
        int r = protobuf_unpack(&hutch__v1__exec__descriptor, told->encoded, told->encoded_len, ANSWER_MAX, &exec);

        if (r < 0)
                return r;
        answer.exec = (Hutch__V1__Exec *) exec;
        answer.stdout = (ProtobufCBinaryData){ .len = streams[0].len, .data = streams[0].data };
        answer.stderr = (ProtobufCBinaryData){ .len = streams[1].len, .data = streams[1].data };
        answer.stdout_summary = &out;
        answer.stderr_summary = &err;
        r = protobuf_pack(&answer.base, &bytes, &len);
        if (r < 0)
                return r;
        r = protobuf_unpack(&hutch__v1__run_command_response__descriptor, bytes, len, ANSWER_MAX, &whole);
        return r < 0 ? r : output_new((Hutch__V1__RunCommandResponse *) whole, ret_output);
}

/* Takes all that comes. */
static int collect(HutchExecStream *stream, Collector streams[2], HutchError **ret_error) {
        HutchChunk chunk;
        int r;

        while ((r = hutch_exec_stream_next(stream, true, &chunk, ret_error)) == 1)
                if (collector_add(&streams[chunk.stream - 1], chunk.data, chunk.len) < 0)
                        return failure_tell(&(Failure){}, -ENOMEM, ret_error);
        collector_end(&streams[0]);
        collector_end(&streams[1]);
        return r;
}

int hutch_run_once(HutchClient *client, const HutchOnceSpec *spec, HutchOutput **ret_output, HutchError **ret_error) {
        _cleanup_(hutch_exec_stream_freep) HutchExecStream *stream = NULL;
        Collector streams[2] = { { .limit = COLLECTED_MAX }, { .limit = COLLECTED_MAX } };
        HutchOutput *output = NULL;
        int r = hutch_once_start(client, spec, NULL, &stream, ret_error);

        if (r == 0)
                r = collect(stream, streams, ret_error);
        if (r == 0 && ret_output) {
                r = make_output(stream, streams, &output);
                if (r < 0)
                        (void) failure_tell(&(Failure){}, r, ret_error);
                else
                        *ret_output = output;
        }
        collector_clear(&streams[0]);
        collector_clear(&streams[1]);
        return r;
}
