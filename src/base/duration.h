/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct HutchError HutchError;

/* Durations: from none to ten years, to the nanosecond.
 *
 * As text a duration is "0", or numbers each followed by a unit out of d h m s ms us ns, largest first, each at most
 * once; the last number may have a fraction: "1h30m", "1.5s", "250ms". No sign, no spaces, nothing is rounded. */

#define DURATION_SECONDS_MAX INT64_C(315576000) /* ten years of 365.25 days */

typedef struct Duration {
        int64_t seconds;
        int32_t nanos; /* 0 to 999,999,999 */
} Duration;

/* Checks a duration that came as a message: -EINVAL and DURATION_OUT_OF_RANGE when it is negative or too long, or
 * DURATION_MALFORMED when the nanoseconds make up a second. */
int duration_check(Duration duration, HutchError *err);

/* Reads the @len bytes at @text; else -EINVAL and DURATION_MALFORMED, or DURATION_OUT_OF_RANGE for what can be read but
 * is too long. */
int duration_parse(const char *text, size_t len, Duration *ret_duration, HutchError *err);

#define DURATION_TEXT_SIZE sizeof("315576000.000000000s")

/* Writes @duration, which duration_check() accepts, in its one canonical form: seconds with 0, 3, 6 or 9 decimals, the
 * fewest that are exact: "5400s", "1.500s". That is protobuf's JSON form; duration_parse() reads it. */
void duration_format(Duration duration, char ret_text[static DURATION_TEXT_SIZE]);
