/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a hash table with open addressing, built once when a server starts. Paths come from peers, but what
 * is in the table does not, so nobody can choose collisions. */

#include "rpc/core/method-table.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/core/grpc-text.h"

struct MethodTable {
        const Method **methods; /* in the order they were added */
        size_t n_methods;
        const Method **slots; /* a power of two, at most half of them full */
        size_t n_slots;
};

static size_t hash(const char *text, size_t len) {
        uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

        for (size_t i = 0; i < len; i++)
                h = (h ^ (uint8_t) text[i]) * UINT64_C(0x100000001b3);
        return (size_t) (h ^ (h >> 32));
}

MethodTable *method_table_new(void) {
        return try_new0(MethodTable, 1);
}

MethodTable *method_table_free(MethodTable *table) {
        if (!table)
                return NULL;

        free(table->methods);
        free(table->slots);
        free(table);
        return NULL;
}

/* The slot that @path is in, or would be in. */
static const Method **find_slot(const MethodTable *table, const char *path, size_t len) {
        for (size_t i = hash(path, len);; i++) {
                const Method **slot = &table->slots[i & (table->n_slots - 1)];

                if (!*slot || (strlen((*slot)->path) == len && memcmp((*slot)->path, path, len) == 0))
                        return slot;
        }
}

static int grow(MethodTable *table) {
        size_t n_slots = table->n_slots ? 2 * table->n_slots : 64;
        const Method **methods = reallocarray(table->methods, n_slots / 2, sizeof(const Method *));
        const Method **slots;

        if (!methods)
                return -ENOMEM;
        table->methods = methods;

        slots = try_new0(const Method *, n_slots);
        if (!slots)
                return -ENOMEM;
        free(table->slots);
        table->slots = slots;
        table->n_slots = n_slots;

        for (size_t i = 0; i < table->n_methods; i++)
                *find_slot(table, methods[i]->path, strlen(methods[i]->path)) = methods[i];
        return 0;
}

static int add(MethodTable *table, const Method *method) {
        const Method **slot;
        GrpcPath path;
        int r;

        if (grpc_path_split(method->path, strlen(method->path), &path) < 0)
                return -EINVAL;

        if (2 * (table->n_methods + 1) > table->n_slots) {
                r = grow(table);
                if (r < 0)
                        return r;
        }

        slot = find_slot(table, method->path, strlen(method->path));
        if (*slot)
                return -EEXIST;

        *slot = method;
        table->methods[table->n_methods++] = method;
        return 0;
}

int method_table_add(MethodTable *table, const Method methods[], size_t n_methods) {
        for (size_t i = 0; i < n_methods; i++) {
                int r = add(table, &methods[i]);

                if (r < 0)
                        return r;
        }

        return 0;
}

const Method *method_table_find(const MethodTable *table, const char *path, size_t len) {
        return table->n_slots > 0 ? *find_slot(table, path, len) : NULL;
}

bool method_table_has_service(const MethodTable *table, const char *service, size_t len) {
        for (size_t i = 0; i < table->n_methods; i++) {
                const char *path = table->methods[i]->path + 1;

                if (strncmp(path, service, len) == 0 && path[len] == '/')
                        return true;
        }

        return false;
}

const Method *method_table_at(const MethodTable *table, size_t index) {
        return index < table->n_methods ? table->methods[index] : NULL;
}
