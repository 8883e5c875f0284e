/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rule by which memory is counted. What does not: counting (memory-usage.c). */

#include "keeper/memory/memory-rule.h"

#include "base/clock.h"

#define BYTES_PER_MSEC ((uint64_t) 16 << 20)
#define INTERVAL_MIN NSEC_PER_MSEC
#define INTERVAL_MAX (100 * NSEC_PER_MSEC)
#define INTERVAL_QUIET (20 * NSEC_PER_MSEC)
#define QUIET_MAX 8
#define GROWTH_MIN ((uint64_t) 64 << 10) /* less than that is none */

uint64_t memory_rule_take(MemoryRule *rule, uint64_t total, uint64_t took) {
        uint64_t room = rule->limit > total ? rule->limit - total : 0;
        uint64_t interval = room / BYTES_PER_MSEC * NSEC_PER_MSEC;

        if (total > rule->last + GROWTH_MIN || room == 0)
                rule->n_quiet = 0;
        else if (rule->n_quiet < QUIET_MAX)
                rule->n_quiet++;
        rule->last = total;
        rule->peak = total > rule->peak ? total : rule->peak;

        interval = interval < INTERVAL_MIN ? INTERVAL_MIN : interval;
        if (interval < INTERVAL_QUIET) {
                interval <<= rule->n_quiet;
                interval = interval < INTERVAL_QUIET ? interval : INTERVAL_QUIET;
        }
        interval = interval < INTERVAL_MAX ? interval : INTERVAL_MAX;
        return interval > took ? interval : took;
}
