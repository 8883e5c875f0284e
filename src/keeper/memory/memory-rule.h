/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* When to count a sandbox's memory next, where no cgroup limits it.
 *
 * Nobody fills memory faster than 16 GiB in a second. So it is counted again before what is left of the limit can be
 * gone at that rate: after 1 to 100 ms. A sandbox close to its limit that does not grow is counted less and less often,
 * down to every 20 ms. Counting never takes more than half of the time. Everything here is arithmetic. Times are
 * nanoseconds. */

typedef struct MemoryRule {
        uint64_t limit;
        uint64_t last, peak;
        unsigned n_quiet; /* counts in a row that found no growth */
} MemoryRule;

/* Takes a count of @total bytes that took @took. Returns the time until the next one. */
uint64_t memory_rule_take(MemoryRule *rule, uint64_t total, uint64_t took) __attribute__((nonnull));
