/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: gRPC as a client speaks it: requests, answers, and which status a call ends with whatever happens.
 * What does not: HTTP/2 (session.c), messages and windows (stream.c), connecting, retrying (channel.c). */

#include "rpc/core/client-session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/core/base64.h"
#include "rpc/core/encoding.h"
#include "rpc/core/fields.h"
#include "rpc/core/grpc-text.h"
#include "rpc/core/gzip.h"
#include "rpc/core/status-details.h"

struct ClientSession {
        Session base; /* first: a session of streams is its client's */
        ClientIdentity identity;
        char lost_reason[ERROR_REASON_MAX + 1]; /* why the connection was; empty: it was not, or nobody knows */
        char *lost;
};

struct ClientCall {
        Stream stream; /* first: a call is its stream */
        const ClientEvents *events;
        void *user;
        bool declared_gzip;
        bool compresses;

        /* What the server answered. */
        unsigned http_status;
        bool is_grpc; /* by its content type */
        Encoding encoding;
        Message *delivered;  /* in the event `message`, until somebody takes it */
        bool was_compressed; /* the message that came last */
        Metadata initial;
        Metadata trailing;
        bool initial_complete;
        bool headers_told;
        bool has_status; /* grpc-status came */
        bool dismissed;  /* the server has answered and still waits for our end, which was cut short */

        /* The end. */
        bool over; /* the status is known here, whatever the server says */
        bool cut;  /* nobody waits for the rest of the answer: the connection is gone */
        bool lost; /* it ended by that */
        bool told;
        StatusCode status;
        const char *reason; /* when it is over */
        char *status_message;
        uint8_t *details;
        size_t details_len;
};

static ClientCall *call_of(Stream *stream) {
        return (ClientCall *) stream;
}

static void call_free(ClientCall *call) {
        stream_done(&call->stream);
        metadata_clear(&call->initial);
        metadata_clear(&call->trailing);
        free(call->status_message);
        free(call->details);
        free(call);
}

static bool field_is(const char *name, size_t len, const char *expected) {
        return len == strlen(expected) && memcmp(name, expected, len) == 0;
}

/* The number in @text, at most @max; @otherwise when there is none. */
static unsigned parse_number(const char *text, size_t len, unsigned max, unsigned otherwise) {
        unsigned number = 0;

        if (len == 0 || len > 4)
                return otherwise;
        for (size_t i = 0; i < len; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return otherwise;
                number = 10 * number + (unsigned) (text[i] - '0');
        }

        return number <= max ? number : otherwise;
}

static int set_status_message(ClientCall *call, const char *value, size_t len) {
        size_t size = 3 * len + 1;
        char *message = malloc(size);

        if (!message)
                return -ENOMEM;

        (void) grpc_message_decode(value, len, message, size);
        free(call->status_message);
        call->status_message = message;
        return 0;
}

/* What cannot be decoded is left out: the status tells without it. */
static int set_details(ClientCall *call, const char *value, size_t len) {
        size_t details_len = base64_decoded_len(value, len);
        uint8_t *details = malloc(details_len ? details_len : 1);

        if (!details)
                return -ENOMEM;
        if (base64_decode(value, len, details) < 0) {
                free(details);
                return 0;
        }

        free(call->details);
        call->details = details;
        call->details_len = details_len;
        return 0;
}

static int add_metadata(ClientCall *call, const char *name, size_t name_len, const char *value, size_t value_len) {
        Metadata *metadata = call->initial_complete ? &call->trailing : &call->initial;
        int r = metadata_add_wire(metadata, name, name_len, value, value_len);

        return r == -ENOMEM ? r : 0;
}

static int call_field(Stream *stream, const char *name, size_t name_len, const char *value, size_t value_len) {
        ClientCall *call = call_of(stream);

        if (field_is(name, name_len, ":status")) {
                call->http_status = parse_number(value, value_len, 999, 0);
        } else if (field_is(name, name_len, "content-type")) {
                call->is_grpc = grpc_content_type_check(value, value_len) == 0;
        } else if (field_is(name, name_len, "grpc-status")) {
                call->has_status = true;
                if (!call->over)
                        call->status = parse_number(value, value_len, STATUS_UNAUTHENTICATED, STATUS_UNKNOWN);
        } else if (field_is(name, name_len, "grpc-message")) {
                return call->over ? 0 : set_status_message(call, value, value_len);
        } else if (field_is(name, name_len, "grpc-status-details-bin")) {
                return call->over ? 0 : set_details(call, value, value_len);
        } else if (field_is(name, name_len, "grpc-encoding")) {
                call->encoding = encoding_parse(value, value_len);
        } else {
                return add_metadata(call, name, name_len, value, value_len);
        }

        return 0;
}

/* A status in the first block stands for an answer without messages: its metadata is the trailing one. */
static void call_fields_end(Stream *stream) {
        ClientCall *call = call_of(stream);

        if (call->initial_complete || (call->http_status >= 100 && call->http_status < 200))
                return;

        call->initial_complete = true;
        if (call->has_status) {
                call->headers_told = true;
                call->trailing = call->initial;
                call->initial = (Metadata){};
        }
}

/* Ends the call with a status of our own, unless it has one. */
static void set_over(ClientCall *call, StatusCode status, const char *reason, const char *message) {
        if (call->over)
                return;

        call->over = true;
        call->status = status;
        call->reason = reason;
        free(call->status_message);
        call->status_message = strdup(message); /* without it the status still tells */
        free(call->details);
        call->details = NULL;
        call->details_len = 0;

        stream_discard(&call->stream);
        session_ready(call->stream.session, &call->stream);
}

/* The same, and the server need not go on. */
static void abandon(ClientCall *call, StatusCode status, const char *reason, const char *message) {
        set_over(call, status, reason, message);
        stream_reset(&call->stream, NGHTTP2_CANCEL);
}

static void call_expired(Stream *stream) {
        abandon(call_of(stream), STATUS_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the deadline of the call has passed");
}

void client_call_cancel(ClientCall *call) {
        abandon(call, STATUS_CANCELLED, "CALL_CANCELLED", "the call was cancelled");
}

static StatusCode status_from_http(unsigned http_status) {
        switch (http_status) {
        case 400:
                return STATUS_INTERNAL;
        case 401:
                return STATUS_UNAUTHENTICATED;
        case 403:
                return STATUS_PERMISSION_DENIED;
        case 404:
                return STATUS_UNIMPLEMENTED;
        case 429:
        case 502:
        case 503:
        case 504:
                return STATUS_UNAVAILABLE;
        default:
                return STATUS_UNKNOWN;
        }
}

static StatusCode status_from_reset(uint32_t code) {
        switch (code) {
        case NGHTTP2_REFUSED_STREAM:
                return STATUS_UNAVAILABLE;
        case NGHTTP2_CANCEL:
                return STATUS_CANCELLED;
        case NGHTTP2_ENHANCE_YOUR_CALM:
                return STATUS_RESOURCE_EXHAUSTED;
        case NGHTTP2_INADEQUATE_SECURITY:
                return STATUS_PERMISSION_DENIED;
        default:
                return STATUS_INTERNAL;
        }
}

static void set_lost(ClientCall *call) {
        const ClientSession *session = (const ClientSession *) call->stream.session;

        if (call->over)
                return;

        call->lost = true;
        set_over(call, STATUS_UNAVAILABLE, *session->lost_reason ? session->lost_reason : "CONNECTION_LOST",
                 session->lost ? session->lost : "the connection was lost");
}

/* Finds the status of a call that the server has ended. */
static void conclude(ClientCall *call) {
        StatusCode status;
        char text[128];

        if (call->over || call->has_status)
                return;

        if (call->initial_complete && call->http_status != 200) {
                status = status_from_http(call->http_status);
                snprintf(text, sizeof(text), "the server answered with HTTP status %u", call->http_status);
        } else if (call->initial_complete && !call->is_grpc) {
                status = STATUS_UNKNOWN;
                snprintf(text, sizeof(text), "the server's answer is not gRPC");
        } else {
                status = status_from_reset(call->stream.close_code);
                snprintf(text, sizeof(text), "the server ended the call without a status (%s)",
                         nghttp2_http2_strerror(call->stream.close_code));
        }
        set_over(call, status, status_code_name(status), text);
}

/* The reason that the server's details give, else the code's name. */
static const char *reason_of(const ClientCall *call, const StatusDetails *details) {
        if (call->over)
                return call->reason;

        return details && details->reason && *details->reason ? details->reason : status_code_name(call->status);
}

static void tell_end(ClientCall *call) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        bool refused = call->stream.closed && call->stream.close_code == NGHTTP2_REFUSED_STREAM;
        ClientStatus status = {
                .code = call->status,
                .message = call->status_message ? call->status_message : "",
                .details = call->details,
                .details_len = call->details_len,
                .trailing = &call->trailing,
                .from_server = !call->over,
                .not_processed = call->over && (call->stream.id == 0 || refused),
                .lost = call->lost,
        };

        /* Details that cannot be read have no reason: the code tells without. */
        if (call->details)
                (void) status_details_decode(call->details, call->details_len, &details);
        status.reason = reason_of(call, details);

        call->told = true;
        if (call->events->ended)
                call->events->ended(call, &status);
}

static void fail_reading(ClientCall *call, int r) {
        StreamError error = stream_explain(&call->stream, r);

        abandon(call, error.status, error.reason, error.text);
}

static void deliver(Stream *stream, Message *message) {
        ClientCall *call = call_of(stream);
        bool compressed = message->compressed;
        int r = encoding_unpack(call->encoding, message, stream->session->limits.max_message);

        call->was_compressed = compressed;
        if (r < 0) {
                fail_reading(call, r);
        } else if (call->events->message) {
                call->delivered = message;
                call->events->message(call, message->data, message->len);
                call->delivered = NULL;
        }
}

static void tell_news(ClientCall *call) {
        Stream *stream = &call->stream;

        if (!call->over && call->initial_complete && !call->headers_told && call->http_status == 200 && call->is_grpc) {
                call->headers_told = true;
                if (call->events->headers)
                        call->events->headers(call, &call->initial);
        }

        if (!stream_hand_out(stream, deliver))
                return;

        if (!call->over && stream->read_error < 0)
                fail_reading(call, stream->read_error);
        if (!call->over && stream->has_room && !stream->closed) {
                stream->has_room = false;
                if (call->events->writable)
                        call->events->writable(call);
        }
}

/* What the server did not wait for need not be sent: its answer is complete, and ends the call. */
static void dismiss(ClientCall *call) {
        Stream *stream = &call->stream;

        if (!stream->remote_ended || stream->closed || call->over || call->dismissed ||
            nghttp2_session_get_stream_local_close(stream->session->http2, stream->id) != 0)
                return;

        call->dismissed = true;
        stream_reset(stream, NGHTTP2_NO_ERROR);
}

static void call_dispatch(Stream *stream) {
        ClientCall *call = call_of(stream);

        if (!call->told)
                tell_news(call);
        dismiss(call);

        /* Messages that came before the end are handed out first, as fast as they are asked for. */
        if (call->cut && !stream_has_wanted(stream) && (stream->inbox_first || !call->has_status))
                set_lost(call);
        if (stream->closed && !stream->inbox_first)
                conclude(call);
        if (!call->told && (call->over || (stream->closed && !stream->inbox_first)))
                tell_end(call);
        if (call->told && stream->closed)
                call_free(call);
}

static const SessionRole client_role = {
        .field = call_field,
        .fields_end = call_fields_end,
        .dispatch = call_dispatch,
        .expired = call_expired,
};

ClientSession *client_session_new(const ClientIdentity *identity, const SessionLimits *limits, uint64_t now) {
        _cleanup_(client_session_freep) ClientSession *session = try_new0(ClientSession, 1);

        if (!session)
                return NULL;

        session->identity = *identity;
        if (session_init(&session->base, &client_role, limits, now) < 0)
                return NULL;

        return TAKE_PTR(session);
}

ClientSession *client_session_free(ClientSession *session) {
        if (!session)
                return NULL;

        for (Stream *stream = session->base.streams; stream; stream = stream->next)
                call_of(stream)->cut = true;
        session_done(&session->base);
        free(session->lost);
        free(session);
        return NULL;
}

void client_session_lose(ClientSession *session, const char *reason, const char *why) {
        free(session->lost);
        session->lost = strdup(why); /* without it calls still end */
        snprintf(session->lost_reason, sizeof(session->lost_reason), "%s", reason);

        session->base.dead = true;
        session->base.limits.keepalive_interval = 0; /* nobody is there to be asked */
        for (Stream *stream = session->base.streams; stream; stream = stream->next) {
                ClientCall *call = call_of(stream);

                call->cut = !stream->closed && !(stream->remote_ended && call->has_status);
                stream->closed = true;
                session_ready(&session->base, stream);
        }
}

Session *client_session_base(ClientSession *session) {
        return &session->base;
}

bool client_session_is_open(const ClientSession *session) {
        return !session->base.peer_draining && !session->base.broken && !session->base.dead;
}

/* Gives the request's fields to nghttp2. */
static int submit(ClientCall *call, const ClientSession *session, const ClientRequest *request) {
        _cleanup_(fields_clear) Fields fields = {};
        nghttp2_data_provider provider = stream_data_provider(&call->stream);
        uint64_t now = session->base.now;
        char timeout[GRPC_TIMEOUT_SIZE];
        int32_t id;

        fields_add(&fields, ":method", "POST");
        fields_add(&fields, ":scheme", session->identity.encrypted ? "https" : "http");
        fields_add(&fields, ":path", request->path);
        fields_add(&fields, ":authority", session->identity.authority);
        fields_add(&fields, "te", "trailers");
        fields_add(&fields, "content-type", "application/grpc");
        fields_add(&fields, "user-agent", session->identity.user_agent);
        fields_add(&fields, "grpc-accept-encoding", ENCODINGS);
        if (request->compresses)
                fields_add(&fields, "grpc-encoding", "gzip");
        if (request->deadline != DEADLINE_NONE) {
                (void) grpc_timeout_format(request->deadline > now ? request->deadline - now : 0, timeout);
                fields_add(&fields, "grpc-timeout", timeout);
        }
        if (request->authorization)
                fields_add_secret(&fields, "authorization", request->authorization);
        if (request->metadata)
                fields_add_metadata(&fields, request->metadata);
        if (fields.failed)
                return -ENOMEM;

        id = nghttp2_submit_request(session->base.http2, NULL, fields.list, fields.n, &provider, &call->stream);
        if (id < 0)
                return -ENOMEM;

        call->stream.id = id;
        return 0;
}

ClientCall *client_call_start(ClientSession *session, const ClientRequest *request, const ClientEvents *events,
                              void *user) {
        ClientCall *call = try_new0(ClientCall, 1);

        if (!call)
                return NULL;

        call->events = events;
        call->user = user;
        call->declared_gzip = call->compresses = request->compresses;
        call->initial.bytes_max = session->base.limits.max_header_list;
        call->trailing.bytes_max = session->base.limits.max_header_list;
        stream_init(&call->stream, &session->base);

        if (stream_set_deadline(&call->stream, request->deadline) < 0 || submit(call, session, request) < 0) {
                call_free(call);
                return NULL;
        }

        return call;
}

void *client_call_user(const ClientCall *call) {
        return call->user;
}

void client_call_set_compression(ClientCall *call, bool compress) {
        call->compresses = compress;
}

static bool can_send(const ClientCall *call) {
        return !call->over && !call->stream.local_ended && !call->stream.closed;
}

static int send_compressed(ClientCall *call, const void *message, size_t len) {
        uint8_t *compressed;
        int r = gzip_compress(message, len, &compressed, &len);

        return r < 0 ? r : stream_send_taken(&call->stream, compressed, len, true);
}

int client_call_send(ClientCall *call, const void *message, size_t len) {
        if (!can_send(call))
                return -EPIPE;
        if (call->compresses && call->declared_gzip)
                return send_compressed(call, message, len);
        return stream_send(&call->stream, message, len, false);
}

int client_call_send_taken(ClientCall *call, uint8_t *message, size_t len) {
        _cleanup_free_ uint8_t *taken = message;

        if (!can_send(call))
                return -EPIPE;
        if (call->compresses && call->declared_gzip)
                return send_compressed(call, message, len);
        return stream_send_taken(&call->stream, TAKE_PTR(taken), len, false);
}

bool client_call_is_writable(const ClientCall *call) {
        return stream_is_writable(&call->stream);
}

void client_call_end(ClientCall *call) {
        stream_end(&call->stream);
}

void client_call_read(ClientCall *call) {
        stream_want(&call->stream);
}

uint8_t *client_call_take_message(ClientCall *call) {
        return message_take(TAKE_PTR(call->delivered));
}

bool client_call_message_was_compressed(const ClientCall *call) {
        return call->was_compressed;
}
