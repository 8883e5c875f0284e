/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Making sockets that listen: non-blocking, and closed on exec. */

/* A Unix socket at @path with @mode as its permissions, which hold before anybody can connect. A socket that is there
 * already is replaced when nobody answers on it; otherwise -EADDRINUSE. Returns the descriptor. */
int listen_unix(const char *path, mode_t mode, HutchError *err) __attribute__((nonnull(1)));

/* A TCP socket at @address, an IPv4 or IPv6 address in text, and @port; 0: any free one. Returns the descriptor. */
int listen_tcp(const char *address, uint16_t port, HutchError *err) __attribute__((nonnull(1)));

/* Prepares @fd, which somebody else has made. -EINVAL: it is no socket that listens for streams. */
int listen_adopt(int fd, HutchError *err);

/* The TCP port of @fd; 0: it has none. */
uint16_t listen_port(int fd);
