/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading clocks. What does not: timers, which belong to the event loop. */

#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock) {
        struct timespec now;

        /* Fails only for a clock that is none. */
        if (clock_gettime(clock, &now) < 0)
                abort();

        return (uint64_t) now.tv_sec * NSEC_PER_SEC + (uint64_t) now.tv_nsec;
}

uint64_t clock_monotonic_ns(void) {
        return clock_ns(CLOCK_MONOTONIC);
}

uint64_t clock_realtime_ns(void) {
        return clock_ns(CLOCK_REALTIME);
}
