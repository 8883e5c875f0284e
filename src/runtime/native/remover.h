/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/error.h"
#include "host/id-map.h"
#include "runtime/native/keeper-nest.h"

/* Removing what is in trash/: by processes, since that may take any time, a few at once. What fails is logged and tried
 * again, after pauses that grow, until it is gone. */

typedef struct Remover Remover;

/* Removes everything in the folder at @path, and what is asked for. @nest outlives it. Things may belong to the ids
 * in @ids, which must stay; NULL: the daemon is root, or has no others. */
int remover_new(uv_loop_t *loop, KeeperNest *nest, const char *path, const IdMap *ids, Remover **ret_remover,
                HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));

/* What is being removed goes on. @remover may be NULL. Returns NULL. */
Remover *remover_free(Remover *remover);

/* The folder that things are moved into before they are removed. */
int remover_folder(const Remover *remover) __attribute__((nonnull));

/* Removes @name, and calls @done once, from the loop, when it is gone, unless remover_forget() comes first. */
void remover_add(Remover *remover, const char *name, void (*done)(void *user), void *user)
        __attribute__((nonnull(1, 2, 3)));

/* Nobody wants to hear of @name any more; it is removed nevertheless. */
void remover_forget(Remover *remover, const char *name) __attribute__((nonnull));
