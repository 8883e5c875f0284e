/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What the daemon and the service manager tell each other: readiness, the watchdog, sockets that were opened before.
 * All of it is nothing where no service manager asked for it. */

/* Tells the manager: "READY=1", "STOPPING=1", "WATCHDOG=1". 0, also when nobody listens; else a negative errno. */
int systemd_notify(const char *state) __attribute__((nonnull));

/* How often the manager wants to hear WATCHDOG=1, in nanoseconds: half of what it allows. 0: never. */
uint64_t systemd_watchdog_interval(void);

/* The listening sockets that were passed on: how many, from the descriptor 3 on. The variables that told are removed
 * from the environment, and the descriptors are not passed on further. */
size_t systemd_listen_fds(void);

#define SYSTEMD_FIRST_FD 3
