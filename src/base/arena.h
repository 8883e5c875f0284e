/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/memory.h"

/* Arenas: memory that is freed all at once, with a cap.
 *
 * One call decodes into one arena, so that a small message that unfolds into a large one fails its call instead of
 * growing the daemon. Memory is taken in chunks as it is needed: at most about a third more than was handed out. */

typedef struct Arena Arena;

/* Makes an arena that hands out at most @cap bytes. Aborts when memory is out. */
Arena *arena_new(size_t cap) __attribute__((returns_nonnull));

/* Frees @arena and all that came from it. @arena may be NULL. Returns NULL. */
Arena *arena_free(Arena *arena);
DEFINE_CLEANUP(Arena *, arena_free);

/* Hands out @size zeroed bytes, aligned for any type, also for a @size of 0. NULL when the cap is reached or memory
 * is out; a smaller request may still succeed. */
void *arena_alloc(Arena *arena, size_t size) __attribute__((nonnull, alloc_size(2)));

/* Copies the @len bytes at @text and a NUL behind them. NULL as for arena_alloc(). */
char *arena_strndup(Arena *arena, const char *text, size_t len) __attribute__((nonnull(1)));

/* The bytes counted against the cap: what was handed out, each piece rounded up to its alignment. */
size_t arena_used(const Arena *arena) __attribute__((nonnull));

/* Takes back all that came from @arena, and keeps one small chunk for the next call. */
void arena_reset(Arena *arena) __attribute__((nonnull));
