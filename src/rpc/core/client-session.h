/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "rpc/core/metadata.h"
#include "rpc/core/session.h"

/* Client sessions: one connection to a server, and the calls on it. Without sockets and clock: session.h says how
 * bytes go in and out.
 *
 * A call is started, sends messages and says when there are no more, asks for messages one at a time, and ends exactly
 * once, with a status: the server's, or one made here (cancelled, past its deadline, connection lost). The event
 * `ended` is the last and comes after all messages that were sent before an end by the server; the call is gone for
 * its owner when it returns. */

typedef struct ClientSession ClientSession;
typedef struct ClientCall ClientCall;

/* How a call ended. */
typedef struct ClientStatus {
        StatusCode code;
        const char *reason;     /* stable; of the server's ErrorInfo, or of what happened here, or the code's name */
        const char *message;    /* never NULL */
        const uint8_t *details; /* an encoded google.rpc.Status */
        size_t details_len;
        const Metadata *trailing;
        bool from_server;   /* the server said so; else it was made here */
        bool not_processed; /* the server has certainly not begun with it: it may be repeated */
        bool lost;          /* the connection broke */
} ClientStatus;

/* What happens to a call. Any may be NULL. */
typedef struct ClientEvents {
        /* The server's first metadata. Not told when the call fails before any. */
        void (*headers)(ClientCall *call, const Metadata *metadata);
        /* A message that was asked for. @message is the callee's to read until it returns. */
        void (*message)(ClientCall *call, const uint8_t *message, size_t len);
        /* client_call_is_writable() is true again. */
        void (*writable)(ClientCall *call);
        /* The call is over. */
        void (*ended)(ClientCall *call, const ClientStatus *status);
} ClientEvents;

typedef struct ClientRequest {
        const char *path;          /* "/package.Service/Method" */
        const Metadata *metadata;  /* NULL: none */
        const char *authorization; /* the field of that name; NULL: none */
        uint64_t deadline;         /* monotonic; DEADLINE_NONE */
        bool compresses;           /* messages, by gzip, unless client_call_set_compression() says otherwise */
} ClientRequest;

/* What all requests of a session have in common. The texts outlive it. */
typedef struct ClientIdentity {
        const char *authority; /* "localhost", "example.com:443" */
        const char *user_agent;
        bool encrypted;
} ClientIdentity;

/* NULL when memory is out. */
ClientSession *client_session_new(const ClientIdentity *identity, const SessionLimits *limits, uint64_t now)
        __attribute__((nonnull));

/* Ends every call, as lost if it has not ended yet, and frees @session, which may be NULL. Returns NULL. */
ClientSession *client_session_free(ClientSession *session);
DEFINE_CLEANUP(ClientSession *, client_session_free);

/* The connection is lost. Calls whose answer is complete go on until their messages were read; all others end at the
 * next dispatch with UNAVAILABLE, @reason and @why. Nothing is to be received or produced any more. */
void client_session_lose(ClientSession *session, const char *reason, const char *why) __attribute__((nonnull));

/* The session underneath. */
Session *client_session_base(ClientSession *session) __attribute__((nonnull, returns_nonnull));

/* Tells whether new calls can be started: the server does not want the connection closed, and it is not broken. */
bool client_session_is_open(const ClientSession *session) __attribute__((nonnull));

/* Starts a call. NULL when memory is out. @events outlives the call. */
ClientCall *client_call_start(ClientSession *session, const ClientRequest *request, const ClientEvents *events,
                              void *user) __attribute__((nonnull(1, 2, 3)));

void *client_call_user(const ClientCall *call);

/* Whether messages that follow are compressed, in a call whose request said that it compresses. */
void client_call_set_compression(ClientCall *call, bool compress);

/* Queues a message. -EPIPE when the call is over or client_call_end() was called; -ENOMEM. */
int client_call_send(ClientCall *call, const void *message, size_t len) __attribute__((nonnull(1)));

/* The same with a message that comes from malloc() and is taken over, also when it fails: a large one is not copied. */
int client_call_send_taken(ClientCall *call, uint8_t *message, size_t len) __attribute__((nonnull));
bool client_call_is_writable(const ClientCall *call);

/* No more messages will be sent. */
void client_call_end(ClientCall *call);

/* Asks for the next message. One call, one message. */
void client_call_read(ClientCall *call);

/* In the event `message`: the message becomes the caller's of this, who frees it; the event's pointer stays valid. */
uint8_t *client_call_take_message(ClientCall *call) __attribute__((nonnull, returns_nonnull));

/* Tells whether the message that was handed out last had been compressed. */
bool client_call_message_was_compressed(const ClientCall *call);

/* Ends the call with CANCELLED. */
void client_call_cancel(ClientCall *call);
