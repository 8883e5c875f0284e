/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/retry.h"
#include "rpc/core/client-session.h"

/* Channels: a client's way to one server, on an event loop. It connects when the first call needs it, carries many
 * calls on one connection, and connects anew when that is lost. What the server has answered by then can still be read.
 *
 * A call that fails because the server is not there is tried again by the retry schedule (base/retry.h): any call
 * while the server has certainly not seen it; a call that is safe to repeat also afterwards, until its first answer.
 * For that its messages are kept until then. The caller notices nothing but the time; deadlines hold over all tries. */

typedef struct Channel Channel;
typedef struct ChannelCall ChannelCall;
typedef struct ChannelHub ChannelHub;
typedef struct TlsContext TlsContext;

typedef struct ChannelOptions {
        const char *target;      /* as in connector.h */
        TlsContext *tls;         /* kept by reference; NULL: not encrypted */
        const char *server_name; /* that the certificate must be for; NULL: the target's host */
        const char *token;       /* sent as "Bearer"; NULL: none */
        /* Asked for the token of each call and each try instead: a text from malloc(), or NULL, and the call ends with
         * CREDENTIALS_MISSING. NULL: nobody is. */
        char *(*get_token)(void *user);
        void *token_user;
        bool token_in_clear;    /* also over TCP without TLS, which is otherwise refused */
        const char *user_agent; /* NULL: "hutch" */
        const RetryPolicy *retry;
        const SessionLimits *limits;
        uint64_t connect_timeout; /* for one try */
} ChannelOptions;

extern const ChannelOptions channel_options_default; /* without a target */

/* What happens to a call. Any may be NULL. */
typedef struct ChannelEvents {
        void (*headers)(ChannelCall *call, const Metadata *metadata);
        void (*message)(ChannelCall *call, const uint8_t *message, size_t len);
        void (*writable)(ChannelCall *call);
        /* The last event; the call is gone when it returns. */
        void (*ended)(ChannelCall *call, const ClientStatus *status);
} ChannelEvents;

typedef struct ChannelRequest {
        const char *path;
        const Metadata *metadata; /* copied; NULL: none */
        uint64_t deadline;        /* of uv_hrtime(); DEADLINE_NONE */
        bool safe;                /* may be repeated: it only reads, or carries a request id */
        bool compresses;          /* messages, by gzip, unless channel_call_set_compression() says otherwise */
} ChannelRequest;

/* Makes a channel on the loop of @hub (channel-hub.h); nothing is connected yet. -EINVAL; -EPERM with
 * TOKEN_IN_CLEAR_TEXT; -ENOMEM. */
int channel_new(ChannelHub *hub, const ChannelOptions *options, Channel **ret_channel, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Ends every call with CANCELLED, closes the connection, and frees @channel while the loop runs on. Then calls @done,
 * which may be NULL. */
void channel_free(Channel *channel, void (*done)(void *user), void *user) __attribute__((nonnull(1)));

/* Starts a call. NULL when memory is out, or the channel was freed. @events outlives the call. No event comes before it
 * returns. */
ChannelCall *channel_call_start(Channel *channel, const ChannelRequest *request, const ChannelEvents *events,
                                void *user) __attribute__((nonnull(1, 2, 3)));

void *channel_call_user(const ChannelCall *call);

/* Whether messages that follow are compressed, in a call whose request said that it compresses. */
void channel_call_set_compression(ChannelCall *call, bool compress);

/* Queues a message. -EPIPE when the call is over or channel_call_end() was called; -ENOMEM. */
int channel_call_send(ChannelCall *call, const void *message, size_t len) __attribute__((nonnull(1)));

/* The same with a message that comes from malloc() and is taken over, also when it fails: a large one is not copied.
 * Once a connection has it the call is not tried again: nobody keeps it. */
int channel_call_send_taken(ChannelCall *call, uint8_t *message, size_t len) __attribute__((nonnull));

/* Tells whether channel_call_send() would keep a message of @len bytes, so that the call can be tried again with it. */
bool channel_call_keeps(const ChannelCall *call, size_t len) __attribute__((nonnull));
bool channel_call_is_writable(const ChannelCall *call);

/* No more messages will be sent. */
void channel_call_end(ChannelCall *call);

/* Asks for the next message. One call, one message. */
void channel_call_read(ChannelCall *call);

/* In the event `message`: the message becomes the caller's of this, who frees it; the event's pointer stays valid. */
uint8_t *channel_call_take_message(ChannelCall *call) __attribute__((nonnull, returns_nonnull));

/* In the event `message`: tells whether the message had been compressed. */
bool channel_call_message_was_compressed(const ChannelCall *call);

/* Ends the call with CANCELLED. `ended` comes later. */
void channel_call_cancel(ChannelCall *call);
