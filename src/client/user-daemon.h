/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "client/failure.h"

/* The daemon of the calling user, on this machine. */

/* As hutch_daemon_start(). */
int user_daemon_start(const char *socket, Failure *failure) __attribute__((nonnull));
