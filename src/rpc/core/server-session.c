/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: gRPC as a server speaks it: requests checked and turned into calls, answers, statuses and trailers.
 * What does not: HTTP/2 (session.c), messages and windows (stream.c), sockets (server.c). */

#include "rpc/core/server-session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "rpc/core/call-verbs.h"
#include "rpc/core/encoding.h"
#include "rpc/core/fields.h"
#include "rpc/core/grpc-text.h"
#include "rpc/core/gzip.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/core/status-details.h"

#define DOMAIN "hutch" /* of the reasons of errors */

struct ServerSession {
        Session base;
        const ServerHandlers *handlers;
        const Peer *peer;
};

/* A call that is a stream of HTTP/2. */
typedef struct ServerCall {
        Stream stream; /* first: a call is its stream */
        Call base;

        /* The request's fields. */
        char *path;
        const Method *method; /* NULL: not served */
        Metadata metadata;
        uint64_t timeout; /* UINT64_MAX: none */
        Encoding encoding;
        bool accepts_gzip;
        bool is_post;
        bool is_grpc; /* by its content type */
        HutchError refusal;

        bool fields_complete;
        bool begun;

        Message request; /* of a method whose clients do not stream */
        bool has_request;
        Message *delivered;  /* in the event `message`, until somebody takes it */
        bool was_compressed; /* the message that came last */
        bool half_close_told;

        Metadata initial;
        Metadata trailing;
        bool compresses;    /* messages from now on */
        bool declared_gzip; /* in the headers that were sent */
        bool headers_sent;  /* or given to nghttp2 */
        bool finished;      /* the status is known */
        StatusCode status;
        char *status_message;
        uint8_t *details;
        size_t details_len;
} ServerCall;

static ServerSession *session_of(const ServerCall *call) {
        return (ServerSession *) call->stream.session;
}

static ServerCall *stream_call(Stream *stream) {
        return (ServerCall *) stream;
}

static ServerCall *server_call(const Call *base) {
        return (ServerCall *) (void *) ((char *) base - offsetof(ServerCall, base));
}

static const CallVerbs server_call_verbs;

static Stream *call_open(Session *session) {
        ServerCall *call = try_new0(ServerCall, 1);

        if (!call)
                return NULL;

        stream_init(&call->stream, session);
        call->base = (Call){
                .verbs = &server_call_verbs,
                .handlers = session_of(call)->handlers,
                .metadata = &call->metadata,
                .peer = session_of(call)->peer,
        };
        call->timeout = UINT64_MAX;
        call->metadata.bytes_max = session->limits.max_header_list;
        call->initial.bytes_max = session->limits.max_header_list;
        call->trailing.bytes_max = session->limits.max_header_list;
        return &call->stream;
}

/* The request stays in memory until its end has come and it was handled, and is counted for so long. */
static void keep_request(ServerCall *call, Message *message) {
        call->has_request = true;
        call->request = *message;
        *message = (Message){};
        session_take_bytes(call->stream.session, call->request.len);
}

static void drop_request(ServerCall *call) {
        session_free_bytes(call->stream.session, call->request.len);
        message_clear(&call->request);
}

static void call_free(ServerCall *call) {
        drop_request(call);
        stream_done(&call->stream);
        free(call->path);
        metadata_clear(&call->metadata);
        metadata_clear(&call->initial);
        metadata_clear(&call->trailing);
        error_clear(&call->refusal);
        free(call->status_message);
        free(call->details);
        free(call);
}

/* The first thing that is wrong with a request is told; the rest of it is read and ignored. */
__attribute__((format(printf, 4, 5))) static void refuse(ServerCall *call, StatusCode code, const char *reason,
                                                         const char *format, ...) {
        char message[256];
        va_list args;

        if (call->refusal.error != 0)
                return;

        va_start(args, format);
        vsnprintf(message, sizeof(message), format, args);
        va_end(args);
        (void) error_set_code(&call->refusal, code, -EINVAL, reason, "%s", message);
}

static bool field_is(const char *name, size_t len, const char *expected) {
        return len == strlen(expected) && memcmp(name, expected, len) == 0;
}

static int set_path(ServerCall *call, const char *value, size_t len) {
        call->base.path = call->path = strndup(value, len);
        if (!call->path)
                return -ENOMEM;

        call->method = method_table_find(session_of(call)->handlers->methods, value, len);
        return 0;
}

static void set_timeout(ServerCall *call, const char *value, size_t len) {
        if (grpc_timeout_parse(value, len, &call->timeout) < 0)
                refuse(call, STATUS_INTERNAL, "TIMEOUT_MALFORMED", "grpc-timeout is malformed");
}

static int add_metadata(ServerCall *call, const char *name, size_t name_len, const char *value, size_t value_len) {
        int r = metadata_add_wire(&call->metadata, name, name_len, value, value_len);

        if (r == -EINVAL)
                refuse(call, STATUS_INTERNAL, "METADATA_MALFORMED", "a -bin value of the metadata is not base64");
        else if (r == -E2BIG)
                refuse(call, STATUS_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", "the metadata is too large");
        return r == -ENOMEM ? r : 0;
}

static int call_field(Stream *stream, const char *name, size_t name_len, const char *value, size_t value_len) {
        ServerCall *call = stream_call(stream);

        if (call->fields_complete)
                return 0; /* trailers of a request mean nothing */

        if (field_is(name, name_len, ":path"))
                return set_path(call, value, value_len);
        if (field_is(name, name_len, ":method")) {
                call->is_post = field_is(value, value_len, "POST");
        } else if (field_is(name, name_len, "content-type")) {
                call->is_grpc = grpc_content_type_check(value, value_len) == 0;
        } else if (field_is(name, name_len, "grpc-timeout")) {
                set_timeout(call, value, value_len);
        } else if (field_is(name, name_len, "grpc-encoding")) {
                call->encoding = encoding_parse(value, value_len);
        } else if (field_is(name, name_len, "grpc-accept-encoding")) {
                call->accepts_gzip |= encoding_accepts_gzip(value, value_len);
        } else {
                return add_metadata(call, name, name_len, value, value_len);
        }

        return 0;
}

static void call_fields_end(Stream *stream) {
        stream_call(stream)->fields_complete = true;
}

/* Gives header fields, and with @data what follows them, to nghttp2. */
static int submit_response(ServerCall *call, Fields *fields, bool data) {
        nghttp2_data_provider provider = stream_data_provider(&call->stream);

        if (fields->failed)
                return -ENOMEM;
        if (!call->stream.closed && nghttp2_submit_response(call->stream.session->http2, call->stream.id, fields->list,
                                                            fields->n, data ? &provider : NULL) != 0)
                return -ENOMEM;

        call->headers_sent = true;
        session_touch(call->stream.session);
        return 0;
}

static int send_headers(ServerCall *call) {
        _cleanup_(fields_clear) Fields fields = {};

        fields_add(&fields, ":status", "200");
        fields_add(&fields, "content-type", "application/grpc");
        if (call->compresses) {
                call->declared_gzip = true;
                fields_add(&fields, "grpc-encoding", "gzip");
        }
        fields_add_metadata(&fields, &call->initial);
        return submit_response(call, &fields, true);
}

static void add_status(ServerCall *call, Fields *fields, char number[static 8]) {
        snprintf(number, 8, "%u", (unsigned) call->status);
        fields_add(fields, "grpc-status", number);
        if (call->status_message)
                fields_add_message(fields, "grpc-message", call->status_message);
        if (call->details)
                fields_add_binary(fields, "grpc-status-details-bin", call->details, call->details_len);
        if (call->encoding == ENCODING_UNKNOWN)
                fields_add(fields, "grpc-accept-encoding", ENCODINGS);
        fields_add_metadata(fields, &call->trailing);
}

/* A status without messages before it: one block of fields. */
static int send_status_only(ServerCall *call) {
        _cleanup_(fields_clear) Fields fields = {};
        char number[8];

        fields_add(&fields, ":status", "200");
        fields_add(&fields, "content-type", "application/grpc");
        fields_add_metadata(&fields, &call->initial);
        add_status(call, &fields, number);
        return submit_response(call, &fields, false);
}

static int call_trailers(Stream *stream) {
        _cleanup_(fields_clear) Fields fields = {};
        ServerCall *call = stream_call(stream);
        char number[8];

        add_status(call, &fields, number);
        if (fields.failed)
                return -ENOMEM;
        return nghttp2_submit_trailer(stream->session->http2, stream->id, fields.list, fields.n) == 0 ? 0 : -ENOMEM;
}

/* Answers a request that is HTTP but not gRPC. */
static int send_http_error(ServerCall *call, const char *http_status) {
        _cleanup_(fields_clear) Fields fields = {};

        fields_add(&fields, ":status", http_status);
        if (!call->is_post)
                fields_add(&fields, "allow", "POST");
        return submit_response(call, &fields, false);
}

static void server_finish(Call *base, StatusCode status, const char *message, const void *details, size_t details_len) {
        ServerCall *call = server_call(base);
        int r = 0;

        if (call->finished)
                return;

        call->finished = true;
        call->status = status;
        if (message && *message)
                call->status_message = strdup(message); /* without it the status still tells */
        if (details_len > 0) {
                call->details = malloc(details_len);
                if (call->details) {
                        memcpy(call->details, details, details_len);
                        call->details_len = details_len;
                }
        }

        stream_discard(&call->stream);
        if (call->headers_sent)
                stream_end(&call->stream);
        else
                r = send_status_only(call);
        if (r < 0)
                stream_reset(&call->stream, NGHTTP2_INTERNAL_ERROR);
}

/* Sees to it that a message can follow. */
static int begin_message(ServerCall *call) {
        if (call->finished || call->base.told || call->stream.closed)
                return -EPIPE;

        return call->headers_sent ? 0 : send_headers(call);
}

static int send_compressed(ServerCall *call, const void *message, size_t len) {
        uint8_t *compressed;
        int r = gzip_compress(message, len, &compressed, &len);

        return r < 0 ? r : stream_send_taken(&call->stream, compressed, len, true);
}

static int server_send(Call *base, const void *message, size_t len) {
        ServerCall *call = server_call(base);
        int r = begin_message(call);

        if (r < 0)
                return r;
        if (call->compresses && call->declared_gzip)
                return send_compressed(call, message, len);
        return stream_send(&call->stream, message, len, false);
}

static int server_send_taken(Call *base, uint8_t *message, size_t len) {
        ServerCall *call = server_call(base);
        _cleanup_free_ uint8_t *taken = message;
        int r = begin_message(call);

        if (r < 0)
                return r;
        if (call->compresses && call->declared_gzip)
                return send_compressed(call, message, len);
        return stream_send_taken(&call->stream, TAKE_PTR(taken), len, false);
}

static void call_expired(Stream *stream) {
        ServerCall *call = stream_call(stream);

        if (call->finished)
                return;

        call_fail_with(&call->base, STATUS_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED",
                       "the deadline of the call has passed");
        call_tell_end(&call->base, call->status, CALL_END_DEADLINE);
}

/* Finds out whether the request can be served at all. Returns the HTTP status that says no, or NULL. */
static const char *check_request(ServerCall *call) {
        size_t max_header_list = call->stream.session->limits.max_header_list;

        if (!call->is_post)
                return "405";
        if (!call->is_grpc)
                return "415";

        if (call->stream.header_list > max_header_list && call->refusal.error == 0) {
                refuse(call, STATUS_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE",
                       "the header fields have more than %zu bytes", max_header_list);
                error_add_pair(&call->refusal, "limit", "header_bytes");
                error_add_pair(&call->refusal, "value", "%zu", max_header_list);
        }
        if (call->encoding == ENCODING_UNKNOWN)
                refuse(call, STATUS_UNIMPLEMENTED, "COMPRESSION_UNKNOWN",
                       "messages may be compressed by gzip or not at all");
        if (!call->method)
                refuse(call, STATUS_UNIMPLEMENTED, "METHOD_UNIMPLEMENTED", "no method %.200s is served here",
                       call->path);
        return NULL;
}

/* Hands the call to its method. */
static void start(ServerCall *call) {
        if (call->method->start) {
                call->method->start(&call->base, call->method->context);
                return;
        }

        /* One message, and the end behind it. */
        stream_want(&call->stream);
        stream_want(&call->stream);
}

static void begin(ServerCall *call) {
        const char *http_error = check_request(call);
        Session *session = call->stream.session;
        int r;

        call->begun = true;
        if (http_error) {
                call->finished = true;
                stream_discard(&call->stream);
                if (send_http_error(call, http_error) < 0)
                        stream_reset(&call->stream, NGHTTP2_INTERNAL_ERROR);
                return;
        }
        r = call->refusal.error != 0 ? -EINVAL : call_run_interceptors(&call->base, &call->refusal);
        if (r < 0) {
                call_fail(&call->base, &call->refusal);
                return;
        }

        if (call->timeout < UINT64_MAX - session->now &&
            stream_set_deadline(&call->stream, session->now + call->timeout) < 0) {
                call_fail_with(&call->base, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory");
                return;
        }
        if (r == 0)
                start(call);
}

static void fail_reading(ServerCall *call, int r) {
        const StreamError error = stream_explain(&call->stream, r);
        const HutchError err = { .code = error.status, .message = (char *) error.text };
        char value[24];
        const StatusPair limit[] = { { "limit", "max_request_bytes" }, { "value", value } };

        snprintf(value, sizeof(value), "%zu", call->stream.session->limits.max_message);
        call_fail_details(&call->base, &err,
                          &(StatusDetails){
                                  .reason = error.reason,
                                  .domain = DOMAIN,
                                  .pairs = limit,
                                  .n_pairs = r == -EMSGSIZE ? 2 : 0,
                          });
}

static void deliver(Stream *stream, Message *message) {
        ServerCall *call = stream_call(stream);
        bool compressed = message->compressed;
        int r = encoding_unpack(call->encoding, message, stream->session->limits.max_message);

        call->was_compressed = compressed;
        if (r < 0) {
                fail_reading(call, r);
        } else if (call->method->start) {
                call->delivered = message;
                if (call->base.events && call->base.events->message)
                        call->base.events->message(&call->base, message->data, message->len);
                call->delivered = NULL;
        } else if (call->has_request) {
                call_fail_with(&call->base, STATUS_UNIMPLEMENTED, "METHOD_UNIMPLEMENTED",
                               "the method takes one message, and more came");
        } else {
                keep_request(call, message);
        }
}

/* All messages of the request were handed out. */
static void deliver_end(ServerCall *call) {
        call->half_close_told = true;

        if (call->method->start) {
                if (call->base.events && call->base.events->half_closed)
                        call->base.events->half_closed(&call->base);
        } else if (call->has_request) {
                call->method->handle(&call->base, call->request.data, call->request.len, call->method->context);
                drop_request(call);
        } else {
                call_fail_with(&call->base, STATUS_UNIMPLEMENTED, "METHOD_UNIMPLEMENTED",
                               "the method takes one message, and none came");
        }
}

static void call_dispatch(Stream *stream) {
        ServerCall *call = stream_call(stream);

        if (stream->closed) {
                if (call->finished && stream->close_code == NGHTTP2_NO_ERROR)
                        call_tell_end(&call->base, call->status, CALL_END_FINISHED);
                else
                        call_tell_end(&call->base, call->status, stream->lost ? CALL_END_LOST : CALL_END_CANCELLED);
                call_free(call);
                return;
        }

        if (!call->fields_complete)
                return;
        if (!call->begun)
                begin(call);
        if (call->base.waits)
                return;

        if (!stream_hand_out(stream, deliver))
                return;

        if (!call->finished && stream->read_error < 0)
                fail_reading(call, stream->read_error);
        if (!call->finished && !call->half_close_told && stream_is_drained(stream))
                deliver_end(call);
        if (!call->finished && stream->has_room) {
                stream->has_room = false;
                if (call->base.events && call->base.events->writable)
                        call->base.events->writable(&call->base);
        }
}

/* ---- The verbs ---- */

static uint64_t server_deadline(const Call *base) {
        return server_call(base)->stream.deadline;
}

static void server_read(Call *base) {
        stream_want(&server_call(base)->stream);
}

static uint8_t *server_take_message(Call *base) {
        return message_take(TAKE_PTR(server_call(base)->delivered));
}

static bool server_message_was_compressed(const Call *base) {
        return server_call(base)->was_compressed;
}

static Metadata *server_initial_metadata(Call *base) {
        return &server_call(base)->initial;
}

static Metadata *server_trailing_metadata(Call *base) {
        return &server_call(base)->trailing;
}

static void server_set_compression(Call *base, bool compress) {
        ServerCall *call = server_call(base);

        call->compresses = compress && call->accepts_gzip;
}

static bool server_is_writable(const Call *base) {
        return stream_is_writable(&server_call(base)->stream);
}

static void server_passed(Call *base) {
        ServerCall *call = server_call(base);

        start(call);
        session_ready(call->stream.session, &call->stream); /* what came meanwhile */
}

static const CallVerbs server_call_verbs = {
        .deadline = server_deadline,
        .read = server_read,
        .take_message = server_take_message,
        .message_was_compressed = server_message_was_compressed,
        .initial_metadata = server_initial_metadata,
        .trailing_metadata = server_trailing_metadata,
        .set_compression = server_set_compression,
        .send = server_send,
        .send_taken = server_send_taken,
        .is_writable = server_is_writable,
        .finish = server_finish,
        .passed = server_passed,
};

/* ---- The session ---- */

static const SessionRole server_role = {
        .server = true,
        .open = call_open,
        .field = call_field,
        .fields_end = call_fields_end,
        .trailers = call_trailers,
        .dispatch = call_dispatch,
        .expired = call_expired,
};

ServerSession *server_session_new(const ServerHandlers *handlers, const SessionLimits *limits, SessionBudget *budget,
                                  const Peer *peer, uint64_t now) {
        _cleanup_(server_session_freep) ServerSession *session = try_new0(ServerSession, 1);

        if (!session)
                return NULL;

        session->handlers = handlers;
        session->peer = peer;
        session->base.budget = budget;
        if (session_init(&session->base, &server_role, limits, now) < 0)
                return NULL;

        return TAKE_PTR(session);
}

ServerSession *server_session_free(ServerSession *session) {
        if (!session)
                return NULL;

        session_done(&session->base);
        free(session);
        return NULL;
}

Session *server_session_base(ServerSession *session) {
        return &session->base;
}
