/* SPDX-License-Identifier: Apache-2.0 */

#include "base/duration.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "test.h"

static void expect(const char *text, int64_t seconds, int32_t nanos) {
        _cleanup_(error_clear) HutchError err = {};
        Duration duration = {};

        if (duration_parse(text, strlen(text), &duration, &err) < 0)
                fail_msg("'%s' is refused: %s", text, error_message(&err));
        if (duration.seconds != seconds || duration.nanos != nanos)
                fail_msg("'%s' is %jd s and %d ns", text, (intmax_t) duration.seconds, duration.nanos);
}

static void expect_refusal(const char *text, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        Duration duration;
        int r = duration_parse(text, strlen(text), &duration, &err);

        if (r != -EINVAL || err.code != STATUS_INVALID_ARGUMENT || !str_equal(err.reason, reason))
                fail_msg("'%s' gives %d %s instead of %s", text, r, err.reason, reason);
}

static void units_add_up(void **state) {
        expect("0", 0, 0);
        expect("0s", 0, 0);
        expect("1ns", 0, 1);
        expect("1us", 0, 1000);
        expect("250ms", 0, 250000000);
        expect("90m", 5400, 0);
        expect("1h30m", 5400, 0);
        expect("1d", 86400, 0);
        expect("1d1h1m1s1ms1us1ns", 90061, 1001001);
        expect("61m", 3660, 0);
        expect("1000000000ns", 1, 0);
        expect("1m1ms", 60, 1000000);
        expect("007s", 7, 0);
}

static void last_number_may_have_a_fraction(void **state) {
        expect("1.5s", 1, 500000000);
        expect("0.000001s", 0, 1000);
        expect("1.500s", 1, 500000000);
        expect("0.5d", 43200, 0);
        expect("1h0.5m", 3630, 0);
        expect("0.25us", 0, 250);
        expect("0.0000000000003125d", 0, 27);
        expect_refusal("1.5h30m", "DURATION_MALFORMED");
        expect_refusal("1.s", "DURATION_MALFORMED");
        expect_refusal(".5s", "DURATION_MALFORMED");
        expect_refusal("1.5.5s", "DURATION_MALFORMED");
}

static void nothing_is_rounded(void **state) {
        expect("0.000000001s", 0, 1);
        expect("1.0000000000s", 1, 0);
        expect("1.0ns", 0, 1);
        expect_refusal("0.0000000001s", "DURATION_MALFORMED");
        expect_refusal("0.5ns", "DURATION_MALFORMED");
        expect_refusal("0.0001us", "DURATION_MALFORMED");
        expect_refusal("0.0000000000001d", "DURATION_MALFORMED");
}

static void other_forms_are_refused(void **state) {
        static const char *const texts[] = {
                "",       "1",     "00",   "0.0",  "-1s",  "+1s",  " 1s",        "1s ",       "1 s",   "s",     "1x",
                "1S",     "1M",    "1min", "1sec", "1e3s", "1,5s", "1s1",        "1s1s",      "30m1h", "1ms1s", "1s1m",
                "1ns1us", "1m 1s", "1s.",  ".",    "0x1s", "inf",  "1\xc2\xb5s", "\xd9\xa1s", "1:30",  "P1D",
        };

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                expect_refusal(texts[i], "DURATION_MALFORMED");

        assert_int_equal(duration_parse("1s\0", 3, &(Duration){}, NULL), -EINVAL);
        assert_int_equal(duration_parse("0\0", 2, &(Duration){}, NULL), -EINVAL);
}

static void ten_years_are_the_longest(void **state) {
        expect("315576000s", 315576000, 0);
        expect("3652d12h", 315576000, 0);
        expect("3652.5d", 315576000, 0);
        expect("315575999.999999999s", 315575999, 999999999);
        expect_refusal("315576000.000000001s", "DURATION_OUT_OF_RANGE");
        expect_refusal("315576001s", "DURATION_OUT_OF_RANGE");
        expect_refusal("315576000s1ns", "DURATION_OUT_OF_RANGE");
        expect_refusal("18446744073709551616s", "DURATION_OUT_OF_RANGE");
        expect_refusal("99999999999999999999999999999999999999d", "DURATION_OUT_OF_RANGE");
        expect_refusal("99999d99999999h99999999999m9999999999999s9999999999999999ms", "DURATION_OUT_OF_RANGE");
        expect_refusal("99999999999999999999d1", "DURATION_MALFORMED");
}

static void expect_range(int64_t seconds, int32_t nanos, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        int r = duration_check((Duration){ seconds, nanos }, &err);

        assert_int_equal(r, reason ? -EINVAL : 0);
        assert_string_equal(err.reason, reason ? reason : "");
}

static void durations_in_messages_have_the_same_range(void **state) {
        expect_range(0, 0, NULL);
        expect_range(315576000, 0, NULL);
        expect_range(315575999, 999999999, NULL);
        expect_range(315576000, 1, "DURATION_OUT_OF_RANGE");
        expect_range(INT64_MAX, 0, "DURATION_OUT_OF_RANGE");
        expect_range(-1, 0, "DURATION_OUT_OF_RANGE");
        expect_range(0, -1, "DURATION_OUT_OF_RANGE");
        expect_range(INT64_MIN, INT32_MIN, "DURATION_OUT_OF_RANGE");
        expect_range(0, 1000000000, "DURATION_MALFORMED");
}

static void expect_text(int64_t seconds, int32_t nanos, const char *expected) {
        char text[DURATION_TEXT_SIZE];

        duration_format((Duration){ seconds, nanos }, text);
        assert_string_equal(text, expected);
}

static void text_has_the_fewest_decimals_that_are_exact(void **state) {
        expect_text(0, 0, "0s");
        expect_text(5400, 0, "5400s");
        expect_text(1, 500000000, "1.500s");
        expect_text(0, 1000, "0.000001s");
        expect_text(0, 1, "0.000000001s");
        expect_text(7, 10, "7.000000010s");
        expect_text(7, 120000, "7.000120s");
        expect_text(315575999, 999999999, "315575999.999999999s");
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "durations.json") {
                _cleanup_(error_clear) HutchError err = {};
                char canonical[DURATION_TEXT_SIZE];
                Duration duration;
                size_t len;
                const char *text = vector_bytes(v, "text", &len);
                int r = duration_parse(text, len, &duration, &err);

                vector_assert_result(v, r, &err);
                if (r < 0 || !vector_json(v, "out"))
                        continue;

                duration_format(duration, canonical);
                vector_assert_int(v, "seconds", duration.seconds);
                vector_assert_int(v, "nanos", duration.nanos);
                vector_assert_string(v, "canonical", canonical);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(units_add_up),
                cmocka_unit_test(last_number_may_have_a_fraction),
                cmocka_unit_test(nothing_is_rounded),
                cmocka_unit_test(other_forms_are_refused),
                cmocka_unit_test(ten_years_are_the_longest),
                cmocka_unit_test(durations_in_messages_have_the_same_range),
                cmocka_unit_test(text_has_the_fewest_decimals_that_are_exact),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
