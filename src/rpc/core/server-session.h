/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "rpc/core/call.h"
#include "rpc/core/session.h"

/* Server sessions: one connection of a client's, its requests turned into calls (call.h) and their answers into HTTP/2.
 * Without sockets and clock: session.h says how bytes go in and out. */

typedef struct MethodTable MethodTable;
typedef struct ServerSession ServerSession;

/* What is served. It outlives its sessions. */
typedef struct ServerHandlers {
        const MethodTable *methods;
        const Interceptor *interceptors;
        size_t n_interceptors;
} ServerHandlers;

/* @peer and @budget, which may be NULL, outlive the session. NULL when memory is out. */
ServerSession *server_session_new(const ServerHandlers *handlers, const SessionLimits *limits, SessionBudget *budget,
                                  const Peer *peer, uint64_t now) __attribute__((nonnull(1, 2, 4)));

/* Ends every call and frees @session, which may be NULL. Returns NULL. */
ServerSession *server_session_free(ServerSession *session);
DEFINE_CLEANUP(ServerSession *, server_session_free);

/* The session underneath. */
Session *server_session_base(ServerSession *session) __attribute__((nonnull, returns_nonnull));
