/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a hash table by text, open addressed. What does not: what is in it. */

#include "base/table.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/memory.h"
#include "base/strings.h"

#define SIZE_MIN 8

/* Callers choose ids, so they must not know which ones fall together. */
static uint64_t hash_text(const char *text) {
        static uint64_t seed;
        uint64_t hash;

        while (seed == 0)
                if (getrandom(&seed, sizeof seed, 0) != (ssize_t) sizeof seed)
                        seed = 0;

        hash = seed;
        for (; *text; text++) {
                hash = (hash ^ (uint8_t) *text) * UINT64_C(0x9e3779b97f4a7c15);
                hash ^= hash >> 29;
        }
        return hash ^ (hash >> 32);
}

static TableEntry *find(const Table *table, const char *key, uint64_t hash) {
        size_t i = hash & (table->size - 1);

        while (table->entries[i].key && (table->entries[i].hash != hash || !str_equal(table->entries[i].key, key)))
                i = (i + 1) & (table->size - 1);
        return &table->entries[i];
}

void *table_get(const Table *table, const char *key) {
        return table->n > 0 ? find(table, key, hash_text(key))->value : NULL;
}

static void grow(Table *table) {
        Table larger = { .size = table->size > 0 ? 2 * table->size : SIZE_MIN, .n = table->n };

        larger.entries = new0(TableEntry, larger.size);
        for (size_t i = 0; i < table->size; i++)
                if (table->entries[i].key)
                        *find(&larger, table->entries[i].key, table->entries[i].hash) = table->entries[i];

        free(table->entries);
        *table = larger;
}

void table_add(Table *table, const char *key, void *value) {
        uint64_t hash = hash_text(key);

        if (4 * (table->n + 1) > 3 * table->size)
                grow(table);
        *find(table, key, hash) = (TableEntry){ .key = key, .value = value, .hash = hash };
        table->n++;
}

void table_remove(Table *table, const char *key) {
        TableEntry *hole;

        if (table->n == 0)
                return;
        hole = find(table, key, hash_text(key));
        if (!hole->key)
                return;

        /* What follows without a gap may have been put off by what is removed: it moves up. */
        for (size_t i = (size_t) (hole - table->entries);;) {
                TableEntry *entry;
                size_t home, at;

                i = (i + 1) & (table->size - 1);
                entry = &table->entries[i];
                if (!entry->key)
                        break;
                home = entry->hash & (table->size - 1);
                at = (size_t) (hole - table->entries);
                if (((i - home) & (table->size - 1)) >= ((i - at) & (table->size - 1))) {
                        *hole = *entry;
                        hole = entry;
                }
        }
        *hole = (TableEntry){};
        if (--table->n == 0)
                table_clear(table);
}

void table_clear(Table *table) {
        free(table->entries);
        *table = (Table){};
}
