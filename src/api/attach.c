/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: AttachExec: which exec, and what goes into it. What does not: its output (exec-stream.c). */

#include <stdlib.h>
#include <string.h>

#include "api/exec-stream.h"
#include "base/memory.h"
#include "contract/hutch/v1/exec.pb-c.h"

#define STDIN_MAX ((size_t) 1 << 20) /* bytes in one message */
#define SIGNAL_MAX 64

typedef Hutch__V1__AttachExecRequest AttachRequest;

typedef struct AttachStream {
        ExecStream exec;  /* first */
        bool reads_later; /* the next message is read when the exec takes more input */
} AttachStream;

static void read_next(AttachStream *stream) {
        if (stream->exec.base.finished)
                return;

        stream->reads_later = !attachment_can_send(stream->exec.attachment);
        if (!stream->reads_later)
                call_read(stream->exec.base.call);
}

static void on_output(Attachment *attachment, void *user) {
        AttachStream *stream = user;

        (void) attachment;
        exec_stream_pump(&stream->exec);
}

static void on_can_send(Attachment *attachment, void *user) {
        AttachStream *stream = user;

        (void) attachment;
        if (stream->reads_later)
                read_next(stream);
}

static void on_input_failed(Attachment *attachment, const HutchError *err, void *user) {
        AttachStream *stream = user;

        (void) attachment;
        api_stream_fail(&stream->exec.base, err);
}

static void send_attached(const HutchError *err, void *user) {
        AttachStream *stream = user;

        stream->exec.deferred = NULL;
        if (err) {
                api_stream_fail(&stream->exec.base, err);
                return;
        }

        exec_stream_put_exec(&stream->exec, HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ATTACHED);
        stream->exec.begun = true;
        exec_stream_pump(&stream->exec);
}

static int attach_to(AttachStream *stream, Request *request, const char *sandbox_id, const char *exec_id,
                     uint64_t out_offset, uint64_t err_offset) {
        static const AttachmentEvents events = { on_output, on_output, on_can_send, on_input_failed };
        OutputPosition out = { true, out_offset }, err = { true, err_offset };
        int r = control_attach(request->api->options.control, request->caller, sandbox_id, exec_id, true, out, err,
                               &events, stream, &stream->exec.attachment, &request->err);

        if (r >= 0)
                attachment_hold(stream->exec.attachment);
        return r;
}

/* The first message says which exec. Fails with @request.err or with violations. */
static int begin(AttachStream *stream, Request *request, const AttachRequest *message) {
        Violations *violations = &request->violations;
        char exec_id[ID_LEN_MAX + 1];
        ExecView view;
        size_t above;
        int r;

        switch (message->item_case) {
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_ATTACH:
                above = violations_enter(violations, "attach");
                check_id(request, "sandbox_id", message->attach->sandbox_id);
                check_id(request, "exec_id", message->attach->exec_id);
                violations_leave(violations, above);
                r = violations_result(violations, &request->err);
                if (r < 0)
                        return r;
                return attach_to(stream, request, message->attach->sandbox_id, message->attach->exec_id,
                                 message->attach->stdout_offset, message->attach->stderr_offset);

        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE:
                above = violations_enter(violations, "create");
                r = request_create_exec(request, message->create, true, &view);
                violations_leave(violations, above);
                if (r < 0)
                        return r;
                memcpy(exec_id, view.record->id, sizeof(exec_id));
                return attach_to(stream, request, message->create->sandbox_id, exec_id, 0, 0);

        default:
                violations_add(violations, NULL, REASON_STREAM_ORDER, "the first message is `attach` or `create`");
                return violations_result(violations, &request->err);
        }
}

/* Every other message is input. */
static int take_input(AttachStream *stream, Request *request, const AttachRequest *message) {
        Attachment *attachment = stream->exec.attachment;
        Violations *violations = &request->violations;
        const Hutch__V1__TerminalSize *size;
        int r = violations_result(violations, &request->err);

        if (r < 0)
                return r;

        switch (message->item_case) {
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN:
                if (message->stdin.len <= STDIN_MAX)
                        return attachment_send(attachment, message->stdin.data, message->stdin.len, &request->err);
                violations_add_limit(violations, "stdin", REASON_FIELD_TOO_LONG, "stdin_bytes", STDIN_MAX,
                                     "at most %zu bytes at a time", STDIN_MAX);
                break;

        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN_CLOSE:
                return attachment_close_stdin(attachment, &request->err);

        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_RESIZE:
                size = message->resize;
                terminal_check(size, "resize", violations);
                if (violations->n == 0)
                        return attachment_resize(attachment, size->rows ? size->rows : TERMINAL_ROWS,
                                                 size->columns ? size->columns : TERMINAL_COLUMNS, &request->err);
                break;

        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_SIGNAL:
                if (message->signal >= 1 && message->signal <= SIGNAL_MAX)
                        return attachment_signal(attachment, message->signal, &request->err);
                violations_add(violations, "signal", REASON_FIELD_OUT_OF_RANGE, "a signal is 1 to %d", SIGNAL_MAX);
                break;

        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_ATTACH:
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE:
                violations_add(violations, NULL, REASON_STREAM_ORDER, "only the first message says which exec");
                break;

        default:
                violations_add(violations, NULL, REASON_FIELD_REQUIRED, "the message says nothing");
        }

        return violations_result(violations, &request->err);
}

static void fail(AttachStream *stream, const Request *request) {
        stream->exec.base.finished = true;
        api_fail(stream->exec.base.call, &request->err, &request->violations);
}

static void on_message(Call *call, const uint8_t *bytes, size_t len) {
        _cleanup_(request_clear) Request request = {};
        AttachStream *stream = call_user(call);
        const AttachRequest *message;
        bool first = !stream->exec.attachment;

        if (stream->exec.base.finished)
                return;

        message = request_begin(&request, stream->exec.base.api, call, &hutch__v1__attach_exec_request__descriptor,
                                bytes, len);
        if (!message) {
                stream->exec.base.finished = true;
                return;
        }
        if ((first ? begin : take_input)(stream, &request, message) < 0) {
                fail(stream, &request);
                return;
        }

        if (first)
                stream->exec.deferred = api_defer(stream->exec.base.api, send_attached, stream);
        read_next(stream);
}

static void on_half_closed(Call *call) {
        _cleanup_(request_clear) Request request = {};
        AttachStream *stream = call_user(call);

        if (stream->exec.attachment || stream->exec.base.finished)
                return;

        violations_add(&request.violations, NULL, REASON_STREAM_ORDER, "the stream ended before it said which exec");
        (void) violations_result(&request.violations, &request.err);
        fail(stream, &request);
}

static void on_writable(Call *call) {
        AttachStream *stream = call_user(call);

        exec_stream_pump(&stream->exec);
}

static void on_ended(Call *call, CallEnd how) {
        AttachStream *stream = call_user(call);

        (void) how;
        (void) exec_stream_release(&stream->exec);
        exec_stream_clear(&stream->exec);
        free(stream);
}

void start_attach_exec(Call *call, void *context) {
        static const CallEvents events = {
                .message = on_message,
                .half_closed = on_half_closed,
                .writable = on_writable,
                .ended = on_ended,
        };
        _cleanup_(error_clear) HutchError err = {};
        AttachStream *stream = new0(AttachStream, 1);
        Api *api = context;
        const Caller *caller = api_caller(call);

        if (api_stream_begin(&stream->exec.base, api, call, caller, true, &err) < 0) {
                free(stream);
                api_fail(call, &err, NULL);
                return;
        }

        stream->exec.output_field = HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_OUTPUT;
        stream->exec.end_field = HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ENDED;
        stream->exec.send_end = exec_stream_end;
        stream->exec.follow = true;
        call_set_events(call, &events, stream);
        call_read(call);
}
