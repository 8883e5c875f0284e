/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: RunCommand: an exec that ends with its call, and its bounded output once it has ended. The output
 * is read from its files then, so that a command that runs costs nothing but its exec. What does not: how much of two
 * streams fits into one limit (model/output-window.c). */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "api/service.h"
#include "base/memory.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "model/output-window.h"

#define ANSWER_OVERHEAD 1024 /* bytes of an answer beside the exec and the output */

/* Fields of hutch.v1.RunCommandResponse. */
enum {
        RESPONSE_EXEC = 1,
        RESPONSE_STDOUT = 2,
        RESPONSE_STDERR = 3,
        RESPONSE_STDOUT_SUMMARY = 4,
        RESPONSE_STDERR_SUMMARY = 5,
};

typedef struct Run {
        ApiStream base; /* first */
        Attachment *attachment;
        Deferred *deferred;
        uint64_t output_limit;
        bool is_repeatable; /* it has a request id: who lost the connection may come back */
        char sandbox_id[ID_LEN_MAX + 1];
        char exec_id[ID_LEN_MAX + 1];
} Run;

/* What a stream has in the answer. */
typedef struct Collected {
        uint64_t total;
        uint64_t head;
        uint64_t tail;
} Collected;

static void on_nothing(Attachment *attachment, void *user) {
        (void) attachment;
        (void) user;
}

/* Reads the bytes from @offset up to @end, as far as they are there. Returns how many. */
static size_t read_range(Run *run, const Caller *caller, int stream, uint64_t offset, uint64_t end, uint8_t *to) {
        static const AttachmentEvents events = { .changed = on_nothing, .writable = on_nothing };
        _cleanup_(attachment_freep) Attachment *attachment = NULL;
        const OutputPosition position = { true, offset }, none = {};
        size_t n_read = 0;

        if (offset == end || control_attach(run->base.api->options.control, caller, run->sandbox_id, run->exec_id,
                                            false, stream == 1 ? position : none, stream == 2 ? position : none,
                                            &events, run, &attachment, NULL) < 0)
                return 0;

        while (offset + n_read < end) {
                uint64_t at;
                int from;
                ssize_t n =
                        attachment_read(attachment, to + n_read, (size_t) (end - offset) - n_read, &from, &at, NULL);

                /* What is not there is missing, and counted as such. */
                if (n <= 0 || at != offset + n_read)
                        break;
                n_read += (size_t) n;
        }
        return n_read;
}

/* Puts head and tail of a stream of @total bytes into @field. */
static Collected collect(Run *run, const Caller *caller, int stream, uint64_t limit, uint64_t total, WireBuffer *buffer,
                         unsigned field) {
        OutputWindow window = output_window(limit, total);
        Collected collected = { .total = total };
        size_t begun = wire_begin(buffer, field);
        uint8_t *to = wire_reserve(buffer, (size_t) (total - output_window_dropped(window)));

        if (!to)
                return collected;

        collected.head = read_range(run, caller, stream, 0, window.head, to);
        if (collected.head == window.head)
                collected.tail =
                        read_range(run, caller, stream, window.tail_start, total, to + (size_t) collected.head);
        buffer->len += (size_t) (collected.head + collected.tail);
        wire_end(buffer, begun);
        return collected;
}

static void put_summary(WireBuffer *buffer, unsigned field, Collected collected) {
        Hutch__V1__CollectedOutput message = HUTCH__V1__COLLECTED_OUTPUT__INIT;

        message.total_bytes = collected.total;
        message.dropped_bytes = collected.total - collected.head - collected.tail;
        message.truncated = message.dropped_bytes > 0;
        message.head_bytes = collected.head;
        wire_put_message(buffer, field, &message.base);
}

static uint64_t smaller(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

/* The exec has ended: answers. */
static void answer(Run *run) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        uint64_t limit = run->output_limit, max = run->base.api->limits.max_response_bytes, out_limit, err_limit;
        ExecView view = attachment_exec(run->attachment);
        uint64_t kept = view.record->spec->output_limit;
        uint64_t out_total = view.record->result.out.total, err_total = view.record->result.err.total;
        Collected out, err;
        const Caller *caller = api_caller(run->base.call);

        put_exec(&buffer, RESPONSE_EXEC, &view);
        if (max > 0)
                limit = smaller(limit, max - smaller(max, buffer.len + ANSWER_OVERHEAD));

        /* A stream has no use for more than was kept of it. */
        output_share(limit, smaller(kept, out_total), smaller(kept, err_total), &out_limit, &err_limit);
        out = collect(run, caller, 1, smaller(out_limit, kept), out_total, &buffer, RESPONSE_STDOUT);
        err = collect(run, caller, 2, smaller(err_limit, kept), err_total, &buffer, RESPONSE_STDERR);
        put_summary(&buffer, RESPONSE_STDOUT_SUMMARY, out);
        put_summary(&buffer, RESPONSE_STDERR_SUMMARY, err);
        api_stream_put(&run->base, &buffer);
        api_stream_finish(&run->base);
}

static bool has_ended(const Run *run) {
        ExecState state = attachment_exec(run->attachment).record->state;

        return state != EXEC_PENDING && state != EXEC_RUNNING;
}

static void on_durable(const HutchError *err, void *user) {
        Run *run = user;

        run->deferred = NULL;
        if (err)
                api_stream_fail(&run->base, err);
        else if (has_ended(run) && !run->base.finished)
                answer(run);
}

/* The answer is made later: control is busy telling. */
static void on_changed(Attachment *attachment, void *user) {
        Run *run = user;

        (void) attachment;
        if (!run->base.finished && !run->deferred && has_ended(run))
                run->deferred = api_defer(run->base.api, on_durable, run);
}

static void on_ended(Call *call, CallEnd how) {
        Run *run = call_user(call);
        const Caller *caller = api_caller(call);

        (void) deferred_cancel(run->deferred);
        if (how == CALL_END_LOST && run->is_repeatable && !run->base.api->shut_down)
                attachment_leave(run->attachment);
        else if (!run->base.api->shut_down)
                (void) attachment_release(run->attachment, caller);
        (void) attachment_free(run->attachment);
        api_stream_end_of_call(&run->base);
        free(run);
}

static void check_request(Request *request, const Hutch__V1__RunCommandRequest *message) {
        Violations *violations = &request->violations;
        ExecRules rules = api_exec_rules(request->api);
        uint64_t max = request->api->limits.run_output_bytes;
        size_t above;

        check_id(request, "sandbox_id", message->sandbox_id);
        check_request_id(request, message->request_id);
        above = violations_enter(violations, "spec");
        exec_spec_check(message->spec, &rules, violations);
        if (message->spec && message->spec->stdin != HUTCH__V1__STDIN_MODE__STDIN_MODE_UNSPECIFIED)
                violations_add(violations, "stdin", REASON_FIELD_INVALID, "the command gets `input`; leave it unset");
        if (message->spec && message->spec->terminal)
                violations_add(violations, "terminal", REASON_FIELD_INVALID, "the command gets none; leave it unset");
        violations_leave(violations, above);
        check_input(request, &message->input);
        if (max > 0 && message->output_limit_bytes > max)
                violations_add_limit(violations, "output_limit_bytes", REASON_FIELD_OUT_OF_RANGE, "run_output_bytes",
                                     max, "at most %" PRIu64 " bytes", max);
}

void handle_run_command(Request *request) {
        static const AttachmentEvents attachment_events = { .changed = on_changed, .writable = on_nothing };
        static const CallEvents call_events = { .ended = on_ended };
        const Hutch__V1__RunCommandRequest *message = (const Hutch__V1__RunCommandRequest *) request->message;
        const OutputPosition none = {};
        RequestKey key;
        ExecView view;
        Run *run;
        Api *api = request->api;
        int r, repeated;

        r = request_key(&message->base, "RunCommand", message->request_id, &key);
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }
        repeated = control_repeat_exec(api->options.control, request->caller, &key, &view, &request->err);
        if (repeated < 0) {
                request_fail(request);
                return;
        }
        if (repeated == 0)
                check_request(request, message);
        if (request_is_refused(request))
                return;

        run = new0(Run, 1);
        r = api_stream_begin(&run->base, api, request->call, request->caller, false, &request->err);
        if (r < 0) {
                free(run);
                request_fail(request);
                return;
        }
        if (repeated == 0)
                r = request_create_exec_of(request, message->sandbox_id, "", message->spec, &key, &message->input, true,
                                           &view);
        if (r >= 0) {
                memcpy(run->exec_id, view.record->id, sizeof(run->exec_id));
                memcpy(run->sandbox_id, message->sandbox_id, strlen(message->sandbox_id) + 1);
                r = control_attach(api->options.control, request->caller, run->sandbox_id, run->exec_id, false, none,
                                   none, &attachment_events, run, &run->attachment, &request->err);
        }
        if (r < 0) {
                api_stream_end_of_call(&run->base);
                free(run);
                api_fail(request->call, &request->err, &request->violations);
                return;
        }

        attachment_hold(run->attachment);
        run->is_repeatable = *message->request_id != '\0';
        run->output_limit = message->output_limit_bytes > 0    ? message->output_limit_bytes
                            : api->limits.run_output_bytes > 0 ? api->limits.run_output_bytes
                                                               : UINT64_MAX;
        call_set_events(request->call, &call_events, run);
        run->deferred = api_defer(api, on_durable, run);
}
