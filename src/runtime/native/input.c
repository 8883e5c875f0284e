/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the verbs for input. What does not: what the keeper does with it. */

#include "runtime/native/input.h"

#include <errno.h>

#include "base/memory.h"
#include "base/strings.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"
#include "runtime/native/sandbox.h"

#define PIECE_MAX ((size_t) 256 << 10) /* bytes of one message */

struct NativeInput {
        RuntimeInput base;
        NativeSandbox *sandbox; /* NULL: it was let go of */
        NativeInput *prev, *next;
        char *exec_id;
        ChannelCall *call; /* NULL: it is over */
        bool broken;       /* without a word of the keeper's; to be told */
        const RuntimeInputEvents *events;
        void *user;
        bool freed;
};

typedef Hutch__Keeper__V1__SendInputRequest SendInputRequest;

static void leave_list(NativeInput *input) {
        if (!input->sandbox)
                return;

        *(input->prev ? &input->prev->next : &input->sandbox->inputs) = input->next;
        if (input->next)
                input->next->prev = input->prev;
        input->sandbox = NULL;
}

static void input_free(NativeInput *input) {
        leave_list(input);
        free(input->exec_id);
        free(input);
}

static int send_request(NativeInput *input, const SendInputRequest *request) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r;

        if (!input->call)
                return -EPIPE;

        r = protobuf_pack(&request->base, &bytes, &len);
        return r < 0 ? r : channel_call_send(input->call, bytes, len);
}

static void on_writable(ChannelCall *call) {
        NativeInput *input = channel_call_user(call);

        if (!input->freed && input->sandbox)
                input->events->writable(input->user);
}

/* Whether it is lost or its exec has ended, and this with it, is known when the keeper can be asked again. */
static void set_broken(NativeInput *input) {
        input->broken = true;
        sandbox_wake(input->sandbox);
}

static void on_ended(ChannelCall *call, const ClientStatus *status) {
        _cleanup_(error_clear) HutchError err = {};
        NativeInput *input = channel_call_user(call);

        input->call = NULL;
        if (input->freed) {
                input_free(input);
                return;
        }
        if (!input->sandbox)
                return;

        if (status->code != STATUS_OK && !status->from_server) {
                set_broken(input);
                return;
        }
        if (status->code != STATUS_OK)
                keeper_status_error(status, &err);
        input->events->closed(input->user, err.error ? &err : NULL);
}

static const ChannelEvents events_of_calls = {
        .writable = on_writable,
        .ended = on_ended,
};

RuntimeInput *native_input_open(RuntimeSandbox *base, const char *exec_id, const RuntimeInputEvents *events,
                                void *user) {
        NativeSandbox *sandbox = (NativeSandbox *) base;
        SendInputRequest first = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__INIT;
        NativeInput *input = new0(NativeInput, 1);

        *input = (NativeInput){
                .base.verbs = base->verbs,
                .sandbox = sandbox,
                .next = sandbox->inputs,
                .exec_id = xstrdup(exec_id),
                .events = events,
                .user = user,
        };
        if (input->next)
                input->next->prev = input;
        sandbox->inputs = input;
        if (!sandbox_is_connected(sandbox)) {
                set_broken(input);
                return &input->base;
        }

        input->call = keeper_client_send_input(sandbox->client, &events_of_calls, input);
        first.exec_id = input->exec_id;
        /* When it cannot be sent, `ended` tells. */
        if (send_request(input, &first) < 0)
                channel_call_cancel(input->call);
        channel_call_read(input->call);
        return &input->base;
}

void native_input_free(RuntimeInput *base) {
        NativeInput *input = (NativeInput *) base;

        if (!input->call) {
                input_free(input);
                return;
        }

        input->freed = true;
        channel_call_end(input->call);
}

static NativeInput *find_broken(const NativeSandbox *sandbox) {
        for (NativeInput *input = sandbox->inputs; input; input = input->next)
                if (input->broken && !input->freed)
                        return input;
        return NULL;
}

void native_inputs_tell_broken(NativeSandbox *sandbox) {
        NativeInput *input;

        while (sandbox_is_connected(sandbox) && (input = find_broken(sandbox))) {
                _cleanup_(error_clear) HutchError err = {};

                input->broken = false;
                (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE,
                                  "the connection to the exec broke; some input may be lost: attach again");
                input->events->closed(input->user, &err);
        }
}

void native_inputs_end(NativeSandbox *sandbox, const char *exec_id) {
        for (NativeInput *input = sandbox->inputs; input; input = input->next)
                if (input->call && str_equal(input->exec_id, exec_id))
                        channel_call_end(input->call);
}

void native_inputs_detach(NativeSandbox *sandbox) {
        while (sandbox->inputs)
                leave_list(sandbox->inputs);
}

int native_input_send(RuntimeInput *base, const void *bytes, size_t len) {
        NativeInput *input = (NativeInput *) base;
        int r = 0;

        for (size_t done = 0; r == 0 && done < len;) {
                SendInputRequest request = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__INIT;
                size_t piece = len - done < PIECE_MAX ? len - done : PIECE_MAX;

                request.item_case = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_INPUT;
                request.input = (ProtobufCBinaryData){ .data = (uint8_t *) bytes + done, .len = piece };
                r = send_request(input, &request);
                done += piece;
        }
        return r;
}

bool native_input_is_writable(const RuntimeInput *base) {
        const NativeInput *input = (const NativeInput *) base;

        return input->call && channel_call_is_writable(input->call);
}

int native_input_close_stdin(RuntimeInput *base) {
        SendInputRequest request = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__INIT;

        request.item_case = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_STDIN_CLOSE;
        request.stdin_close = true;
        return send_request((NativeInput *) base, &request);
}

int native_input_resize(RuntimeInput *base, uint32_t rows, uint32_t columns) {
        SendInputRequest request = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__INIT;
        Hutch__Keeper__V1__KeeperTerminalSize size = HUTCH__KEEPER__V1__KEEPER_TERMINAL_SIZE__INIT;

        size.rows = rows;
        size.columns = columns;
        request.item_case = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_RESIZE;
        request.resize = &size;
        return send_request((NativeInput *) base, &request);
}

int native_input_signal(RuntimeInput *base, uint32_t number) {
        SendInputRequest request = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__INIT;

        request.item_case = HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_SIGNAL;
        request.signal = number;
        return send_request((NativeInput *) base, &request);
}
