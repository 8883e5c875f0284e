/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: hutch.v1.SandboxExecService: a command in a sandbox that is made for it and goes with the call. What
 * does not: how output comes (exec-stream.c), and how the two are made together (control). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "api/exec-stream.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/memory.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"

#define PROFILE_DEFAULT "standard"
#define TIMEOUT_LIMIT_MIN NSEC_PER_MSEC /* that limits can say */

/* How long the sandbox outlives its command after a restart of the daemon, for a caller who asks again. */
#define IDLE_TTL (5 * NSEC_PER_SEC)

/* Fields of hutch.v1.ExecStarted and hutch.v1.ExecExit. */
enum {
        STARTED_SANDBOX_ID = 1,
        STARTED_EFFECTIVE = 2,
        EXIT_CODE = 1,
        EXIT_RESULT = 2,
};

typedef Hutch__V1__ExecRequest Message;

typedef struct OneShot {
        ExecStream exec; /* first */
        char sandbox_id[ID_LEN_MAX + 1];
} OneShot;

/* This call has done with the command. With the last that does the sandbox goes. */
static void let_go(OneShot *one_shot) {
        Api *api = one_shot->exec.base.api;
        SandboxView view;
        const Caller *caller = api_caller(one_shot->exec.base.call);

        if (exec_stream_release(&one_shot->exec))
                (void) control_delete_sandbox(api->options.control, caller, one_shot->sandbox_id, &view, NULL);
}

/* Why there is no exit code. */
static void explain(const OneShot *one_shot, const ExecResult *result, HutchError *err) {
        Api *api = one_shot->exec.base.api;
        SandboxView sandbox;
        const Caller *caller = api_caller(one_shot->exec.base.call);

        if (control_get_sandbox(api->options.control, caller, one_shot->sandbox_id, &sandbox, err) < 0)
                return;

        switch (result->end_reason) {
        case EXEC_END_SANDBOX_FAILED:
                (void) reason_set(err, -EIO, sandbox.record->state_reason, "the sandbox failed: %s",
                                  sandbox.record->state_message);
                break;
        case EXEC_END_SANDBOX_STOPPED:
        case EXEC_END_SANDBOX_DELETED:
                (void) reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE,
                                  "the command has no exit code: %s by somebody else", result->message);
                error_add_pair(err, "state", "%s", sandbox_state_name(sandbox.record->state));
                break;
        case EXEC_END_CANCELLED:
                (void) reason_set(err, -ECANCELED, REASON_CALL_CANCELLED, "the command has no exit code: %s",
                                  result->message);
                break;
        default:
                (void) reason_set(err, -EIO, REASON_INTERNAL, "the command has no exit code: %s", result->message);
        }
}

/* All output was sent. */
static void send_exit(ExecStream *stream) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(error_clear) HutchError err = {};
        const ExecResult *result = &attachment_exec(stream->attachment).record->result;
        size_t begun;

        if (result->has_exit_code) {
                begun = wire_begin(&buffer, HUTCH__V1__EXEC_RESPONSE__ITEM_EXIT);
                wire_put_uint(&buffer, EXIT_CODE, (uint64_t) result->exit_code);
                put_exec_result(&buffer, EXIT_RESULT, result);
                wire_end(&buffer, begun);
                api_stream_put(&stream->base, &buffer);
                api_stream_finish(&stream->base);
        } else {
                explain((OneShot *) stream, result, &err);
                api_stream_fail(&stream->base, &err);
        }
}

static void send_started(const HutchError *err, void *user) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(error_clear) HutchError problem = {};
        OneShot *one_shot = user;
        ExecStream *stream = &one_shot->exec;
        SandboxView view;
        const Caller *caller = api_caller(stream->base.call);
        size_t begun;

        stream->deferred = NULL;
        if (!err &&
            control_get_sandbox(stream->base.api->options.control, caller, one_shot->sandbox_id, &view, &problem) < 0)
                err = &problem;
        if (err) {
                api_stream_fail(&stream->base, err);
                return;
        }

        begun = wire_begin(&buffer, HUTCH__V1__EXEC_RESPONSE__ITEM_STARTED);
        wire_put_text(&buffer, STARTED_SANDBOX_ID, one_shot->sandbox_id);
        wire_put_bytes(&buffer, STARTED_EFFECTIVE, view.record->spec->effective, view.record->spec->effective_len);
        wire_end(&buffer, begun);
        api_stream_put(&stream->base, &buffer);
        stream->begun = true;
        exec_stream_pump(stream);
}

/* What is told of it is told with the rest, if that comes soon: the disk is waited for once. */
static void on_attachment(Attachment *attachment, void *user) {
        OneShot *one_shot = user;

        if (one_shot->exec.begun) {
                exec_stream_pump(&one_shot->exec);
        } else if (attachment_exec(attachment).record->state != EXEC_PENDING) {
                one_shot->exec.deferred = deferred_cancel(one_shot->exec.deferred);
                send_started(NULL, one_shot);
        }
}

static void on_writable(Call *call) {
        exec_stream_pump(call_user(call));
}

static void on_ended(Call *call, CallEnd how) {
        OneShot *one_shot = call_user(call);

        (void) how;
        let_go(one_shot);
        exec_stream_clear(&one_shot->exec);
        free(one_shot);
}

/* What limits say of a timeout is clamped, and told. */
static void limit_timeout(const Message *message, Hutch__V1__ResourceLimits *limits) {
        uint64_t timeout = message->timeout ? duration_ns(message->timeout) : 0;

        if (timeout >= TIMEOUT_LIMIT_MIN && (!limits->exec_timeout || duration_ns(limits->exec_timeout) > timeout))
                limits->exec_timeout = message->timeout;
}

/* Checks all of the request, and makes specs of it, which the caller drops also when it fails. Negative: there are
 * violations, or memory is out. */
static int make_specs(Request *request, const Message *message, SandboxSpec **ret_sandbox, ExecSpec **ret_exec) {
        Violations *violations = &request->violations;
        SandboxRules sandbox_rules = api_sandbox_rules(request->api);
        ExecRules exec_rules = api_exec_rules(request->api);
        Hutch__V1__ResourceLimits limits = HUTCH__V1__RESOURCE_LIMITS__INIT;
        Hutch__V1__SandboxSpec sandbox = HUTCH__V1__SANDBOX_SPEC__INIT;
        Hutch__V1__ExecSpec exec = HUTCH__V1__EXEC_SPEC__INIT;
        Google__Protobuf__Duration ttl = duration_message(IDLE_TTL);
        int r;

        exec.n_argv = message->n_argv;
        exec.argv = message->argv;
        exec.n_env = message->n_env;
        exec.env = (Hutch__V1__ExecSpec__EnvEntry **) message->env; /* entries of all maps have one shape */
        exec.working_directory = message->working_directory;
        exec.timeout = message->timeout;
        exec_spec_check(&exec, &exec_rules, violations);
        check_input(request, &message->input);
        check_request_id(request, message->request_id);

        if (message->limits)
                limits = *message->limits;
        if (violations->n == 0)
                limit_timeout(message, &limits);
        sandbox.profile = *message->profile ? message->profile : (char *) PROFILE_DEFAULT;
        sandbox.image = message->image;
        if (message->limits || limits.exec_timeout)
                sandbox.limits = &limits;
        sandbox.n_egress = message->n_egress;
        sandbox.egress = message->egress;
        sandbox.n_labels = message->n_labels;
        sandbox.labels = (Hutch__V1__SandboxSpec__LabelsEntry **) message->labels;
        sandbox.idle_ttl = &ttl;
        sandbox.idle_action = HUTCH__V1__IDLE_ACTION__IDLE_ACTION_DELETE;
        sandbox_rules.owner = request->caller->name;
        r = sandbox_spec_create(&sandbox, &sandbox_rules, violations, ret_sandbox);
        return r < 0 ? r
                     : exec_spec_create(&exec, &exec_rules, *ret_sandbox, message->input.data, message->input.len,
                                        violations, ret_exec);
}

/* Attaches the call to the command. */
static int attach(OneShot *one_shot, Request *request, const ExecView *view) {
        static const AttachmentEvents events = { on_attachment, on_attachment, on_attachment, NULL };
        const OutputPosition from_start = { .wanted = true };
        Control *control = request->api->options.control;
        const Caller *caller = request->caller;
        char exec_id[ID_LEN_MAX + 1];
        int r;

        memcpy(exec_id, view->record->id, sizeof(exec_id));
        memcpy(one_shot->sandbox_id, view->sandbox_id, strlen(view->sandbox_id) + 1);
        r = control_attach(control, caller, one_shot->sandbox_id, exec_id, true, from_start, from_start, &events,
                           one_shot, &one_shot->exec.attachment, &request->err);
        if (r >= 0)
                attachment_hold(one_shot->exec.attachment);
        return r;
}

static void handle_exec(Request *request) {
        static const CallEvents events = { .writable = on_writable, .ended = on_ended };
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *sandbox = NULL;
        _cleanup_(exec_spec_unrefp) ExecSpec *exec = NULL;
        const Message *message = (const Message *) request->message;
        Api *api = request->api;
        Control *control = api->options.control;
        OneShot *one_shot;
        RequestKey key;
        ExecView view;
        int r, repeated;

        r = request_key(&message->base, "Exec", message->request_id, &key);
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }
        repeated = control_repeat_once(control, request->caller, &key, &view, &request->err);
        if (repeated < 0) {
                request_fail(request);
                return;
        }
        if (repeated == 0)
                r = make_specs(request, message, &sandbox, &exec);
        if (request_is_refused(request))
                return;
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }

        one_shot = new0(OneShot, 1);
        one_shot->exec.output_field = HUTCH__V1__EXEC_RESPONSE__ITEM_OUTPUT;
        one_shot->exec.send_end = send_exit;
        one_shot->exec.follow = true;
        r = api_stream_begin(&one_shot->exec.base, api, request->call, request->caller, true, &request->err);
        if (r < 0) {
                free(one_shot);
                request_fail(request);
                return;
        }
        call_set_events(request->call, &events, one_shot);
        if (repeated == 0)
                r = control_run_once(control, request->caller, &key, sandbox, exec, &view, &request->err);
        if (r < 0 || attach(one_shot, request, &view) < 0)
                api_stream_fail(&one_shot->exec.base, &request->err);
        else
                one_shot->exec.deferred = api_defer_patiently(api, send_started, one_shot);
}

MethodList sandbox_exec_service_methods(void) {
        static const ApiMethod methods[] = {
                { .path = "/hutch.v1.SandboxExecService/Exec",
                  .request = &hutch__v1__exec_request__descriptor,
                  .handle = handle_exec },
        };

        return (MethodList){ methods, sizeof(methods) / sizeof(methods[0]) };
}
