/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Which daemon is meant, where it is not said. */

typedef struct Failure Failure;

/* The address to connect to, as rpc/connector.h reads it, which the caller frees. @given may be NULL. */
int address_find(const char *given, char **ret_address, HutchError *err) __attribute__((nonnull(2)));

/* Starts the daemon of @address, when that is a Unix socket and nobody listens there. */
int address_start_daemon(const char *address, bool *ret_started, Failure *failure) __attribute__((nonnull));
