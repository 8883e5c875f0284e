/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: accepting, and the order of work in an iteration of the loop. What does not: connections
 * (connections.c), and how sockets come to listen (listen.c). */

#include "rpc/server.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "rpc/connections.h"
#include "rpc/listen.h"
#include "rpc/tls.h"

const ServerOptions server_options_default = {
        .limits = &session_limits_default,
        .max_connections = 10000,
        .max_by_tcp = 8000,
        .max_streams = 100000,
        .max_buffered = 256 << 20,
        .max_queued = 1 << 30,
        .handshake_timeout = 10 * NSEC_PER_SEC,
        .drain_grace = 10 * NSEC_PER_SEC,
};

#define ACCEPT_PER_TURN 64 /* connections of a listener, before others have their turn */

/* How long nothing is accepted after the system had no descriptor or memory for it. */
#define ACCEPT_PAUSE_MSEC 100

typedef struct Listener Listener;

struct Listener {
        Server *server;
        Listener *next;
        uv_poll_t poll;
        int fd;
        TlsContext *tls; /* NULL: none */
        bool by_tcp;
        char *path; /* of a Unix socket that is to be removed; NULL: none */
        struct stat info;
};

struct Server {
        Connections connections; /* first: they know their server by it */
        Listener *listeners;
        uint64_t accepted_connections, refused_connections;

        uv_check_t check;     /* a turn after what was read */
        uv_prepare_t prepare; /* a turn after timers and all else */
        uv_idle_t idle;       /* active: another turn is due at once */
        uv_timer_t accept_timer;
        size_t n_handles; /* of libuv's: the four and the listeners */

        void (*drain_done)(void *user);
        void *drain_user;
        bool freeing;
        void (*free_done)(void *user);
        void *free_user;
};

static void on_idle(uv_idle_t *idle) {
        (void) idle; /* its being active keeps the loop from waiting */
}

/* There will be another turn without waiting for anything. */
static void server_wake(Server *server) {
        if (!uv_is_closing((uv_handle_t *) &server->idle))
                (void) uv_idle_start(&server->idle, on_idle);
}

static void on_work(Connections *connections) {
        server_wake((Server *) connections);
}

/* Frees the server when nothing is left of it. */
static void server_free_last(Server *server) {
        void (*done)(void *user) = server->free_done;
        void *user = server->free_user;

        if (server->n_handles > 0 || server->connections.n > 0)
                return;

        free(server);
        if (done)
                done(user);
}

static void server_drop_handle(Server *server) {
        server->n_handles--;
        server_free_last(server);
}

static void on_connection_gone(Connections *connections) {
        Server *server = (Server *) connections;

        if (server->drain_done)
                server_wake(server);
        server_free_last(server);
}

static void server_close(Server *server);

static void server_turn(Server *server) {
        Connections *connections = &server->connections;

        if (server->freeing) {
                server_close(server);
                return;
        }

        if (connections->work_first) {
                connections_dispatch(connections);
                if (connections->options.before_flush)
                        connections->options.before_flush(connections->options.user);
                connections_flush(connections);
        }

        if (!connections->work_first && !server->freeing)
                (void) uv_idle_stop(&server->idle);
        if (server->drain_done && connections->n == 0) {
                void (*done)(void *user) = TAKE_PTR(server->drain_done);

                done(server->drain_user);
        }
}

static void on_check(uv_check_t *check) {
        server_turn(check->data);
}

static void on_prepare(uv_prepare_t *prepare) {
        server_turn(prepare->data);
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

static void accept_again(uv_timer_t *timer) {
        Server *server = timer->data;

        for (Listener *l = server->listeners; l; l = l->next)
                (void) uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

/* The system is at its end: new connections wait until it has recovered. */
static void pause_accepting(Server *server) {
        for (Listener *l = server->listeners; l; l = l->next)
                (void) uv_poll_stop(&l->poll);
        (void) uv_timer_start(&server->accept_timer, accept_again, ACCEPT_PAUSE_MSEC, 0);
}

/* Whether one more connection is taken. Those of Unix sockets count for TCP's limit, too: it is the lower one. */
static bool has_room(const Server *server, const Listener *listener) {
        const ServerOptions *options = &server->connections.options;

        return server->connections.n < (listener->by_tcp ? options->max_by_tcp : options->max_connections);
}

static void on_acceptable(uv_poll_t *poll, int status, int events) {
        Listener *listener = poll->data;
        Server *server = listener->server;

        (void) status, (void) events;
        for (size_t n = 0; n < ACCEPT_PER_TURN; n++) {
                int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

                if (fd < 0 && errno == EAGAIN)
                        return;
                if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
                        continue;
                if (fd < 0) {
                        pause_accepting(server);
                        return;
                }

                server->accepted_connections++;
                if (has_room(server, listener)) {
                        connections_open(&server->connections, fd, listener->tls);
                } else {
                        server->refused_connections++;
                        fd_close(fd);
                }
        }
}

static void listener_free(Listener *listener) {
        tls_context_unref(listener->tls);
        free(listener->path);
        free(listener);
}

static void on_listener_closed(uv_handle_t *handle) {
        Listener *listener = handle->data;
        Server *server = listener->server;

        listener_free(listener);
        server_drop_handle(server);
}

static void listener_close(Listener *listener) {
        struct stat info;

        /* Not that of a server that has taken the place. */
        if (listener->path && lstat(listener->path, &info) == 0 && info.st_dev == listener->info.st_dev &&
            info.st_ino == listener->info.st_ino)
                (void) unlink(listener->path);

        uv_close((uv_handle_t *) &listener->poll, on_listener_closed);
        listener->fd = fd_close(listener->fd);
}

static void close_listeners(Server *server) {
        while (server->listeners) {
                Listener *listener = server->listeners;

                server->listeners = listener->next;
                listener_close(listener);
        }

        (void) uv_timer_stop(&server->accept_timer);
}

static bool is_unix(int fd) {
        struct sockaddr_storage name = {};
        socklen_t len = sizeof(name);

        return getsockname(fd, (struct sockaddr *) &name, &len) == 0 && name.ss_family == AF_UNIX;
}

/* Takes over @fd; of a Unix socket that is to be removed in the end, @path is given. */
static int add_listener(Server *server, int fd, const char *path, TlsContext *tls, HutchError *err) {
        Listener *listener = try_new0(Listener, 1);
        int r;

        if (!listener || (path && !(listener->path = strdup(path)))) {
                free(listener);
                fd_close(fd);
                return error_set(err, -ENOMEM, "LISTEN_FAILED", "memory is out");
        }

        r = uv_poll_init(server->connections.loop, &listener->poll, fd);
        if (r < 0) {
                listener_free(listener);
                fd_close(fd);
                return error_set(err, r, "LISTEN_FAILED", "cannot listen: %s", strerror(-r));
        }

        listener->server = server;
        listener->fd = fd;
        listener->by_tcp = !is_unix(fd);
        listener->tls = tls_context_ref(tls);
        if (path)
                (void) lstat(path, &listener->info);
        listener->poll.data = listener;
        listener->next = server->listeners;
        server->listeners = listener;
        server->n_handles++;
        (void) uv_poll_start(&listener->poll, UV_READABLE, on_acceptable);
        return 0;
}

int server_listen_unix(Server *server, const char *path, mode_t mode, HutchError *err) {
        int fd = listen_unix(path, mode, err), r;

        if (fd < 0)
                return fd;

        r = add_listener(server, fd, path, NULL, err);
        if (r < 0)
                (void) unlink(path);
        return r;
}

int server_listen_tcp(Server *server, const char *address, uint16_t port, TlsContext *tls, uint16_t *ret_port,
                      HutchError *err) {
        int fd = listen_tcp(address, port, err), r;
        uint16_t bound_port;

        if (fd < 0)
                return fd;

        bound_port = listen_port(fd);
        r = add_listener(server, fd, NULL, tls, err);
        if (r == 0 && ret_port)
                *ret_port = bound_port;
        return r;
}

int server_listen_fd(Server *server, int fd, TlsContext *tls, HutchError *err) {
        int r = listen_adopt(fd, err);

        if (r < 0) {
                fd_close(fd);
                return r;
        }

        return add_listener(server, fd, NULL, tls, err);
}

void server_replace_tls(Server *server, TlsContext *old, TlsContext *new) {
        for (Listener *l = server->listeners; l; l = l->next) {
                if (l->tls != old)
                        continue;
                l->tls = tls_context_ref(new);
                tls_context_unref(old);
        }
}

int server_new(uv_loop_t *loop, const MethodTable *methods, const ServerOptions *options, Server **ret_server) {
        Server *server = try_new0(Server, 1);

        if (!server)
                return -ENOMEM;

        server->connections.loop = loop;
        server->connections.options = *options;
        server->connections.limits = *options->limits;
        server->connections.handlers = (ServerHandlers){
                .methods = methods,
                .interceptors = options->interceptors,
                .n_interceptors = options->n_interceptors,
        };
        server->connections.budget.max_buffered = options->max_buffered;
        server->connections.budget.max_queued = options->max_queued;
        server->connections.budget.max_streams = options->max_streams;
        server->connections.wake = on_work;
        server->connections.gone = on_connection_gone;

        /* None of these can fail. The turns alone keep no loop running. */
        (void) uv_check_init(loop, &server->check);
        (void) uv_prepare_init(loop, &server->prepare);
        (void) uv_idle_init(loop, &server->idle);
        (void) uv_timer_init(loop, &server->accept_timer);
        server->check.data = server->prepare.data = server->idle.data = server->accept_timer.data = server;
        server->n_handles = 4;
        (void) uv_check_start(&server->check, on_check);
        (void) uv_prepare_start(&server->prepare, on_prepare);
        uv_unref((uv_handle_t *) &server->check);
        uv_unref((uv_handle_t *) &server->prepare);

        *ret_server = server;
        return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
        server_drop_handle(handle->data);
}

static void server_close(Server *server) {
        close_listeners(server);
        connections_close(&server->connections);

        uv_close((uv_handle_t *) &server->check, on_handle_closed);
        uv_close((uv_handle_t *) &server->prepare, on_handle_closed);
        uv_close((uv_handle_t *) &server->idle, on_handle_closed);
        uv_close((uv_handle_t *) &server->accept_timer, on_handle_closed);
}

void server_free(Server *server, void (*done)(void *user), void *user) {
        /* The caller may be one of our handlers: the next turn does it. */
        server->freeing = true;
        server->free_done = done;
        server->free_user = user;
        server_wake(server);
}

void server_drain(Server *server, uint64_t grace, void (*done)(void *user), void *user) {
        uint64_t now = uv_hrtime();

        server->drain_done = done;
        server->drain_user = user;
        close_listeners(server);
        connections_drain(&server->connections, grace < UINT64_MAX - now ? now + grace : UINT64_MAX);
        server_wake(server);
}

ServerStats server_stats(const Server *server) {
        const Connections *connections = &server->connections;

        return (ServerStats){
                .connections = connections->n,
                .streams = connections->budget.streams,
                .buffered = connections->budget.buffered,
                .queued = connections->budget.queued,
                .accepted_connections = server->accepted_connections,
                .refused_connections = server->refused_connections,
                .calls = connections->budget.opened_streams,
                .received_bytes = connections->received_bytes,
                .sent_bytes = connections->sent_bytes,
        };
}
