/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* Small files with secrets in them, which are for their owner only, and are replaced whole. */

/* Reads the file at @path into a text that the caller frees, with a NUL behind it. -ENOENT; -EPERM: others than its
 * owner may read or write it, or it is neither this user's nor root's; -EFBIG: it has more than @max bytes; -ENOMEM. */
int private_file_read(const char *path, size_t max, char **ret_text, size_t *ret_len, HutchError *err)
        __attribute__((nonnull(1, 3, 4)));

/* Keeps others who do the same from changing the file, until the descriptor that is returned is closed. */
int private_file_lock(const char *path, HutchError *err) __attribute__((nonnull(1)));

/* Puts @len bytes in the place of what is at @path: all of it or nothing, also when the machine fails. */
int private_file_write(const char *path, const char *text, size_t len, HutchError *err) __attribute__((nonnull(1, 2)));
