/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Retries: whether a call that failed may be tried again, and when.
 *
 * A call is tried a few times. The second try follows at once; from the third on each waits for twice as long as the
 * one before, up to a ceiling, and a random number spreads the waits by a quarter either way, so that many clients do
 * not come back at the same moment. A deadline covers all tries and pauses. Pure: the caller brings clock and random
 * numbers.
 *
 *         for (unsigned tries = 1; (r = try(&outcome)) < 0 && retry_allowed(&outcome); tries++) {
 *                 if (!retry_next(&retry_policy_default, tries, now_ms(), deadline_ms, random32(), &pause_ms))
 *                         break;
 *                 sleep_ms(pause_ms);
 *         } */

typedef struct RetryPolicy {
        unsigned attempts;   /* tries in all, the first among them */
        uint32_t initial_ms; /* the pause before the third try */
        uint32_t max_ms;     /* no pause is longer, before it is spread */
} RetryPolicy;

/* 6 tries; 500 ms, doubling up to 8 s. */
extern const RetryPolicy retry_policy_default;

/* How a try ended. */
typedef struct RetryOutcome {
        StatusCode code;
        bool connection_lost;
        bool sent;     /* false only when no byte of the request can have reached the server */
        bool safe;     /* the call only reads, or carries a request id */
        bool answered; /* a stream that had its first answer: it is resumed, not repeated */
} RetryOutcome;

/* Tells whether a call whose try ended so may be tried again. */
bool retry_allowed(const RetryOutcome *outcome) __attribute__((nonnull));

/* The pause after @tries failed tries, at least one: 0 after the first. @random is uniform over all its values. */
uint64_t retry_pause_ms(const RetryPolicy *policy, unsigned tries, uint32_t random) __attribute__((nonnull));

#define RETRY_NO_DEADLINE UINT64_MAX

/* Plans the try that follows @tries failed ones. Returns false when there is none: the tries are used up, or the
 * deadline would have come by the end of the pause. */
bool retry_next(const RetryPolicy *policy, unsigned tries, uint64_t now_ms, uint64_t deadline_ms, uint32_t random,
                uint64_t *ret_pause_ms) __attribute__((nonnull));
