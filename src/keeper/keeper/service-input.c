/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the calls of SendInput. What does not: the other methods (service.c), and how bytes get to a process
 * (input.c). */

#include "keeper/keeper/service-input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "keeper/execs/input.h"
#include "keeper/keeper/keeper.h"
#include "model/ids.h"
#include "model/reason.h"
#include "rpc/core/call.h"
#include "rpc/core/protobuf.h"

#define REQUEST_MAX (8 << 20) /* bytes in memory: a message and what it says */

typedef Hutch__Keeper__V1__SendInputRequest Request;

typedef struct InputCall {
        InputItem item; /* first: what is being taken */
        Call *call;
        Keeper *keeper;
        char *exec_id; /* NULL: not told yet */
        void *bytes;   /* of @item */
        bool waits;    /* for @item */
        bool all_came; /* the peer has sent everything */
} InputCall;

void call_fail_unknown_exec(Call *call, const char *exec_id) {
        _cleanup_(error_clear) HutchError err = {};

        reason_set(&err, -ENOENT, REASON_EXEC_NOT_FOUND, "there is no exec “%.200s”", exec_id);
        call_fail(call, &err);
}

static void reply(Call *call) {
        Hutch__Keeper__V1__SendInputResponse response = HUTCH__KEEPER__V1__SEND_INPUT_RESPONSE__INIT;

        call_reply_protobuf(call, &response.base);
}

static void go_on(InputCall *input) {
        input->waits = false;
        if (input->all_came)
                reply(input->call);
        else
                call_read(input->call);
}

static void on_taken(InputItem *item) {
        InputCall *input = (InputCall *) item;

        input->bytes = (free(input->bytes), NULL);
        go_on(input);
}

static void send_bytes(InputCall *input, KeptExec *exec, const void *bytes, size_t len, bool close) {
        _cleanup_(error_clear) HutchError err = {};

        input->bytes = malloc(len + 1);
        if (!input->bytes) {
                call_finish(input->call, STATUS_RESOURCE_EXHAUSTED, "no memory for the input");
                return;
        }

        if (len > 0)
                memcpy(input->bytes, bytes, len);
        input->item = (InputItem){ .bytes = input->bytes, .len = len, .close = close, .taken = on_taken };
        input->waits = true;
        if (kept_exec_send(exec, &input->item, &err) < 0)
                call_fail(input->call, &err);
}

static void apply(InputCall *input, KeptExec *exec, const Request *request) {
        _cleanup_(error_clear) HutchError err = {};
        int r = 0;

        switch (request->item_case) {
        case HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_INPUT:
                send_bytes(input, exec, request->input.data, request->input.len, false);
                return;
        case HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_STDIN_CLOSE:
                if (request->stdin_close) {
                        send_bytes(input, exec, NULL, 0, true);
                        return;
                }
                break;
        case HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_RESIZE:
                r = kept_exec_resize(exec, request->resize->rows, request->resize->columns, &err);
                break;
        case HUTCH__KEEPER__V1__SEND_INPUT_REQUEST__ITEM_SIGNAL:
                r = kept_exec_signal(exec, request->signal, &err);
                break;
        default:
                break;
        }
        if (r < 0)
                call_fail(input->call, &err);
        else
                go_on(input);
}

static void on_message(Call *call, const uint8_t *message, size_t len) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        InputCall *input = call_user(call);
        const Request *request;
        KeptExec *exec;

        unpacked = call_unpack(call, &hutch__keeper__v1__send_input_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        request = (const Request *) unpacked;
        if (!input->exec_id)
                input->exec_id = xstrndup(request->exec_id, ID_LEN_MAX);
        exec = keeper_find_exec(input->keeper, input->exec_id);
        if (!exec)
                call_fail_unknown_exec(call, input->exec_id);
        else if (kept_exec_has_ended(exec))
                reply(call);
        else
                apply(input, exec, request);
}

static void on_half_closed(Call *call) {
        InputCall *input = call_user(call);

        input->all_came = true;
        if (!input->waits)
                reply(call);
}

static void on_ended(Call *call, CallEnd how) {
        InputCall *input = call_user(call);

        (void) how;
        input_item_remove(&input->item);
        free(input->bytes);
        free(input->exec_id);
        free(input);
}

static const CallEvents events = { .message = on_message, .half_closed = on_half_closed, .ended = on_ended };

void service_send_input(Call *call, void *context) {
        InputCall *input = new0(InputCall, 1);

        input->call = call;
        input->keeper = context;
        call_set_events(call, &events, input);
        call_read(call);
}
