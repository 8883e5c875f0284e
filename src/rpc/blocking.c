/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: waiting. A loop runs until what was asked for has happened. What does not: all that happens
 * (channel.c). */

#include "rpc/blocking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/channel-hub.h"

struct Blocking {
        uv_loop_t loop;
        ChannelHub *hub;
        Channel *channel; /* NULL: being made */
};

struct BlockingCall {
        Blocking *blocking;
        ChannelCall *call; /* NULL: it is over */
        BlockingMessage message;
        bool has_message;
        bool reading; /* a message was asked for */
        Metadata initial;
        Metadata trailing;
        StatusCode code;
        char reason[ERROR_REASON_MAX + 1];
        char *status_message;
        bool no_memory; /* for what came */
};

int blocking_new(const ChannelOptions *options, Blocking **ret_blocking, HutchError *err) {
        Blocking *blocking = try_new0(Blocking, 1);
        int r;

        if (!blocking)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory for a channel");

        r = uv_loop_init(&blocking->loop);
        if (r < 0) {
                free(blocking);
                return error_set(err, r, "HOST_EXHAUSTED", "cannot make an event loop: %s", uv_strerror(r));
        }

        r = channel_hub_new(&blocking->loop, &blocking->hub);
        if (r < 0)
                (void) error_set(err, r, "HOST_EXHAUSTED", "no memory for a channel");
        else
                r = channel_new(blocking->hub, options, &blocking->channel, err);
        if (r < 0) {
                blocking_free(blocking);
                return r;
        }

        *ret_blocking = blocking;
        return 0;
}

Blocking *blocking_free(Blocking *blocking) {
        if (!blocking)
                return NULL;

        if (blocking->channel)
                channel_free(blocking->channel, NULL, NULL);
        if (blocking->hub)
                channel_hub_free(blocking->hub);
        while (uv_run(&blocking->loop, UV_RUN_DEFAULT) != 0)
                ;
        (void) uv_loop_close(&blocking->loop);
        free(blocking);
        return NULL;
}

static void on_headers(ChannelCall *channel_call, const Metadata *metadata) {
        BlockingCall *call = channel_call_user(channel_call);

        if (metadata_copy(&call->initial, metadata) < 0) {
                call->no_memory = true;
                channel_call_cancel(channel_call);
        }
}

static void on_message(ChannelCall *channel_call, const uint8_t *message, size_t len) {
        BlockingCall *call = channel_call_user(channel_call);
        uint8_t *copy = malloc(len ? len : 1);

        call->reading = false;
        if (!copy) {
                call->no_memory = true;
                channel_call_cancel(channel_call);
                return;
        }

        memcpy(copy, message, len);
        call->message = (BlockingMessage){
                .data = copy,
                .len = len,
                .was_compressed = channel_call_message_was_compressed(channel_call),
        };
        call->has_message = true;
}

static void on_ended(ChannelCall *channel_call, const ClientStatus *status) {
        BlockingCall *call = channel_call_user(channel_call);

        call->call = NULL;
        if (metadata_copy(&call->trailing, status->trailing) < 0)
                call->no_memory = true;
        call->code = call->no_memory ? STATUS_RESOURCE_EXHAUSTED : status->code;
        snprintf(call->reason, sizeof(call->reason), "%s", call->no_memory ? "HOST_EXHAUSTED" : status->reason);
        call->status_message = strdup(call->no_memory ? "no memory for the answer" : status->message);
}

int blocking_call_new(Blocking *blocking, const ChannelRequest *request, BlockingCall **ret_call) {
        static const ChannelEvents events = { .headers = on_headers, .message = on_message, .ended = on_ended };
        BlockingCall *call = try_new0(BlockingCall, 1);

        if (!call)
                return -ENOMEM;

        call->blocking = blocking;
        call->call = channel_call_start(blocking->channel, request, &events, call);
        if (!call->call) {
                free(call);
                return -ENOMEM;
        }

        *ret_call = call;
        return 0;
}

static void turn(const BlockingCall *call) {
        (void) uv_run(&call->blocking->loop, UV_RUN_ONCE);
}

BlockingCall *blocking_call_free(BlockingCall *call) {
        if (!call)
                return NULL;

        if (call->call)
                channel_call_cancel(call->call);
        while (call->call)
                turn(call);
        free(call->message.data);
        metadata_clear(&call->initial);
        metadata_clear(&call->trailing);
        free(call->status_message);
        free(call);
        return NULL;
}

void blocking_call_set_compression(BlockingCall *call, bool compress) {
        if (call->call)
                channel_call_set_compression(call->call, compress);
}

int blocking_call_send(BlockingCall *call, const void *message, size_t len) {
        while (call->call && !channel_call_is_writable(call->call))
                turn(call);

        return call->call ? channel_call_send(call->call, message, len) : -EPIPE;
}

void blocking_call_end(BlockingCall *call) {
        if (call->call)
                channel_call_end(call->call);
}

void blocking_call_cancel(BlockingCall *call) {
        if (call->call)
                channel_call_cancel(call->call);
}

/* The errno that stands for @code in what functions return. */
static int errno_of(StatusCode code) {
        switch (code) {
        case STATUS_CANCELLED:
                return -ECANCELED;
        case STATUS_INVALID_ARGUMENT:
                return -EINVAL;
        case STATUS_DEADLINE_EXCEEDED:
                return -ETIMEDOUT;
        case STATUS_NOT_FOUND:
                return -ENOENT;
        case STATUS_ALREADY_EXISTS:
                return -EEXIST;
        case STATUS_PERMISSION_DENIED:
        case STATUS_UNAUTHENTICATED:
                return -EACCES;
        case STATUS_RESOURCE_EXHAUSTED:
                return -ENOSPC;
        case STATUS_FAILED_PRECONDITION:
        case STATUS_ABORTED:
                return -EBUSY;
        case STATUS_OUT_OF_RANGE:
                return -ERANGE;
        case STATUS_UNIMPLEMENTED:
                return -EOPNOTSUPP;
        case STATUS_UNAVAILABLE:
                return -ECONNREFUSED;
        default:
                return -EIO;
        }
}

int blocking_call_read(BlockingCall *call, BlockingMessage *ret_message, HutchError *err) {
        if (call->call && !call->has_message && !call->reading) {
                call->reading = true;
                channel_call_read(call->call);
        }
        while (call->call && !call->has_message)
                turn(call);

        if (call->has_message) {
                call->has_message = false;
                *ret_message = call->message;
                call->message = (BlockingMessage){};
                return 1;
        }
        if (call->code == STATUS_OK)
                return 0;

        return error_set_code(err, call->code, errno_of(call->code), call->reason, "%s",
                              call->status_message ? call->status_message : "");
}

const Metadata *blocking_call_initial_metadata(const BlockingCall *call) {
        return &call->initial;
}

const Metadata *blocking_call_trailing_metadata(const BlockingCall *call) {
        return &call->trailing;
}

int blocking_unary(Blocking *blocking, const ChannelRequest *request, const void *message, size_t len,
                   BlockingMessage *ret_reply, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        BlockingMessage reply = {}, more = {};
        int r = blocking_call_new(blocking, request, &call);

        if (r == 0)
                r = blocking_call_send(call, message, len);
        if (r == -ENOMEM)
                return error_set(err, r, "HOST_EXHAUSTED", "no memory for a call");

        blocking_call_end(call);
        r = blocking_call_read(call, &reply, err);
        if (r < 0)
                return r;
        if (r == 1)
                r = blocking_call_read(call, &more, err);
        else
                r = -EPROTO;
        free(more.data);
        if (r == 0) {
                *ret_reply = reply;
                return 0;
        }

        free(reply.data);
        if (r == 1 || r == -EPROTO)
                return error_set_code(err, STATUS_INTERNAL, -EPROTO, "INTERNAL",
                                      "the server sent %s where one message is the answer", r == 1 ? "more" : "none");
        return r;
}
