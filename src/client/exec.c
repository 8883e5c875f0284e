/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls about execs with one message each way. What does not: streams of an exec (exec-stream.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/exec-message.h"
#include "client/outcall.h"
#include "client/output.h"
#include "client/views.h"
#include "contract/hutch/v1/state.pb-c.h"

#define PAGE_SIZE 1000
#define KILL_GRACE_DEFAULT (5 * NSEC_PER_SEC) /* of the daemon */

/* A text as messages have them; they are only read. */
static char *text_or_empty(const char *text) {
        return (char *) (text ? text : protobuf_c_empty_string);
}

/* Says what is wrong with an answer, if that is it. Returns @r. */
static int explain(int r, Failure *failure) {
        return r == -EBADMSG ? error_set_code(&failure->error, STATUS_INTERNAL, r, "INTERNAL",
                                              "the daemon's answer has no exec")
                             : r;
}

/* Makes an exec of a part of @whole for the caller, who may not want it. Takes over @whole. */
static int hand_over(ProtobufCMessage *whole, const Hutch__V1__Exec *part, HutchExec **ret_exec, Failure *failure) {
        HutchExec *exec = NULL;
        int r = exec_view_new(whole, part, &exec);

        if (r < 0)
                return explain(r, failure);

        if (ret_exec)
                *ret_exec = exec;
        else
                hutch_exec_free(exec);
        return 0;
}

_Static_assert(offsetof(Hutch__V1__GetExecResponse, exec) == offsetof(Hutch__V1__CreateExecResponse, exec) &&
                       offsetof(Hutch__V1__GetExecResponse, exec) == offsetof(Hutch__V1__CancelExecResponse, exec),
               "answers with an exec have one shape");

/* Makes a call whose answer has one field, an exec, if @r is 0. */
static int call_for_exec(int r, HutchClient *client, const char *method, const ProtobufCMessage *request,
                         HutchExec **ret_exec, Failure *failure, HutchError **ret_error) {
        ProtobufCMessage *reply;

        if (r == 0)
                r = outcall_unary_message(client, method, request, 0, &reply, failure);
        if (r == 0)
                r = hand_over(reply, ((const Hutch__V1__GetExecResponse *) reply)->exec, ret_exec, failure);
        return failure_tell(failure, r, ret_error);
}

int hutch_exec_create(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec, HutchExec **ret_exec,
                      HutchError **ret_error) {
        Hutch__V1__CreateExecRequest request = HUTCH__V1__CREATE_EXEC_REQUEST__INIT;
        _cleanup_(exec_message_clear) ExecMessage message = {};
        _cleanup_(failure_clear) Failure failure = {};
        int r = exec_message_fill(&message, sandbox_id, spec, NULL, &failure);

        request.sandbox_id = text_or_empty(sandbox_id);
        request.exec_id = text_or_empty(spec->id);
        request.request_id = text_or_empty(spec->request_id);
        request.spec = &message.spec;
        request.bound = spec->bound;
        return call_for_exec(r, client, "ExecService/CreateExec", &request.base, ret_exec, &failure, ret_error);
}

int hutch_exec_get(HutchClient *client, const char *sandbox_id, const char *exec_id, HutchExec **ret_exec,
                   HutchError **ret_error) {
        Hutch__V1__GetExecRequest request = HUTCH__V1__GET_EXEC_REQUEST__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_id(&checks, "exec_id", exec_id);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.exec_id = text_or_empty(exec_id);
        return call_for_exec(checks_result(&checks, &failure), client, "ExecService/GetExec", &request.base, ret_exec,
                             &failure, ret_error);
}

int hutch_exec_cancel(HutchClient *client, const char *sandbox_id, const char *exec_id, uint64_t grace,
                      HutchExec **ret_exec, HutchError **ret_error) {
        Hutch__V1__CancelExecRequest request = HUTCH__V1__CANCEL_EXEC_REQUEST__INIT;
        Google__Protobuf__Duration duration;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_id(&checks, "exec_id", exec_id);
        checks_duration(&checks, "grace", grace);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.exec_id = text_or_empty(exec_id);
        request.grace = grace > 0 ? duration_from_ns(grace, &duration) : NULL;
        return call_for_exec(checks_result(&checks, &failure), client, "ExecService/CancelExec", &request.base,
                             ret_exec, &failure, ret_error);
}

/* ---- Lists ---- */

/* Hands out one page. */
static int hand_out(const Hutch__V1__ListExecsResponse *page, int (*callback)(const HutchExec *exec, void *user),
                    void *user, HutchError **ret_error) {
        int r = 0;

        for (size_t i = 0; i < page->n_execs && r == 0; i++) {
                _cleanup_(exec_view_clear) ExecView view = {};

                if (exec_view_fill(&view, page->execs[i]) < 0)
                        return failure_tell(&(Failure){}, -ENOMEM, ret_error);
                r = callback(&view.view, user);
        }

        return r;
}

int hutch_exec_list(HutchClient *client, const char *sandbox_id, uint32_t states,
                    int (*callback)(const HutchExec *exec, void *user), void *user, HutchError **ret_error) {
        Hutch__V1__ListExecsRequest request = HUTCH__V1__LIST_EXECS_REQUEST__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *page = NULL;
        _cleanup_(checks_clear) Checks checks = {};
        Hutch__V1__ExecState wanted[32];
        int r;

        checks_id(&checks, "sandbox_id", sandbox_id);
        r = checks_result(&checks, &failure);
        for (unsigned state = 1; state < 32; state++)
                if (states & UINT32_C(1) << state)
                        wanted[request.n_states++] = (Hutch__V1__ExecState) state;
        request.sandbox_id = text_or_empty(sandbox_id);
        request.states = wanted;
        request.page_size = PAGE_SIZE;

        do {
                ProtobufCMessage *next = NULL;

                if (r == 0)
                        r = outcall_unary_message(client, "ExecService/ListExecs", &request.base, 0, &next, &failure);
                if (r < 0)
                        return failure_tell(&failure, r, ret_error);

                (void) protobuf_free(page); /* whose token was sent */
                page = next;
                request.page_token = ((Hutch__V1__ListExecsResponse *) page)->next_page_token;
                r = hand_out((const Hutch__V1__ListExecsResponse *) page, callback, user, ret_error);
        } while (r == 0 && *request.page_token);

        return r;
}

/* ---- Running to the end ---- */

/* How long the call may take: as long as the command may, and what a call takes besides. */
static uint64_t run_timeout(const HutchClient *client, const HutchExecSpec *spec) {
        uint64_t grace = spec->kill_grace > 0 ? spec->kill_grace : KILL_GRACE_DEFAULT;

        if (spec->timeout == 0 || client->timeout > HUTCH_FOREVER - spec->timeout - grace)
                return client->timeout;
        return client->timeout + spec->timeout + grace;
}

int hutch_exec_run(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec, const void *input,
                   size_t input_len, HutchOutput **ret_output, HutchError **ret_error) {
        Hutch__V1__RunCommandRequest request = HUTCH__V1__RUN_COMMAND_REQUEST__INIT;
        _cleanup_(exec_message_clear) ExecMessage message = {};
        _cleanup_(failure_clear) Failure failure = {};
        HutchOutput *output = NULL;
        ProtobufCMessage *reply;
        int r = spec->id ? error_set(&failure.error, -EINVAL, "FIELD_INVALID", "id: the daemon chooses it here") : 0;

        if (r == 0)
                r = exec_message_fill(&message, sandbox_id, spec, NULL, &failure);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.request_id = text_or_empty(spec->request_id);
        request.spec = &message.spec;
        request.input = (ProtobufCBinaryData){ .len = input_len, .data = (uint8_t *) input };
        if (r == 0)
                r = outcall_unary_message(client, "ExecService/RunCommand", &request.base, run_timeout(client, spec),
                                          &reply, &failure);
        if (r == 0)
                r = explain(output_new((Hutch__V1__RunCommandResponse *) reply, &output), &failure);
        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        if (ret_output)
                *ret_output = output;
        else
                hutch_output_free(output);
        return 0;
}
