/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Calls, as a server's handlers see them.
 *
 * A handler is a plain function that is given a call and answers it now or later:
 *
 *         static void ping(Call *call, const uint8_t *message, size_t len, void *context) {
 *                 call_reply(call, "", 0);
 *         }
 *
 *         static const Method methods[] = {
 *                 { .path = "/hutch.v1.SystemService/Ping", .handle = ping },
 *                 { .path = "/hutch.v1.ExecService/AttachExec", .start = attach },
 *         };
 *
 * A method whose clients stream has start(), which sets the call's events and asks for messages by call_read(), one at
 * a time: the peer may send no more than a window ahead of what was asked for. The other way, call_send() queues a
 * message; while call_is_writable() is false the peer does not keep up, and a handler that goes on sending fills
 * memory: wait for `writable`.
 *
 * Every call ends exactly once, whatever happens: finished and sent, cancelled, past its deadline, its peer gone. The
 * event `ended` tells; it is the last, and the call is gone for its handler when it returns. After call_finish() no
 * other event comes. Handlers run outside of the HTTP/2 machinery: they may use this and any other call in any way.
 *
 * Handlers do not know where their calls come from: a stream of HTTP/2 (server-session.h), or this process
 * (local-call.h). call-verbs.h is for those who make calls. */

typedef struct Call Call;
typedef struct Metadata Metadata;
typedef struct Peer Peer;

/* Why a call ended. */
typedef enum CallEnd {
        CALL_END_FINISHED,  /* its status was handed to the transport */
        CALL_END_CANCELLED, /* the peer cancelled it */
        CALL_END_LOST,      /* the connection is gone; the peer may be, too */
        CALL_END_DEADLINE,  /* its deadline passed; the peer was told */
} CallEnd;

/* What happens to a streaming call. Any may be NULL. */
typedef struct CallEvents {
        /* A message that call_read() asked for. @message is the callee's to read until it returns. */
        void (*message)(Call *call, const uint8_t *message, size_t len);
        /* The peer has sent all its messages, and all were handed out. */
        void (*half_closed)(Call *call);
        /* call_is_writable() is true again. */
        void (*writable)(Call *call);
        /* The call is over. */
        void (*ended)(Call *call, CallEnd how);
} CallEvents;

typedef struct Method {
        const char *path; /* "/package.Service/Method" */
        /* One of these. handle(): clients send one message, and here it is; @message is the callee's to read until it
         * returns. start(): clients stream. */
        void (*handle)(Call *call, const uint8_t *message, size_t len, void *context);
        void (*start)(Call *call, void *context);
        void *context;
} Method;

/* What begin() of an interceptor returns when it must wait for something: call_go_on() tells how it went. Meanwhile it
 * may have the call's events, to hear of its end. */
#define CALL_WAITS 1

/* Something that stands before every handler: authentication, logging, tracing, metrics. They run in the order of their
 * list. */
typedef struct Interceptor {
        /* Before the handler. 0 lets the call pass, CALL_WAITS leaves that to call_go_on(), a negative errno refuses it
         * with what @err says. May be NULL. */
        int (*begin)(Call *call, void *context, HutchError *err);
        /* After the end of every call that begin() of this interceptor let pass. May be NULL. */
        void (*end)(Call *call, StatusCode status, CallEnd how, void *context);
        void *context;
} Interceptor;

/* What was asked, by whom. */
const char *call_path(const Call *call);
const Metadata *call_metadata(const Call *call);
const Peer *call_peer(const Call *call);

/* The deadline on the monotonic clock in nanoseconds; UINT64_MAX: none. */
uint64_t call_deadline(const Call *call);

/* Goes on with a call that an interceptor had wait, and that has not ended since: NULL lets it pass, an error refuses
 * it. */
void call_go_on(Call *call, const HutchError *refusal);

/* Who calls, as an interceptor found out: its own type, which handlers and later interceptors know, too. @free_identity
 * may be NULL, and is called after the end of the call. */
void call_set_identity(Call *call, void *identity, void (*free_identity)(void *identity));
void *call_identity(const Call *call);

/* What a handler hangs onto its call. */
void call_set_events(Call *call, const CallEvents *events, void *user);
void *call_user(const Call *call);

/* Asks for the next message. One call, one message. */
void call_read(Call *call);

/* In the event `message`: the message becomes the caller's of this, who frees it; the event's pointer stays valid. */
uint8_t *call_take_message(Call *call) __attribute__((nonnull, returns_nonnull));

/* Tells whether the message that was handed out last had been compressed. */
bool call_message_was_compressed(const Call *call);

/* Metadata to send before the first message: to be changed until then. */
Metadata *call_initial_metadata(Call *call);
/* Metadata to send with the status: to be changed until call_finish(). */
Metadata *call_trailing_metadata(Call *call);

/* Whether messages that follow are compressed, where the peer accepts that. */
void call_set_compression(Call *call, bool compress);

/* Queues a message. -EPIPE when the call is over or finished, which is no fault of the handler's; -EMSGSIZE when its
 * length has more than 32 bits; -ENOMEM; -ENOBUFS when too much of all calls together waits to be sent already. */
int call_send(Call *call, const void *message, size_t len);

/* The same with a message that comes from malloc() and is taken over, also when it fails: a large one is not copied. */
int call_send_taken(Call *call, uint8_t *message, size_t len);

/* Tells whether less than a window of messages waits to be sent. */
bool call_is_writable(const Call *call);

/* Ends the call: what was sent goes out, then the status. @message may be NULL. Repeating it has no effect. */
void call_finish(Call *call, StatusCode status, const char *message);

/* The same with @details, an encoded google.rpc.Status, for grpc-status-details-bin. */
void call_finish_details(Call *call, StatusCode status, const char *message, const void *details, size_t details_len);

/* Sends one message and ends the call with OK. */
void call_reply(Call *call, const void *message, size_t len);
void call_reply_taken(Call *call, uint8_t *message, size_t len); /* as call_send_taken() */

/* Ends the call with what @err says: its code, its message, and a google.rpc.ErrorInfo with its reason and the domain
 * "hutch". For other details see status-details.h. */
void call_fail(Call *call, const HutchError *err);

/* The same without an error object. */
void call_fail_with(Call *call, StatusCode status, const char *reason, const char *message);
