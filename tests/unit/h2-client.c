/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client that knows HTTP/2 by nghttp2 alone. What does not: what is expected; the tests say. */

#include "h2-client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

#include "test.h"

#define PREFIX_LEN 5

static int connect_to(int family, const void *address, socklen_t len) {
        _cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        if (connect(fd, address, len) < 0)
                return -errno;

        assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
        return TAKE_FD(fd);
}

int h2_connect_unix(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        assert_true(snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) < (int) sizeof(address.sun_path));
        return connect_to(AF_UNIX, &address, sizeof(address));
}

int h2_connect_tcp(uint16_t port) {
        struct sockaddr_in address = {
                .sin_family = AF_INET,
                .sin_port = htons(port),
                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        int fd = connect_to(AF_INET, &address, sizeof(address));

        assert_true(fd >= 0);
        return fd;
}

static bool field_is(const uint8_t *name, size_t len, const char *expected) {
        return len == strlen(expected) && memcmp(name, expected, len) == 0;
}

static int on_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user) {
        H2Stream *stream = nghttp2_session_get_stream_user_data(http2, frame->hd.stream_id);

        if (!stream)
                return 0;
        if (field_is(name, name_len, ":status"))
                snprintf(stream->http_status, sizeof(stream->http_status), "%.*s", (int) value_len, value);
        else if (field_is(name, name_len, "grpc-status"))
                stream->grpc_status = (int) strtol((const char *) value, NULL, 10);
        else if (field_is(name, name_len, "grpc-message"))
                snprintf(stream->grpc_message, sizeof(stream->grpc_message), "%.*s", (int) value_len, value);
        return 0;
}

static int on_data(nghttp2_session *http2, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t len,
                   void *user) {
        H2Stream *stream = nghttp2_session_get_stream_user_data(http2, stream_id);

        if (!stream)
                return 0;
        if (stream->len + len > stream->size) {
                stream->size = 2 * (stream->len + len);
                stream->data = xreallocarray(stream->data, stream->size, 1);
        }
        memcpy(stream->data + stream->len, data, len);
        stream->len += len;
        return 0;
}

static int on_close(nghttp2_session *http2, int32_t stream_id, uint32_t code, void *user) {
        H2Stream *stream = nghttp2_session_get_stream_user_data(http2, stream_id);

        if (!stream)
                return 0;
        stream->closed = true;
        stream->close_code = code;
        return 0;
}

static int on_frame(nghttp2_session *http2, const nghttp2_frame *frame, void *user) {
        H2Client *client = user;

        if (frame->hd.type != NGHTTP2_GOAWAY)
                return 0;
        client->got_goaway = true;
        client->goaway_code = frame->goaway.error_code;
        snprintf(client->goaway_debug, sizeof(client->goaway_debug), "%.*s", (int) frame->goaway.opaque_data_len,
                 frame->goaway.opaque_data);
        return 0;
}

H2Client *h2_client_new(int fd, TlsContext *tls) {
        nghttp2_session_callbacks *callbacks;
        H2Client *client = new0(H2Client, 1);

        assert_true(fd >= 0);
        client->fd = fd;
        client->reading = client->sending = true;
        if (tls)
                assert_int_equal(tls_new(tls, "localhost", &client->tls), 0);
        client->established = !tls;

        assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        assert_int_equal(nghttp2_session_client_new(&client->http2, callbacks, client), 0);
        nghttp2_session_callbacks_del(callbacks);
        assert_int_equal(nghttp2_submit_settings(client->http2, NGHTTP2_FLAG_NONE, NULL, 0), 0);
        return client;
}

void h2_client_free(H2Client *client) {
        while (client->streams) {
                H2Stream *stream = client->streams;

                client->streams = stream->next;
                byte_queue_clear(&stream->body);
                free(stream->data);
                free(stream);
        }

        nghttp2_session_del(client->http2);
        tls_free(client->tls);
        byte_queue_clear(&client->out);
        error_clear(&client->error);
        fd_close(client->fd);
        free(client);
}

/* The peer is gone, or TLS is. */
static void lose(H2Client *client) {
        client->gone = true;
        client->fd = fd_close(client->fd);
}

static void produce(H2Client *client) {
        const uint8_t *bytes;
        ssize_t len;

        while (client->established && client->sending && (len = nghttp2_session_mem_send(client->http2, &bytes)) > 0) {
                if (!client->tls)
                        assert_int_equal(byte_queue_append(&client->out, bytes, (size_t) len), 0);
                else if (tls_write(client->tls, bytes, (size_t) len, NULL) < 0)
                        return;
        }
}

static bool send_out(H2Client *client) {
        ByteQueue *out = client->tls ? tls_output(client->tls) : &client->out;
        bool moved = false;

        while (!client->gone && out->len > 0) {
                size_t len;
                const uint8_t *bytes = byte_queue_peek(out, &len);
                ssize_t n = send(client->fd, bytes, len, MSG_NOSIGNAL);

                if (n < 0)
                        break; /* reading tells more */
                byte_queue_drop(out, (size_t) n);
                moved = true;
        }

        return moved;
}

static void receive(H2Client *client, const uint8_t *bytes, size_t len) {
        client->received += len;
        assert_int_equal(nghttp2_session_mem_recv(client->http2, bytes, len), len);
}

static void receive_tls(H2Client *client, const uint8_t *bytes, size_t len) {
        uint8_t plaintext[16384];
        ssize_t n;

        tls_receive(client->tls, bytes, len);
        if (!client->established) {
                int r = tls_handshake(client->tls, &client->error);

                client->established = r > 0;
                if (r < 0) {
                        (void) send_out(client);
                        lose(client);
                }
                if (r <= 0)
                        return;
        }

        while ((n = tls_read(client->tls, plaintext, sizeof(plaintext), &client->error)) > 0)
                receive(client, plaintext, (size_t) n);
        if (n < 0)
                lose(client);
}

bool h2_client_pump(H2Client *client) {
        uint8_t bytes[65536];
        bool moved;
        ssize_t n;

        if (client->gone)
                return false;
        if (client->tls && !client->established)
                (void) tls_handshake(client->tls, NULL);
        produce(client);
        moved = send_out(client);
        if (!client->reading)
                return moved;

        n = recv(client->fd, bytes, sizeof(bytes), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
                lose(client);
        if (n <= 0)
                return moved || n == 0;

        if (client->tls)
                receive_tls(client, bytes, (size_t) n);
        else
                receive(client, bytes, (size_t) n);
        return true;
}

static ssize_t read_body(nghttp2_session *http2, int32_t stream_id, uint8_t *buffer, size_t size, uint32_t *flags,
                         nghttp2_data_source *source, void *user) {
        H2Stream *stream = source->ptr;
        size_t len = byte_queue_read(&stream->body, buffer, size);

        if (stream->body.len == 0 && stream->body_ended)
                *flags |= NGHTTP2_DATA_FLAG_EOF;
        else if (len == 0)
                return NGHTTP2_ERR_DEFERRED;
        return (ssize_t) len;
}

static nghttp2_nv field(const char *name, const char *value) {
        return (nghttp2_nv){ (uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE };
}

H2Stream *h2_client_call(H2Client *client, const char *path, const char *timeout) {
        H2Stream *stream = new0(H2Stream, 1);
        nghttp2_data_provider body = { .source.ptr = stream, .read_callback = read_body };
        nghttp2_nv fields[] = {
                field(":method", "POST"),
                field(":scheme", "http"),
                field(":path", path),
                field(":authority", "localhost"),
                field("te", "trailers"),
                field("content-type", "application/grpc"),
                field("grpc-timeout", timeout ? timeout : ""),
        };
        size_t n_fields = sizeof(fields) / sizeof(fields[0]) - (timeout ? 0 : 1);

        stream->grpc_status = -1;
        stream->next = client->streams;
        client->streams = stream;
        stream->id = nghttp2_submit_request(client->http2, NULL, fields, n_fields, &body, stream);
        assert_true(stream->id > 0);
        return stream;
}

void h2_stream_send(H2Client *client, H2Stream *stream, const void *message, size_t len) {
        uint8_t prefix[PREFIX_LEN] = { 0, (uint8_t) (len >> 24), (uint8_t) (len >> 16), (uint8_t) (len >> 8),
                                       (uint8_t) len };

        assert_int_equal(byte_queue_append(&stream->body, prefix, sizeof(prefix)), 0);
        assert_int_equal(byte_queue_append(&stream->body, message, len), 0);
        (void) nghttp2_session_resume_data(client->http2, stream->id);
}

void h2_stream_end(H2Client *client, H2Stream *stream) {
        stream->body_ended = true;
        (void) nghttp2_session_resume_data(client->http2, stream->id);
}

void h2_stream_cancel(H2Client *client, H2Stream *stream) {
        assert_int_equal(nghttp2_submit_rst_stream(client->http2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_CANCEL), 0);
}

H2Stream *h2_client_call_unary(H2Client *client, const char *path, const char *message) {
        H2Stream *stream = h2_client_call(client, path, NULL);

        h2_stream_send(client, stream, message, strlen(message));
        h2_stream_end(client, stream);
        return stream;
}

bool h2_stream_is_answered(const H2Stream *stream, const char *expected) {
        size_t len = strlen(expected);

        return stream->closed && stream->grpc_status == 0 && stream->len == PREFIX_LEN + len &&
               memcmp(stream->data + PREFIX_LEN, expected, len) == 0;
}
