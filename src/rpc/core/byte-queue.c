/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a list of chunks, filled at one end and emptied at the other. What does not: when to stop filling it
 * (stream.c). */

#include "rpc/core/byte-queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ByteChunk {
        ByteChunk *next;
        uint8_t *data; /* own, or a buffer that was handed over */
        size_t begin, end, size;
        uint8_t own[];
};

#define CHUNK_SIZE ((size_t) 16384 - sizeof(ByteChunk) - 16) /* with its head and malloc's own, 16 KiB */

_Static_assert(BYTE_QUEUE_LEND_MIN > CHUNK_SIZE, "what is lent is in no chunk that is used again");

static ByteChunk *chunk_free(ByteChunk *chunk) {
        if (!chunk)
                return NULL;

        if (chunk->data != chunk->own)
                free(chunk->data);
        free(chunk);
        return NULL;
}

static size_t last_room(const ByteQueue *queue) {
        return queue->last ? queue->last->size - queue->last->end : 0;
}

static void push(ByteQueue *queue, ByteChunk *chunk) {
        *(queue->last ? &queue->last->next : &queue->first) = chunk;
        queue->last = chunk;
}

static void fill_last(ByteQueue *queue, const void *bytes, size_t len) {
        memcpy(queue->last->data + queue->last->end, bytes, len);
        queue->last->end += len;
        queue->len += len;
}

/* Removes the first chunk, which is empty. A large one is not worth its memory while the queue waits: it goes to
 * @spent. */
static void pop(ByteQueue *queue, ByteChunk **spent) {
        ByteChunk *chunk = queue->first;

        queue->first = chunk->next;
        if (!queue->first)
                queue->last = NULL;

        if (queue->spare || chunk->data != chunk->own || chunk->size > CHUNK_SIZE) {
                chunk->next = *spent;
                *spent = chunk;
                return;
        }

        chunk->next = NULL;
        chunk->begin = chunk->end = 0;
        queue->spare = chunk;
}

int byte_queue_reserve(ByteQueue *queue, size_t len) {
        size_t room = last_room(queue), size;
        ByteChunk *chunk;

        if (len <= room || (queue->spare && len - room <= queue->spare->size))
                return 0;

        size = len - room > CHUNK_SIZE ? len - room : CHUNK_SIZE;
        chunk = malloc(sizeof(ByteChunk) + size);
        if (!chunk)
                return -ENOMEM;

        *chunk = (ByteChunk){ .data = chunk->own, .size = size };
        chunk_free(queue->spare);
        queue->spare = chunk;
        return 0;
}

int byte_queue_append(ByteQueue *queue, const void *bytes, size_t len) {
        size_t room = last_room(queue);
        int r;

        r = byte_queue_reserve(queue, len);
        if (r < 0)
                return r;

        if (room > 0 && len > 0)
                fill_last(queue, bytes, len < room ? len : room);
        if (len <= room)
                return 0;

        push(queue, queue->spare);
        queue->spare = NULL;
        fill_last(queue, (const uint8_t *) bytes + room, len - room);
        return 0;
}

int byte_queue_append_taken(ByteQueue *queue, const void *head, size_t head_len, void *buffer, size_t len) {
        ByteChunk *chunk;
        int r;

        r = byte_queue_reserve(queue, head_len);
        if (r < 0)
                return r;
        chunk = malloc(sizeof(ByteChunk));
        if (!chunk)
                return -ENOMEM;

        (void) byte_queue_append(queue, head, head_len);
        *chunk = (ByteChunk){ .data = buffer, .end = len, .size = len };
        push(queue, chunk);
        queue->len += len;
        return 0;
}

size_t byte_queue_read(ByteQueue *queue, void *ret_bytes, size_t len) {
        uint8_t *to = ret_bytes;
        size_t left = len < queue->len ? len : queue->len, n_read = left;

        while (left > 0) {
                size_t n;
                const uint8_t *bytes = byte_queue_peek(queue, &n);

                if (n > left)
                        n = left;

                memcpy(to, bytes, n);
                byte_queue_drop(queue, n);
                to += n;
                left -= n;
        }

        return n_read;
}

const uint8_t *byte_queue_peek(const ByteQueue *queue, size_t *ret_len) {
        if (!queue->first) {
                *ret_len = 0;
                return NULL;
        }

        *ret_len = queue->first->end - queue->first->begin;
        return queue->first->data + queue->first->begin;
}

void byte_queue_lend(ByteQueue *queue, size_t len, ByteChunk **spent) {
        queue->first->begin += len;
        queue->len -= len;
        if (queue->first->begin == queue->first->end)
                pop(queue, spent);
}

ByteChunk *byte_chunks_free(ByteChunk *spent) {
        while (spent) {
                ByteChunk *next = spent->next;

                chunk_free(spent);
                spent = next;
        }
        return NULL;
}

void byte_queue_drop(ByteQueue *queue, size_t len) {
        while (len > 0 && queue->first) {
                size_t here = queue->first->end - queue->first->begin, n = len < here ? len : here;
                ByteChunk *spent = NULL;

                byte_queue_lend(queue, n, &spent);
                byte_chunks_free(spent);
                len -= n;
        }
}

void byte_queue_clear(ByteQueue *queue) {
        byte_queue_drop(queue, queue->len);
        chunk_free(queue->spare);
        *queue = (ByteQueue){};
}
