/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a binary heap whose first is the largest, the one to go. What does not: what names are. */

#include "keeper/worker/name-heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ALLOCATED 16

static void swap(char **a, char **b) {
        char *was = *a;
        *a = *b;
        *b = was;
}

static void rise(NameHeap *heap, size_t at) {
        for (size_t above; at > 0; at = above) {
                above = (at - 1) / 2;
                if (strcmp(heap->names[above], heap->names[at]) >= 0)
                        return;
                swap(&heap->names[above], &heap->names[at]);
        }
}

static void sink(NameHeap *heap, size_t n) {
        for (size_t at = 0, below; (below = 2 * at + 1) < n; at = below) {
                if (below + 1 < n && strcmp(heap->names[below + 1], heap->names[below]) > 0)
                        below++;
                if (strcmp(heap->names[at], heap->names[below]) >= 0)
                        return;
                swap(&heap->names[at], &heap->names[below]);
        }
}

static int grow(NameHeap *heap) {
        size_t n = heap->n_allocated > 0 ? 2 * heap->n_allocated : FIRST_ALLOCATED;
        char **names = reallocarray(heap->names, n, sizeof(*names));
        if (!names)
                return -ENOMEM;
        heap->names = names;
        heap->n_allocated = n;
        return 0;
}

int name_heap_add(NameHeap *heap, const char *name) {
        bool is_full = heap->n_names == heap->max;
        heap->is_incomplete |= is_full;
        if (is_full && strcmp(name, heap->names[0]) >= 0)
                return 0;
        if (!is_full && heap->n_names == heap->n_allocated && grow(heap) < 0)
                return -ENOMEM;
        char *copy = strdup(name);
        if (!copy)
                return -ENOMEM;

        if (is_full) {
                free(heap->names[0]);
                heap->names[0] = copy;
                sink(heap, heap->n_names);
        } else {
                heap->names[heap->n_names++] = copy;
                rise(heap, heap->n_names - 1);
        }
        return 0;
}

void name_heap_sort(NameHeap *heap) {
        for (size_t n = heap->n_names; n > 1; n--) {
                swap(&heap->names[0], &heap->names[n - 1]);
                sink(heap, n - 1);
        }
}

void name_heap_clear(NameHeap *heap) {
        for (size_t i = 0; i < heap->n_names; i++)
                free(heap->names[i]);
        free(heap->names);
        *heap = (NameHeap){ .max = heap->max };
}
