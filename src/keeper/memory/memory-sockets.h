/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What the @used sockets of a network hold in memory, by the kernel's own numbers. @diag is a socket of
 * NETLINK_SOCK_DIAG in that network. @has_internet: there are some beside those of AF_UNIX. Those that the kernel does
 * not tell of count as much as they can hold. */
uint64_t memory_sockets_sum(int diag, uint64_t used, bool has_internet);
