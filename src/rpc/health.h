/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/memory.h"

/* grpc.health.v1.Health: tells clients and load balancers which services are being served, once or whenever that
 * changes.
 *
 *         health = health_new();
 *         r = health_set(health, "", true);
 *         r = health_add_methods(health, table); */

typedef struct Health Health;
typedef struct MethodTable MethodTable;

/* NULL when memory is out. */
Health *health_new(void);

/* Ends the calls of those who watch, and frees @health, which may be NULL. No call may begin afterwards. Returns
 * NULL. */
Health *health_free(Health *health);
DEFINE_CLEANUP(Health *, health_free);

/* Says whether @service ("package.Service"; "": the server as a whole) is being served, and tells those who watch it. A
 * service that nothing was said of is unknown. -ENOMEM: a new one is still unknown. */
int health_set(Health *health, const char *service, bool serving) __attribute__((nonnull));

/* Nothing is being served any more: tells those who watch, and ends their calls, so that a drain need not wait for
 * them. */
void health_shut_down(Health *health) __attribute__((nonnull));

/* Adds Check, Watch and List to @table, which @health must outlive. As method_table_add(). */
int health_add_methods(Health *health, MethodTable *table) __attribute__((nonnull));
