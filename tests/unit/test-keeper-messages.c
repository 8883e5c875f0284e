/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/keeper/messages.h"

#include <errno.h>
#include <string.h>

#include "test.h"

typedef Hutch__Keeper__V1__StartExecRequest Request;
typedef Hutch__Keeper__V1__EnvironmentVariable Variable;

static void durations_are_bounded(void **state) {
        Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;

        assert_int_equal(duration_to_ns(NULL, 77), 77);
        assert_int_equal(duration_to_ns(&duration, 77), 0);
        duration.seconds = 3;
        duration.nanos = 5;
        assert_int_equal(duration_to_ns(&duration, 77), UINT64_C(3000000005));
        duration.seconds = INT64_MAX;
        assert_int_equal(duration_to_ns(&duration, 77), UINT64_MAX - 1);
        duration.seconds = -1;
        assert_int_equal(duration_to_ns(&duration, 77), 0);
        duration.seconds = 1;
        duration.nanos = -1;
        assert_int_equal(duration_to_ns(&duration, 77), 0);
}

static void times_are_seconds_and_the_rest(void **state) {
        assert_int_equal(duration_from_ns(UINT64_C(1500000001)).seconds, 1);
        assert_int_equal(duration_from_ns(UINT64_C(1500000001)).nanos, 500000001);
        assert_int_equal(timestamp_from_ns(UINT64_C(1700000000000000009)).seconds, 1700000000);
        assert_int_equal(timestamp_from_ns(UINT64_C(1700000000000000009)).nanos, 9);
}

static char *argv[] = { (char *) "prog", (char *) "" };

static Request good_request(void) {
        Request request = HUTCH__KEEPER__V1__START_EXEC_REQUEST__INIT;

        request.exec_id = (char *) "exec-1";
        request.n_argv = 2;
        request.argv = argv;
        request.working_directory = (char *) "/";
        request.user = (char *) "agent";
        request.output_limit_bytes = 1;
        return request;
}

static void expect_refused(const Request *request, int error, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        ExecOrder order;

        assert_int_equal(exec_order_init(&order, request, &err), -error);
        assert_string_equal(err.reason, reason);
}

static void an_order_is_what_was_asked(void **state) {
        _cleanup_(exec_order_clear) ExecOrder order = {};
        Variable variable = HUTCH__KEEPER__V1__ENVIRONMENT_VARIABLE__INIT, *env[] = { &variable };
        Request request = good_request();

        variable.name = (char *) "A";
        variable.value = (char *) "b=c";
        request.n_env = 1;
        request.env = env;
        assert_int_equal(exec_order_init(&order, &request, NULL), 0);
        assert_string_equal(order.plan.argv[0], "prog");
        assert_string_equal(order.plan.argv[1], "");
        assert_null(order.plan.argv[2]);
        assert_string_equal(order.plan.environment[0], "A=b=c");
        assert_null(order.plan.environment[1]);
        assert_int_equal(order.plan.timeout, UINT64_MAX);
        assert_int_equal(order.plan.kill_grace, UINT64_C(5000000000));
        assert_false(order.plan.terminal);
}

static void what_is_unsafe_is_refused(void **state) {
        Request request = good_request();

        request.exec_id = (char *) "../x1";
        expect_refused(&request, EINVAL, "ID_MALFORMED");
        request = good_request();
        request.n_argv = 0;
        expect_refused(&request, EINVAL, "ARGV_EMPTY");
        request = good_request();
        request.working_directory = (char *) "x";
        expect_refused(&request, EINVAL, "PATH_NOT_ABSOLUTE");
        request = good_request();
        request.output_limit_bytes = 0;
        expect_refused(&request, EINVAL, "FIELD_OUT_OF_RANGE");
        request = good_request();
        request.stdin_stream = true;
        request.input.len = 1;
        expect_refused(&request, EINVAL, "FIELD_CONFLICT");
}

static void arguments_are_bounded(void **state) {
        static char longest[EXEC_ARGUMENT_MAX + 2];
        char *many[EXEC_ARGUMENTS_MAX / (EXEC_ARGUMENT_MAX + 1) + 1];
        _cleanup_(exec_order_clear) ExecOrder order = {};
        Request request = good_request();

        /* Exactly all that is allowed, and then one byte more. */
        memset(longest, 'x', EXEC_ARGUMENT_MAX);
        for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
                many[i] = longest;
        request.argv = many;
        request.n_argv = sizeof(many) / sizeof(*many) - 1;
        assert_int_equal(exec_order_init(&order, &request, NULL), 0);
        many[request.n_argv++] = (char *) "";
        expect_refused(&request, E2BIG, "ARGUMENTS_TOO_LARGE");

        longest[EXEC_ARGUMENT_MAX] = 'x';
        request.n_argv = 1;
        expect_refused(&request, E2BIG, "ARGUMENTS_TOO_LARGE");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(durations_are_bounded),      cmocka_unit_test(times_are_seconds_and_the_rest),
                cmocka_unit_test(an_order_is_what_was_asked), cmocka_unit_test(what_is_unsafe_is_refused),
                cmocka_unit_test(arguments_are_bounded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
