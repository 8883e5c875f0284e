/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rpc/core/client-session.h"
#include "rpc/core/server-session.h"
#include "rpc/peer.h"

/* A server and a client session, joined by nothing but memory, for tests of handlers:
 *
 *         _cleanup_(pair_call_clear) PairCall call = {};
 *         _cleanup_(session_pair_clear) SessionPair pair = {};
 *
 *         session_pair_init(&pair, table);
 *         pair_call_start(&pair, &call, "/t.T/Echo");
 *         pair_call_send(&pair, &call, &request.base);
 *         pair_call_end(&pair, &call);
 *         assert_int_equal(call.code, STATUS_OK); */

typedef struct SessionPair {
        ServerHandlers handlers;
        Peer peer;
        uint64_t now;
        ServerSession *server;
        ClientSession *client;
} SessionPair;

/* A call of the client's, and what came. It outlives the pair, or has ended. */
typedef struct PairCall {
        ClientCall *call; /* NULL: it has ended */
        bool pauses;      /* reads no message by itself */
        size_t n_messages;
        uint8_t *message; /* the latest */
        size_t len;

        /* Of the end. */
        StatusCode code;
        char text[128];
        uint8_t *details;
        size_t details_len;
} PairCall;

void session_pair_init(SessionPair *pair, const MethodTable *methods);
void session_pair_clear(SessionPair *pair);

/* Carries bytes until neither side has any more. */
void session_pair_pump(SessionPair *pair);

/* These pump. Sending fails without notice: the end of the call tells. */
void pair_call_start(SessionPair *pair, PairCall *call, const char *path);
void pair_call_send(SessionPair *pair, PairCall *call, const ProtobufCMessage *message);
void pair_call_send_bytes(SessionPair *pair, PairCall *call, const void *message, size_t len);
void pair_call_end(SessionPair *pair, PairCall *call);
void pair_call_clear(PairCall *call);
