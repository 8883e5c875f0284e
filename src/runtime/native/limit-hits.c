/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which of the hits of limits are told. What does not: limits, which keepers enforce. */

#include "runtime/native/limit-hits.h"

#include "base/strings.h"
#include "runtime/native/execs.h"

static const char *const limit_names[N_LIMIT_NAMES] = { "memory_bytes",   "cpu_millis", "max_processes",
                                                        "max_open_files", "disk_bytes", "disk_inodes",
                                                        "tmp_bytes" };

/* Whether another one of the sandbox as a whole can be told now. */
static bool take_turn(LimitHits *hits, uint64_t now) {
        uint64_t pauses = (now - hits->since) / LIMIT_HITS_PAUSE_MS;

        if (pauses >= hits->n_told) {
                hits->n_told = 0;
                hits->since = now;
        } else {
                hits->n_told -= (unsigned) pauses;
                hits->since += pauses * LIMIT_HITS_PAUSE_MS;
        }
        if (hits->n_told == LIMIT_HITS_AT_ONCE)
                return false;

        hits->n_told++;
        return true;
}

void limit_hits_take(NativeSandbox *sandbox, const Hutch__Keeper__V1__KeeperLimitHit *hit) {
        LimitHits *hits = &sandbox->limit_hits;
        unsigned limit = 0;
        uint64_t count;

        while (limit < N_LIMIT_NAMES && !str_equal(limit_names[limit], hit->limit))
                limit++;
        if (limit == N_LIMIT_NAMES || hit->count == 0)
                return;

        if (*hit->exec_id) {
                if (execs_take_hit(sandbox, hit->exec_id, limit))
                        sandbox->events->limit_hit(sandbox->user, limit_names[limit], hit->count, hit->exec_id);
                return;
        }

        count = hit->count < UINT64_MAX - hits->untold[limit] ? hit->count + hits->untold[limit] : UINT64_MAX;
        hits->untold[limit] = count;
        if (!take_turn(hits, uv_now(sandbox->runtime->loop)))
                return;
        hits->untold[limit] = 0;
        sandbox->events->limit_hit(sandbox->user, limit_names[limit], count, "");
}
