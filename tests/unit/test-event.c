/* SPDX-License-Identifier: Apache-2.0 */

#include "model/event.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "test.h"

/* Which has more: of what is not made yet. */
static void types_are_those_of_the_contract(void **state) {
        for (EventType type = EVENT_SANDBOX_CREATED; type <= EVENT_LIMIT_HIT; type++) {
                const ProtobufCEnumValue *value =
                        protobuf_c_enum_descriptor_get_value(&hutch__v1__event_type__descriptor, (int) type);

                assert_non_null(value);
                assert_true(str_has_prefix(value->name, "EVENT_TYPE_"));
                assert_string_equal(event_type_name(type), value->name + strlen("EVENT_TYPE_"));
        }
}

static void names_lead_back_to_their_types(void **state) {
        for (EventType type = EVENT_SANDBOX_CREATED; type <= EVENT_LIMIT_HIT; type++) {
                EventType found = 0;

                assert_int_equal(event_type_from_name(event_type_name(type), &found), 0);
                assert_int_equal(found, type);
        }

        assert_int_equal(event_type_from_name("UNSPECIFIED", &(EventType){ 0 }), -EINVAL);
        assert_int_equal(event_type_from_name("limit_hit", &(EventType){ 0 }), -EINVAL);
        assert_int_equal(event_type_from_name("", &(EventType){ 0 }), -EINVAL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(types_are_those_of_the_contract),
                cmocka_unit_test(names_lead_back_to_their_types),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
