/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* The daemon of the calling user, on this machine. */

/* Starts a daemon that listens on @socket and waits until it serves. It stays when the caller ends; what it logs is in
 * its state folder. -ENOENT: there is no hutchd here; -ETIMEDOUT; -EIO: it ended at once, and the message tells what it
 * said. */
int local_daemon_start(const char *socket, HutchError *err) __attribute__((nonnull(1)));

/* Tells whether anybody answers on @socket: 1, 0, or a negative errno when one may not ask. */
int local_daemon_is_there(const char *socket) __attribute__((nonnull));
