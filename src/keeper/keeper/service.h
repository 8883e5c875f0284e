/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "base/memory.h"
#include "rpc/core/method-table.h"

/* hutch.keeper.v1.KeeperService: what hutchd asks a keeper; and hutch.v1.FileService, see file-service.h. */

typedef struct Keeper Keeper;
typedef struct Service Service;

/* Serves @keeper, which outlives it. */
Service *service_new(Keeper *keeper) __attribute__((nonnull, returns_nonnull));

/* Adds its methods. */
int service_add_methods(Service *service, MethodTable *table) __attribute__((nonnull));

/* Something changed: tells watchers, and answers those who wait for an exec to start. */
void service_keeper_changed(Service *service) __attribute__((nonnull));

/* A limit was hit, as KeeperEvents has it: tells watchers. Who does not keep up is not told. */
void service_limit_hit(Service *service, const char *limit, uint64_t count, const char *exec_id)
        __attribute__((nonnull));

/* There is too much on disk, as KeeperEvents has it: ends calls that write files. */
void service_disk_full(Service *service, const char *limit) __attribute__((nonnull));

/* Everything is over: answers those who wait for that, and ends all calls. */
void service_keeper_gone(Service *service) __attribute__((nonnull));
