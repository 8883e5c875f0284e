/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the calls that a one-shot makes. What does not: where its output goes (the caller). */

#include "client/one-shot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

#include "base/clock.h"
#include "base/memory.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/blocking.h"
#include "rpc/protobuf.h"

#define UNARY_TIMEOUT (60 * NSEC_PER_SEC)
#define REPLY_MAX ((size_t) 64 << 20) /* what an answer may unfold to */

#define REQUEST_ID_SIZE 33

static int make_request_id(char ret_id[static REQUEST_ID_SIZE], HutchError *err) {
        uint8_t random[16];

        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return error_set(err, -EIO, "INTERNAL", "no random numbers");

        for (size_t i = 0; i < sizeof(random); i++)
                snprintf(ret_id + 2 * i, 3, "%02x", random[i]);
        return 0;
}

/* Makes a call with one message each way. */
static int call(Blocking *blocking, const char *path, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_reply, HutchError *err) {
        _cleanup_free_ uint8_t *bytes = NULL;
        BlockingMessage reply = {};
        size_t len;
        int r = protobuf_pack(request, &bytes, &len);

        if (r < 0)
                return error_set(err, r, "HOST_EXHAUSTED", "no memory for a request");

        r = blocking_unary(blocking,
                           &(ChannelRequest){ .path = path, .deadline = uv_hrtime() + UNARY_TIMEOUT, .safe = true },
                           bytes, len, &reply, err);
        if (r < 0)
                return r;

        r = protobuf_unpack(type, reply.data, reply.len, REPLY_MAX, ret_reply);
        free(reply.data);
        return r < 0 ? error_set_code(err, STATUS_INTERNAL, r, "INTERNAL", "the daemon's answer cannot be read") : 0;
}

static int create_sandbox(Blocking *blocking, char **ret_id, HutchError *err) {
        Hutch__V1__CreateSandboxRequest request = HUTCH__V1__CREATE_SANDBOX_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
        const Hutch__V1__CreateSandboxResponse *created;
        char request_id[REQUEST_ID_SIZE];
        int r = make_request_id(request_id, err);

        if (r < 0)
                return r;

        request.request_id = request_id;
        r = call(blocking, "/hutch.v1.AgentSandboxService/CreateSandbox", &request.base,
                 &hutch__v1__create_sandbox_response__descriptor, &reply, err);
        if (r < 0)
                return r;

        created = (const Hutch__V1__CreateSandboxResponse *) reply;
        if (!created || !created->sandbox)
                return error_set_code(err, STATUS_INTERNAL, -EBADMSG, "INTERNAL", "the daemon's answer has no sandbox");

        *ret_id = strdup(created->sandbox->id);
        return *ret_id ? 0 : error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory");
}

static int delete_sandbox(Blocking *blocking, char *id, HutchError *err) {
        Hutch__V1__DeleteSandboxRequest request = HUTCH__V1__DELETE_SANDBOX_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;

        request.sandbox_id = id;
        return call(blocking, "/hutch.v1.AgentSandboxService/DeleteSandbox", &request.base,
                    &hutch__v1__delete_sandbox_response__descriptor, &reply, err);
}

/* Says what to run. */
static int send_create(BlockingCall *stream, const OneShot *one_shot, char *sandbox_id) {
        Hutch__V1__AttachExecRequest request = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        Hutch__V1__CreateExecRequest create = HUTCH__V1__CREATE_EXEC_REQUEST__INIT;
        Hutch__V1__ExecSpec spec = HUTCH__V1__EXEC_SPEC__INIT;
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r;

        while (one_shot->argv[spec.n_argv])
                spec.n_argv++;
        spec.argv = (char **) one_shot->argv;
        create.sandbox_id = sandbox_id;
        create.spec = &spec;
        request.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE;
        request.create = &create;
        r = protobuf_pack(&request.base, &bytes, &len);
        if (r == 0)
                r = blocking_call_send(stream, bytes, len);
        return r;
}

/* Takes one message of the stream. 1: that was the end, with its exit code. */
static int take_response(const OneShot *one_shot, const Hutch__V1__AttachExecResponse *response, int *ret_exit_code,
                         HutchError *err) {
        const Hutch__V1__ExecResult *result;

        switch (response->item_case) {
        case HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_OUTPUT:
                return response->output ? one_shot->output((int) response->output->stream, response->output->data.data,
                                                           response->output->data.len, one_shot->user)
                                        : 0;
        case HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ENDED:
                result = response->ended ? response->ended->result : NULL;
                if (!result || result->opt_exit_code_case != HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE)
                        return error_set_code(err, STATUS_ABORTED, -ECANCELED, "CALL_CANCELLED",
                                              "the command has no exit code: %s", result ? result->message : "");
                *ret_exit_code = result->exit_code;
                return 1;
        default:
                return 0;
        }
}

static int run_command(Blocking *blocking, const OneShot *one_shot, char *sandbox_id, int *ret_exit_code,
                       HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *stream = NULL;
        int r = blocking_call_new(
                blocking, &(ChannelRequest){ .path = "/hutch.v1.ExecService/AttachExec", .deadline = DEADLINE_NONE },
                &stream);

        if (r == 0)
                r = send_create(stream, one_shot, sandbox_id);
        if (r < 0 && r != -EPIPE) /* why it is over, reading tells */
                return error_set(err, r, "HOST_EXHAUSTED", "cannot ask for the command: %s", strerror(-r));

        for (;;) {
                _cleanup_(protobuf_freep) ProtobufCMessage *response = NULL;
                BlockingMessage message = {};

                r = blocking_call_read(stream, &message, err);
                if (r < 0)
                        return r;
                if (r == 0)
                        return error_set_code(err, STATUS_DATA_LOSS, -EPROTO, "STREAM_INCOMPLETE",
                                              "the daemon never told how the command ended");

                r = protobuf_unpack(&hutch__v1__attach_exec_response__descriptor, message.data, message.len, REPLY_MAX,
                                    &response);
                free(message.data);
                if (r == 0)
                        r = take_response(one_shot, (const Hutch__V1__AttachExecResponse *) response, ret_exit_code,
                                          err);
                if (r != 0)
                        return r < 0 ? r : 0;
        }
}

int one_shot_run(const OneShot *one_shot, int *ret_exit_code, HutchError *err) {
        _cleanup_(blocking_freep) Blocking *blocking = NULL;
        _cleanup_free_ char *target = NULL, *sandbox_id = NULL;
        ChannelOptions options = channel_options_default;
        int r, d;

        if (asprintf(&target, "unix:%s", one_shot->socket) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory");

        options.target = target;
        r = blocking_new(&options, &blocking, err);
        if (r == 0)
                r = create_sandbox(blocking, &sandbox_id, err);
        if (r < 0)
                return r;

        r = run_command(blocking, one_shot, sandbox_id, ret_exit_code, err);
        d = delete_sandbox(blocking, sandbox_id, r < 0 ? NULL : err);
        return r < 0 ? r : d;
}
