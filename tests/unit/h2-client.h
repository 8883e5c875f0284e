/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rpc/core/byte-queue.h"
#include "rpc/tls.h"

/* A client for tests of servers: HTTP/2 by nghttp2 over a non-blocking descriptor, and of gRPC no more than headers and
 * the prefixes of messages. It does only what it is told, so that a test can misbehave. */

typedef struct H2Stream H2Stream;

struct H2Stream {
        H2Stream *next;
        int32_t id;

        /* What came. */
        char http_status[4];
        int grpc_status; /* -1: none */
        char grpc_message[128];
        uint8_t *data; /* all of it, with the prefixes */
        size_t len, size;
        bool closed;
        uint32_t close_code;

        /* What is sent. */
        ByteQueue body;
        bool body_ended;
};

typedef struct H2Client {
        int fd;
        Tls *tls; /* NULL: none */
        bool established;
        nghttp2_session *http2;
        H2Stream *streams;
        ByteQueue out;

        bool reading;     /* from the socket; true unless a test says otherwise */
        bool sending;     /* to it, with all that nghttp2 says by itself; true unless a test says otherwise */
        bool gone;        /* the server closed the connection */
        size_t received;  /* bytes */
        HutchError error; /* of TLS */
        bool got_goaway;
        uint32_t goaway_code;
        char goaway_debug[64];
} H2Client;

/* Connected descriptors; they fail the test, but h2_connect_unix() returns the negative errno. */
int h2_connect_unix(const char *path);
int h2_connect_tcp(uint16_t port);

/* Takes over @fd. With @tls, it is used, for the name "localhost". */
H2Client *h2_client_new(int fd, TlsContext *tls);
void h2_client_free(H2Client *client);

/* Sends and receives what can be without waiting. Returns whether anything was. */
bool h2_client_pump(H2Client *client);

/* Starts a call of @path, with grpc-timeout when @timeout is not NULL. Its body comes by h2_stream_send(). */
H2Stream *h2_client_call(H2Client *client, const char *path, const char *timeout);

/* Sends a message with its prefix. */
void h2_stream_send(H2Client *client, H2Stream *stream, const void *message, size_t len);

/* Sends no more. */
void h2_stream_end(H2Client *client, H2Stream *stream);

void h2_stream_cancel(H2Client *client, H2Stream *stream);

/* Starts a call, sends one message and the end. */
H2Stream *h2_client_call_unary(H2Client *client, const char *path, const char *message);

/* Tells whether @stream was answered with OK and one message, @expected. */
bool h2_stream_is_answered(const H2Stream *stream, const char *expected);
