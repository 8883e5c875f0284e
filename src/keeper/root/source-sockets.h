/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Unix sockets in folders of the host. A read-only mount keeps nobody from connecting to one: the kernel asks for the
 * right to write to the socket, and not whether the mount is read-only. */

#define SOURCE_ENTRIES_MAX 10000 /* that are looked at in one folder and what is below it */

/* Looks for a socket in @folder (O_PATH will do) and below, the least deep first, and through no link. What cannot be
 * read is passed over, and so is all that comes after SOURCE_ENTRIES_MAX entries: this finds what is there by mistake,
 * and is no wall. Returns 1 and its path below @folder, cut off where it is too long; 0: there is none. */
int source_find_socket(int folder, char *ret_path, size_t size) __attribute__((nonnull));
