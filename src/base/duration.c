/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: durations as text and their range. What does not: clocks (base/clock.h) and points in time. */

#include "base/duration.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/strings.h"

#define DURATION_NS_MAX ((uint64_t) DURATION_SECONDS_MAX * NSEC_PER_SEC)

static const struct {
        const char *name;
        uint64_t ns;
} units[] = {
        { "d", 24 * 60 * 60 * NSEC_PER_SEC },
        { "h", 60 * 60 * NSEC_PER_SEC },
        { "m", 60 * NSEC_PER_SEC },
        { "s", NSEC_PER_SEC },
        { "ms", NSEC_PER_MSEC },
        { "us", NSEC_PER_USEC },
        { "ns", 1 },
};

#define N_UNITS (sizeof(units) / sizeof(units[0]))

/* A part of the text, from @begin up to @end. */
typedef struct Span {
        const char *begin;
        const char *end;
} Span;

/* Takes from the front of @rest what @belongs holds for. */
static Span span_take(Span *rest, bool (*belongs)(char c)) {
        Span taken = { rest->begin, rest->begin };

        while (taken.end < rest->end && belongs(*taken.end))
                taken.end++;

        rest->begin = taken.end;
        return taken;
}

static bool span_is_empty(Span span) {
        return span.begin == span.end;
}

/* The index of the unit that @name names; N_UNITS when there is none. */
static size_t unit_find(Span name) {
        size_t len = (size_t) (name.end - name.begin), i;

        for (i = 0; i < N_UNITS; i++)
                if (strlen(units[i].name) == len && memcmp(units[i].name, name.begin, len) == 0)
                        break;

        return i;
}

/* @digits times @unit_ns; anything above DURATION_NS_MAX stands for what is too long. */
static uint64_t whole_ns(Span digits, uint64_t unit_ns) {
        uint64_t number = 0;

        for (const char *p = digits.begin; p < digits.end; p++) {
                number = number * 10 + (uint64_t) (*p - '0');
                if (number > DURATION_NS_MAX / unit_ns)
                        return DURATION_NS_MAX + 1;
        }

        return number * unit_ns;
}

/* The decimals @digits of one @unit_ns. Fails when that is no whole number of nanoseconds: from the last digit to the
 * first, each division by ten must be exact. */
static int fraction_ns(Span digits, uint64_t unit_ns, uint64_t *ret_ns) {
        uint64_t ns = 0;

        for (const char *p = digits.end; p > digits.begin; p--) {
                ns += (uint64_t) (p[-1] - '0') * unit_ns;
                if (ns % 10 != 0)
                        return -EINVAL;
                ns /= 10;
        }

        *ret_ns = ns;
        return 0;
}

/* Reads "NUMBER[.FRACTION]UNIT" from the front of @rest; only the last part may have a fraction. @next_unit is the
 * largest unit that may come. Adds to @ns. */
static int part_parse(Span *rest, size_t *next_unit, uint64_t *ns) {
        Span whole = span_take(rest, ascii_is_digit), fraction = {}, name;
        bool has_fraction = !span_is_empty(*rest) && *rest->begin == '.';
        uint64_t decimals_ns;
        size_t unit;

        if (has_fraction) {
                rest->begin++;
                fraction = span_take(rest, ascii_is_digit);
        }

        name = span_take(rest, ascii_is_lower);
        unit = unit_find(name);

        if (span_is_empty(whole) || unit == N_UNITS || unit < *next_unit)
                return -EINVAL;
        if (has_fraction && (span_is_empty(fraction) || !span_is_empty(*rest)))
                return -EINVAL;
        if (fraction_ns(fraction, units[unit].ns, &decimals_ns) < 0)
                return -EINVAL;

        *ns += whole_ns(whole, units[unit].ns) + decimals_ns;
        *next_unit = unit + 1;
        return 0;
}

/* Reads all of @text. The sum of one part of each unit, each at most DURATION_NS_MAX + 1, is far from overflowing. */
static int text_parse(Span text, uint64_t *ret_ns) {
        size_t next_unit = 0;
        uint64_t ns = 0;
        int r;

        if (text.end - text.begin == 1 && *text.begin == '0') {
                *ret_ns = 0;
                return 0;
        }

        do {
                r = part_parse(&text, &next_unit, &ns);
                if (r < 0)
                        return r;
        } while (!span_is_empty(text));

        *ret_ns = ns;
        return 0;
}

static int duration_out_of_range(HutchError *err) {
        return error_set(err, -EINVAL, "DURATION_OUT_OF_RANGE", "a duration is 0 to %jd seconds (ten years)",
                         (intmax_t) DURATION_SECONDS_MAX);
}

int duration_check(Duration duration, HutchError *err) {
        if (duration.nanos >= (int32_t) NSEC_PER_SEC)
                return error_set(err, -EINVAL, "DURATION_MALFORMED",
                                 "the nanoseconds of a duration are less than a second");

        if (duration.seconds < 0 || duration.nanos < 0 || duration.seconds > DURATION_SECONDS_MAX ||
            (duration.seconds == DURATION_SECONDS_MAX && duration.nanos > 0))
                return duration_out_of_range(err);

        return 0;
}

int duration_parse(const char *text, size_t len, Duration *ret_duration, HutchError *err) {
        uint64_t ns;
        int r;

        r = text_parse((Span){ text, text + len }, &ns);
        if (r < 0)
                return error_set(err, r, "DURATION_MALFORMED",
                                 "a duration is written as in '1h30m', '1.5s', '250ms' or '0', to the nanosecond");
        if (ns > DURATION_NS_MAX)
                return duration_out_of_range(err);

        *ret_duration = (Duration){
                .seconds = (int64_t) (ns / NSEC_PER_SEC),
                .nanos = (int32_t) (ns % NSEC_PER_SEC),
        };
        return 0;
}

void duration_format(Duration duration, char ret_text[static DURATION_TEXT_SIZE]) {
        int decimals = 9, fraction = duration.nanos;

        while (decimals > 0 && fraction % 1000 == 0) {
                fraction /= 1000;
                decimals -= 3;
        }

        if (decimals == 0)
                snprintf(ret_text, DURATION_TEXT_SIZE, "%jds", (intmax_t) duration.seconds);
        else
                snprintf(ret_text, DURATION_TEXT_SIZE, "%jd.%0*ds", (intmax_t) duration.seconds, decimals, fraction);
}
