/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The smallest of any number of names, in byte order, in memory for so many only:
 *
 *         NameHeap heap = { .max = 1000 };
 *         while (…)
 *                 r = name_heap_add(&heap, name);
 *         name_heap_sort(&heap);                  heap.names[0] is the smallest
 *         name_heap_clear(&heap);
 */

typedef struct NameHeap {
        char **names;
        size_t n_names, n_allocated;
        size_t max;         /* set by who makes it; at least 1 */
        bool is_incomplete; /* others were left out */
} NameHeap;

/* Adds a copy of @name, if it is among the smallest. Not after name_heap_sort(). -ENOMEM. */
int name_heap_add(NameHeap *heap, const char *name) __attribute__((nonnull));

/* Puts the smallest first. */
void name_heap_sort(NameHeap *heap) __attribute__((nonnull));

/* Frees all; @max stays. */
void name_heap_clear(NameHeap *heap) __attribute__((nonnull));
