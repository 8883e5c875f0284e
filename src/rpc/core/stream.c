/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: messages of one stream, in and out, and its share of flow control. What does not: header blocks and
 * what a stream means (server-session.c, client-session.c).
 *
 * Flow control: bytes go back to the stream's window when their message was taken, or, for a message that is not whole
 * yet, when somebody waits for it. So a peer may be a window ahead of the reader and no more, and a message larger than
 * the window still comes through. */

#include "rpc/core/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "rpc/core/session.h"

/* Messages of one stream that are handed out before others have their turn. */
#define MESSAGES_PER_TURN 64
#define TAKEN_MIN 4096 /* bytes that are worth a chunk of their own */
#define SMALL_MAX 4096 /* bytes of a message for which there is always room */

struct InboxEntry {
        InboxEntry *next;
        Message message;
        size_t bytes; /* that it is counted for: what was received, and what keeping it costs */
        size_t held;  /* of these, what the stream's window was not given back */
};

/* What a message costs beside its bytes, however few these are: the entry, and two blocks of the allocator's. */
#define ENTRY_OVERHEAD (sizeof(InboxEntry) + 48)

void stream_init(Stream *stream, Session *session) {
        stream->session = session;
        stream->deadline = DEADLINE_NONE;
        stream->deadline_index = SIZE_MAX;
        message_reader_init(&stream->reader, session->limits.max_message);
        stream->reader.spare = &session->spare;

        stream->next = session->streams;
        if (stream->next)
                stream->next->prev = stream;
        session->streams = stream;
        session->n_streams++;
        if (session->budget) {
                session->budget->streams++;
                session->budget->opened_streams++;
        }
}

/* Lets the peer send @bytes more on the stream: they were received and are on their way to whoever asked. */
static void open_window(Stream *stream, size_t bytes) {
        if (bytes > 0 && !stream->closed)
                session_must(stream->session,
                             nghttp2_session_consume_stream(stream->session->http2, stream->id, bytes));
}

/* Somebody waits for the message that is being read: the peer shall go on sending it. */
static void open_window_for_partial(Stream *stream) {
        open_window(stream, stream->partial_held);
        session_unhold(stream->session, stream->partial_held);
        stream->partial_held = 0;
}

static void inbox_drop_first(Stream *stream) {
        InboxEntry *entry = stream->inbox_first;

        stream->inbox_first = entry->next;
        if (!stream->inbox_first)
                stream->inbox_last = NULL;

        open_window(stream, entry->held);
        session_unhold(stream->session, entry->held);
        session_free_bytes(stream->session, entry->bytes);
        free(entry->message.data);
        free(entry);
}

void stream_discard(Stream *stream) {
        stream->discards = true;
        while (stream->inbox_first)
                inbox_drop_first(stream);

        open_window_for_partial(stream);
        session_free_bytes(stream->session, stream->partial_bytes);
        stream->partial_bytes = 0;
        message_reader_clear(&stream->reader);
}

void stream_done(Stream *stream) {
        Session *session = stream->session;

        stream_discard(stream);
        session_unqueue_bytes(session, stream->outbox.len);
        byte_queue_clear(&stream->outbox);
        deadlines_remove(&session->deadlines, stream);

        if (stream->ready) {
                *(stream->ready_prev ? &stream->ready_prev->ready_next : &session->ready_first) = stream->ready_next;
                *(stream->ready_next ? &stream->ready_next->ready_prev : &session->ready_last) = stream->ready_prev;
        }

        *(stream->prev ? &stream->prev->next : &session->streams) = stream->next;
        if (stream->next)
                stream->next->prev = stream->prev;
        session->n_streams--;
        if (session->n_streams == 0)
                spare_buffer_clear(&session->spare);
        if (session->budget)
                session->budget->streams--;
}

/* nghttp2 shall ask for data again. */
static void resume_data(Stream *stream) {
        if (!stream->data_deferred || stream->closed)
                return;

        stream->data_deferred = false;
        session_must(stream->session, nghttp2_session_resume_data(stream->session->http2, stream->id));
}

int stream_set_deadline(Stream *stream, uint64_t deadline) {
        deadlines_remove(&stream->session->deadlines, stream);
        stream->deadline = deadline;
        return deadline == DEADLINE_NONE ? 0 : deadlines_add(&stream->session->deadlines, stream);
}

void stream_want(Stream *stream) {
        stream->demand++;
        if (!stream->inbox_first)
                open_window_for_partial(stream);
        session_ready(stream->session, stream);
}

bool stream_has_wanted(const Stream *stream) {
        return stream->inbox_first && stream->demand > 0;
}

/* Takes the next message, if one was asked for and is there. */
static bool take(Stream *stream, Message *ret_message) {
        InboxEntry *entry = stream->inbox_first;

        if (!stream_has_wanted(stream))
                return false;

        *ret_message = entry->message;
        entry->message.data = NULL;
        inbox_drop_first(stream);

        stream->demand--;
        if (stream->demand > 0 && !stream->inbox_first)
                open_window_for_partial(stream);
        return true;
}

bool stream_hand_out(Stream *stream, void (*deliver)(Stream *stream, Message *message)) {
        Message message;

        for (size_t n = 0; n < MESSAGES_PER_TURN; n++) {
                if (stream->read_error < 0 || !take(stream, &message))
                        return true;
                deliver(stream, &message);
                message_recycle(&message, &stream->session->spare);
        }

        session_ready(stream->session, stream);
        return false;
}

bool stream_is_drained(const Stream *stream) {
        return stream->remote_ended && !stream->inbox_first;
}

static int inbox_push(Stream *stream, Message message) {
        InboxEntry *entry = malloc(sizeof(*entry));

        if (!entry) {
                free(message.data);
                return -ENOMEM;
        }

        *entry = (InboxEntry){
                .message = message,
                .bytes = stream->partial_bytes + ENTRY_OVERHEAD,
                .held = stream->partial_held,
        };
        session_take_bytes(stream->session, ENTRY_OVERHEAD);
        stream->partial_bytes = 0;
        stream->partial_held = 0;

        *(stream->inbox_last ? &stream->inbox_last->next : &stream->inbox_first) = entry;
        stream->inbox_last = entry;
        return 0;
}

/* Reads messages out of @bytes until they are used up or cannot be read. Returns how many bytes were taken. */
static size_t read_messages(Stream *stream, const uint8_t *bytes, size_t len) {
        size_t total = 0;

        while (total < len && stream->read_error == 0) {
                Message message;
                size_t taken = 0;
                int r = message_reader_feed(&stream->reader, bytes + total, len - total, &taken, &message);

                total += taken;
                stream->partial_bytes += taken;
                stream->partial_held += taken;
                session_hold(stream->session, taken);

                if (r > 0)
                        r = inbox_push(stream, message);
                if (r == 0 && session_is_overfull(stream->session))
                        r = -ENOBUFS;
                stream->read_error = r;
        }

        return total;
}

void stream_receive(Stream *stream, const uint8_t *bytes, size_t len) {
        size_t taken = 0;

        if (!stream->discards)
                taken = read_messages(stream, bytes, len);
        if (stream->read_error < 0)
                stream->discards = true;

        /* What nobody will read must not hold up what others read. */
        open_window(stream, len - taken);
        session_pass(stream->session, len - taken);

        if (stream->demand > 0 && !stream->inbox_first)
                open_window_for_partial(stream);

        session_ready(stream->session, stream);
}

StreamError stream_explain(const Stream *stream, int r) {
        StreamError error = { STATUS_INTERNAL, "MESSAGE_MALFORMED", "a message is malformed" };

        if (r == -EMSGSIZE) {
                error = (StreamError){ .status = STATUS_RESOURCE_EXHAUSTED, .reason = "MESSAGE_TOO_LARGE" };
                snprintf(error.text, sizeof(error.text), "a message has more than %zu bytes",
                         stream->session->limits.max_message);
        } else if (r == -ENOBUFS || r == -ENOMEM) {
                error = (StreamError){ STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "too many messages are in memory" };
        }

        return error;
}

/* @len bytes were put into the outbox. */
static void outbox_grown(Stream *stream, size_t len) {
        Session *session = stream->session;

        session_queue_bytes(session, len);
        stream->is_full = session_is_slowed(session) || stream->outbox.len >= session->limits.high_water;
        resume_data(stream);
        session_touch(session);
}

void stream_sent(Stream *stream, size_t len) {
        Session *session = stream->session;
        size_t low_water;

        session_unqueue_bytes(session, len);
        if (stream->local_ended && stream->outbox.len == 0)
                byte_queue_clear(&stream->outbox); /* the other side may go on for as long as it likes */
        low_water = session_is_slowed(session) ? 0 : session->limits.high_water / 2;
        if (!stream->is_full || stream->outbox.len > low_water)
                return;

        stream->is_full = false;
        stream->has_room = true;
        session_ready(session, stream);
}

static int check_message(const Stream *stream, size_t len) {
        if (len > UINT32_MAX)
                return -EMSGSIZE;
        return len > SMALL_MAX && session_is_choked(stream->session) ? -ENOBUFS : 0;
}

int stream_send(Stream *stream, const void *message, size_t len, bool compressed) {
        uint8_t prefix[MESSAGE_PREFIX_LEN];
        int r;

        r = check_message(stream, len);
        if (r < 0)
                return r;
        message_prefix_write(prefix, compressed, (uint32_t) len);

        r = byte_queue_reserve(&stream->outbox, sizeof(prefix) + len);
        if (r < 0)
                return r;
        byte_queue_append(&stream->outbox, prefix, sizeof(prefix));
        byte_queue_append(&stream->outbox, message, len);
        outbox_grown(stream, sizeof(prefix) + len);
        return 0;
}

int stream_send_taken(Stream *stream, uint8_t *message, size_t len, bool compressed) {
        _cleanup_free_ uint8_t *taken = message;
        uint8_t prefix[MESSAGE_PREFIX_LEN];
        int r;

        if (len < TAKEN_MIN)
                return stream_send(stream, message, len, compressed);
        r = check_message(stream, len);
        if (r < 0)
                return r;
        message_prefix_write(prefix, compressed, (uint32_t) len);

        r = byte_queue_append_taken(&stream->outbox, prefix, sizeof(prefix), taken, len);
        if (r < 0)
                return r;
        taken = NULL;
        outbox_grown(stream, sizeof(prefix) + len);
        return 0;
}

void stream_end(Stream *stream) {
        stream->local_ended = true;
        resume_data(stream);
        session_touch(stream->session);
}

bool stream_is_writable(const Stream *stream) {
        return !stream->is_full;
}

void stream_reset(Stream *stream, uint32_t code) {
        if (stream->closed || stream->id == 0)
                return;

        session_must(stream->session,
                     nghttp2_submit_rst_stream(stream->session->http2, NGHTTP2_FLAG_NONE, stream->id, code));
        session_touch(stream->session);
}

/* nghttp2 asks how much there is to send; session.c then fetches it from the outbox. */
/* NOLINTNEXTLINE(readability-non-const-parameter): nghttp2 says how it looks. */
static ssize_t read_outbox(nghttp2_session *http2, int32_t stream_id, uint8_t *buf, size_t length, uint32_t *data_flags,
                           nghttp2_data_source *source, void *user_data) {
        Stream *stream = source->ptr;
        size_t len = stream->outbox.len < length ? stream->outbox.len : length;

        (void) http2, (void) stream_id, (void) buf, (void) user_data;

        if (len == 0 && !stream->local_ended) {
                stream->data_deferred = true;
                return NGHTTP2_ERR_DEFERRED;
        }

        *data_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
        if (len == stream->outbox.len && stream->local_ended) {
                *data_flags |= NGHTTP2_DATA_FLAG_EOF;
                if (stream->session->role->trailers) {
                        *data_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
                        if (stream->session->role->trailers(stream) < 0)
                                return NGHTTP2_ERR_CALLBACK_FAILURE;
                }
        }

        return (ssize_t) len;
}

nghttp2_data_provider stream_data_provider(Stream *stream) {
        return (nghttp2_data_provider){ .source.ptr = stream, .read_callback = read_outbox };
}
