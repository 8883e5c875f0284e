/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rpc/core/deadlines.h"
#include "rpc/core/stream.h"

/* Sessions: one HTTP/2 connection that carries gRPC streams, as a machine without sockets and without a clock.
 *
 *         r = session_receive(session, bytes, len, now);    bytes from the peer
 *         n = session_produce(session, buffer, size);       bytes for the peer
 *         session_dispatch(session, budget);                runs what these made ready
 *         session_tick(session, now);                       at session_deadline()
 *
 * What server and client have in common lives here: framing, flow control, back pressure, deadlines, keepalive, floods.
 * What a stream means is its owner's, behind SessionRole. nghttp2's callbacks only change state and put streams on the
 * ready list; session_dispatch() runs outside of nghttp2, so owners may do anything with any stream. Times are
 * nanoseconds of the monotonic clock. */

typedef struct SessionLimits {
        uint32_t max_streams;        /* concurrent ones that the peer may open */
        uint32_t stream_window;      /* bytes of a stream that the peer may send ahead */
        uint32_t connection_window;  /* the same over all streams */
        size_t max_message;          /* bytes of one message, compressed or not */
        size_t max_header_list;      /* bytes of one header block, as HTTP/2 counts them */
        size_t max_held;             /* bytes that wait for readers before the connection stops taking more */
        size_t max_buffered;         /* bytes of messages in memory, beyond which calls fail */
        size_t high_water;           /* bytes of a stream that wait to be sent before it stops being writable */
        uint32_t max_idle_frames;    /* frames without use (pings, settings, empty data …) in excess of useful ones */
        uint64_t min_ping_interval;  /* between the peer's pings while nothing is sent to it */
        uint64_t keepalive_interval; /* of silence before a ping is sent; 0: never */
        uint64_t keepalive_timeout;  /* of silence after it before the peer counts as gone */
} SessionLimits;

extern const SessionLimits session_limits_default;

#define SESSION_PARTS_MAX 16

/* What several sessions share. */
typedef struct SessionBudget {
        size_t buffered; /* bytes of messages that came */
        size_t max_buffered;
        size_t queued; /* bytes of messages that wait to be sent */
        size_t max_queued;
        size_t streams; /* of servers: open now */
        size_t max_streams;
        uint64_t opened_streams; /* ever */
} SessionBudget;

/* What is to be sent, in parts: most of it put together in a buffer, and large pieces where they lie. */
typedef struct SessionOutput {
        uint8_t *buffer; /* the caller's */
        size_t size;     /* of it, and the most that all parts have together */
        size_t used;     /* of it */
        size_t len;      /* of all parts */
        bool copies;     /* all is put into the buffer: it is the only part */
        struct iovec parts[SESSION_PARTS_MAX];
        size_t n_parts;
        ByteChunk *spent; /* what they lie in and is of no more use */
} SessionOutput;

typedef struct SessionRole {
        bool server;
        /* Inside nghttp2, server only: the peer opens a stream. NULL refuses it. */
        Stream *(*open)(Session *session);
        /* Inside nghttp2: one field of a header block. A negative errno resets the stream. */
        int (*field)(Stream *stream, const char *name, size_t name_len, const char *value, size_t value_len);
        /* Inside nghttp2: the block is complete. */
        void (*fields_end)(Stream *stream);
        /* Inside nghttp2, server only: the outbox of an ended stream is empty, and the trailers are due. */
        int (*trailers)(Stream *stream);
        /* Something is new on the stream: fields, messages, room, an error, the end. Must free the stream when it is
         * closed. */
        void (*dispatch)(Stream *stream);
        /* The stream's deadline passed. */
        void (*expired)(Stream *stream);
} SessionRole;

struct Session {
        const SessionRole *role;
        SessionLimits limits;
        nghttp2_session *http2;
        void *user;                        /* the owner's */
        void (*touched)(Session *session); /* the owner's: something may be to dispatch or to produce; may be NULL */

        Stream *streams; /* all of them, submitted or not, closed or not */
        size_t n_streams;
        Stream *ready_first, *ready_last;
        Deadlines deadlines;

        SessionBudget *budget; /* shared with other sessions; NULL: none */
        size_t buffered;       /* bytes of messages in memory, whole or not */
        size_t held;           /* of these, what nobody asked for yet */
        size_t withheld;       /* bytes that the connection's window was not given back */
        SpareBuffer spare;     /* for large messages, while there are streams */

        SessionOutput *output; /* of the session_gather() that is under way */

        uint64_t now; /* of the latest receive or tick */
        uint64_t last_received;
        uint64_t last_ping;         /* of the peer's */
        uint32_t ping_strikes;      /* pings that came too early */
        uint32_t idle_frames;       /* the excess */
        uint64_t faults_until;      /* when the peer's faults are forgotten */
        uint64_t keepalive_sent_at; /* 0: no ping of ours is under way */

        bool draining;       /* no new streams */
        bool drain_complete; /* the peer knows the last stream that will be served */
        bool broken;         /* close it when all is sent */
        bool dead;           /* the peer is gone: close it at once */
        bool peer_draining;  /* client: GOAWAY came */
};

/* Prepares @session, which its owner embeds and has zeroed. -ENOMEM. */
int session_init(Session *session, const SessionRole *role, const SessionLimits *limits, uint64_t now);

/* Closes and dispatches every stream, so that each call hears its end, and frees what @session holds. */
void session_done(Session *session);

/* Takes bytes from the peer. What they make ready waits for session_dispatch(). -EPROTO when the peer broke the
 * protocol beyond repair, -ENOMEM: produce what is left, then close. */
int session_receive(Session *session, const uint8_t *bytes, size_t len, uint64_t now);

/* Fills @buffer with what is to be sent. Returns how many bytes; 0 when there is nothing. -ENOMEM. A buffer of
 * SESSION_BUFFER_SIZE holds the largest frame; a smaller one makes smaller frames. */
ssize_t session_produce(Session *session, uint8_t *buffer, size_t size);
#define SESSION_BUFFER_SIZE ((size_t) 65536 + 9)

/* The same, but large pieces stay where they are: @output, of which the caller has set the buffer, tells where. They
 * stay until something else is done with the session, and session_output_clear() frees what is left of them. */
ssize_t session_gather(Session *session, SessionOutput *output);
void session_output_clear(SessionOutput *output);

bool session_wants_produce(const Session *session);

/* Dispatches at most @budget ready streams. Returns whether others wait. */
bool session_dispatch(Session *session, size_t budget);

/* When session_tick() is due; UINT64_MAX: never. */
uint64_t session_deadline(const Session *session);
void session_tick(Session *session, uint64_t now);

/* Tells whether the connection has served its time and can be closed once all is sent. */
bool session_is_finished(const Session *session);

/* Server: lets running streams finish and takes no new ones. The peer is told at once. */
int session_drain(Session *session);

/* Ends the connection as soon as @debug was sent. */
void session_goaway(Session *session, uint32_t code, const char *debug);

/* For stream.c and the roles: something was given to nghttp2, outside of the functions above. */
void session_touch(Session *session);
/* For stream.c: what nghttp2 said, @result, to something that must not be missed. When it has no memory for that, the
 * connection cannot go on. */
void session_must(Session *session, int result);
/* For stream.c: @stream is to be dispatched. */
void session_ready(Session *session, Stream *stream);
/* For stream.c: @bytes came and are in memory; nobody asked for them. */
void session_hold(Session *session, size_t bytes);
/* For stream.c: somebody asked for @bytes that were held. */
void session_unhold(Session *session, size_t bytes);
/* For stream.c: memory of @bytes was taken beside what came. */
void session_take_bytes(Session *session, size_t bytes);
/* For stream.c: @bytes are no longer in memory. */
void session_free_bytes(Session *session, size_t bytes);
/* For stream.c: @bytes came and were thrown away. */
void session_pass(Session *session, size_t bytes);
/* For stream.c: too much is in memory. */
bool session_is_overfull(const Session *session);
/* For stream.c: @bytes wait to be sent, or do so no more. */
void session_queue_bytes(Session *session, size_t bytes);
void session_unqueue_bytes(Session *session, size_t bytes);
/* For stream.c: so much waits to be sent, over all sessions, that streams are not to be far ahead of their readers; or
 * that there is no room for what can be large. */
bool session_is_slowed(const Session *session);
bool session_is_choked(const Session *session);
