/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Ids of user namespaces that an ordinary user makes: its own uid and gid are 0 inside, and behind them come its
 * subordinate ids, in their order, from 1. Only newuidmap and newgidmap, which are root's, may map those.
 *
 *         r = subordinate_ids_find(&map, &err);        host/subordinate-ids.h
 *         r = id_map_apply(&map, pid, &err);           for a process that is in its new namespace
 *         r = id_map_enter(&map, &err);                for the calling one */

#define ID_RANGES_MAX 32 /* further ones are not used */

typedef struct IdRange {
        uint32_t first, count;
} IdRange;

typedef struct IdRanges {
        IdRange list[ID_RANGES_MAX];
        size_t n;
} IdRanges;

typedef struct IdMap {
        char *newuidmap, *newgidmap; /* absolute paths; NULL: it is not there */
        IdRanges uids, gids;
} IdMap;

/* Ranges as a text, `first:count,first:count`, which the caller frees, and back: -EINVAL. */
char *id_ranges_format(const IdRanges *ranges) __attribute__((nonnull, returns_nonnull));
int id_ranges_parse(const char *text, IdRanges *ret_ranges) __attribute__((nonnull));

void id_map_clear(IdMap *map) __attribute__((nonnull));

/* Maps the ids of the user namespace of @pid, which was made by the caller's user and is dumpable. Blocks for some
 * milliseconds, at most ten seconds. What newuidmap had to say is in @err. */
int id_map_apply(const IdMap *map, pid_t pid, HutchError *err) __attribute__((nonnull(1)));

/* Makes a user namespace with that map and becomes root in it, with all capabilities there. For a process with one
 * thread and no other children. */
int id_map_enter(const IdMap *map, HutchError *err) __attribute__((nonnull(1)));

/* Whether id_map_enter() would succeed; in a process of its own. */
int id_map_try(const IdMap *map, HutchError *err) __attribute__((nonnull(1)));
