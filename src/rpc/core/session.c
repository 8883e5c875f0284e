/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: nghttp2 and the rules of a connection: windows, floods, pings, drain. What does not: what streams
 * mean (server-session.c, client-session.c), and bytes on wires (socket.c). */

#include "rpc/core/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

const SessionLimits session_limits_default = {
        .max_streams = 1000,
        .stream_window = 1 << 20,
        .connection_window = 16 << 20,
        .max_message = 4 << 20,
        .max_header_list = 64 << 10,
        .max_held = 16 << 20,
        .max_buffered = 64 << 20,
        .high_water = 1 << 20,
        .max_idle_frames = 1000,
        .min_ping_interval = 5 * NSEC_PER_SEC,
};

/* How many idle frames a useful one makes up for. */
#define IDLE_FRAMES_PER_USEFUL 10

/* Pings that may come too early before the connection is ended. */
#define PING_STRIKES_MAX 2

/* Cancelling is legal, and some callers cancel much; nobody needs more than this. */
#define RESET_BURST 2000
#define RESETS_PER_SECOND 200

/* Resets of ours that the peer provokes by breaking the rules of a stream cost as much as its own, and nobody needs
 * them. */
#define FAULT_BURST 100
#define FAULTS_PER_SECOND 10

#define FIELD_OVERHEAD 32 /* what HTTP/2 adds to each field's bytes */

static const uint8_t drain_ping[8] = "hutch:dr";
static const uint8_t keepalive_ping[8] = "hutch:ka";

void session_touch(Session *session) {
        if (session->touched)
                session->touched(session);
}

void session_must(Session *session, int result) {
        if (!nghttp2_is_fatal(result))
                return;

        session->broken = true;
        session_touch(session);
}

void session_ready(Session *session, Stream *stream) {
        session_touch(session);
        if (stream->ready)
                return;

        stream->ready = true;
        stream->ready_next = NULL;
        stream->ready_prev = session->ready_last;
        *(session->ready_last ? &session->ready_last->ready_next : &session->ready_first) = stream;
        session->ready_last = stream;
}

/* Lets the peer send @bytes more on the connection, as long as not too much waits for readers. */
static void open_connection_window(Session *session, size_t bytes) {
        session->withheld += bytes;
        if (session->withheld == 0 || session->held > session->limits.max_held)
                return;

        session_must(session, nghttp2_session_consume_connection(session->http2, session->withheld));
        session->withheld = 0;
}

void session_take_bytes(Session *session, size_t bytes) {
        session->buffered += bytes;
        if (session->budget)
                session->budget->buffered += bytes;
}

void session_hold(Session *session, size_t bytes) {
        session->held += bytes;
        session_take_bytes(session, bytes);
        open_connection_window(session, bytes);
}

void session_unhold(Session *session, size_t bytes) {
        session->held -= bytes;
        open_connection_window(session, 0);
}

void session_free_bytes(Session *session, size_t bytes) {
        session->buffered -= bytes;
        if (session->budget)
                session->budget->buffered -= bytes;
}

void session_pass(Session *session, size_t bytes) {
        open_connection_window(session, bytes);
}

bool session_is_overfull(const Session *session) {
        return session->buffered > session->limits.max_buffered ||
               (session->budget && session->budget->buffered > session->budget->max_buffered);
}

void session_queue_bytes(Session *session, size_t bytes) {
        if (session->budget)
                session->budget->queued += bytes;
}

void session_unqueue_bytes(Session *session, size_t bytes) {
        if (session->budget)
                session->budget->queued -= bytes;
}

bool session_is_slowed(const Session *session) {
        return session->budget && session->budget->queued > session->budget->max_queued / 4;
}

bool session_is_choked(const Session *session) {
        return session->budget && session->budget->queued > session->budget->max_queued;
}

void session_goaway(Session *session, uint32_t code, const char *debug) {
        if (session->broken)
                return;

        session->broken = true;
        (void) nghttp2_submit_goaway(session->http2, NGHTTP2_FLAG_NONE,
                                     nghttp2_session_get_last_proc_stream_id(session->http2), code,
                                     (const uint8_t *) debug, strlen(debug));
        session_touch(session);
}

/* Counts a frame that asks for work and brings nothing. */
static void count_idle_frame(Session *session) {
        if (++session->idle_frames > session->limits.max_idle_frames)
                session_goaway(session, NGHTTP2_ENHANCE_YOUR_CALM, "too many frames without use");
}

static void count_useful_frame(Session *session) {
        session->idle_frames -=
                session->idle_frames < IDLE_FRAMES_PER_USEFUL ? session->idle_frames : IDLE_FRAMES_PER_USEFUL;
}

/* Pings may come as answers to what is sent, to measure the connection; otherwise only now and then. */
static void police_ping(Session *session) {
        bool early = session->last_ping > 0 && session->now - session->last_ping < session->limits.min_ping_interval;

        session->last_ping = session->now;
        if (early && session->role->server && ++session->ping_strikes > PING_STRIKES_MAX)
                session_goaway(session, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
}

static void on_ping(Session *session, const nghttp2_frame *frame) {
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK)) {
                count_idle_frame(session);
                police_ping(session);
                return;
        }

        if (session->draining && !session->drain_complete &&
            memcmp(frame->ping.opaque_data, drain_ping, sizeof(drain_ping)) == 0) {
                session->drain_complete = true;
                session_must(session, nghttp2_submit_goaway(session->http2, NGHTTP2_FLAG_NONE,
                                                            nghttp2_session_get_last_proc_stream_id(session->http2),
                                                            NGHTTP2_NO_ERROR, NULL, 0));
        }
}

static Stream *find_stream(Session *session, int32_t id) {
        return nghttp2_session_get_stream_user_data(session->http2, id);
}

static void on_end_stream(Session *session, Stream *stream) {
        stream->remote_ended = true;
        if (!message_reader_is_between(&stream->reader) && stream->read_error == 0 && !stream->discards)
                stream->read_error = -EBADMSG;
        session_ready(session, stream);
}

/* Tells whether all sessions together have as many streams as they may. */
static bool is_crowded(const Session *session) {
        return session->budget && session->budget->streams >= session->budget->max_streams;
}

static int on_begin_headers(nghttp2_session *http2, const nghttp2_frame *frame, void *user) {
        Session *session = user;
        Stream *stream = find_stream(session, frame->hd.stream_id);

        if (stream) {
                stream->header_list = 0;
                return 0;
        }
        if (!session->role->server || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
                return 0;

        count_useful_frame(session);
        if (session->broken || session->drain_complete || is_crowded(session)) {
                session_must(session, nghttp2_submit_rst_stream(http2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                                                NGHTTP2_REFUSED_STREAM));
                return 0;
        }

        stream = session->role->open(session);
        if (!stream)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;

        stream->id = frame->hd.stream_id;
        nghttp2_session_set_stream_user_data(http2, stream->id, stream);
        return 0;
}

static int on_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user) {
        Stream *stream = find_stream(user, frame->hd.stream_id);

        (void) http2, (void) flags;
        if (!stream)
                return 0;

        /* The owner learns from header_list that the block was cut. */
        stream->header_list += name_len + value_len + FIELD_OVERHEAD;
        if (stream->header_list > stream->session->limits.max_header_list)
                return 0;

        if (stream->session->role->field(stream, (const char *) name, name_len, (const char *) value, value_len) < 0)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        return 0;
}

static int on_frame_recv(nghttp2_session *http2, const nghttp2_frame *frame, void *user) {
        Session *session = user;
        Stream *stream = frame->hd.stream_id > 0 ? find_stream(session, frame->hd.stream_id) : NULL;
        bool end_stream = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

        (void) http2;
        switch (frame->hd.type) {
        case NGHTTP2_HEADERS:
                if (!stream)
                        break;
                session->role->fields_end(stream);
                if (end_stream)
                        on_end_stream(session, stream);
                session_ready(session, stream);
                break;
        case NGHTTP2_DATA:
                if (frame->hd.length == frame->data.padlen && !end_stream)
                        count_idle_frame(session);
                else
                        count_useful_frame(session);
                if (stream && end_stream)
                        on_end_stream(session, stream);
                break;
        case NGHTTP2_PING:
                on_ping(session, frame);
                break;
        case NGHTTP2_GOAWAY:
                session->peer_draining = true;
                break;
        case NGHTTP2_RST_STREAM:
                break; /* nghttp2 limits their rate */
        default:
                count_idle_frame(session);
        }

        return 0;
}

static int on_data_chunk(nghttp2_session *http2, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t len,
                         void *user) {
        Stream *stream = find_stream(user, stream_id);

        (void) http2, (void) flags;
        if (stream)
                stream_receive(stream, data, len);
        else
                session_pass(user, len);
        return 0;
}

static int on_invalid_frame(nghttp2_session *http2, const nghttp2_frame *frame, int code, void *user) {
        (void) http2, (void) frame, (void) code;
        count_idle_frame(user);
        return 0;
}

/* Also for a request that could not be sent any more: nghttp2 then says that it was refused. */
static int on_stream_close(nghttp2_session *http2, int32_t stream_id, uint32_t code, void *user) {
        Stream *stream = find_stream(user, stream_id);

        (void) http2;
        if (!stream)
                return 0;

        stream->closed = true;
        stream->close_code = code;
        session_ready(user, stream);
        return 0;
}

/* Tells whether a stream is reset with @code because the peer made a fault. */
static bool is_fault(uint32_t code) {
        return code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_FLOW_CONTROL_ERROR || code == NGHTTP2_STREAM_CLOSED ||
               code == NGHTTP2_FRAME_SIZE_ERROR;
}

static void count_fault(Session *session) {
        const uint64_t pause = NSEC_PER_SEC / FAULTS_PER_SECOND;

        session->faults_until = (session->faults_until > session->now ? session->faults_until : session->now) + pause;
        if (session->faults_until > session->now + FAULT_BURST * pause)
                session_goaway(session, NGHTTP2_ENHANCE_YOUR_CALM, "too many faults");
}

/* Something useful went out: pings in answer to it are welcome. */
static int on_frame_send(nghttp2_session *http2, const nghttp2_frame *frame, void *user) {
        Session *session = user;
        Stream *stream;

        if (frame->hd.type == NGHTTP2_RST_STREAM && is_fault(frame->rst_stream.error_code))
                count_fault(session);
        if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
                return 0;

        session->last_ping = 0;
        session->ping_strikes = 0;
        count_useful_frame(session);

        /* An answer that is complete before the request: nothing more of it is wanted. */
        stream = find_stream(session, frame->hd.stream_id);
        if (session->role->server && stream && !stream->remote_ended && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
                session_must(session,
                             nghttp2_submit_rst_stream(http2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR));
        return 0;
}

/* Puts a copy into the output's buffer, where there is room for it. */
static void put_copy(SessionOutput *output, const uint8_t *bytes, size_t len) {
        struct iovec *last = output->n_parts > 0 ? &output->parts[output->n_parts - 1] : NULL;
        uint8_t *to = output->buffer + output->used;

        memcpy(to, bytes, len);
        if (!last || (uint8_t *) last->iov_base + last->iov_len != to) {
                last = &output->parts[output->n_parts++];
                *last = (struct iovec){ .iov_base = to };
        }
        last->iov_len += len;
        output->used += len;
        output->len += len;
}

/* Puts the first @len bytes of @queue there: large pieces are not copied, as long as there is a part for them and for
 * a copy of what follows. */
static void put_queued(SessionOutput *output, ByteQueue *queue, size_t len) {
        while (len > 0) {
                size_t n;
                const uint8_t *bytes = byte_queue_peek(queue, &n);

                n = n < len ? n : len;
                len -= n;
                if (output->copies || n < BYTE_QUEUE_LEND_MIN || output->n_parts + 2 > SESSION_PARTS_MAX) {
                        put_copy(output, bytes, n);
                } else {
                        output->parts[output->n_parts++] =
                                (struct iovec){ .iov_base = (uint8_t *) bytes, .iov_len = n };
                        output->len += n;
                }
                byte_queue_lend(queue, n, &output->spent);
        }
}

static ssize_t on_send(nghttp2_session *http2, const uint8_t *data, size_t len, int flags, void *user) {
        SessionOutput *output = ((Session *) user)->output;
        size_t room = output->size - output->len;

        (void) http2, (void) flags;
        if (room == 0)
                return NGHTTP2_ERR_WOULDBLOCK;

        len = len < room ? len : room;
        put_copy(output, data, len);
        return (ssize_t) len;
}

/* Sends a DATA frame whole; nothing of ours is padded. */
static int on_send_data(nghttp2_session *http2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                        nghttp2_data_source *source, void *user) {
        enum { HEAD_LEN = 9 };
        Session *session = user;
        Stream *stream = source->ptr;

        (void) http2, (void) frame;
        if (session->output->size - session->output->len < HEAD_LEN + len)
                return NGHTTP2_ERR_WOULDBLOCK;

        put_copy(session->output, head, HEAD_LEN);
        put_queued(session->output, &stream->outbox, len);
        stream_sent(stream, len);
        return 0;
}

/* Frames as large as the peer takes them, as long as several fit into a buffer. No larger than what there is to send:
 * nghttp2 keeps a buffer of the largest that it was told, and most connections never send much. */
static ssize_t data_frame_length(nghttp2_session *http2, uint8_t frame_type, int32_t stream_id, int32_t session_window,
                                 int32_t stream_window, uint32_t peer_max_frame, void *user) {
        const SessionOutput *output = ((const Session *) user)->output;
        const Stream *stream = nghttp2_session_get_stream_user_data(http2, stream_id);
        ssize_t len = (ssize_t) (output->size < SESSION_BUFFER_SIZE ? output->size : SESSION_BUFFER_SIZE) - 9;

        (void) frame_type;
        if (stream && len > (ssize_t) stream->outbox.len)
                len = stream->outbox.len > 0 ? (ssize_t) stream->outbox.len : 1;
        if (len > session_window)
                len = session_window;
        if (len > stream_window)
                len = stream_window;
        return len > (ssize_t) peer_max_frame ? (ssize_t) peer_max_frame : len;
}

static nghttp2_session_callbacks *make_callbacks(void) {
        nghttp2_session_callbacks *callbacks;

        if (nghttp2_session_callbacks_new(&callbacks) != 0)
                return NULL;

        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
        nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
        nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
        nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, data_frame_length);
        return callbacks;
}

static void callbacks_freep(nghttp2_session_callbacks **callbacks) {
        nghttp2_session_callbacks_del(*callbacks);
}

static void option_freep(nghttp2_option **option) {
        nghttp2_option_del(*option);
}

static int make_http2(Session *session) {
        _cleanup_(callbacks_freep) nghttp2_session_callbacks *callbacks = make_callbacks();
        _cleanup_(option_freep) nghttp2_option *option = NULL;
        int r;

        if (!callbacks || nghttp2_option_new(&option) != 0)
                return -ENOMEM;

        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESETS_PER_SECOND);

        r = session->role->server ? nghttp2_session_server_new2(&session->http2, callbacks, session, option)
                                  : nghttp2_session_client_new2(&session->http2, callbacks, session, option);
        return r == 0 ? 0 : -ENOMEM;
}

static int submit_settings(Session *session) {
        const uint32_t window = session->limits.stream_window, fields = (uint32_t) session->limits.max_header_list;
        const nghttp2_settings_entry of_server[] = {
                { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window },
                { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, fields },
                { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, session->limits.max_streams },
                { NGHTTP2_SETTINGS_MAX_FRAME_SIZE, SESSION_BUFFER_SIZE - 9 }, /* large messages in few frames */
        };
        const nghttp2_settings_entry of_client[] = {
                { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window },
                { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, fields },
                { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
                { NGHTTP2_SETTINGS_MAX_FRAME_SIZE, SESSION_BUFFER_SIZE - 9 }, /* the same */
        };

        if (nghttp2_submit_settings(session->http2, NGHTTP2_FLAG_NONE, session->role->server ? of_server : of_client,
                                    4) != 0)
                return -ENOMEM;
        if (nghttp2_session_set_local_window_size(session->http2, NGHTTP2_FLAG_NONE, 0,
                                                  (int32_t) session->limits.connection_window) != 0)
                return -ENOMEM;
        return 0;
}

int session_init(Session *session, const SessionRole *role, const SessionLimits *limits, uint64_t now) {
        int r;

        session->role = role;
        session->limits = *limits;
        session->now = session->last_received = now;

        r = make_http2(session);
        if (r < 0)
                return r;
        return submit_settings(session);
}

void session_done(Session *session) {
        while (session->streams) {
                Stream *stream = session->streams;

                if (!stream->closed) {
                        stream->closed = stream->lost = true;
                        stream->close_code = NGHTTP2_INTERNAL_ERROR;
                }
                session->dead = true;
                session->role->dispatch(stream);
        }

        deadlines_clear(&session->deadlines);
        nghttp2_session_del(session->http2);
}

int session_receive(Session *session, const uint8_t *bytes, size_t len, uint64_t now) {
        ssize_t n;

        session->now = session->last_received = now;
        session->keepalive_sent_at = 0;
        if (session->broken)
                return 0;

        n = nghttp2_session_mem_recv(session->http2, bytes, len);
        if (n >= 0)
                return 0;

        session_goaway(session,
                       n == NGHTTP2_ERR_FLOODED || n == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS ? NGHTTP2_ENHANCE_YOUR_CALM
                                                                                           : NGHTTP2_PROTOCOL_ERROR,
                       nghttp2_strerror((int) n));
        return n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
}

ssize_t session_gather(Session *session, SessionOutput *output) {
        int r;

        session->output = output;
        r = nghttp2_session_send(session->http2);
        session->output = NULL;
        if (r != 0) {
                session->broken = true;
                return -ENOMEM;
        }

        return (ssize_t) output->len;
}

void session_output_clear(SessionOutput *output) {
        output->spent = byte_chunks_free(output->spent);
}

ssize_t session_produce(Session *session, uint8_t *buffer, size_t size) {
        _cleanup_(session_output_clear) SessionOutput output = { .size = size, .copies = true };

        output.buffer = buffer;
        return session_gather(session, &output);
}

bool session_wants_produce(const Session *session) {
        return nghttp2_session_want_write(session->http2);
}

bool session_dispatch(Session *session, size_t budget) {
        while (session->ready_first && budget-- > 0) {
                Stream *stream = session->ready_first;

                session->ready_first = stream->ready_next;
                *(stream->ready_next ? &stream->ready_next->ready_prev : &session->ready_last) = NULL;
                stream->ready = false;
                session->role->dispatch(stream);
        }

        return session->ready_first;
}

/* When the silence must be broken, or was too long. */
static uint64_t keepalive_deadline(const Session *session) {
        if (session->limits.keepalive_interval == 0)
                return DEADLINE_NONE;
        if (session->keepalive_sent_at > 0)
                return session->keepalive_sent_at + session->limits.keepalive_timeout;

        return session->last_received + session->limits.keepalive_interval;
}

uint64_t session_deadline(const Session *session) {
        const Stream *first = deadlines_first(&session->deadlines);
        uint64_t keepalive = keepalive_deadline(session);

        return first && first->deadline < keepalive ? first->deadline : keepalive;
}

void session_tick(Session *session, uint64_t now) {
        Stream *stream;

        session->now = now;
        while ((stream = deadlines_first(&session->deadlines)) && stream->deadline <= now) {
                deadlines_remove(&session->deadlines, stream);
                session->role->expired(stream);
        }

        if (keepalive_deadline(session) > now)
                return;
        if (session->keepalive_sent_at > 0) {
                session->dead = true;
                return;
        }
        session->keepalive_sent_at = now;
        session_must(session, nghttp2_submit_ping(session->http2, NGHTTP2_FLAG_NONE, keepalive_ping));
}

bool session_is_finished(const Session *session) {
        if (session->dead || session->broken)
                return true;
        /* nghttp2 has ended it, whatever streams there are, or both sides have said goodbye. */
        if (!nghttp2_session_want_read(session->http2) && !nghttp2_session_want_write(session->http2))
                return true;

        return session->drain_complete && session->n_streams == 0;
}

int session_drain(Session *session) {
        if (session->draining)
                return 0;

        session->draining = true;
        if (nghttp2_submit_shutdown_notice(session->http2) != 0 ||
            nghttp2_submit_ping(session->http2, NGHTTP2_FLAG_NONE, drain_ping) != 0)
                return -ENOMEM;
        session_touch(session);
        return 0;
}
