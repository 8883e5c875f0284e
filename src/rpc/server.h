/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/error.h"
#include "rpc/core/call.h"
#include "rpc/core/session.h"
#include "rpc/peer.h"

/* Servers: listeners and connections on an event loop, and the methods that they serve.
 *
 *         r = server_new(loop, methods, &server_options_default, &server);
 *         r = server_listen_unix(server, "/run/hutch/api.sock", 0660, &err);
 *         r = server_listen_tcp(server, "127.0.0.1", 0, NULL, &port, &err);
 *         uv_run(loop, UV_RUN_DEFAULT);
 *
 *         server_drain(server, 10 * NSEC_PER_SEC, on_drained, user);
 *         server_free(server, NULL, NULL);      the loop must run on until it is gone
 *
 * In each iteration of the loop: what came is read, from each connection a share; handlers run, for each connection a
 * share; `before_flush` is called once; then the answers go out, `before_send` being called before any byte does. So
 * whatever handlers have changed can be made durable once for all of them, before any peer hears of it. All times are
 * nanoseconds. */

typedef struct MethodTable MethodTable;
typedef struct TlsContext TlsContext;
typedef struct Server Server;

typedef struct ServerOptions {
        const SessionLimits *limits; /* of each connection */

        /* Over all connections. */
        size_t max_connections; /* others are closed as they come */
        size_t max_by_tcp;      /* the same for TCP: who fills it leaves room for those on this machine */
        size_t max_streams;     /* others are refused, which clients may try again; those that ended count until told */
        size_t max_buffered;    /* bytes of messages in memory, beyond which calls fail */
        size_t max_queued;      /* bytes of answers that wait to be sent, beyond which only small ones are taken */

        uint64_t handshake_timeout;  /* from the connection to HTTP/2's first frame */
        uint64_t idle_timeout;       /* without a call before the connection is drained; 0: never */
        uint64_t max_connection_age; /* before the connection is drained; 0: never */
        uint64_t drain_grace;        /* for calls of a connection that is drained for its age */

        const Interceptor *interceptors; /* they outlive the server */
        size_t n_interceptors;

        /* Before answers go out. May answer calls. NULL: nothing. */
        void (*before_flush)(void *user);
        /* Each time that something is about to be sent to a peer. Touches no call. NULL: nothing. */
        void (*before_send)(void *user);
        /* A connection failed in its handshake, or broke the protocol. NULL: nobody wants to know. */
        void (*connection_failed)(const Peer *peer, const HutchError *err, void *user);
        void *user;
} ServerOptions;

extern const ServerOptions server_options_default;

typedef struct ServerStats {
        size_t connections;            /* open now */
        size_t streams;                /* open now */
        size_t buffered;               /* bytes of messages in memory now */
        size_t queued;                 /* bytes of answers that wait to be sent now */
        uint64_t accepted_connections; /* since the start, with those refused */
        uint64_t refused_connections;  /* because there were too many */
        uint64_t calls;                /* since the start, with those refused by their method or interceptors */
        uint64_t received_bytes;       /* of HTTP/2, since the start */
        uint64_t sent_bytes;
} ServerStats;

/* @methods outlive the server; @options and their limits are copied. -ENOMEM and other errors of the system. */
int server_new(uv_loop_t *loop, const MethodTable *methods, const ServerOptions *options, Server **ret_server)
        __attribute__((nonnull));

/* Closes everything, removes the files of its Unix sockets, and frees @server while the loop runs on; calls hear that
 * they were cancelled. Then calls @done, which may be NULL. May be called by handlers. */
void server_free(Server *server, void (*done)(void *user), void *user) __attribute__((nonnull(1)));

/* Listens on a Unix socket at @path, with @mode as its permissions. A socket that is there already is replaced when
 * nobody answers on it; otherwise -EADDRINUSE. */
int server_listen_unix(Server *server, const char *path, mode_t mode, HutchError *err) __attribute__((nonnull(1, 2)));

/* Listens on @address, an IPv4 or IPv6 address in text, and @port (0: any free one, told in @ret_port, which may be
 * NULL), with @tls, which may be NULL and is kept by reference. */
int server_listen_tcp(Server *server, const char *address, uint16_t port, TlsContext *tls, uint16_t *ret_port,
                      HutchError *err) __attribute__((nonnull(1, 2)));

/* Listens on @fd, a listening socket that somebody else has made, and takes it over, also when it fails. */
int server_listen_fd(Server *server, int fd, TlsContext *tls, HutchError *err) __attribute__((nonnull(1)));

/* New connections to listeners with @old get @new instead: certificates were renewed. */
void server_replace_tls(Server *server, TlsContext *old, TlsContext *new) __attribute__((nonnull));

/* Stops listening, lets running calls finish for @grace, and cuts what is left then. @done, which may be NULL, is
 * called when no connection is left; not when the server is freed before. */
void server_drain(Server *server, uint64_t grace, void (*done)(void *user), void *user) __attribute__((nonnull(1)));

ServerStats server_stats(const Server *server) __attribute__((nonnull));
