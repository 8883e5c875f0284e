/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the bump allocator. What does not: what the caps are; who makes an arena knows. Under
 * AddressSanitizer all that was not handed out is poisoned, so that reading past a piece is found as with malloc(). */

#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISONS 1
#endif
#endif

#ifdef ARENA_POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void) (address), (void) (size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void) (address), (void) (size))
#endif

#define ALIGNMENT alignof(max_align_t)
#define CHUNK_SIZE ((size_t) 4096 - 64) /* with its head and malloc's own, one page */

typedef struct Chunk Chunk;
struct Chunk {
        Chunk *next;
        size_t size;
        size_t used;
        alignas(max_align_t) unsigned char bytes[];
};

struct Arena {
        size_t cap;
        size_t used;
        Chunk *small;  /* chunks of CHUNK_SIZE; the first is being filled */
        Chunk *larges; /* one chunk for each piece that would waste too much of a small one */
};

static Chunk *chunk_push(Chunk **list, size_t size) {
        Chunk *chunk;

        if (size > SIZE_MAX - sizeof(Chunk))
                return NULL;

        chunk = malloc(sizeof(Chunk) + size);
        if (!chunk)
                return NULL;

        *chunk = (Chunk){ .next = *list, .size = size };
        ASAN_POISON_MEMORY_REGION(chunk->bytes, size);
        *list = chunk;
        return chunk;
}

static void chunks_free(Chunk *chunk) {
        while (chunk) {
                Chunk *next = chunk->next;

                free(chunk);
                chunk = next;
        }
}

Arena *arena_new(size_t cap) {
        Arena *arena = new0(Arena, 1);

        arena->cap = cap;
        return arena;
}

Arena *arena_free(Arena *arena) {
        if (!arena)
                return NULL;

        chunks_free(arena->small);
        chunks_free(arena->larges);
        free(arena);
        return NULL;
}

void *arena_alloc(Arena *arena, size_t size) {
        size_t rounded;
        Chunk *chunk;
        void *piece;

        if (size > SIZE_MAX - ALIGNMENT)
                return NULL;

        rounded = size == 0 ? ALIGNMENT : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (rounded > arena->cap - arena->used)
                return NULL;

        if (rounded > CHUNK_SIZE / 4)
                chunk = chunk_push(&arena->larges, rounded);
        else if (arena->small && rounded <= arena->small->size - arena->small->used)
                chunk = arena->small;
        else
                chunk = chunk_push(&arena->small, CHUNK_SIZE);
        if (!chunk)
                return NULL;

        piece = chunk->bytes + chunk->used;
        chunk->used += rounded;
        arena->used += rounded;

        ASAN_UNPOISON_MEMORY_REGION(piece, size);
        return memset(piece, 0, size);
}

char *arena_strndup(Arena *arena, const char *text, size_t len) {
        char *copy = len < SIZE_MAX ? arena_alloc(arena, len + 1) : NULL;

        if (copy && len > 0)
                memcpy(copy, text, len);

        return copy;
}

size_t arena_used(const Arena *arena) {
        return arena->used;
}

void arena_reset(Arena *arena) {
        chunks_free(arena->larges);
        arena->larges = NULL;
        arena->used = 0;

        if (!arena->small)
                return;

        chunks_free(arena->small->next);
        arena->small->next = NULL;
        arena->small->used = 0;
        ASAN_POISON_MEMORY_REGION(arena->small->bytes, arena->small->size);
}
