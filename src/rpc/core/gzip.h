/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* gzip, one message at a time. What comes back is from malloc(), the caller's, and not NULL, even when it is empty.
 * Both fail with -ENOMEM when memory is out. */

/* -EMSGSIZE: the result would not fit into a message, whose length has 32 bits. */
int gzip_compress(const uint8_t *bytes, size_t len, uint8_t **ret_bytes, size_t *ret_len)
        __attribute__((nonnull(3, 4)));

/* Fails with -EMSGSIZE when the result is longer than @len_max, having taken no more memory than one of that length
 * needs, whatever the ratio; with -EBADMSG when the bytes are not exactly one gzip member: damaged, cut short, or
 * followed by anything, another member too. */
int gzip_decompress(const uint8_t *bytes, size_t len, size_t len_max, uint8_t **ret_bytes, size_t *ret_len)
        __attribute__((nonnull(4, 5)));
