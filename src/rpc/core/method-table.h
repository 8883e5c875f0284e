/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"
#include "rpc/core/call.h"

/* The methods that a server serves, by their paths. Looking one up costs the same however many there are. */

typedef struct MethodTable MethodTable;

/* NULL when memory is out. */
MethodTable *method_table_new(void);

MethodTable *method_table_free(MethodTable *table);
DEFINE_CLEANUP(MethodTable *, method_table_free);

/* Adds @methods, which outlive the table. -EEXIST: a path is there already; -EINVAL: it is no path; -ENOMEM. Those
 * before it are added. */
int method_table_add(MethodTable *table, const Method methods[], size_t n_methods) __attribute__((nonnull(1)));

/* NULL: there is none of that path. */
const Method *method_table_find(const MethodTable *table, const char *path, size_t len) __attribute__((nonnull));

/* Tells whether there is any method of that service ("package.Service"). */
bool method_table_has_service(const MethodTable *table, const char *service, size_t len) __attribute__((nonnull));

/* The method at @index, in the order they were added; NULL: there are not so many. */
const Method *method_table_at(const MethodTable *table, size_t index) __attribute__((nonnull));
