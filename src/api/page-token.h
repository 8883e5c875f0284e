/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Page tokens: where a listing goes on, and of which filter it is. Opaque to callers, and of no use with another
 * filter. */

#define PAGE_TOKEN_SIZE 32 /* with its NUL */

/* What tells one filter from another. @filter is any text that differs where filters do. */
uint64_t page_filter_hash(const char *filter, size_t len) __attribute__((nonnull));

void page_token_write(uint64_t serial, uint64_t filter_hash, char ret_token[static PAGE_TOKEN_SIZE]);

/* The serial of a token; an empty one is that of the first page, 0. -EINVAL and PAGE_TOKEN_INVALID when it is not one
 * of this filter's. */
int page_token_read(const char *token, uint64_t filter_hash, uint64_t *ret_serial, HutchError *err)
        __attribute__((nonnull(1, 3)));
