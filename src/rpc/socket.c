/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: bytes between a descriptor and its owner, through TLS where there is one. What does not: what the
 * bytes mean (session.c), whose connection it is and for how long (connections.c). */

#include "rpc/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "rpc/core/byte-queue.h"
#include "rpc/tls.h"

/* Read from one socket before others have their turn. */
#define READ_PER_TURN ((size_t) 256 << 10)

#define UNIX_BUFFER (512 << 10) /* bytes; the kernel counts what it adds to them and takes twice that */

struct Socket {
        uv_poll_t poll;
        int fd;
        Tls *tls;
        SocketScratch *scratch;
        const SocketEvents *events;
        void *user;

        ByteQueue queue;  /* without TLS: what the kernel did not take */
        int write_error;  /* negative: the kernel takes no more */
        int poll_events;  /* what is waited for */
        bool was_full;    /* some of it waited, and the owner was not told yet that nothing does any more */
        bool reading;     /* the owner wants to read */
        bool established; /* by TLS, if there is one */
        bool discards;    /* nobody wants to know what comes */
        bool ending;      /* socket_shutdown() was called */
        bool ended;       /* the peer was told */
        bool told;        /* the owner, that it failed for good */
        bool closing;
};

static ByteQueue *output(Socket *socket) {
        return socket->tls ? tls_output(socket->tls) : &socket->queue;
}

size_t socket_pending(const Socket *socket) {
        return output((Socket *) socket)->len;
}

const Tls *socket_tls(const Socket *socket) {
        return socket->tls;
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* Waits for what there is to wait for. */
static void update_poll(Socket *socket) {
        int events = 0;

        if (socket->closing || socket->told)
                return;

        if (socket->reading || socket->ending)
                events |= UV_READABLE;
        /* An error makes a socket writable: this is how the owner hears of it, as of that all was sent, by whomever. */
        if (socket_pending(socket) > 0)
                socket->was_full = true;
        if (socket->was_full || socket->write_error < 0)
                events |= UV_WRITABLE;

        if (events == socket->poll_events)
                return;
        socket->poll_events = events;
        (void) uv_poll_start(&socket->poll, events, on_poll);
}

/* Gives @bytes to the kernel. Returns how many it took; after an error, all. */
static size_t send_bytes(Socket *socket, const uint8_t *bytes, size_t len) {
        size_t sent = 0;

        while (sent < len && socket->write_error == 0) {
                ssize_t n = send(socket->fd, bytes + sent, len - sent, MSG_NOSIGNAL);

                if (n >= 0)
                        sent += (size_t) n;
                else if (errno == EAGAIN)
                        return sent;
                else if (errno != EINTR)
                        socket->write_error = -errno;
        }

        return len;
}

/* Gives what waits to the kernel, and the end behind it. */
static void send_output(Socket *socket) {
        ByteQueue *queue = output(socket);

        while (queue->len > 0) {
                size_t len, sent;
                const uint8_t *bytes = byte_queue_peek(queue, &len);

                sent = send_bytes(socket, bytes, len);
                byte_queue_drop(queue, sent);
                if (sent < len)
                        return;
        }

        byte_queue_clear(queue);
        if (socket->ending && !socket->ended) {
                socket->ended = true;
                (void) shutdown(socket->fd, SHUT_WR);
        }
}

/* Tells the owner, once, that the connection is gone. */
static void fail(Socket *socket, const HutchError *err) {
        if (socket->closing || socket->told)
                return;

        socket->told = true;
        (void) uv_poll_stop(&socket->poll);
        socket->events->failed(socket->user, err);
}

static void fail_errno(Socket *socket, int r) {
        _cleanup_(error_clear) HutchError err = {};

        if (r == -EPIPE)
                (void) error_set(&err, r, "CONNECTION_CLOSED", "the peer closed the connection");
        else
                (void) error_set_code(&err, STATUS_UNAVAILABLE, r, "CONNECTION_LOST", "the connection was lost: %s",
                                      strerror(-r));
        fail(socket, &err);
}

/* TLS failed. The peer shall hear why, so the socket lives on until it is closed. */
static void fail_tls(Socket *socket, const HutchError *err) {
        send_output(socket);
        if (err->error != EPROTO) {
                fail(socket, err);
                return;
        }

        socket->discards = true;
        socket->events->failed(socket->user, err);
}

static bool is_deaf(const Socket *socket) {
        return socket->closing || socket->told || socket->discards;
}

/* Goes on with the handshake. Returns whether it is done. */
static bool shake_hands(Socket *socket) {
        _cleanup_(error_clear) HutchError err = {};
        int r = tls_handshake(socket->tls, &err);

        if (r < 0) {
                fail_tls(socket, &err);
                return false;
        }

        send_output(socket);
        if (r == 0)
                return false;

        socket->established = true;
        socket->events->established(socket->user);
        return !is_deaf(socket);
}

static void receive_tls(Socket *socket) {
        _cleanup_(error_clear) HutchError err = {};
        uint8_t *plaintext = socket->scratch->plaintext;
        ssize_t n;

        if (!socket->established && !shake_hands(socket))
                return;

        while ((n = tls_read(socket->tls, plaintext, sizeof(socket->scratch->plaintext), &err)) > 0) {
                socket->events->received(socket->user, plaintext, (size_t) n);
                if (is_deaf(socket))
                        return;
        }

        if (n < 0)
                fail_tls(socket, &err);
        else
                send_output(socket); /* TLS has things to say of its own */
}

static void receive(Socket *socket, const uint8_t *bytes, size_t len) {
        if (socket->discards)
                return;

        if (!socket->tls) {
                socket->events->received(socket->user, bytes, len);
                return;
        }

        tls_receive(socket->tls, bytes, len);
        receive_tls(socket);
}

static void receive_end(Socket *socket) {
        if (socket->tls && !socket->discards) {
                tls_receive_end(socket->tls);
                receive_tls(socket);
        }

        fail_errno(socket, -EPIPE);
}

/* Reads what is there, within limits; all of it, when the connection is @broken. Returns whether that was all. */
static bool read_some(Socket *socket, bool broken) {
        uint8_t *buffer = socket->scratch->received;
        size_t size = sizeof(socket->scratch->received);

        for (size_t total = 0; total < READ_PER_TURN;) {
                ssize_t n = recv(socket->fd, buffer, size, 0);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return true;
                if (n < 0) {
                        fail_errno(socket, -errno);
                        return true;
                }
                if (n == 0) {
                        receive_end(socket);
                        return true;
                }

                receive(socket, buffer, (size_t) n);
                if (socket->closing || socket->told || !(socket->reading || socket->ending))
                        return true;
                if ((size_t) n < size && !broken)
                        return true;
                total += (size_t) n;
        }

        return false;
}

static int socket_error(const Socket *socket) {
        int error = 0;
        socklen_t len = sizeof(error);

        if (socket->write_error < 0)
                return socket->write_error;
        (void) getsockopt(socket->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        return error > 0 ? -error : -ECONNRESET;
}

static void on_poll(uv_poll_t *poll, int status, int events) {
        Socket *socket = poll->data;
        bool broken = status < 0 || socket->write_error < 0, read_all = true;

        /* libuv waits no longer after an error. */
        if (status < 0)
                socket->poll_events = 0;

        if (events & UV_WRITABLE && socket->was_full) {
                send_output(socket);
                if (socket_pending(socket) == 0 && socket->write_error == 0) {
                        socket->was_full = false;
                        socket->events->drained(socket->user);
                }
        }

        /* What the peer has said before it went is told first. */
        if (!socket->closing && !socket->told && (broken || events & UV_READABLE) &&
            (socket->reading || socket->ending))
                read_all = read_some(socket, broken);
        if (broken && read_all)
                fail_errno(socket, socket_error(socket));

        update_poll(socket);
}

/* Has a Unix socket take much at once: it is written to again only when most of it was read. TCP sees to that
 * itself. */
static void grow_unix_buffer(int fd) {
        int domain, size = UNIX_BUFFER;
        socklen_t len = sizeof(domain);

        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX)
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

int socket_new(uv_loop_t *loop, int fd, Tls *tls, SocketScratch *scratch, const SocketEvents *events, void *user,
               Socket **ret_socket) {
        _cleanup_(tls_freep) Tls *owned_tls = tls;
        _cleanup_close_ int owned_fd = fd;
        _cleanup_free_ Socket *socket = NULL;
        int r;

        /* A client speaks first; of a server nothing comes of this. */
        r = tls ? tls_handshake(tls, NULL) : 0;
        if (r < 0)
                return r;

        socket = try_new0(Socket, 1);
        if (!socket)
                return -ENOMEM;
        r = uv_poll_init(loop, &socket->poll, fd);
        if (r < 0)
                return r;

        grow_unix_buffer(fd);
        socket->poll.data = socket;
        socket->fd = TAKE_FD(owned_fd);
        socket->tls = TAKE_PTR(owned_tls);
        socket->scratch = scratch;
        socket->events = events;
        socket->user = user;
        socket->reading = true;
        send_output(socket);
        update_poll(socket);

        *ret_socket = TAKE_PTR(socket);
        return 0;
}

/* Gives what stands in @parts to the kernel, and removes from them what it took; after an error, all. */
static void send_parts(Socket *socket, struct iovec *parts, size_t n_parts) {
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = n_parts };
        ssize_t n;

        do
                n = sendmsg(socket->fd, &message, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno != EAGAIN)
                socket->write_error = -errno;

        for (size_t i = 0, left = n > 0 ? (size_t) n : 0; i < n_parts; i++) {
                size_t taken = socket->write_error < 0 || left > parts[i].iov_len ? parts[i].iov_len : left;

                parts[i].iov_base = (uint8_t *) parts[i].iov_base + taken;
                parts[i].iov_len -= taken;
                left -= taken < left ? taken : left;
        }
}

/* Only what the kernel does not take is copied. */
static int write_plain(Socket *socket, struct iovec *parts, size_t n_parts) {
        int r = 0;

        if (socket->queue.len == 0)
                send_parts(socket, parts, n_parts);
        for (size_t i = 0; i < n_parts && r == 0; i++)
                r = byte_queue_append(&socket->queue, parts[i].iov_base, parts[i].iov_len);
        return r;
}

static int write_tls(Socket *socket, const struct iovec *parts, size_t n_parts) {
        int r = 0;

        for (size_t i = 0; i < n_parts && r >= 0; i++)
                r = tls_write(socket->tls, parts[i].iov_base, parts[i].iov_len, NULL);
        send_output(socket);
        return r;
}

int socket_write_parts(Socket *socket, struct iovec *parts, size_t n_parts) {
        int r;

        if (socket->closing || socket->told || socket->ending || socket->write_error < 0)
                return -EPIPE;

        r = socket->tls ? write_tls(socket, parts, n_parts) : write_plain(socket, parts, n_parts);
        update_poll(socket);
        if (r < 0)
                return r == -ENOMEM ? r : -EPIPE;
        if (socket->write_error < 0)
                return -EPIPE;
        return socket_pending(socket) > 0;
}

int socket_write(Socket *socket, const void *bytes, size_t len) {
        return socket_write_parts(socket, &(struct iovec){ .iov_base = (void *) bytes, .iov_len = len }, 1);
}

void socket_set_reading(Socket *socket, bool reading) {
        socket->reading = reading;
        update_poll(socket);
}

void socket_shutdown(Socket *socket) {
        if (socket->closing || socket->told || socket->ending)
                return;

        socket->discards = true;
        socket->ending = true;
        if (socket->tls)
                tls_close(socket->tls);
        send_output(socket);
        update_poll(socket);
}

static void on_closed(uv_handle_t *handle) {
        Socket *socket = handle->data;
        const SocketEvents *events = socket->events;
        void *user = socket->user;

        tls_free(socket->tls);
        byte_queue_clear(&socket->queue);
        free(socket);
        events->closed(user);
}

void socket_close(Socket *socket) {
        if (socket->closing)
                return;

        socket->closing = true;
        uv_close((uv_handle_t *) &socket->poll, on_closed);
        socket->fd = fd_close(socket->fd);
}
