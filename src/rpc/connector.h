/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "base/memory.h"

/* Targets of clients, and connecting to them.
 *
 *   unix:/run/hutch/hutchd.sock    a Unix socket
 *   example.com:443, 127.0.0.1:50051, [::1]:50051    TCP */

typedef struct Target {
        char *path; /* of a Unix socket; NULL: TCP */
        char *host;
        char *port;
} Target;

/* Reads @text. -EINVAL: it is no target; -ENOMEM. */
int target_parse(const char *text, Target *ret_target, HutchError *err) __attribute__((nonnull(1, 2)));
void target_clear(Target *target) __attribute__((nonnull));

/* One attempt to connect. */
typedef struct Connector Connector;

typedef struct ConnectorResult {
        int fd; /* connected, non-blocking, closed on exec: the callee's. Negative: it failed */
        const HutchError *err;
} ConnectorResult;

/* Begins to connect to @target, which outlives the attempt: all addresses of a name in turn, for @timeout nanoseconds
 * in all. Calls @done once, never before it returns, unless it was cancelled. -ENOMEM. */
int connector_new(uv_loop_t *loop, const Target *target, uint64_t timeout,
                  void (*done)(void *user, ConnectorResult result), void *user, Connector **ret_connector)
        __attribute__((nonnull(1, 2, 4, 6)));

/* Gives up; @done is not called. After @done was called the attempt is gone by itself. */
void connector_cancel(Connector *connector) __attribute__((nonnull));
