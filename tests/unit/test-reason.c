/* SPDX-License-Identifier: Apache-2.0 */

#include "model/reason.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "contract/hutch/v1/error.pb-c.h"
#include "test.h"

static const Reason reasons[] = {
#define X(name, number, code) REASON_##name,
        REASONS(X)
#undef X
};

#define N_REASONS (sizeof(reasons) / sizeof(reasons[0]))

static void numbers_and_names_are_those_of_the_contract(void **state) {
        for (size_t i = 0; i < N_REASONS; i++) {
                const ProtobufCEnumValue *value =
                        protobuf_c_enum_descriptor_get_value(&hutch__v1__reason__descriptor, (int) reasons[i]);

                assert_non_null(value);
                assert_true(str_has_prefix(value->name, "REASON_"));
                assert_string_equal(reason_name(reasons[i]), value->name + strlen("REASON_"));
        }

        assert_int_equal(N_REASONS + 1, hutch__v1__reason__descriptor.n_values); /* with UNSPECIFIED */
}

static void names_lead_back_to_their_reasons(void **state) {
        for (size_t i = 0; i < N_REASONS; i++)
                assert_int_equal(reason_from_name(reason_name(reasons[i])), reasons[i]);
}

static void reason_fits_into_an_error(void **state) {
        for (size_t i = 0; i < N_REASONS; i++)
                assert_in_range(strlen(reason_name(reasons[i])), 1, ERROR_REASON_MAX);
}

static void what_is_no_reason_is_unspecified(void **state) {
        assert_string_equal(reason_name(REASON_UNSPECIFIED), "UNSPECIFIED");
        assert_string_equal(reason_name((Reason) 99), "UNSPECIFIED");
        assert_int_equal(reason_status_code(REASON_UNSPECIFIED), STATUS_UNKNOWN);
        assert_int_equal(reason_status_code((Reason) 99), STATUS_UNKNOWN);
        assert_int_equal(reason_from_name("REASON_PATH_EMPTY"), REASON_UNSPECIFIED);
        assert_int_equal(reason_from_name("path_empty"), REASON_UNSPECIFIED);
        assert_int_equal(reason_from_name(""), REASON_UNSPECIFIED);
        assert_int_equal(reason_from_name("UNSPECIFIED"), REASON_UNSPECIFIED);
}

static void reason_brings_its_code(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        /* -ENOMEM would be RESOURCE_EXHAUSTED by itself. */
        assert_int_equal(reason_set(&err, -ENOMEM, REASON_STORE_UNAVAILABLE, "no room for %d rows", 3), -ENOMEM);
        assert_int_equal(err.code, STATUS_UNAVAILABLE);
        assert_int_equal(err.error, ENOMEM);
        assert_string_equal(err.reason, "STORE_UNAVAILABLE");
        assert_string_equal(error_message(&err), "no room for 3 rows");

        assert_int_equal(reason_set(NULL, -EINVAL, REASON_PATH_EMPTY, "nobody listens"), -EINVAL);
}

static void unknown_errors_are_internal(void **state) {
        assert_int_equal(reason_from_errno(-EINVAL), REASON_INTERNAL);
        assert_int_equal(reason_from_errno(-EBADF), REASON_INTERNAL);
        assert_int_equal(reason_from_errno(-100000), REASON_INTERNAL);
        assert_int_equal(reason_from_errno(0), REASON_INTERNAL);
}

/* The number of the errno called @name; 0 when there is none. */
static int errno_from_name(const char *name) {
        if (str_equal(name, "EOPNOTSUPP"))
                return EOPNOTSUPP; /* ENOTSUP is the same number */

        for (int number = 1; number < 256; number++)
                if (str_equal(strerrorname_np(number), name))
                        return number;

        return 0;
}

static void vectors_hold(void **state) {
        size_t n_reasons = 0;

        VECTOR_FOREACH(v, "errors.json") {
                Reason reason;

                if (vector_has(v, "errno")) {
                        int number = errno_from_name(vector_string(v, "errno"));

                        vector_check(v, number > 0, "has an unknown errno");
                        reason = reason_from_errno(-number);
                        vector_assert_string(v, "reason", reason_name(reason));
                } else {
                        reason = reason_from_name(vector_string(v, "reason"));
                        n_reasons += reason != REASON_UNSPECIFIED;
                        vector_check(v, reason != REASON_UNSPECIFIED, "is a reason that is not known here");
                }

                vector_assert_string(v, "code", status_code_name(reason_status_code(reason)));
        }

        /* Names are unique in the file, so that no reason here lacks a row there. */
        assert_int_equal(n_reasons, N_REASONS);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(numbers_and_names_are_those_of_the_contract),
                cmocka_unit_test(names_lead_back_to_their_reasons),
                cmocka_unit_test(reason_fits_into_an_error),
                cmocka_unit_test(what_is_no_reason_is_unspecified),
                cmocka_unit_test(reason_brings_its_code),
                cmocka_unit_test(unknown_errors_are_internal),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
