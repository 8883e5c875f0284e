/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/memory.h"
#include "rpc/core/method-table.h"

/* hutch.v1.FileService, as the keeper serves it to its daemon: each call is done by a worker in the sandbox (see
 * file-worker.h), and messages go through as they are. The daemon has checked them, and tells in the metadata:
 *
 *         hutch-user      as whom
 *         hutch-key       FINGERPRINT:NAME, of a request that must not be done twice; a repeated name with the same
 *                         fingerprint gets the first one's answer
 */

typedef struct Keeper Keeper;
typedef struct FileService FileService;

/* Serves @keeper, which outlives it. */
FileService *file_service_new(Keeper *keeper) __attribute__((nonnull, returns_nonnull));

/* Adds its methods. */
int file_service_add_methods(FileService *service, MethodTable *table) __attribute__((nonnull));

/* The sandbox has more on disk than @limit allows: ends all calls that write. */
void file_service_disk_full(FileService *service, const char *limit) __attribute__((nonnull));

/* The keeper's state may be another: ends all calls when the sandbox ends. */
void file_service_keeper_changed(FileService *service) __attribute__((nonnull));
