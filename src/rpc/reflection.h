/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/memory.h"
#include "contract/grpc/reflection/file.h"

/* grpc.reflection.v1.ServerReflection, and v1alpha, which is the same: tells clients that were built without the
 * contract (grpcurl, for one) which services there are and what their messages look like.
 *
 *         reflection = reflection_new(table, contract_files, contract_files_len);
 *         r = reflection_add_methods(reflection, table); */

typedef struct MethodTable MethodTable;
typedef struct Reflection Reflection;

/* Services are those of @methods, at the time that a client asks; symbols are sought in @files, each after those it
 * imports. Both outlive it. NULL when memory is out. */
Reflection *reflection_new(const MethodTable *methods, const ReflectionFile files[], size_t n_files)
        __attribute__((nonnull(1)));

/* Frees @reflection, which may be NULL, after the server that uses its methods. Returns NULL. */
Reflection *reflection_free(Reflection *reflection);
DEFINE_CLEANUP(Reflection *, reflection_free);

/* Adds the methods of both versions to @table, which @reflection must outlive. As method_table_add(). */
int reflection_add_methods(Reflection *reflection, MethodTable *table) __attribute__((nonnull));
