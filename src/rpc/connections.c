/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a connection from its first byte to its last, and its times. What does not: what it carries
 * (server-session.c), and how (socket.c, tls.c); who accepts it, and when it has its turn (server.c).
 *
 * Handlers run in connections_dispatch(), at the times of session_deadline(), and when a connection ends; never one
 * inside of another. Sessions end outside of their own functions. So nobody is freed while he is busy. */

#include "rpc/connections.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "rpc/tls.h"

#define DISPATCH_PER_TURN 64 /* streams of a connection, before others have their turn */

/* How long a peer has to read the last that was said to it. */
#define LINGER (1 * NSEC_PER_SEC)

/* What a peer may send while it does not read what is sent to it. */
#define RECEIVE_WHILE_BLOCKED_MAX ((size_t) 4 << 20)

/* The least that a client says at first: the preface, and the head of a SETTINGS frame. */
#define GREETING_LEN (NGHTTP2_CLIENT_MAGIC_LEN + 9)

#define NEVER UINT64_MAX

struct Connection {
        Connections *connections;
        Connection *prev, *next;           /* all of them */
        Connection *work_prev, *work_next; /* those that have work */
        bool has_work;

        Peer peer;
        Socket *socket;
        ServerSession *session; /* NULL until the peer has said something, and at the end */

        uv_timer_t timer;
        uint64_t timer_at; /* not later than the connection's deadline */
        uint64_t opened_at;
        uint64_t idle_since; /* NEVER: there are calls */
        uint64_t cut_at;

        size_t received; /* bytes, ever */
        size_t received_while_blocked;
        bool blocked;   /* the kernel did not take all */
        bool lingering; /* all is said; the peer may read it */
        bool closing;
        unsigned n_handles; /* of libuv's: socket and timer */
};

static uint64_t add_time(uint64_t time, uint64_t duration) {
        return duration < NEVER - time ? time + duration : NEVER;
}

static uint64_t min_time(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

static void connection_add_work(Connection *connection) {
        Connections *connections = connection->connections;

        if (connection->has_work || !connection->session)
                return;

        connection->has_work = true;
        connection->work_next = NULL;
        connection->work_prev = connections->work_last;
        *(connections->work_last ? &connections->work_last->work_next : &connections->work_first) = connection;
        connections->work_last = connection;
        connections->wake(connections);
}

static void connection_remove_work(Connection *connection) {
        Connections *connections = connection->connections;

        if (!connection->has_work)
                return;

        connection->has_work = false;
        *(connection->work_prev ? &connection->work_prev->work_next : &connections->work_first) = connection->work_next;
        *(connection->work_next ? &connection->work_next->work_prev : &connections->work_last) = connection->work_prev;
}

static void on_touched(Session *session) {
        connection_add_work(session->user);
}

static Session *connection_session(const Connection *connection) {
        return server_session_base(connection->session);
}

/* The session's calls hear that it is over. */
static void connection_end_session(Connection *connection) {
        connection_remove_work(connection);
        if (!connection->session)
                return;

        connection_session(connection)->touched = NULL;
        connection->session = server_session_free(connection->session);
}

/* With the last of libuv's handles the connection is gone. */
static void connection_drop_handle(Connection *connection) {
        Connections *connections = connection->connections;

        if (--connection->n_handles > 0)
                return;

        *(connection->prev ? &connection->prev->next : &connections->first) = connection->next;
        if (connection->next)
                connection->next->prev = connection->prev;
        connections->n--;

        peer_clear(&connection->peer);
        free(connection);
        connections->gone(connections);
}

static void on_timer_closed(uv_handle_t *handle) {
        connection_drop_handle(handle->data);
}

static void connection_close(Connection *connection) {
        if (connection->closing)
                return;

        connection->closing = true;
        connection_end_session(connection);
        uv_close((uv_handle_t *) &connection->timer, on_timer_closed);
        socket_close(connection->socket);
}

static uint64_t connection_deadline(const Connection *connection) {
        const ServerOptions *options = &connection->connections->options;
        uint64_t deadline = connection->cut_at;

        if (connection->lingering)
                return deadline;
        if (connection->received < GREETING_LEN && options->handshake_timeout > 0)
                deadline = min_time(deadline, add_time(connection->opened_at, options->handshake_timeout));
        if (!connection->session)
                return deadline;

        deadline = min_time(deadline, session_deadline(connection_session(connection)));
        if (connection_session(connection)->draining)
                return deadline;
        if (options->max_connection_age > 0)
                deadline = min_time(deadline, add_time(connection->opened_at, options->max_connection_age));
        if (options->idle_timeout > 0 && connection->idle_since != NEVER)
                deadline = min_time(deadline, add_time(connection->idle_since, options->idle_timeout));
        return deadline;
}

static void on_timer(uv_timer_t *timer);

/* Sees to it that the timer runs at the deadline or before: one that has moved away costs nothing until then. */
static void connection_arm_timer(Connection *connection) {
        uint64_t deadline = connection_deadline(connection), now;

        if (connection->closing || deadline >= connection->timer_at)
                return;

        /* Not at once: libuv would run it again and again, and nothing else. */
        now = uv_hrtime();
        connection->timer_at = deadline;
        (void) uv_timer_start(&connection->timer, on_timer,
                              deadline > now ? (deadline - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 1, 0);
}

/* All is said: the session ends, the socket stays for a while, for the peer to read it. Closing it at once would take
 * back what the peer has not read. */
static void connection_linger(Connection *connection) {
        connection->lingering = true;
        connection->cut_at = min_time(connection->cut_at, add_time(uv_hrtime(), LINGER));
        connection_end_session(connection);
        socket_shutdown(connection->socket);
        connection_arm_timer(connection);
}

static void connection_drain(Connection *connection, uint64_t cut_at) {
        connection->cut_at = min_time(connection->cut_at, cut_at);
        if (!connection->session || session_drain(connection_session(connection)) < 0)
                connection->cut_at = 0;

        connection_arm_timer(connection);
}

static void tell_failure(const Connection *connection, const HutchError *err) {
        const ServerOptions *options = &connection->connections->options;

        if (options->connection_failed)
                options->connection_failed(&connection->peer, err, options->user);
}

static void tell_late_handshake(const Connection *connection) {
        _cleanup_(error_clear) HutchError err = {};

        (void) error_set(&err, -ETIMEDOUT, "HANDSHAKE_TIMEOUT", "the client did not begin to speak HTTP/2 in time");
        tell_failure(connection, &err);
}

static bool is_due(uint64_t since, uint64_t timeout, uint64_t now) {
        return timeout > 0 && add_time(since, timeout) <= now;
}

static void connection_tick(Connection *connection, uint64_t now) {
        const ServerOptions *options = &connection->connections->options;

        if (connection->cut_at <= now) {
                connection_close(connection);
                return;
        }
        if (connection->lingering)
                return;
        if (connection->received < GREETING_LEN && is_due(connection->opened_at, options->handshake_timeout, now)) {
                tell_late_handshake(connection);
                connection_close(connection);
                return;
        }
        if (!connection->session)
                return;

        session_tick(connection_session(connection), now);
        connection_add_work(connection);
        if (connection_session(connection)->draining)
                return;
        if (is_due(connection->opened_at, options->max_connection_age, now) ||
            (connection->idle_since != NEVER && is_due(connection->idle_since, options->idle_timeout, now)))
                connection_drain(connection, add_time(now, options->drain_grace));
}

static void on_timer(uv_timer_t *timer) {
        Connection *connection = timer->data;

        connection->timer_at = NEVER;
        connection_tick(connection, uv_hrtime());
        connection_arm_timer(connection);
}

static int connection_begin_session(Connection *connection) {
        Connections *connections = connection->connections;

        connection->session = server_session_new(&connections->handlers, &connections->limits, &connections->budget,
                                                 &connection->peer, uv_hrtime());
        if (!connection->session)
                return -ENOMEM;

        connection_session(connection)->user = connection;
        connection_session(connection)->touched = on_touched;
        return 0;
}

static bool is_http1(const uint8_t *bytes, size_t len) {
        static const char *const methods[] = { "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH " };

        for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
                if (len >= strlen(methods[i]) && memcmp(bytes, methods[i], strlen(methods[i])) == 0)
                        return true;
        return false;
}

static void answer_http1(Connection *connection) {
        static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
                                     "content-type: text/plain\r\n"
                                     "connection: close\r\n"
                                     "\r\n"
                                     "This is a gRPC server: it speaks HTTP/2.\r\n";

        (void) socket_write(connection->socket, answer, sizeof(answer) - 1);
        connection_linger(connection);
}

static void tell_protocol_error(const Connection *connection) {
        _cleanup_(error_clear) HutchError err = {};

        (void) error_set_code(&err, STATUS_INVALID_ARGUMENT, -EPROTO, "HTTP2_BROKEN",
                              "the client does not speak HTTP/2");
        tell_failure(connection, &err);
}

static void on_received(void *user, const uint8_t *bytes, size_t len) {
        Connection *connection = user;
        int r;

        connection->connections->received_bytes += len;
        connection->received += len;
        if (!connection->session && connection_begin_session(connection) < 0) {
                connection_close(connection);
                return;
        }

        r = session_receive(connection_session(connection), bytes, len, uv_hrtime());
        connection_add_work(connection);
        if (r == -EPROTO) {
                tell_protocol_error(connection);
                if (connection->received == len && is_http1(bytes, len))
                        answer_http1(connection);
                return;
        }

        if (!connection->blocked)
                return;
        connection->received_while_blocked += len;
        if (connection->received_while_blocked > RECEIVE_WHILE_BLOCKED_MAX)
                socket_set_reading(connection->socket, false);
}

static void on_drained(void *user) {
        Connection *connection = user;

        connection->blocked = false;
        connection->received_while_blocked = 0;
        socket_set_reading(connection->socket, true);
        connection_add_work(connection);
}

static void on_established(void *user) {
        Connection *connection = user;

        if (tls_peer_certificate(socket_tls(connection->socket), &connection->peer.certificate_subject,
                                 &connection->peer.certificate_end) < 0)
                connection_close(connection);
}

/* The peer is gone, or TLS refused it: then it shall hear why. */
static void on_failed(void *user, const HutchError *err) {
        Connection *connection = user;

        if (err->error != EPROTO || connection->lingering) {
                connection_close(connection);
                return;
        }

        tell_failure(connection, err);
        connection_linger(connection);
}

static void on_socket_closed(void *user) {
        connection_drop_handle(user);
}

static const SocketEvents socket_events = {
        .established = on_established,
        .received = on_received,
        .drained = on_drained,
        .failed = on_failed,
        .closed = on_socket_closed,
};

/* Sends what the session has to say, as much as the buffer holds. Returns whether there may be more, or a negative
 * errno. */
static int connection_send(Connection *connection) {
        Connections *connections = connection->connections;
        _cleanup_(session_output_clear) SessionOutput output = {
                .buffer = connections->out,
                .size = sizeof(connections->out),
        };
        ssize_t len;
        int r;

        if (connection->blocked)
                return 0;

        len = session_gather(connection_session(connection), &output);
        if (len <= 0)
                return (int) len;

        if (connections->options.before_send)
                connections->options.before_send(connections->options.user);
        connections->sent_bytes += (uint64_t) len;
        r = socket_write_parts(connection->socket, output.parts, output.n_parts);
        if (r < 0)
                return r;

        connection->blocked = r > 0;
        return !connection->blocked && (size_t) len > sizeof(connections->out) - SESSION_BUFFER_SIZE;
}

static void connection_flush(Connection *connection) {
        Session *session = connection_session(connection);
        int r = connection_send(connection);

        if (r < 0) {
                connection_close(connection);
                return;
        }
        if (session_is_finished(session) && r == 0 && !connection->blocked) {
                connection_linger(connection);
                return;
        }

        /* One that is finished does not wait for its peer for long. */
        if (session_is_finished(session))
                connection->cut_at = min_time(connection->cut_at, add_time(uv_hrtime(), LINGER));
        if (r > 0 || session->ready_first)
                connection_add_work(connection);

        if (session->n_streams > 0)
                connection->idle_since = NEVER;
        else if (connection->idle_since == NEVER)
                connection->idle_since = uv_hrtime();
        connection_arm_timer(connection);
}

void connections_flush(Connections *connections) {
        Connection *last = connections->work_last, *connection = NULL;

        /* What is added on the way comes in the next turn. */
        while (connection != last && connections->work_first) {
                connection = connections->work_first;
                connection_remove_work(connection);
                connection_flush(connection);
        }
}

void connections_dispatch(Connections *connections) {
        for (Connection *c = connections->work_first; c; c = c->work_next)
                (void) session_dispatch(connection_session(c), DISPATCH_PER_TURN);
}

void connections_drain(Connections *connections, uint64_t cut_at) {
        for (Connection *c = connections->first; c; c = c->next)
                if (!c->closing && !c->lingering)
                        connection_drain(c, cut_at);
}

void connections_close(Connections *connections) {
        for (Connection *c = connections->first; c; c = c->next)
                connection_close(c);
}

static int make_tls(TlsContext *context, Tls **ret_tls) {
        return context ? tls_new(context, NULL, ret_tls) : 0;
}

static int connection_take_socket(Connection *connection, int fd, TlsContext *context) {
        Connections *connections = connection->connections;
        _cleanup_close_ int owned_fd = fd;
        Tls *tls = NULL;
        int r, yes = 1;

        r = peer_init(&connection->peer, fd);
        if (r < 0)
                return r;
        r = make_tls(context, &tls);
        if (r < 0)
                return r;

        connection->peer.encrypted = tls;
        if (!connection->peer.has_credentials)
                (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        return socket_new(connections->loop, TAKE_FD(owned_fd), tls, &connections->scratch, &socket_events, connection,
                          &connection->socket);
}

void connections_open(Connections *connections, int fd, TlsContext *context) {
        Connection *connection = try_new0(Connection, 1);

        if (!connection) {
                fd_close(fd);
                return;
        }

        connection->connections = connections;
        connection->opened_at = connection->idle_since = uv_hrtime();
        connection->cut_at = connection->timer_at = NEVER;
        if (connection_take_socket(connection, fd, context) < 0) {
                peer_clear(&connection->peer);
                free(connection);
                return;
        }

        (void) uv_timer_init(connections->loop, &connection->timer);
        connection->timer.data = connection;
        connection->n_handles = 2;

        connection->next = connections->first;
        if (connection->next)
                connection->next->prev = connection;
        connections->first = connection;
        connections->n++;
        connection_arm_timer(connection);
}
