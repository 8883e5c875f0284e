/* SPDX-License-Identifier: Apache-2.0 */

#include "model/exec.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "test.h"

static void end_reasons_are_those_of_the_contract(void **state) {
        for (ExecEndReason reason = EXEC_END_EXITED; reason <= EXEC_END_DISK_FULL; reason++) {
                const ProtobufCEnumValue *value =
                        protobuf_c_enum_descriptor_get_value(&hutch__v1__exec_end_reason__descriptor, (int) reason);

                assert_non_null(value);
                assert_true(str_has_prefix(value->name, "EXEC_END_REASON_"));
                assert_string_equal(exec_end_reason_name(reason), value->name + strlen("EXEC_END_REASON_"));
        }

        assert_int_equal(EXEC_END_DISK_FULL + 1, hutch__v1__exec_end_reason__descriptor.n_values);
}

static void names_lead_back_to_their_end_reasons(void **state) {
        for (ExecEndReason reason = EXEC_END_EXITED; reason <= EXEC_END_DISK_FULL; reason++) {
                ExecEndReason found = EXEC_END_NONE;

                assert_int_equal(exec_end_reason_from_name(exec_end_reason_name(reason), &found), 0);
                assert_int_equal(found, reason);
        }

        assert_null(exec_end_reason_name(EXEC_END_NONE));
        assert_int_equal(exec_end_reason_from_name("UNSPECIFIED", &(ExecEndReason){ 0 }), -EINVAL);
        assert_int_equal(exec_end_reason_from_name("exited", &(ExecEndReason){ 0 }), -EINVAL);
        assert_int_equal(exec_end_reason_from_name("", &(ExecEndReason){ 0 }), -EINVAL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(end_reasons_are_those_of_the_contract),
                cmocka_unit_test(names_lead_back_to_their_end_reasons),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
