/* SPDX-License-Identifier: Apache-2.0 */

#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"
#include "test.h"

static void codes_have_grpc_names_and_numbers(void **state) {
        static const char *const names[] = {
                "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
                "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
                "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
                "DATA_LOSS", "UNAUTHENTICATED",
        };

        for (int i = 0; i < 17; i++)
                assert_string_equal(status_code_name((StatusCode) i), names[i]);

        assert_string_equal(status_code_name((StatusCode) 17), "UNKNOWN");
        assert_string_equal(status_code_name((StatusCode) -1), "UNKNOWN");
}

static void errnos_map_to_codes(void **state) {
        static const struct {
                StatusCode code;
                int errnos[10];
        } table[] = {
                { STATUS_INVALID_ARGUMENT, { EINVAL, ENAMETOOLONG, EILSEQ, EDOM, EBADMSG } },
                { STATUS_NOT_FOUND, { ENOENT, ESRCH } },
                { STATUS_ALREADY_EXISTS, { EEXIST } },
                { STATUS_PERMISSION_DENIED, { EPERM, EACCES, EROFS } },
                { STATUS_FAILED_PRECONDITION, { ENOTDIR, EISDIR, ENOTEMPTY, EBUSY, ELOOP, EXDEV, ETXTBSY, ESTALE } },
                { STATUS_RESOURCE_EXHAUSTED,
                  { ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, E2BIG, EFBIG, EMLINK, EOVERFLOW } },
                { STATUS_OUT_OF_RANGE, { ERANGE } },
                { STATUS_UNIMPLEMENTED, { EOPNOTSUPP, ENOSYS } },
                { STATUS_UNAVAILABLE, { EAGAIN, ECONNREFUSED, ECONNRESET, EPIPE, ENOTCONN } },
                { STATUS_DEADLINE_EXCEEDED, { ETIMEDOUT } },
                { STATUS_CANCELLED, { ECANCELED } },
                { STATUS_INTERNAL, { EIO, EFAULT, ECHILD, 99999 } },
        };

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                for (const int *e = table[i].errnos; *e; e++)
                        if (status_code_from_errno(-*e) != table[i].code)
                                fail_msg("%s maps to %s", strerror(*e), status_code_name(status_code_from_errno(-*e)));

        assert_int_equal(status_code_from_errno(0), STATUS_OK);
        assert_int_equal(status_code_from_errno(7), STATUS_OK);
        assert_int_equal(status_code_from_errno(INT_MIN), STATUS_INTERNAL);
}

static void set_fills_and_returns_the_errno(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(error_set(&err, -ENOENT, "SANDBOX_NOT_FOUND", "no sandbox '%s'", "sbx-1"), -ENOENT);

        assert_int_equal(err.code, STATUS_NOT_FOUND);
        assert_int_equal(err.error, ENOENT);
        assert_string_equal(err.reason, "SANDBOX_NOT_FOUND");
        assert_string_equal(error_message(&err), "no sandbox 'sbx-1'");
}

static void a_caller_may_not_want_the_error(void **state) {
        assert_int_equal(error_set(NULL, -EINVAL, "REASON", "%d", 1), -EINVAL);
        assert_int_equal(error_set_code(NULL, STATUS_ABORTED, -EINVAL, "REASON", "%d", 1), -EINVAL);
}

static void a_code_may_be_given(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(error_set_code(&err, STATUS_UNAUTHENTICATED, -EACCES, "TOKEN_EXPIRED", "expired"), -EACCES);

        assert_int_equal(err.code, STATUS_UNAUTHENTICATED);
        assert_int_equal(err.error, EACCES);
        assert_string_equal(err.reason, "TOKEN_EXPIRED");
}

static void the_last_error_replaces_and_may_quote_the_first(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        error_set(&err, -ENOENT, "FIRST", "inner");
        error_set(&err, -EINVAL, err.reason, "outer: %s", error_message(&err));

        assert_int_equal(err.code, STATUS_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "FIRST");
        assert_string_equal(err.message, "outer: inner");
}

static void clear_leaves_no_error(void **state) {
        HutchError err = {};

        error_set(&err, -EIO, "DISK", "broken");
        error_clear(&err);

        assert_int_equal(err.code, STATUS_OK);
        assert_int_equal(err.error, 0);
        assert_string_equal(err.reason, "");
        assert_null(err.message);
        assert_string_equal(error_message(&err), "OK");
}

static void long_messages_are_cut_between_characters(void **state) {
        _cleanup_(string_builder_clear) StringBuilder text = {};

        while (text.len <= ERROR_MESSAGE_MAX)
                string_builder_append(&text, "\u20ac"); /* three bytes each */

        for (int shift = 0; shift < 3; shift++) {
                _cleanup_(error_clear) HutchError err = {};
                size_t len;

                error_set(&err, -EINVAL, "LONG", "%.*s%s", shift, "xx", text.text);
                len = strlen(err.message);
                assert_true(len <= ERROR_MESSAGE_MAX);
                assert_true(len > ERROR_MESSAGE_MAX - 4);
                assert_true(utf8_valid(err.message, len));
        }
}

static void long_reasons_are_cut(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        char reason[ERROR_REASON_MAX + 2];

        memset(reason, 'R', sizeof(reason) - 1);
        reason[sizeof(reason) - 1] = '\0';
        error_set(&err, -EINVAL, reason, "x");

        assert_int_equal(strlen(err.reason), ERROR_REASON_MAX);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(codes_have_grpc_names_and_numbers),
                cmocka_unit_test(errnos_map_to_codes),
                cmocka_unit_test(set_fills_and_returns_the_errno),
                cmocka_unit_test(a_caller_may_not_want_the_error),
                cmocka_unit_test(a_code_may_be_given),
                cmocka_unit_test(the_last_error_replaces_and_may_quote_the_first),
                cmocka_unit_test(clear_leaves_no_error),
                cmocka_unit_test(long_messages_are_cut_between_characters),
                cmocka_unit_test(long_reasons_are_cut),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
