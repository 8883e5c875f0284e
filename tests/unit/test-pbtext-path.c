/* SPDX-License-Identifier: Apache-2.0 */

#include "pbtext/pbtext.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "pbtext-types.pb-c.h"
#include "test.h"

static void set(ProtobufCMessage *message, const char *path, const char *text) {
        _cleanup_(error_clear) HutchError err = {};

        if (message_set(message, path, text, &err) < 0)
                fail_msg("%s", error_message(&err));
}

static void refuse(ProtobufCMessage *message, const char *path, const char *text, const char *problem) {
        _cleanup_free_ char *before = message_to_json(message, false), *after = NULL;
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(message_set(message, path, text, &err), -EINVAL);
        assert_string_equal(error_message(&err), problem);
        after = message_to_json(message, false);
        assert_string_equal(after, before);
}

static void assert_value(const ProtobufCMessage *message, const char *path, const char *expected) {
        _cleanup_free_ char *text = message_get(message, path);

        assert_string_equal(text, expected);
}

static void single_values_are_set_and_replaced(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__sandbox__descriptor);

        set(message, "id", "sb-1");
        set(message, "id", "sb-22");
        set(message, "state", "ready");
        set(message, "spec.limits.memory_bytes", "18446744073709551615");
        set(message, "spec.limits.no_network", "false");
        set(message, "spec.idle_ttl", "1h");
        set(message, "spec.idle_ttl", "1h30m");
        set(message, "create_time", "2024-01-02T03:04:05+01:00");
        assert_value(message, "id", "sb-22");
        assert_value(message, "state", "READY");
        assert_value(message, "spec.limits.memory_bytes", "18446744073709551615");
        assert_value(message, "spec.limits.no_network", "false");
        assert_value(message, "spec.limits", "{\"memory_bytes\":\"18446744073709551615\",\"no_network\":false}");
        assert_value(message, "spec.idle_ttl", "5400s");
        assert_value(message, "create_time", "2024-01-02T02:04:05Z");
}

static void a_text_is_any_text(void **state) {
        static const char *const texts[] = { "null", "~", "{}", "\"a\"", "1", "true", " a ", "" };
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__sandbox_spec__descriptor);

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                set(message, "image", texts[i]);
                assert_value(message, "image", texts[i]);
        }
}

static void what_is_not_there_is_empty(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__sandbox__descriptor);
        static const char *const paths[] = { "id",          "spec",  "spec.image",   "spec.limits.memory_bytes",
                                             "spec.labels", "state", "active_execs", "create_time",
                                             "ports" };

        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
                assert_value(message, paths[i], "");
                assert_false(message_has(message, paths[i]));
        }
        assert_int_equal(message_count(message, "ports"), 0);
        assert_int_equal(message_count(message, "spec.mounts"), 0);
}

static void presence_is_told_where_it_is_kept(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__exec_result__descriptor);
        _cleanup_(message_freep) ProtobufCMessage *spec = message_new(&hutch__v1__sandbox_spec__descriptor);

        assert_false(message_has(message, "exit_code"));
        set(message, "exit_code", "0");
        assert_true(message_has(message, "exit_code"));
        assert_value(message, "exit_code", "0");

        set(spec, "limits", "{}");
        assert_true(message_has(spec, "limits"));
        set(spec, "image", "");
        assert_false(message_has(spec, "image"));
}

static void lists_grow(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__sandbox_spec__descriptor);
        const ProtobufCMessage *mount;

        set(message, "command", "sh");
        set(message, "command", "-c");
        set(message, "command", "echo a,b");
        assert_value(message, "command", "sh,-c,echo a,b");

        set(message, "mounts", "{\"source\": \"/a\", \"target\": \"/b\"}");
        set(message, "mounts", "{\"source\": \"/c\"}");
        assert_value(message, "mounts", "{\"source\":\"/a\",\"target\":\"/b\"},{\"source\":\"/c\"}");
        assert_int_equal(message_count(message, "mounts"), 2);
        mount = message_at(message, "mounts", 1);
        assert_value(mount, "source", "/c");
        assert_value(mount, "target", "");
}

/* An array that protobuf-c made has no room to spare. */
static void a_decoded_list_grows(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;

        assert_int_equal(message_decode(&hutch__v1__sandbox_spec__descriptor, "\x12\x01\x61\x12\x01\x62\x12\x01\x63", 9,
                                        &message, NULL),
                         0);
        set(message, "command", "d");
        set(message, "image", "host");
        assert_value(message, "command", "a,b,c,d");
        assert_value(message, "image", "host");
}

static void maps_take_keys_with_values(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__sandbox_spec__descriptor);
        _cleanup_(message_freep) ProtobufCMessage *types = message_new(&test__types__descriptor);

        set(message, "env", "B=2");
        set(message, "env", "A=x=y");
        set(message, "env", "B=");
        set(message, "env", "=z");
        assert_value(message, "env", "=z,A=x=y,B=");
        assert_int_equal(message_count(message, "env"), 3);
        refuse(message, "env", "A", "env: expected KEY=VALUE, not 'A'");

        set(types, "inners", "k={\"text\": \"a\"}");
        set(types, "inners", "k={\"text\": \"b\"}");
        set(types, "by_number", "-1=2.5");
        assert_value(types, "inners", "k={\"text\":\"b\"}");
        assert_value(types, "by_number", "-1=2.5");
        refuse(types, "by_number", "x=1",
               "by_number[x]: expected a whole number from -9223372036854775808 to 9223372036854775807, not 'x'");
        refuse(types, "inners", "k=1", "line 1: inners[k]: expected keys with values, not '1'");
}

static void what_is_wrong_changes_nothing(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&hutch__v1__sandbox__descriptor);

        refuse(message, "spec.limits.cpu_millis", "5s",
               "spec.limits.cpu_millis: expected a whole number from 0 to 4294967295, not '5s'");
        refuse(message, "spec.idle_ttl", "soon",
               "spec.idle_ttl: a duration is written as in '1h30m', '1.5s', '250ms' or '0', to the nanosecond");
        refuse(message, "spec.limits", "{", "spec.limits: line 1: expected a key in quotes");
        refuse(message, "spec.limits", "{\"memory\": 1}", "line 1: spec.limits: unknown key 'memory'");
        refuse(message, "spec.image", "\xff", "spec.image: this is not UTF-8");
        refuse(message, "state", "REDY", "state: 'REDY' is no SandboxState; did you mean 'READY'?");
}

static void a_member_of_a_oneof_excludes_the_others(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(&test__types__descriptor);

        set(message, "inner.text", "a");
        set(message, "inner.text", "b");
        assert_value(message, "inner.text", "b");
        assert_value(message, "name", "");
        assert_false(message_has(message, "name"));
        refuse(message, "name", "x", "name: only one of 'name' and 'inner' can be set");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(single_values_are_set_and_replaced),
                cmocka_unit_test(a_text_is_any_text),
                cmocka_unit_test(what_is_not_there_is_empty),
                cmocka_unit_test(presence_is_told_where_it_is_kept),
                cmocka_unit_test(lists_grow),
                cmocka_unit_test(a_decoded_list_grows),
                cmocka_unit_test(maps_take_keys_with_values),
                cmocka_unit_test(what_is_wrong_changes_nothing),
                cmocka_unit_test(a_member_of_a_oneof_excludes_the_others),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
