/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Time, in nanoseconds. Pure code does not read clocks: it is given the time. */

#define NSEC_PER_USEC UINT64_C(1000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC UINT64_C(1000000000)

/* Since some moment before the process started; never goes back. For timeouts and durations. */
uint64_t clock_monotonic_ns(void);

/* Since 1970-01-01T00:00:00Z; goes wherever the administrator sets it. For timestamps. */
uint64_t clock_realtime_ns(void);
