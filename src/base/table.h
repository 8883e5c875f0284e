/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Tables: what belongs to a text. Keys are borrowed and must outlive their entry. An empty table is all zeroes and has
 * no memory. */

typedef struct TableEntry {
        const char *key; /* NULL: free */
        void *value;
        uint64_t hash;
} TableEntry;

typedef struct Table {
        TableEntry *entries;
        size_t size; /* a power of two, or 0 */
        size_t n;
} Table;

/* NULL: nothing. */
void *table_get(const Table *table, const char *key) __attribute__((nonnull));

/* Adds what is not there yet. */
void table_add(Table *table, const char *key, void *value) __attribute__((nonnull));

/* Removes it, if it is there. */
void table_remove(Table *table, const char *key) __attribute__((nonnull));

void table_clear(Table *table) __attribute__((nonnull));
