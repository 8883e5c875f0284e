/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* Where a listing of files goes on, as a text for the caller. It holds for the same question only. */

#define PAGE_TOKEN_VERSION_SIZE 32 /* of the listed folder: see file-info.h */
#define PAGE_TOKEN_LAST_MAX (64 * 256)

typedef struct PageToken {
        uint64_t question; /* which listing it belongs to */
        uint64_t began;    /* when the first page was made */
        char version[PAGE_TOKEN_VERSION_SIZE];
        char *last; /* the path of the last entry that was told, relative to the folder; at most PAGE_TOKEN_LAST_MAX */
} PageToken;

/* Writes a token, which the caller frees. NULL when memory is out. */
char *page_token_write(const PageToken *token) __attribute__((nonnull));

/* Reads one; its @last is the caller's to free. -EINVAL: it is none; -ENOMEM. */
int page_token_read(const char *text, PageToken *ret_token) __attribute__((nonnull));
