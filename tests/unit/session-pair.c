/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: two sessions and the way between them. What does not: tests of the sessions themselves, which want
 * to meddle with it (test-session.c). */

#include "session-pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#include "test.h"

static void on_message(ClientCall *client_call, const uint8_t *message, size_t len) {
        PairCall *call = client_call_user(client_call);

        call->n_messages++;
        free(call->message);
        call->message = malloc(len + 1);
        call->len = call->message ? len : 0;
        if (call->message)
                memcpy(call->message, message, len);
        if (!call->pauses)
                client_call_read(client_call);
}

static void on_ended(ClientCall *client_call, const ClientStatus *status) {
        PairCall *call = client_call_user(client_call);

        call->call = NULL;
        call->code = status->code;
        (void) snprintf(call->text, sizeof(call->text), "%s", status->message);
        call->details = malloc(status->details_len + 1);
        if (call->details && status->details_len > 0) {
                memcpy(call->details, status->details, status->details_len);
                call->details_len = status->details_len;
        }
}

static const ClientEvents events = { .message = on_message, .ended = on_ended };

void session_pair_init(SessionPair *pair, const MethodTable *methods) {
        pair->now = NSEC_PER_SEC;
        pair->handlers.methods = methods;
        pair->server = server_session_new(&pair->handlers, &session_limits_default, NULL, &pair->peer, pair->now);
        pair->client = client_session_new(&(ClientIdentity){ .authority = "localhost", .user_agent = "test" },
                                          &session_limits_default, pair->now);
        assert_non_null(pair->server);
        assert_non_null(pair->client);
}

void session_pair_clear(SessionPair *pair) {
        server_session_free(pair->server);
        client_session_free(pair->client);
        pair->server = NULL;
        pair->client = NULL;
}

/* Moves what @from has for @to. Returns whether it could. */
static bool carry(Session *from, Session *to, uint64_t now) {
        static uint8_t buffer[65536];
        ssize_t n;

        while ((n = session_produce(from, buffer, sizeof(buffer))) > 0)
                (void) session_receive(to, buffer, (size_t) n, now);
        while (session_dispatch(to, 16) || session_dispatch(from, 16))
                ;
        return n == 0;
}

void session_pair_pump(SessionPair *pair) {
        Session *server = server_session_base(pair->server), *client = client_session_base(pair->client);

        while (carry(client, server, pair->now) && carry(server, client, pair->now))
                if (!session_wants_produce(client) && !session_wants_produce(server))
                        return;
}

void pair_call_start(SessionPair *pair, PairCall *call, const char *path) {
        call->code = STATUS_UNKNOWN;
        call->call = client_call_start(pair->client, &(ClientRequest){ .path = path, .deadline = DEADLINE_NONE },
                                       &events, call);
        if (call->call && !call->pauses)
                client_call_read(call->call);
        session_pair_pump(pair);
}

void pair_call_send_bytes(SessionPair *pair, PairCall *call, const void *message, size_t len) {
        if (call->call)
                (void) client_call_send(call->call, message, len);
        session_pair_pump(pair);
}

void pair_call_send(SessionPair *pair, PairCall *call, const ProtobufCMessage *message) {
        uint8_t buffer[16384];

        assert_true(protobuf_c_message_get_packed_size(message) <= sizeof(buffer));
        pair_call_send_bytes(pair, call, buffer, protobuf_c_message_pack(message, buffer));
}

void pair_call_end(SessionPair *pair, PairCall *call) {
        if (call->call)
                client_call_end(call->call);
        session_pair_pump(pair);
}

void pair_call_clear(PairCall *call) {
        free(call->message);
        free(call->details);
}
