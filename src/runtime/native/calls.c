/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the verbs for calls that are carried to the keeper, and what its statuses become. What does not:
 * what is in the messages. */

#include "runtime/native/calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "model/reason.h"
#include "rpc/core/status-details.h"
#include "runtime/native/sandbox.h"

struct NativeCall {
        RuntimeCall base;
        NativeSandbox *sandbox; /* NULL: it was let go of */
        NativeCall *prev, *next;
        ChannelCall *call; /* NULL: it is over */
        bool broken;       /* there was no connection for it; to be told */
        bool freed;
        const RuntimeCallEvents *events;
        void *user;
};

static void leave_list(NativeCall *call) {
        if (!call->sandbox)
                return;

        *(call->prev ? &call->prev->next : &call->sandbox->calls) = call->next;
        if (call->next)
                call->next->prev = call->prev;
        call->sandbox = NULL;
}

static void call_free(NativeCall *call) {
        leave_list(call);
        free(call);
}

static bool is_wanted(const NativeCall *call) {
        return !call->freed && call->sandbox;
}

static void on_message(ChannelCall *channel_call, const uint8_t *message, size_t len) {
        NativeCall *call = channel_call_user(channel_call);

        (void) message;
        if (is_wanted(call))
                call->events->message(call->user, channel_call_take_message(channel_call), len);
}

static void on_writable(ChannelCall *channel_call) {
        const NativeCall *call = channel_call_user(channel_call);

        if (is_wanted(call))
                call->events->writable(call->user);
}

static void add_pairs(HutchError *err, const ClientStatus *status) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;

        if (!status->details || status_details_decode(status->details, status->details_len, &details) < 0)
                return;
        for (size_t i = 0; i < details->n_pairs; i++)
                error_add_pair(err, details->pairs[i].key, "%s", details->pairs[i].value);
}

/* What the keeper says was found out inside: the reason alone says which code it is. */
static void read_status(const ClientStatus *status, HutchError *err) {
        Reason reason = reason_from_name(status->reason);
        bool readable = *status->message && utf8_valid(status->message, strlen(status->message));

        if (!status->from_server) {
                bool expired = status->code == STATUS_DEADLINE_EXCEEDED;

                (void) reason_set(err, -EPIPE, expired ? REASON_DEADLINE_EXCEEDED : REASON_KEEPER_UNAVAILABLE,
                                  expired ? "the deadline of the call has passed"
                                          : "the connection to the sandbox broke; try again");
                return;
        }

        (void) reason_set(err, -EIO, reason == REASON_UNSPECIFIED ? REASON_INTERNAL : reason, "%s",
                          readable ? status->message : "the sandbox's keeper gave no reason");
        add_pairs(err, status);
}

static void on_ended(ChannelCall *channel_call, const ClientStatus *status) {
        _cleanup_(error_clear) HutchError err = {};
        NativeCall *call = channel_call_user(channel_call);

        call->call = NULL;
        if (call->freed) {
                call_free(call);
                return;
        }
        if (!call->sandbox)
                return;

        if (status->code != STATUS_OK)
                read_status(status, &err);
        call->events->ended(call->user, err.error ? &err : NULL);
}

RuntimeCall *native_call_open(RuntimeSandbox *base, const RuntimeCallRequest *request, const RuntimeCallEvents *events,
                              void *user) {
        static const ChannelEvents channel_events = {
                .message = on_message,
                .writable = on_writable,
                .ended = on_ended,
        };
        NativeSandbox *sandbox = (NativeSandbox *) base;
        NativeCall *call = new0(NativeCall, 1);

        *call = (NativeCall){
                .base.verbs = base->verbs,
                .sandbox = sandbox,
                .next = sandbox->calls,
                .events = events,
                .user = user,
        };
        if (call->next)
                call->next->prev = call;
        sandbox->calls = call;

        if (sandbox_is_connected(sandbox))
                call->call = keeper_client_carry(sandbox->client, request->path, request->user, request->key,
                                                 request->deadline, &channel_events, call);
        if (!call->call) {
                call->broken = true;
                sandbox_wake(sandbox);
        }
        return &call->base;
}

void native_call_free(RuntimeCall *base) {
        NativeCall *call = (NativeCall *) base;

        if (!call->call) {
                call_free(call);
                return;
        }

        call->freed = true;
        channel_call_cancel(call->call);
}

static NativeCall *find_broken(const NativeSandbox *sandbox) {
        NativeCall *call = sandbox->calls;

        while (call && !call->broken)
                call = call->next;
        return call;
}

void native_calls_tell_broken(NativeSandbox *sandbox) {
        NativeCall *call;

        while ((call = find_broken(sandbox))) {
                _cleanup_(error_clear) HutchError err = {};

                call->broken = false;
                (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE,
                                  "there is no connection to the sandbox now; try again");
                call->events->ended(call->user, &err);
        }
}

void native_calls_detach(NativeSandbox *sandbox) {
        while (sandbox->calls)
                leave_list(sandbox->calls);
}

int native_call_send(RuntimeCall *base, const void *bytes, size_t len) {
        NativeCall *call = (NativeCall *) base;

        return call->call ? channel_call_send(call->call, bytes, len) : -EPIPE;
}

int native_call_send_taken(RuntimeCall *base, uint8_t *bytes, size_t len) {
        NativeCall *call = (NativeCall *) base;

        if (call->call)
                return channel_call_send_taken(call->call, bytes, len);
        free(bytes);
        return -EPIPE;
}

bool native_call_is_writable(const RuntimeCall *base) {
        const NativeCall *call = (const NativeCall *) base;

        return call->call && channel_call_is_writable(call->call);
}

void native_call_end(RuntimeCall *base) {
        NativeCall *call = (NativeCall *) base;

        if (call->call)
                channel_call_end(call->call);
}

void native_call_read(RuntimeCall *base) {
        NativeCall *call = (NativeCall *) base;

        if (call->call)
                channel_call_read(call->call);
}
