/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a text. */

#include "base/duration.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const char *text, size_t len, int r, const HutchError *err) {
        assert(r == -EINVAL);
        assert(err->code == STATUS_INVALID_ARGUMENT);

        /* Only what is well formed can be too long. */
        if (str_equal(err->reason, "DURATION_OUT_OF_RANGE"))
                assert(len > 1 && ascii_is_digit(text[0]) && ascii_is_lower(text[len - 1]));
        else
                assert(str_equal(err->reason, "DURATION_MALFORMED"));
}

static void check_reads(const char *text, Duration expected) {
        Duration duration;

        assert(duration_parse(text, strlen(text), &duration, NULL) == 0);
        assert(duration.seconds == expected.seconds && duration.nanos == expected.nanos);
}

static void check_canonical(Duration duration) {
        char text[DURATION_TEXT_SIZE];
        size_t len, decimals;

        duration_format(duration, text);
        check_reads(text, duration);

        len = strlen(text);
        decimals = strchr(text, '.') ? len - 1 - (size_t) (strchr(text, '.') + 1 - text) : 0;
        assert(decimals == 0 || decimals == 3 || decimals == 6 || decimals == 9);
        assert(decimals == 0 || memcmp(text + len - 4, "000s", 4) != 0);
}

/* The same length in other units. */
static void check_other_units(Duration duration) {
        char text[64];

        snprintf(text, sizeof(text), "%" PRIu64 "ns",
                 (uint64_t) duration.seconds * NSEC_PER_SEC + (uint64_t) duration.nanos);
        check_reads(text, duration);

        snprintf(text, sizeof(text), "%" PRId64 "m%" PRId64 ".%09" PRId32 "0s", duration.seconds / 60,
                 duration.seconds % 60, duration.nanos);
        check_reads(text, duration);

        snprintf(text, sizeof(text), "%" PRId64 "s%" PRId32 "us%" PRId32 "ns", duration.seconds, duration.nanos / 1000,
                 duration.nanos % 1000);
        check_reads(text, duration);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(error_clear) HutchError err = {};
        const char *text = (const char *) data;
        Duration duration;
        int r;

        r = duration_parse(text, size, &duration, &err);
        if (r < 0) {
                check_refusal(text, size, r, &err);
                return 0;
        }

        assert(duration_check(duration, NULL) == 0);
        check_canonical(duration);
        check_other_units(duration);
        return 0;
}
