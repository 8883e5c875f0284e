/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "rpc/core/server-session.h"
#include "rpc/server.h"
#include "rpc/socket.h"

/* The connections of a server. Only server.c sees this.
 *
 * A connection has work while something is to be dispatched or produced. It is on a list then, and has its share in
 * each turn that the server takes: connections_dispatch(), then connections_flush(). One that is idle costs nothing. */

typedef struct Connection Connection;
typedef struct Connections Connections;

struct Connections {
        /* The server's. */
        uv_loop_t *loop;
        ServerOptions options;
        SessionLimits limits;
        ServerHandlers handlers;
        SessionBudget budget;
        void (*wake)(Connections *connections); /* there is work */
        void (*gone)(Connections *connections); /* nothing is left of a connection */

        Connection *first;
        size_t n;
        Connection *work_first, *work_last;
        uint64_t received_bytes, sent_bytes;

        /* Shared by all. */
        SocketScratch scratch;
        uint8_t out[256 << 10];
};

/* Takes over @fd, a connected socket; closes it when memory is out. */
void connections_open(Connections *connections, int fd, TlsContext *context) __attribute__((nonnull(1)));

/* Runs the handlers of what is ready, for each connection a share. */
void connections_dispatch(Connections *connections) __attribute__((nonnull));

/* Sends what is to be sent, for each connection a share. */
void connections_flush(Connections *connections) __attribute__((nonnull));

/* Lets the calls finish that are running, and cuts what is left at @cut_at. */
void connections_drain(Connections *connections, uint64_t cut_at) __attribute__((nonnull));

void connections_close(Connections *connections) __attribute__((nonnull));
