/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <stdbool.h>

#include "base/error.h"

/* Which daemon is meant, and how it is reached: by the caller's options, the environment and the contexts file, as
 * spec/behavior.md says in its section on connecting. */

typedef struct Failure Failure;

typedef struct Endpoint {
        char *address; /* as rpc/connector.h reads it */
        char *ca_file; /* these as in HutchClientOptions */
        char *certificate_file;
        char *key_file;
        char *server_name;
        char *token;
} Endpoint;

void endpoint_clear(Endpoint *endpoint) __attribute__((nonnull));

/* FIELD_CONFLICT, CONTEXT_NOT_FOUND, CONTEXTS_FILE_EXPOSED, CONTEXTS_FILE_INVALID; -ENOMEM. */
int endpoint_find(const HutchClientOptions *options, Endpoint *ret_endpoint, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Whether that is a Unix socket of this machine. */
bool endpoint_is_local(const Endpoint *endpoint) __attribute__((nonnull));

/* Starts its daemon, when it is local and nobody listens there. */
int endpoint_start_daemon(const Endpoint *endpoint, bool *ret_started, Failure *failure) __attribute__((nonnull));
