/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the arithmetic of retries. What does not: making calls, waiting, and resuming streams (rpc,
 * client). */

#include "base/retry.h"

#include <assert.h>

const RetryPolicy retry_policy_default = {
        .attempts = 6,
        .initial_ms = 500,
        .max_ms = 8000,
};

bool retry_allowed(const RetryOutcome *outcome) {
        if (outcome->answered)
                return false;
        if (outcome->code != STATUS_UNAVAILABLE && !outcome->connection_lost)
                return false;

        return outcome->safe || !outcome->sent;
}

uint64_t retry_pause_ms(const RetryPolicy *policy, unsigned tries, uint32_t random) {
        uint64_t base;
        unsigned doublings;

        assert(tries > 0);
        if (tries == 1)
                return 0;

        /* 32 doublings of anything but 0 are past every ceiling. */
        doublings = tries - 2 < 32 ? tries - 2 : 32;
        base = (uint64_t) policy->initial_ms << doublings;
        if (base > policy->max_ms)
                base = policy->max_ms;

        return base - base / 4 + ((base / 2 * random) >> 32);
}

bool retry_next(const RetryPolicy *policy, unsigned tries, uint64_t now_ms, uint64_t deadline_ms, uint32_t random,
                uint64_t *ret_pause_ms) {
        uint64_t pause_ms;

        if (tries >= policy->attempts)
                return false;

        pause_ms = retry_pause_ms(policy, tries, random);
        if (deadline_ms != RETRY_NO_DEADLINE && (now_ms >= deadline_ms || pause_ms >= deadline_ms - now_ms))
                return false;

        *ret_pause_ms = pause_ms;
        return true;
}
