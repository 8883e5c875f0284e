/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: output on its way from an attachment to a call, and ReadExecOutput, which is no more than that. What
 * does not: input (attach.c), and the files that hold the output (output, control). */

#include "api/exec-stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "base/memory.h"
#include "contract/hutch/v1/exec.pb-c.h"

/* Writes the fields before the @len bytes of a chunk that stand at CHUNK_HEAD of @buffer. Returns where they begin. */
static uint8_t *frame_chunk(uint8_t *buffer, unsigned field, int stream, uint64_t offset, size_t len) {
        uint8_t inner[CHUNK_HEAD], outer[CHUNK_HEAD], *begin = buffer + CHUNK_HEAD;
        size_t n_inner = 0, n_outer = 0;

        /* hutch.v1.OutputChunk: stream, offset, data. */
        inner[n_inner++] = 1 << 3 | PROTOBUF_C_WIRE_TYPE_VARINT;
        inner[n_inner++] = (uint8_t) stream;
        if (offset > 0) {
                inner[n_inner++] = 2 << 3 | PROTOBUF_C_WIRE_TYPE_VARINT;
                n_inner += wire_varint(offset, inner + n_inner);
        }
        inner[n_inner++] = 3 << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
        n_inner += wire_varint(len, inner + n_inner);

        outer[n_outer++] = (uint8_t) (field << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
        n_outer += wire_varint(n_inner + len, outer + n_outer);

        begin -= n_inner;
        memcpy(begin, inner, n_inner);
        begin -= n_outer;
        memcpy(begin, outer, n_outer);
        return begin;
}

void exec_stream_put_exec(ExecStream *stream, unsigned field) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        ExecView view = attachment_exec(stream->attachment);

        put_exec(&buffer, field, &view);
        api_stream_put(&stream->base, &buffer);
}

static void end_durably(const HutchError *err, void *user) {
        ExecStream *stream = user;

        stream->deferred = NULL;
        if (err) {
                api_stream_fail(&stream->base, err);
                return;
        }

        stream->send_end(stream);
}

void exec_stream_end(ExecStream *stream) {
        exec_stream_put_exec(stream, stream->end_field);
        api_stream_finish(&stream->base);
}

void exec_stream_pump(ExecStream *stream) {
        uint8_t *buffer = stream->base.api->chunk;

        while (stream->begun && !stream->deferred && !stream->base.finished && call_is_writable(stream->base.call)) {
                _cleanup_(error_clear) HutchError err = {};
                uint64_t offset = 0;
                int number = 0;
                ssize_t n;

                n = attachment_read(stream->attachment, buffer + CHUNK_HEAD, CHUNK_MAX, &number, &offset, &err);
                if (n > 0) {
                        uint8_t *begin = frame_chunk(buffer, stream->output_field, number, offset, (size_t) n);

                        api_stream_send_bytes(&stream->base, begin,
                                              (size_t) (buffer + CHUNK_HEAD - begin) + (size_t) n);
                } else if (n == 0 && stream->follow) {
                        return;
                } else if (n == 0 || n == -ENODATA) {
                        stream->deferred = api_defer(stream->base.api, end_durably, stream);
                } else {
                        api_stream_fail(&stream->base, &err);
                }
        }
}

bool exec_stream_release(ExecStream *stream) {
        const Caller *caller = api_caller(stream->base.call);

        if (!stream->attachment || stream->base.api->shut_down)
                return false;

        return attachment_release(stream->attachment, caller);
}

void exec_stream_clear(ExecStream *stream) {
        (void) deferred_cancel(stream->deferred);
        (void) attachment_free(stream->attachment);
        api_stream_end_of_call(&stream->base);
}

static void on_attachment(Attachment *attachment, void *user) {
        (void) attachment;
        exec_stream_pump(user);
}

static void on_writable(Call *call) {
        exec_stream_pump(call_user(call));
}

static void on_ended(Call *call, CallEnd how) {
        ExecStream *stream = call_user(call);

        (void) how;
        exec_stream_clear(stream);
        free(stream);
}

/* What was there when it was asked for is durable now, or never was there. */
static void begin(const HutchError *err, void *user) {
        ExecStream *stream = user;

        stream->deferred = NULL;
        stream->begun = true;
        if (err)
                api_stream_fail(&stream->base, err);
        else
                exec_stream_pump(stream);
}

static void check_request(Request *request, const Hutch__V1__ReadExecOutputRequest *message, OutputPosition *ret_out,
                          OutputPosition *ret_err) {
        Violations *violations = &request->violations;
        OutputPosition out = { .offset = message->stdout_offset }, err = { .offset = message->stderr_offset };

        check_id(request, "sandbox_id", message->sandbox_id);
        check_id(request, "exec_id", message->exec_id);
        for (size_t i = 0; i < message->n_streams; i++) {
                size_t above = violations_enter_element(violations, "streams", i);

                if (message->streams[i] == HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT)
                        out.wanted = true;
                else if (message->streams[i] == HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDERR)
                        err.wanted = true;
                else
                        violations_add(violations, NULL, REASON_FIELD_INVALID, "a stream is stdout or stderr");
                violations_leave(violations, above);
        }
        if (message->n_streams == 0)
                out.wanted = err.wanted = true;
        if (message->opt_tail_lines_case && (out.offset > 0 || err.offset > 0))
                violations_add(violations, "tail_lines", REASON_FIELD_CONFLICT, "it excludes offsets");

        *ret_out = out;
        *ret_err = err;
}

void handle_read_exec_output(Request *request) {
        static const AttachmentEvents attachment_events = { on_attachment, on_attachment, on_attachment, NULL };
        static const CallEvents call_events = { .writable = on_writable, .ended = on_ended };
        const Hutch__V1__ReadExecOutputRequest *message = (const Hutch__V1__ReadExecOutputRequest *) request->message;
        OutputPosition out, err;
        ExecStream *stream;
        Api *api = request->api;
        int r;

        check_request(request, message, &out, &err);
        if (request_is_refused(request))
                return;

        stream = new0(ExecStream, 1);
        r = api_stream_begin(&stream->base, api, request->call, request->caller, true, &request->err);
        if (r < 0) {
                free(stream);
                request_fail(request);
                return;
        }

        stream->output_field = HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_OUTPUT;
        stream->end_field = HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_EXEC;
        stream->send_end = exec_stream_end;
        stream->follow = message->follow;
        call_set_events(request->call, &call_events, stream);
        r = control_attach(api->options.control, request->caller, message->sandbox_id, message->exec_id,
                           message->follow, out, err, &attachment_events, stream, &stream->attachment, &request->err);
        if (r >= 0 && message->opt_tail_lines_case)
                r = attachment_seek_tail(stream->attachment, message->tail_lines, &request->err);
        if (r < 0)
                api_stream_fail(&stream->base, &request->err);
        else
                stream->deferred = api_defer(api, begin, stream);
}
