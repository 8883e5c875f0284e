/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Byte queues: what waits to be sent on a stream, first in, first out.
 *
 *         _cleanup_(byte_queue_clear) ByteQueue queue = {};
 *         r = byte_queue_append(&queue, prefix, sizeof(prefix));
 *
 * Small pieces are gathered in chunks, one of which is kept when it is empty; large buffers can be handed over without
 * being copied. Nothing here limits the length: who appends looks at @len first. */

typedef struct ByteChunk ByteChunk;

typedef struct ByteQueue {
        size_t len; /* the bytes in the queue; to be read only */
        ByteChunk *first, *last;
        ByteChunk *spare; /* empty: the one to fill next */
} ByteQueue;

/* Makes room, so that no byte_queue_append() fails before @len more bytes were copied. -ENOMEM leaves the queue as it
 * was. */
int byte_queue_reserve(ByteQueue *queue, size_t len) __attribute__((nonnull));

/* Copies the @len bytes at @bytes to the end. -ENOMEM leaves the queue as it was. */
int byte_queue_append(ByteQueue *queue, const void *bytes, size_t len) __attribute__((nonnull(1)));

/* Copies the @head_len bytes at @head, and appends the @len bytes at @buffer, at least one, which comes from malloc()
 * and is the queue's from now on. -ENOMEM leaves the queue as it was, and @buffer with the caller. */
int byte_queue_append_taken(ByteQueue *queue, const void *head, size_t head_len, void *buffer, size_t len)
        __attribute__((nonnull(1, 4)));

/* Moves the first bytes of the queue to @ret_bytes: @len, or all when there are fewer. Returns how many. */
size_t byte_queue_read(ByteQueue *queue, void *ret_bytes, size_t len) __attribute__((nonnull(1)));

/* Shows the first bytes, as many as lie together: at least one, unless the queue is empty. They stay where they are
 * until they are read or dropped. */
const uint8_t *byte_queue_peek(const ByteQueue *queue, size_t *ret_len) __attribute__((nonnull));

/* Removes the first @len bytes, as many as byte_queue_peek() shows or fewer. BYTE_QUEUE_LEND_MIN or more stay where
 * they are until the queue is cleared or @spent is freed. */
#define BYTE_QUEUE_LEND_MIN ((size_t) 16 << 10)
void byte_queue_lend(ByteQueue *queue, size_t len, ByteChunk **spent) __attribute__((nonnull));

/* Frees chunks that byte_queue_lend() has emptied, which may be NULL. Returns NULL. */
ByteChunk *byte_chunks_free(ByteChunk *spent);

/* Removes the first @len bytes, or all when there are fewer. */
void byte_queue_drop(ByteQueue *queue, size_t len) __attribute__((nonnull));

/* Frees all that @queue holds, and leaves it empty. */
void byte_queue_clear(ByteQueue *queue) __attribute__((nonnull));
