/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "rpc/channel.h"

/* Calls for callers without an event loop: each function returns when it is done. For one thread at a time.
 *
 *         _cleanup_(blocking_free) …
 *         r = blocking_unary(blocking, &(ChannelRequest){ .path = "/hutch.v1.SystemService/Ping", … }, "", 0, &reply,
 *                            &err);
 * */

typedef struct Blocking Blocking;
typedef struct BlockingCall BlockingCall;

/* A message, which the caller frees. */
typedef struct BlockingMessage {
        uint8_t *data;
        size_t len;
        bool was_compressed;
} BlockingMessage;

/* As channel_new(), with a loop and a hub of its own. */
int blocking_new(const ChannelOptions *options, Blocking **ret_blocking, HutchError *err)
        __attribute__((nonnull(1, 2)));
Blocking *blocking_free(Blocking *blocking);
DEFINE_CLEANUP(Blocking *, blocking_free);

/* Sends one message, waits for one. Fails with the negative errno of the status in @err, which has its code,
 * its reason and its message. */
int blocking_unary(Blocking *blocking, const ChannelRequest *request, const void *message, size_t len,
                   BlockingMessage *ret_reply, HutchError *err) __attribute__((nonnull(1, 2, 5)));

/* Starts a call that streams. -ENOMEM. End it by reading to its end, or by blocking_call_free(). */
int blocking_call_new(Blocking *blocking, const ChannelRequest *request, BlockingCall **ret_call)
        __attribute__((nonnull));
BlockingCall *blocking_call_free(BlockingCall *call);
DEFINE_CLEANUP(BlockingCall *, blocking_call_free);

/* Whether messages that follow are compressed, in a call whose request said that it compresses. */
void blocking_call_set_compression(BlockingCall *call, bool compress) __attribute__((nonnull));

/* Sends a message; waits while the server does not keep up. -EPIPE: the call is over, and blocking_call_read() tells
 * why. */
int blocking_call_send(BlockingCall *call, const void *message, size_t len) __attribute__((nonnull(1)));
void blocking_call_end(BlockingCall *call) __attribute__((nonnull));

/* Ends the call with CANCELLED, as blocking_call_read() then tells. */
void blocking_call_cancel(BlockingCall *call) __attribute__((nonnull));

/* Waits for the next message: 1, and here it is; 0: the call ended with OK. Fails as blocking_unary() does. */
int blocking_call_read(BlockingCall *call, BlockingMessage *ret_message, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* What the server sent before its first message, empty until that was read; and with the status, empty until the end
 * was. Valid as long as @call. */
const Metadata *blocking_call_initial_metadata(const BlockingCall *call) __attribute__((nonnull, returns_nonnull));
const Metadata *blocking_call_trailing_metadata(const BlockingCall *call) __attribute__((nonnull, returns_nonnull));
