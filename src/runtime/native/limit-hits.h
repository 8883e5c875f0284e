/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "contract/hutch/keeper/v1/keeper.pb-c.h"

/* Limits that took effect, as keepers tell of them. Each that is told becomes an event, which is kept as long as the
 * sandbox is, and whoever is inside can hit limits for ever. So one is told for each limit and exec; of the sandbox as
 * a whole the first LIMIT_HITS_AT_ONCE are, and then one in LIMIT_HITS_PAUSE_MS, which counts for those that were not.
 */

#define LIMIT_HITS_AT_ONCE 64
#define LIMIT_HITS_PAUSE_MS 600000

enum { N_LIMIT_NAMES = 7 };

typedef struct LimitHits {
        unsigned n_told;                /* less one for each pause since @since */
        uint64_t since;                 /* of uv_now() */
        uint64_t untold[N_LIMIT_NAMES]; /* of each limit, since one was told */
} LimitHits;

typedef struct NativeSandbox NativeSandbox;

/* The keeper says this. */
void limit_hits_take(NativeSandbox *sandbox, const Hutch__Keeper__V1__KeeperLimitHit *hit) __attribute__((nonnull));
