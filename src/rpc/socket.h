/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <uv.h>

#include "base/error.h"

/* Sockets: one connected, non-blocking descriptor on an event loop, with TLS on it or not. What is written goes to the
 * kernel at once, and only what it does not take waits here; what is read is handed on at once. So an idle socket holds
 * no buffers. */

typedef struct Socket Socket;
typedef struct Tls Tls;

/* All are needed, but `established` only with TLS. Any but `closed` may close the socket. */
typedef struct SocketEvents {
        /* The handshake of TLS is done, and writing may begin. */
        void (*established)(void *user);
        /* @bytes came; they are the callee's to read until it returns. */
        void (*received)(void *user, const uint8_t *bytes, size_t len);
        /* All that waited was taken by the kernel. */
        void (*drained)(void *user);
        /* The connection is of no use any more: the owner is to close the socket. @err has the error EPIPE when the
         * peer closed it in order; with EPROTO, TLS failed, and a socket_shutdown() before gives the peer time to hear
         * why. */
        void (*failed)(void *user, const HutchError *err);
        /* The last event, some time after socket_close(): nothing of the socket is left. */
        void (*closed)(void *user);
} SocketEvents;

/* What all sockets of a loop share. */
typedef struct SocketScratch {
        uint8_t received[64 << 10];
        uint8_t plaintext[16 << 10];
} SocketScratch;

/* Takes over @fd and @tls, which may be NULL, and begins to read; also when it fails they are taken: closed and freed.
 * @events and @scratch outlive the socket. -ENOMEM and other errors of the system. */
int socket_new(uv_loop_t *loop, int fd, Tls *tls, SocketScratch *scratch, const SocketEvents *events, void *user,
               Socket **ret_socket) __attribute__((nonnull(1, 4, 5, 7)));

/* Writes @bytes. 0: the kernel took them; 1: some wait, and `drained` will tell; -EPIPE: the socket failed, and
 * `failed` has told or will; -ENOMEM: some are lost, close it. Never calls back. */
int socket_write(Socket *socket, const void *bytes, size_t len) __attribute__((nonnull(1)));

/* The same with what stands in several parts, which are changed. */
int socket_write_parts(Socket *socket, struct iovec *parts, size_t n_parts) __attribute__((nonnull));

/* How many bytes wait for the kernel. */
size_t socket_pending(const Socket *socket) __attribute__((nonnull));

/* Stops and starts reading. What has been read from the kernel is still told. */
void socket_set_reading(Socket *socket, bool reading) __attribute__((nonnull));

/* Nothing more will be written: the peer is told when all that waits was sent. What comes is thrown away; `failed`
 * tells that the peer has closed its side too. */
void socket_shutdown(Socket *socket) __attribute__((nonnull));

/* Ends the socket. No event comes but `closed`. */
void socket_close(Socket *socket) __attribute__((nonnull));

/* The TLS on it; NULL: there is none. */
const Tls *socket_tls(const Socket *socket) __attribute__((nonnull));
