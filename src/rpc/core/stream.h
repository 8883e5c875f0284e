/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rpc/core/byte-queue.h"
#include "rpc/core/message-reader.h"

/* Streams: what the calls of servers and clients have in common. Messages come in when they are asked for, and go out
 * as fast as the peer takes them. A call embeds its stream as its first member. */

typedef struct Session Session;
typedef struct Stream Stream;
typedef struct InboxEntry InboxEntry;

struct Stream {
        Session *session;
        int32_t id; /* 0: not submitted yet */

        Stream *prev, *next;             /* every stream of the session */
        Stream *ready_prev, *ready_next; /* those to dispatch */
        bool ready;

        /* Received. */
        MessageReader reader;
        InboxEntry *inbox_first, *inbox_last; /* whole messages that nobody took yet */
        size_t partial_bytes;                 /* received of the message being read */
        size_t partial_held;                  /* of these, what the stream's window was not given back */
        uint32_t demand;                      /* messages asked for and not handed out */
        int read_error;                       /* negative: what comes cannot be read; all more is thrown away */
        bool discards;                        /* nobody will ask for messages any more */
        bool remote_ended;                    /* the peer has sent all */

        /* To be sent. */
        ByteQueue outbox;
        bool local_ended;   /* stream_end() was called */
        bool data_deferred; /* nghttp2 waits for more in outbox */
        bool is_full;       /* tell the owner when there is room again */
        bool has_room;      /* there is, and the owner was not told yet */

        size_t header_list; /* bytes of the header block being received */

        bool closed; /* HTTP/2 is done with it */
        bool lost;   /* closed, because the connection is */
        uint32_t close_code;

        uint64_t deadline;     /* UINT64_MAX: none */
        size_t deadline_index; /* its place in Session.deadlines; SIZE_MAX: none */
};

/* Adds @stream, which is zeroed, to @session. */
void stream_init(Stream *stream, Session *session);

/* Takes @stream out of its session and frees what it holds, but not itself. */
void stream_done(Stream *stream);

/* -ENOMEM. */
int stream_set_deadline(Stream *stream, uint64_t deadline);

/* Asks for one more message. */
void stream_want(Stream *stream);

/* Hands messages that were asked for and are there to @deliver, which may take their data over. Returns false when
 * there may be more, and others are to have their turn first; the stream is then ready again. */
bool stream_hand_out(Stream *stream, void (*deliver)(Stream *stream, Message *message));

/* Tells whether a message was asked for, is there, and was not taken yet. */
bool stream_has_wanted(const Stream *stream);

/* Tells whether no message waits or is under way, and none will come. */
bool stream_is_drained(const Stream *stream);

/* The status of a call whose messages cannot be read because of @r. */
typedef struct StreamError {
        StatusCode status;
        const char *reason;
        char text[96];
} StreamError;

StreamError stream_explain(const Stream *stream, int r);

/* Throws away what came and will come. */
void stream_discard(Stream *stream);

/* Queues a message. -EMSGSIZE: its length has more than 32 bits; -ENOMEM; -ENOBUFS: it is not small, and too much waits
 * already. */
int stream_send(Stream *stream, const void *message, size_t len, bool compressed);

/* The same with a message that comes from malloc() and is the stream's from now on, also when it fails. */
int stream_send_taken(Stream *stream, uint8_t *message, size_t len, bool compressed);

/* No more messages will be sent. */
void stream_end(Stream *stream);

/* Tells whether it is not far ahead of its reader. When that has come to be so again, has_room is set. */
bool stream_is_writable(const Stream *stream);

/* Resets the stream. It closes when that is sent. */
void stream_reset(Stream *stream, uint32_t code);

/* For session.c. @len bytes of the outbox were sent. */
void stream_sent(Stream *stream, size_t len);
void stream_receive(Stream *stream, const uint8_t *bytes, size_t len);
nghttp2_data_provider stream_data_provider(Stream *stream);
