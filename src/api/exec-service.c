/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the unary methods of hutch.v1.ExecService, but for RunCommand (run-command.c). What does not: the
 * rules of specs (exec-spec.c), streams (attach.c, exec-stream.c), and all that happens to execs (control). */

#include <errno.h>
#include <string.h>

#include "api/convert.h"
#include "api/listing.h"
#include "api/service.h"
#include "api/times.h"
#include "base/memory.h"
#include "contract/hutch/v1/exec.pb-c.h"

#define RESPONSE_EXEC_FIELD 1 /* of every response that holds one exec */

static void reply_exec(Request *request, const ExecView *view) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};

        put_exec(&buffer, RESPONSE_EXEC_FIELD, view);
        request_reply(request, &buffer);
}

int request_create_exec_of(Request *request, const char *sandbox_id, const char *exec_id,
                           const Hutch__V1__ExecSpec *spec, const RequestKey *key, const ProtobufCBinaryData *input,
                           bool bound, ExecView *ret_view) {
        _cleanup_(exec_spec_unrefp) ExecSpec *made = NULL;
        Control *control = request->api->options.control;
        const Caller *caller = request->caller;
        ExecRules rules = api_exec_rules(request->api);
        SandboxView sandbox;
        size_t above;
        int r;

        r = control_get_sandbox(control, caller, sandbox_id, &sandbox, &request->err);
        if (r < 0)
                return r;

        above = violations_enter(&request->violations, "spec");
        r = exec_spec_create(spec, &rules, sandbox.record->spec, input ? input->data : NULL, input ? input->len : 0,
                             &request->violations, &made);
        violations_leave(&request->violations, above);
        if (violations_result(&request->violations, &request->err) < 0)
                return -EINVAL;
        if (r < 0)
                return reason_set(&request->err, r, REASON_HOST_EXHAUSTED, "the daemon is out of memory");

        return control_create_exec(control, caller, key, sandbox_id, exec_id, made, bound, ret_view, &request->err);
}

int request_create_exec(Request *request, const Hutch__V1__CreateExecRequest *message, bool streams,
                        ExecView *ret_view) {
        ExecRules rules = api_exec_rules(request->api);
        RequestKey key;
        size_t above;
        int r;

        r = request_key(&message->base, "CreateExec", message->request_id, &key);
        if (r < 0)
                return reason_set(&request->err, r, REASON_HOST_EXHAUSTED, "the daemon is out of memory");
        r = control_repeat_exec(request->api->options.control, request->caller, &key, ret_view, &request->err);
        if (r != 0)
                return r;

        check_id(request, "sandbox_id", message->sandbox_id);
        check_new_id(request, "exec_id", message->exec_id);
        check_request_id(request, message->request_id);
        if (message->bound && !streams)
                violations_add(&request->violations, "bound", REASON_FIELD_INVALID,
                               "there is no stream that it could be bound to: use AttachExec");
        above = violations_enter(&request->violations, "spec");
        exec_spec_check(message->spec, &rules, &request->violations);
        violations_leave(&request->violations, above);
        r = violations_result(&request->violations, &request->err);
        if (r < 0)
                return r;
        return request_create_exec_of(request, message->sandbox_id, message->exec_id, message->spec, &key, NULL,
                                      message->bound, ret_view);
}

static void handle_create_exec(Request *request) {
        const Hutch__V1__CreateExecRequest *message = (const Hutch__V1__CreateExecRequest *) request->message;
        ExecView view;

        if (request_create_exec(request, message, false, &view) < 0)
                api_fail(request->call, &request->err, &request->violations);
        else
                reply_exec(request, &view);
}

static void get_exec(Request *request) {
        const Hutch__V1__GetExecRequest *message = (const Hutch__V1__GetExecRequest *) request->message;
        ExecView view;
        Api *api = request->api;

        check_id(request, "sandbox_id", message->sandbox_id);
        check_id(request, "exec_id", message->exec_id);
        if (request_is_refused(request))
                return;

        if (control_get_exec(api->options.control, request->caller, message->sandbox_id, message->exec_id, &view,
                             &request->err) < 0)
                request_fail(request);
        else
                reply_exec(request, &view);
}

static void cancel_exec(Request *request) {
        const Hutch__V1__CancelExecRequest *message = (const Hutch__V1__CancelExecRequest *) request->message;
        uint64_t grace;
        ExecView view;
        Api *api = request->api;

        check_id(request, "sandbox_id", message->sandbox_id);
        check_id(request, "exec_id", message->exec_id);
        duration_read_bounded(message->grace, "grace", KILL_GRACE_MAX, UINT64_MAX, &request->violations, &grace);
        if (request_is_refused(request))
                return;

        if (control_cancel_exec(api->options.control, request->caller, message->sandbox_id, message->exec_id, grace,
                                &view, &request->err) < 0)
                request_fail(request);
        else
                reply_exec(request, &view);
}

static bool list_exec(const ExecView *view, void *user) {
        Listing *listing = user;

        if (!listing_has_room(listing))
                return false;

        put_exec(&listing->buffer, 1, view);
        listing_added(listing, view->record->serial);
        return true;
}

static unsigned check_states(Request *request, const Hutch__V1__ExecState states[], size_t n) {
        unsigned bits = 0;
        ExecState state;

        for (size_t i = 0; i < n; i++) {
                size_t above = violations_enter_element(&request->violations, "states", i);

                if (exec_state_from_message((int) states[i], &state) < 0)
                        violations_add(&request->violations, NULL, REASON_FIELD_INVALID, "there is no such state");
                else
                        bits |= 1U << state;
                violations_leave(&request->violations, above);
        }
        return bits;
}

static void list_execs(Request *request) {
        _cleanup_(listing_clear) Listing listing = {};
        _cleanup_(string_builder_clear) StringBuilder text = {};
        const Hutch__V1__ListExecsRequest *message = (const Hutch__V1__ListExecsRequest *) request->message;
        unsigned states;
        uint64_t after;
        Api *api = request->api;
        int r;

        check_id(request, "sandbox_id", message->sandbox_id);
        states = check_states(request, message->states, message->n_states);
        string_builder_appendf(&text, "execs %u %.*s", states, ID_LEN_MAX, message->sandbox_id);
        listing_begin(&listing, request, message->page_size, message->page_token, &text);
        if (request_is_refused(request))
                return;

        after = listing.after_serial;
        r = control_list_execs(api->options.control, request->caller, message->sandbox_id, states, &after, list_exec,
                               &listing, &request->err);
        if (r < 0) {
                request_fail(request);
                return;
        }

        if (r > 0)
                listing_break(&listing, after);
        listing_end(&listing, 2);
        request_reply(request, &listing.buffer);
}

MethodList exec_service_methods(void) {
        static const ApiMethod methods[] = {
                { .path = "/hutch.v1.ExecService/CreateExec",
                  .request = &hutch__v1__create_exec_request__descriptor,
                  .handle = handle_create_exec },
                { .path = "/hutch.v1.ExecService/GetExec",
                  .request = &hutch__v1__get_exec_request__descriptor,
                  .handle = get_exec },
                { .path = "/hutch.v1.ExecService/ListExecs",
                  .request = &hutch__v1__list_execs_request__descriptor,
                  .handle = list_execs },
                { .path = "/hutch.v1.ExecService/CancelExec",
                  .request = &hutch__v1__cancel_exec_request__descriptor,
                  .handle = cancel_exec },
                { .path = "/hutch.v1.ExecService/AttachExec", .start = start_attach_exec },
                { .path = "/hutch.v1.ExecService/ReadExecOutput",
                  .request = &hutch__v1__read_exec_output_request__descriptor,
                  .handle = handle_read_exec_output },
                { .path = "/hutch.v1.ExecService/RunCommand",
                  .request = &hutch__v1__run_command_request__descriptor,
                  .handle = handle_run_command },
        };

        return (MethodList){ methods, sizeof(methods) / sizeof(methods[0]) };
}
