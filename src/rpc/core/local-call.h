/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/memory.h"
#include "rpc/core/call.h"

/* Calls from within this process: to the methods that a server has, through its interceptors, without HTTP/2.
 *
 *         call = local_call_new(&handlers, "/t.Service/Method", &metadata, &peer, UINT64_MAX, &events, user);
 *         local_call_send(call, request, len);
 *         local_call_half_close(call);
 *         …                                   events: messages, then the status; they may come at once
 *         local_call_free(call);              not in an event; before the status it cancels the call
 *
 * Who calls is judged as with any other call: by @peer and @metadata, which outlive the call. Messages that the method
 * did not ask for yet are kept. What a method sends is handed on at once, so it is always writable. */

typedef struct LocalCall LocalCall;
typedef struct ServerHandlers ServerHandlers;

typedef struct LocalCallEvents {
        void (*message)(const uint8_t *message, size_t len, void *user);
        /* The last event, once. @message is "" when there is none; @details an encoded google.rpc.Status. */
        void (*finished)(StatusCode status, const char *message, const void *details, size_t details_len, void *user);
} LocalCallEvents;

/* NULL when memory is out. @deadline is what the method is told (UINT64_MAX: none); the caller keeps it. A path that is
 * not served finishes with UNIMPLEMENTED. */
LocalCall *local_call_new(const ServerHandlers *handlers, const char *path, const Metadata *metadata, const Peer *peer,
                          uint64_t deadline, const LocalCallEvents *events, void *user)
        __attribute__((nonnull(1, 2, 3, 4, 6)));

/* Sends a message, which is copied. -EPIPE: the call is over, or half-closed; -ENOMEM. */
int local_call_send(LocalCall *call, const void *message, size_t len) __attribute__((nonnull(1)));

/* All messages were sent. */
void local_call_half_close(LocalCall *call) __attribute__((nonnull));

/* Takes NULL. Returns NULL. */
LocalCall *local_call_free(LocalCall *call);
DEFINE_CLEANUP(LocalCall *, local_call_free);
