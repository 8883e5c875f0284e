/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the heap. What does not: clocks and timers. */

#include "rpc/core/deadlines.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/core/stream.h"

static void put(Deadlines *deadlines, size_t index, Stream *stream) {
        deadlines->heap[index] = stream;
        stream->deadline_index = index;
}

static void sift_up(Deadlines *deadlines, size_t index, Stream *stream) {
        while (index > 0) {
                Stream *parent = deadlines->heap[(index - 1) / 2];

                if (parent->deadline <= stream->deadline)
                        break;
                put(deadlines, index, parent);
                index = (index - 1) / 2;
        }

        put(deadlines, index, stream);
}

static void sift_down(Deadlines *deadlines, size_t index, Stream *stream) {
        for (;;) {
                size_t child = 2 * index + 1;

                if (child >= deadlines->len)
                        break;
                if (child + 1 < deadlines->len &&
                    deadlines->heap[child + 1]->deadline < deadlines->heap[child]->deadline)
                        child++;
                if (stream->deadline <= deadlines->heap[child]->deadline)
                        break;
                put(deadlines, index, deadlines->heap[child]);
                index = child;
        }

        put(deadlines, index, stream);
}

int deadlines_add(Deadlines *deadlines, Stream *stream) {
        if (deadlines->len == deadlines->size) {
                size_t size = deadlines->size ? 2 * deadlines->size : 16;
                Stream **heap = reallocarray(deadlines->heap, size, sizeof(Stream *));

                if (!heap)
                        return -ENOMEM;
                deadlines->heap = heap;
                deadlines->size = size;
        }

        sift_up(deadlines, deadlines->len++, stream);
        return 0;
}

void deadlines_remove(Deadlines *deadlines, Stream *stream) {
        size_t index = stream->deadline_index;
        Stream *last;

        if (index == SIZE_MAX)
                return;

        stream->deadline_index = SIZE_MAX;
        last = deadlines->heap[--deadlines->len];
        if (last == stream)
                return;

        if (index > 0 && deadlines->heap[(index - 1) / 2]->deadline > last->deadline)
                sift_up(deadlines, index, last);
        else
                sift_down(deadlines, index, last);
}

Stream *deadlines_first(const Deadlines *deadlines) {
        return deadlines->len > 0 ? deadlines->heap[0] : NULL;
}

void deadlines_clear(Deadlines *deadlines) {
        free(deadlines->heap);
        *deadlines = (Deadlines){};
}
