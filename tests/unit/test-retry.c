/* SPDX-License-Identifier: Apache-2.0 */

#include "base/retry.h"

#include <jansson.h>

#include "base/strings.h"
#include "test.h"

static void second_try_follows_at_once(void **state) {
        assert_int_equal(retry_pause_ms(&retry_policy_default, 1, 0), 0);
        assert_int_equal(retry_pause_ms(&retry_policy_default, 1, UINT32_MAX), 0);
}

static void pauses_double_up_to_the_ceiling(void **state) {
        const uint32_t middle = UINT32_C(1) << 31; /* spreads by nothing */
        const uint64_t expected[] = { 500, 1000, 2000, 4000, 8000, 8000, 8000 };

        for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
                assert_int_equal(retry_pause_ms(&retry_policy_default, i + 2, middle), expected[i]);

        assert_int_equal(retry_pause_ms(&retry_policy_default, UINT32_MAX, middle), 8000);
}

static void pauses_are_spread_by_a_quarter_either_way(void **state) {
        assert_int_equal(retry_pause_ms(&retry_policy_default, 2, 0), 375);
        assert_int_equal(retry_pause_ms(&retry_policy_default, 2, UINT32_MAX), 624);
        assert_int_equal(retry_pause_ms(&retry_policy_default, 9, 0), 6000);
        assert_int_equal(retry_pause_ms(&retry_policy_default, 9, UINT32_MAX), 9999);
}

static void odd_pauses_are_rounded_as_the_formula_says(void **state) {
        const RetryPolicy policy = { .attempts = 9, .initial_ms = 7, .max_ms = 7 };

        assert_int_equal(retry_pause_ms(&policy, 2, 0), 6);
        assert_int_equal(retry_pause_ms(&policy, 2, UINT32_MAX), 8);
}

static void extreme_policies_do_not_overflow(void **state) {
        const RetryPolicy largest = { .attempts = 99, .initial_ms = UINT32_MAX, .max_ms = UINT32_MAX };
        const RetryPolicy steepest = { .attempts = 99, .initial_ms = 1, .max_ms = UINT32_MAX };
        const RetryPolicy none = { .attempts = 99, .initial_ms = 0, .max_ms = UINT32_MAX };
        const RetryPolicy lowered = { .attempts = 99, .initial_ms = 1000, .max_ms = 100 };

        assert_int_equal(retry_pause_ms(&largest, 99, UINT32_MAX), UINT64_C(5368709118));
        assert_int_equal(retry_pause_ms(&steepest, 34, 0), UINT64_C(3221225472));
        assert_int_equal(retry_pause_ms(&none, 99, UINT32_MAX), 0);
        assert_int_equal(retry_pause_ms(&lowered, 2, 0), 75);
}

static void tries_are_used_up(void **state) {
        uint64_t pause_ms;

        assert_true(retry_next(&retry_policy_default, 5, 0, RETRY_NO_DEADLINE, 0, &pause_ms));
        assert_int_equal(pause_ms, 3000);
        assert_false(retry_next(&retry_policy_default, 6, 0, RETRY_NO_DEADLINE, 0, &pause_ms));
        assert_false(retry_next(&(RetryPolicy){ .attempts = 0 }, 1, 0, RETRY_NO_DEADLINE, 0, &pause_ms));
}

static void pause_that_outlasts_the_deadline_is_not_begun(void **state) {
        uint64_t pause_ms;

        assert_true(retry_next(&retry_policy_default, 2, 1000, 1376, 0, &pause_ms));
        assert_int_equal(pause_ms, 375);
        assert_false(retry_next(&retry_policy_default, 2, 1000, 1375, 0, &pause_ms));

        assert_true(retry_next(&retry_policy_default, 1, 1000, 1001, 0, &pause_ms));
        assert_false(retry_next(&retry_policy_default, 1, 1000, 1000, 0, &pause_ms));
        assert_false(retry_next(&retry_policy_default, 1, UINT64_MAX - 1, 0, 0, &pause_ms));
        assert_true(retry_next(&retry_policy_default, 2, UINT64_MAX, RETRY_NO_DEADLINE, 0, &pause_ms));
}

static void only_calls_that_are_safe_or_were_not_sent_are_repeated(void **state) {
        const RetryOutcome safe = { .code = STATUS_UNAVAILABLE, .sent = true, .safe = true };
        const RetryOutcome unsafe = { .code = STATUS_UNAVAILABLE, .sent = true };
        const RetryOutcome unsent = { .code = STATUS_UNAVAILABLE };
        const RetryOutcome lost = { .code = STATUS_UNKNOWN, .connection_lost = true, .sent = true, .safe = true };
        const RetryOutcome refused = { .code = STATUS_INVALID_ARGUMENT, .safe = true };
        const RetryOutcome stream = { .code = STATUS_UNAVAILABLE, .sent = true, .safe = true, .answered = true };

        assert_true(retry_allowed(&safe));
        assert_false(retry_allowed(&unsafe));
        assert_true(retry_allowed(&unsent));
        assert_true(retry_allowed(&lost));
        assert_false(retry_allowed(&refused));
        assert_false(retry_allowed(&stream));
}

static uint64_t int_or(const Vector *v, const char *key, uint64_t otherwise) {
        return vector_has(v, key) ? (uint64_t) vector_int(v, key) : otherwise;
}

static void schedule_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "retry.json") {
                const RetryPolicy policy = {
                        .attempts = (unsigned) int_or(v, "attempts", retry_policy_default.attempts),
                        .initial_ms = (uint32_t) int_or(v, "initial_ms", retry_policy_default.initial_ms),
                        .max_ms = (uint32_t) int_or(v, "max_ms", retry_policy_default.max_ms),
                };
                uint64_t deadline_ms = int_or(v, "deadline_ms", RETRY_NO_DEADLINE);
                uint64_t attempt_ms = int_or(v, "attempt_ms", 0), now_ms = attempt_ms, pause_ms;
                const json_t *random = json_object_get(vector_json(v, "in"), "random");
                const json_t *expected = json_object_get(vector_json(v, "out"), "pauses_ms");
                unsigned tries = 1;

                for (; tries < 1000; tries++) {
                        uint32_t r = (uint32_t) json_integer_value(json_array_get(random, tries - 1));
                        json_int_t pause = json_integer_value(json_array_get(expected, tries - 1));

                        if (!retry_next(&policy, tries, now_ms, deadline_ms, r, &pause_ms))
                                break;
                        vector_check(v, (json_int_t) pause_ms == pause, "pause %u is %ju, but should be %jd", tries,
                                     (uintmax_t) pause_ms, (intmax_t) pause);
                        now_ms += pause_ms + attempt_ms;
                }

                vector_check(v, tries - 1 == json_array_size(expected), "there are %u pauses, but should be %zu",
                             tries - 1, json_array_size(expected));
        }
}

static bool code_from_name(const char *name, StatusCode *ret_code) {
        for (StatusCode code = STATUS_OK; code <= STATUS_UNAUTHENTICATED; code++)
                if (str_equal(name, status_code_name(code))) {
                        *ret_code = code;
                        return true;
                }

        return false;
}

static void decision_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "retry-decisions.json") {
                RetryOutcome outcome = {
                        .connection_lost = vector_bool(v, "connection_lost"),
                        .sent = vector_bool(v, "sent"),
                        .safe = vector_bool(v, "safe"),
                        .answered = vector_bool(v, "answered"),
                };

                if (vector_check(v, code_from_name(vector_string(v, "code"), &outcome.code), "has an unknown code"))
                        vector_assert_bool(v, "retry", retry_allowed(&outcome));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(second_try_follows_at_once),
                cmocka_unit_test(pauses_double_up_to_the_ceiling),
                cmocka_unit_test(pauses_are_spread_by_a_quarter_either_way),
                cmocka_unit_test(odd_pauses_are_rounded_as_the_formula_says),
                cmocka_unit_test(extreme_policies_do_not_overflow),
                cmocka_unit_test(tries_are_used_up),
                cmocka_unit_test(pause_that_outlasts_the_deadline_is_not_begun),
                cmocka_unit_test(only_calls_that_are_safe_or_were_not_sent_are_repeated),
                cmocka_unit_test(schedule_vectors_hold),
                cmocka_unit_test(decision_vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
