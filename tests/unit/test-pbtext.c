/* SPDX-License-Identifier: Apache-2.0 */

#include "pbtext/pbtext.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "contract/google/protobuf/field_mask.pb-c.h"
#include "contract/google/protobuf/timestamp.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "pbtext-types.pb-c.h"
#include "test.h"

static const ProtobufCMessageDescriptor *const spec_type = &hutch__v1__sandbox_spec__descriptor;
static const ProtobufCMessageDescriptor *const types = &test__types__descriptor;

/* JSON stands for both where the two do not differ. */
static ProtobufCMessage *from_json(const ProtobufCMessageDescriptor *type, const char *text) {
        _cleanup_(error_clear) HutchError err = {};
        ProtobufCMessage *message = NULL;

        if (message_from_json(type, text, strlen(text), &message, &err) < 0)
                fail_msg("%s: %s", error_message(&err), text);
        return message;
}

static ProtobufCMessage *from_yaml(const ProtobufCMessageDescriptor *type, const char *text) {
        _cleanup_(error_clear) HutchError err = {};
        ProtobufCMessage *message = NULL;

        if (message_from_yaml(type, text, strlen(text), &message, &err) < 0)
                fail_msg("%s: %s", error_message(&err), text);
        return message;
}

static void assert_json(const ProtobufCMessage *message, const char *expected) {
        _cleanup_free_ char *json = message_to_json(message, false);

        assert_true(str_has_suffix(json, "\n"));
        json[strlen(json) - 1] = '\0';
        assert_string_equal(json, expected);
}

/* JSON that is read, and how it is written. */
static void expect_json(const ProtobufCMessageDescriptor *type, const char *text, const char *expected) {
        _cleanup_(message_freep) ProtobufCMessage *message = from_json(type, text);

        assert_json(message, expected);
}

/* YAML that is read, and how it is written as JSON. */
static void expect_yaml(const ProtobufCMessageDescriptor *type, const char *text, const char *expected) {
        _cleanup_(message_freep) ProtobufCMessage *message = from_yaml(type, text);

        assert_json(message, expected);
}

static void expect_written(const ProtobufCMessageDescriptor *type, const char *json, const char *expected) {
        _cleanup_(message_freep) ProtobufCMessage *message = from_json(type, json);
        _cleanup_free_ char *yaml = message_to_yaml(message);

        assert_string_equal(yaml, expected);
}

static void expect_refusal(int r, const HutchError *err, const char *text, const char *problem) {
        if (r == 0)
                fail_msg("this was read: %s", text);
        assert_int_equal(r, -EINVAL);
        assert_int_equal(err->code, STATUS_INVALID_ARGUMENT);
        assert_string_equal(error_message(err), problem);
}

static void refuse_json(const ProtobufCMessageDescriptor *type, const char *text, const char *problem) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};

        expect_refusal(message_from_json(type, text, strlen(text), &message, &err), &err, text, problem);
}

static void refuse_yaml(const ProtobufCMessageDescriptor *type, const char *text, const char *problem) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};

        expect_refusal(message_from_yaml(type, text, strlen(text), &message, &err), &err, text, problem);
}

static void names_are_those_of_the_contract_or_of_json(void **state) {
        expect_json(spec_type, "{\"working_directory\": \"/a\", \"idle_ttl\": \"1s\"}",
                    "{\"working_directory\":\"/a\",\"idle_ttl\":\"1s\"}");
        expect_json(spec_type, "{\"workingDirectory\": \"/a\", \"idleTtl\": \"1s\"}",
                    "{\"working_directory\":\"/a\",\"idle_ttl\":\"1s\"}");
        expect_json(types, "{\"httpMode1\": 1}", "{\"http_mode_1\":\"ON\"}");
        refuse_json(spec_type, "{\"Image\": \"a\"}", "line 1: unknown key 'Image'; did you mean 'image'?");
        refuse_json(spec_type, "{\"imgae\": \"a\"}", "line 1: unknown key 'imgae'; did you mean 'image'?");
        refuse_json(spec_type, "{\"limits\": {\n\"memory\": 1}}", "line 2: limits: unknown key 'memory'");
        refuse_json(spec_type, "{\"zzz\": 1}", "line 1: unknown key 'zzz'");
        refuse_json(spec_type, "{\"\": 1}", "line 1: unknown key ''");
}

static void doubled_names_are_refused(void **state) {
        refuse_json(spec_type, "{\"image\": \"a\",\n\"image\": \"a\"}", "line 2: image: this key is there twice");
        refuse_json(spec_type, "{\"idle_ttl\": \"1s\", \"idleTtl\": \"1s\"}",
                    "line 1: idleTtl: this key is there twice");
        refuse_json(spec_type, "{\"labels\": {\"b\": \"1\",\n\"a\": \"1\",\n\"b\": \"2\"}}",
                    "line 3: labels[b]: this key is there twice");
        refuse_yaml(spec_type, "labels:\n  a: x\n  'a': y\n", "line 3: labels[a]: this key is there twice");
}

static void whole_numbers_keep_every_digit_and_their_range(void **state) {
        expect_json(types, "{\"uint64\": 18446744073709551615}", "{\"uint64\":\"18446744073709551615\"}");
        expect_json(types, "{\"uint64\": \"18446744073709551615\"}", "{\"uint64\":\"18446744073709551615\"}");
        expect_json(types, "{\"uint64\": 9007199254740992}", "{\"uint64\":9007199254740992}");
        expect_json(types, "{\"uint64\": 9007199254740993}", "{\"uint64\":\"9007199254740993\"}");
        expect_json(types, "{\"int64\": -9223372036854775808}", "{\"int64\":\"-9223372036854775808\"}");
        expect_json(types, "{\"int32\": -2147483648}", "{\"int32\":-2147483648}");
        expect_json(types, "{\"uint32\": 4.5e2, \"int32\": -1.0}", "{\"int32\":-1,\"uint32\":450}");
        expect_json(types, "{\"sint32\": \"-5\", \"fixed32\": 5}", "{\"sint32\":-5,\"fixed32\":5}");
        expect_yaml(types, "sfixed64: -1\nfixed64: 1\n", "{\"sfixed64\":-1,\"fixed64\":1}");

        refuse_json(types, "{\"uint64\": 18446744073709551616}",
                    "line 1: uint64: expected a whole number from 0 to 18446744073709551615, not "
                    "'18446744073709551616'");
        refuse_json(types, "{\"int64\": 9223372036854775808}",
                    "line 1: int64: expected a whole number from -9223372036854775808 to 9223372036854775807, not "
                    "'9223372036854775808'");
        refuse_json(types, "{\"uint32\": 4294967296}",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not '4294967296'");
        refuse_json(types, "{\"uint32\": -1}",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not '-1'");
        refuse_json(types, "{\"uint32\": 1.5}",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not '1.5'");
        refuse_json(types, "{\"uint32\": \"\"}",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not ''");
        refuse_json(types, "{\"uint32\": true}",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not 'true'");
        refuse_yaml(types, "uint32: 0644\n",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not '0644'");
        refuse_yaml(types, "uint32: 0x10\n",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not '0x10'");
        refuse_yaml(types, "uint32: 1_000\n",
                    "line 1: uint32: expected a whole number from 0 to 4294967295, not '1_000'");
}

static void numbers_with_a_point_have_the_fewest_digits(void **state) {
        expect_json(types, "{\"double\": 0.1, \"float\": 0.1}", "{\"double\":0.1,\"float\":0.1}");
        expect_json(types, "{\"double\": 0.30000000000000004}", "{\"double\":0.30000000000000004}");
        expect_json(types, "{\"double\": \"NaN\", \"float\": \"-Infinity\"}",
                    "{\"double\":\"NaN\",\"float\":\"-Infinity\"}");
        expect_json(types, "{\"doubles\": [1, \"2.5\", 1e300]}", "{\"doubles\":[1,2.5,1e+300]}");
        expect_written(types, "{\"double\": \"Infinity\"}", "double: \"Infinity\"\n");
        refuse_json(types, "{\"double\": 1e999}", "line 1: double: expected a smaller number, not '1e999'");
        refuse_json(types, "{\"float\": 1e39}", "line 1: float: expected a smaller number, not '1e39'");
        refuse_json(types, "{\"float\": \"0x1p3\"}", "line 1: float: expected a number, not '0x1p3'");
        refuse_json(types, "{\"float\": []}", "line 1: float: expected a number, not a list");
}

static void booleans_are_true_or_false(void **state) {
        expect_json(types, "{\"bools\": [true, false]}", "{\"bools\":[true,false]}");
        expect_yaml(types, "bool: true\n", "{\"bool\":true}");
        refuse_yaml(types, "bool: yes\n", "line 1: bool: expected true or false, not 'yes'");
        refuse_yaml(types, "bool: 'true'\n", "line 1: bool: expected true or false, not 'true'");
        refuse_json(types, "{\"bool\": \"true\"}", "line 1: bool: expected true or false, not 'true'");
        refuse_json(types, "{\"bool\": {}}", "line 1: bool: expected true or false, not keys with values");
}

static void enums_are_short_names_in_any_case_or_numbers(void **state) {
        const ProtobufCMessageDescriptor *sandbox = &hutch__v1__sandbox__descriptor;

        expect_json(sandbox, "{\"state\": \"READY\"}", "{\"state\":\"READY\"}");
        expect_json(sandbox, "{\"state\": \"SANDBOX_STATE_READY\"}", "{\"state\":\"READY\"}");
        expect_json(sandbox, "{\"state\": \"sandbox_state_ready\"}", "{\"state\":\"READY\"}");
        expect_yaml(sandbox, "state: ready\n", "{\"state\":\"READY\"}");
        expect_json(sandbox, "{\"state\": 2}", "{\"state\":\"READY\"}");
        expect_json(sandbox, "{\"state\": 77}", "{\"state\":77}");
        expect_json(types, "{\"modes\": [\"fast\", \"MODE_2D\", -3, \"unspecified\"], \"http_mode_1\": \"on\"}",
                    "{\"modes\":[\"FAST\",\"MODE_2D\",\"SLOW\",\"UNSPECIFIED\"],\"http_mode_1\":\"ON\"}");
        expect_written(types, "{\"http_mode_1\": 1}", "http_mode_1: \"ON\"\n");
        refuse_json(sandbox, "{\"state\": \"REDAY\"}",
                    "line 1: state: 'REDAY' is no SandboxState; did you mean 'READY'?");
        refuse_json(sandbox, "{\"state\": true}", "line 1: state: expected the name of a SandboxState, not 'true'");
        refuse_json(sandbox, "{\"state\": 3000000000}",
                    "line 1: state: expected a whole number from -2147483648 to 2147483647, not '3000000000'");
}

static void bytes_are_base64_of_either_alphabet(void **state) {
        expect_json(types, "{\"bytes\": \"+/8=\"}", "{\"bytes\":\"+/8=\"}");
        expect_json(types, "{\"bytes\": \"-_8\"}", "{\"bytes\":\"+/8=\"}");
        expect_json(types, "{\"blobs\": [\"\", \"YQ==\", \"YWI=\", \"YWJj\", \"YWJjZA\"]}",
                    "{\"blobs\":[\"\",\"YQ==\",\"YWI=\",\"YWJj\",\"YWJjZA==\"]}");
        refuse_json(types, "{\"bytes\": \"YWJjZ\"}", "line 1: bytes: expected base64, not 'YWJjZ'");
        refuse_json(types, "{\"bytes\": \"YQ=\"}", "line 1: bytes: expected base64, not 'YQ='");
        refuse_json(types, "{\"bytes\": \"Y===\"}", "line 1: bytes: expected base64, not 'Y==='");
        refuse_json(types, "{\"bytes\": \"Y Q=\"}", "line 1: bytes: expected base64, not 'Y Q='");
        refuse_json(types, "{\"bytes\": 1234}", "line 1: bytes: expected base64, not '1234'");
}

static void texts_may_hold_any_character_but_nul(void **state) {
        expect_json(types, "{\"text\": \"\\u00e9\\ud83d\\udc07\\n\\u007f\\u0085\\/\"}",
                    "{\"text\":\"\xc3\xa9\xf0\x9f\x90\x87\\n\\u007f\\u0085/\"}");
        refuse_json(types, "{\"text\": \"\\u0000\"}", "line 1: a text contains NUL");
        refuse_json(types, "{\"text\": \"\\ud83d\"}", "line 1: a text contains half of a surrogate pair");
        refuse_json(types, "{\"text\": \"\\ud83d\\u0041\"}", "line 1: a text contains half of a surrogate pair");
        refuse_json(types, "{\"text\": \"\\udc07\\ud83d\"}", "line 1: a text contains half of a surrogate pair");
        refuse_json(types, "{\"text\": \"\\u12g4\"}", "line 1: expected four hexadecimal digits behind '\\u'");
        refuse_json(types, "{\"text\": \"\\x41\"}", "line 1: a text contains an unknown escape");
        refuse_json(types, "{\"text\":\n\"a\nb\"}", "line 2: a text contains a control character");
        refuse_json(types, "{\"text\":\n\"\xc3(\"}", "line 2: this is not UTF-8");
        refuse_yaml(types, "text: \"\\0\"\n", "line 1: a text contains NUL");
        refuse_yaml(types, "\ntext: \xed\xa0\x80\n", "line 2: this is not UTF-8");
        refuse_yaml(types, "n: a\ntext: \x01\n", "line 2: this is no YAML: control characters are not allowed");
}

static void null_is_as_if_it_were_not_there(void **state) {
        expect_json(spec_type, "{\"image\": null, \"limits\": null, \"command\": null, \"env\": null}", "{}");
        expect_yaml(spec_type, "image: ~\nlimits:\ncommand: null\nenv: NULL\n", "{}");
        expect_yaml(spec_type, "image: 'null'\nuser: \"~\"\n", "{\"image\":\"null\",\"user\":\"~\"}");
        refuse_json(spec_type, "{\"command\": [null]}", "line 1: command[0]: expected a text, not null");
        refuse_json(spec_type, "{\"env\": {\"A\": null}}", "line 1: env[A]: expected a text, not null");
        refuse_json(spec_type, "null", "line 1: expected keys with values, not null");
}

static void optional_zeros_are_kept_and_others_left_out(void **state) {
        expect_json(spec_type, "{\"limits\": {\"memory_bytes\": 0, \"no_network\": false}}",
                    "{\"limits\":{\"memory_bytes\":0,\"no_network\":false}}");
        expect_json(spec_type, "{\"limits\": {}, \"image\": \"\", \"command\": [], \"lifetime_action\": 0}",
                    "{\"limits\":{}}");
        expect_json(&hutch__v1__exec_result__descriptor, "{\"exit_code\": 0}", "{\"exit_code\":0}");
}

static void only_one_member_of_a_oneof_is_set(void **state) {
        expect_json(types, "{\"name\": \"\", \"number\": null}", "{\"name\":\"\"}");
        expect_json(types, "{\"inner\": {}}", "{\"inner\":{}}");
        expect_json(types, "{\"blob\": \"\"}", "{\"blob\":\"\"}");
        refuse_json(types, "{\"name\": \"\",\n\"number\": 0}",
                    "line 2: number: only one of this and 'name' can be set");
}

static void maps_are_objects_and_sorted(void **state) {
        expect_json(spec_type, "{\"labels\": {\"b\": \"1\", \"a\": \"\"}}", "{\"labels\":{\"a\":\"\",\"b\":\"1\"}}");
        expect_json(types, "{\"inners\": {\"x\": {\"text\": \"y\"}}}", "{\"inners\":{\"x\":{\"text\":\"y\"}}}");
        expect_json(types, "{\"by_number\": {\"-5\": 1, \"0\": 0}, \"by_bool\": {\"true\": \"FAST\"}}",
                    "{\"by_number\":{\"-5\":1,\"0\":0},\"by_bool\":{\"true\":\"FAST\"}}");
        refuse_json(types, "{\"by_bool\": {\"yes\": 1}}", "line 1: by_bool[yes]: expected true or false, not 'yes'");
        refuse_json(
                types, "{\"inners\": {\"x\": {\"list\": [{}, {\"number\": \"x\"}]}}}",
                "line 1: inners[x].list[1].number: expected a whole number from -2147483648 to 2147483647, not 'x'");
        refuse_json(spec_type, "{\"labels\": []}", "line 1: labels: expected keys with values, not a list");
        refuse_json(spec_type, "{\"command\": {}}", "line 1: command: expected a list, not keys with values");
}

/* The last one counts, as for all who decode it. */
static void of_doubled_entries_the_last_is_written(void **state) {
        static const uint8_t doubled[] = { 0x22, 6, 0x0a, 1, 'k', 0x12, 1, '1', 0x22, 6, 0x0a, 1, 'k', 0x12, 1, '2' };
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;

        assert_int_equal(message_decode(spec_type, doubled, sizeof(doubled), &message, NULL), 0);
        assert_json(message, "{\"labels\":{\"k\":\"2\"}}");
}

static void durations_are_texts(void **state) {
        expect_json(spec_type, "{\"idle_ttl\": \"1h30m\"}", "{\"idle_ttl\":\"5400s\"}");
        expect_json(spec_type, "{\"idle_ttl\": \"1.500s\"}", "{\"idle_ttl\":\"1.500s\"}");
        expect_json(spec_type, "{\"idle_ttl\": 0}", "{\"idle_ttl\":\"0s\"}");
        expect_yaml(spec_type, "idle_ttl: 90s\nmax_lifetime: 0\n", "{\"idle_ttl\":\"90s\",\"max_lifetime\":\"0s\"}");
        expect_json(spec_type, "{\"idle_ttl\": {\"seconds\": -1}}", "{\"idle_ttl\":{\"seconds\":-1}}");
        refuse_json(spec_type, "{\"idle_ttl\": 90}",
                    "line 1: idle_ttl: a duration is written as in '1h30m', '1.5s', '250ms' or '0', to the nanosecond");
        refuse_json(spec_type, "{\"idle_ttl\": true}", "line 1: idle_ttl: expected a text, not 'true'");
}

static void errors_of_durations_keep_their_reason(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};
        static const char text[] = "idle_ttl: 10000d";

        assert_int_equal(message_from_yaml(spec_type, text, strlen(text), &message, &err), -EINVAL);
        assert_string_equal(err.reason, "DURATION_OUT_OF_RANGE");
}

static void times_are_rfc_3339(void **state) {
        const ProtobufCMessageDescriptor *timestamp = &google__protobuf__timestamp__descriptor;
        static const char *const malformed[] = {
                "2023-02-29T00:00:00Z",
                "2024-13-01T00:00:00Z",
                "2024-01-01T24:00:00Z",
                "2024-01-01T00:00:60Z",
                "2024-01-01T00:00:00",
                "2024-01-01 00:00:00Z",
                "2024-01-01T00:00:00.Z",
                "2024-01-01T00:00:00+2:00",
                "24-01-01T00:00:00Z",
                "2024-01-01T00:00:00Zx",
                "0001-01-01T00:00:00+00:01",
                "2024-01-01T00:00:00+24:00",
                "2024-01-01",
                "",
                "2024-01-01T00:00:00.1234567890Z",
        };

        expect_json(timestamp, "\"1970-01-01T00:00:00Z\"", "\"1970-01-01T00:00:00Z\"");
        expect_json(timestamp, "{\"seconds\": 1700000000, \"nanos\": 5}", "\"2023-11-14T22:13:20.000000005Z\"");
        expect_json(timestamp, "\"2024-02-29T12:30:00.5+02:30\"", "\"2024-02-29T10:00:00.500Z\"");
        expect_json(timestamp, "\"0001-01-01T00:00:00Z\"", "\"0001-01-01T00:00:00Z\"");
        expect_json(timestamp, "\"9999-12-31T23:59:59.999999999-00:00\"", "\"9999-12-31T23:59:59.999999999Z\"");
        expect_json(timestamp, "{\"seconds\": 253402300800}", "{\"seconds\":253402300800}");
        expect_written(timestamp, "\"1970-01-01T00:00:00Z\"", "\"1970-01-01T00:00:00Z\"\n");

        for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
                _cleanup_(message_freep) ProtobufCMessage *message = NULL;
                char text[64];

                snprintf(text, sizeof(text), "\"%s\"", malformed[i]);
                if (message_from_json(timestamp, text, strlen(text), &message, NULL) != -EINVAL)
                        fail_msg("this was read: %s", text);
        }
}

static void field_masks_are_texts(void **state) {
        const ProtobufCMessageDescriptor *mask = &google__protobuf__field_mask__descriptor;

        expect_json(mask, "\"idleTtl,labels,spec.maxLifetime\"", "\"idleTtl,labels,spec.maxLifetime\"");
        expect_json(mask, "\"idle_ttl\"", "\"idleTtl\"");
        expect_json(mask, "\"\"", "\"\"");
        expect_json(mask, "{\"paths\": [\"idle_ttl\", \"a_1\"]}", "\"idleTtl,a_1\"");
        expect_json(mask, "{\"paths\": [\"A\"]}", "{\"paths\":[\"A\"]}");
        expect_json(mask, "{\"paths\": [\"a,b\"]}", "{\"paths\":[\"a,b\"]}");
        expect_json(mask, "{\"paths\": [\"\"]}", "{\"paths\":[\"\"]}");
        refuse_json(mask, "\"a,\"", "line 1: expected a field beside each ','");
        refuse_json(mask, "\",a\"", "line 1: expected a field beside each ','");
}

static void json_is_strict(void **state) {
        refuse_json(types, "", "line 1: expected a value");
        refuse_json(types, "{\"text\": \"a\",}", "line 1: expected a key in quotes");
        refuse_json(types, "{\"bools\": [true,]}", "line 1: expected a value");
        refuse_json(types, "{\"bools\": [true\ntrue]}", "line 2: expected ',' or ']'");
        refuse_json(types, "{\"text\": \"a\" \"n\": \"b\"}", "line 1: expected ',' or '}'");
        refuse_json(types, "{\"text\" \"a\"}", "line 1: expected ':' behind a key");
        refuse_json(types, "{text: 1}", "line 1: expected a key in quotes");
        refuse_json(types, "{\"text\": 'a'}", "line 1: expected a value");
        refuse_json(types, "{\"text\": \"a", "line 1: a text has no end");
        refuse_json(types, "{} // comment", "line 1: expected nothing behind the value");
        refuse_json(types, "{}\n{}", "line 2: expected nothing behind the value");
        refuse_json(types, "{\"int32\": 01}", "line 1: expected a value");
        refuse_json(types, "{\"int32\": +1}", "line 1: expected a value");
        refuse_json(types, "{\"int32\": .5}", "line 1: expected a value");
        refuse_json(types, "{\"int32\": 1.}", "line 1: expected a value");
        refuse_json(types, "{\"int32\": 1e}", "line 1: expected a value");
        refuse_json(types, "{\"int32\": NaN}", "line 1: expected a value");
        refuse_json(types, "{\"bool\": True}", "line 1: expected a value");
        refuse_json(types, "\xef\xbb\xbf{}", "line 1: expected a value");
        expect_json(types, " \t\r\n{ \"text\" : \"a\" , \"n\":\"b\" }\r\n", "{\"text\":\"a\",\"n\":\"b\"}");
}

static void a_text_may_be_cut_anywhere(void **state) {
        static const char json[] =
                "{\"image\": \"a\\u00e9\", \"command\": [\"x\", \"y\"], \"limits\": {\"memory_bytes\": -1.5e3}}";

        for (size_t len = 0; len < sizeof(json) - 1; len++) {
                _cleanup_(message_freep) ProtobufCMessage *message = NULL;
                _cleanup_free_ char *copy = len > 0 ? malloc(len) : NULL;

                if (copy)
                        memcpy(copy, json, len);
                assert_int_equal(message_from_json(spec_type, copy ? copy : "", len, &message, NULL), -EINVAL);
        }
}

/* A map with @n lists within each other. */
static void nest(char ret_text[static 256], size_t n) {
        size_t len;

        memset(ret_text, 0, 256);
        len = (size_t) snprintf(ret_text, 256, "{\"text\": ");
        memset(ret_text + len, '[', n);
        memset(ret_text + len + n, ']', n);
        ret_text[len + 2 * n] = '}';
}

static void nesting_has_a_limit(void **state) {
        char text[256];

        nest(text, 63);
        refuse_json(types, text, "line 1: text: expected a text, not a list");
        refuse_yaml(types, text, "line 1: text: expected a text, not a list");
        nest(text, 64);
        refuse_json(types, text, "line 1: this is nested too deeply");
        refuse_yaml(types, text, "line 1: this is nested too deeply");
}

static void what_stands_side_by_side_is_not_nested(void **state) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        _cleanup_(message_freep) ProtobufCMessage *json = NULL, *yaml = NULL;

        string_builder_append(&text, "{\"mounts\": [{}");
        for (unsigned i = 0; i < 100; i++)
                string_builder_append(&text, ", {}");
        string_builder_append(&text, "]}");
        json = from_json(spec_type, text.text);
        yaml = from_yaml(spec_type, text.text);
        assert_int_equal(message_count(json, "mounts"), 101);
        assert_int_equal(message_count(yaml, "mounts"), 101);
}

static void plain_scalars_mean_what_their_field_takes(void **state) {
        expect_yaml(spec_type, "image: 3.10\nuser: 1000\nprofile: yes\nruntime: 2024-01-01\n",
                    "{\"image\":\"3.10\",\"user\":\"1000\",\"profile\":\"yes\",\"runtime\":\"2024-01-01\"}");
        expect_yaml(spec_type, "env: {A: true, 1: 0x10}\n", "{\"env\":{\"1\":\"0x10\",\"A\":\"true\"}}");
        expect_yaml(spec_type, "command:\n- sh\n- -c\n- |\n  a\n  b\n", "{\"command\":[\"sh\",\"-c\",\"a\\nb\\n\"]}");
        expect_yaml(spec_type, "--- # a comment\nlimits:\n  memory_bytes: \"5\"\n...\n",
                    "{\"limits\":{\"memory_bytes\":5}}");
        expect_yaml(spec_type, "{\"image\": \"a\", \"command\": [\"b\"]}", "{\"image\":\"a\",\"command\":[\"b\"]}");
}

static void yaml_with_surprises_is_refused(void **state) {
        refuse_yaml(spec_type, "", "line 1: there is nothing here");
        refuse_yaml(spec_type, "# nothing\n", "line 2: there is nothing here");
        refuse_yaml(spec_type, "image: a\nuser: &x b\n", "line 2: anchors and tags are not supported");
        refuse_yaml(spec_type, "image: a\nuser: *x\n", "line 2: aliases are not supported");
        refuse_yaml(spec_type, "limits: &x {}\n", "line 1: anchors and tags are not supported");
        refuse_yaml(spec_type, "command: !!seq []\n", "line 1: anchors and tags are not supported");
        refuse_yaml(spec_type, "image: !!str 1\n", "line 1: anchors and tags are not supported");
        refuse_yaml(spec_type, "&x image: a\n", "line 1: anchors and tags are not supported");
        refuse_yaml(spec_type, "image: a\n---\nimage: b\n", "line 2: there is more than one document");
        refuse_yaml(spec_type, "[a]: b\n", "line 1: a key is a single text");
        refuse_yaml(spec_type, "<<: {image: a}\n", "line 1: unknown key '<<'");
        refuse_yaml(spec_type, "image: a\n  b: c\n",
                    "line 2: this is no YAML: mapping values are not allowed in this context");
        refuse_yaml(spec_type, "just a text\n", "line 1: expected keys with values, not 'just a text'");
        refuse_yaml(spec_type, "mounts:\n  - source: a\n    target:\n      - b\n",
                    "line 3: mounts[0].target: expected a text, not a list");
}

static void yaml_is_written_in_blocks(void **state) {
        expect_written(spec_type, "{}", "{}\n");
        expect_written(spec_type,
                       "{\"image\": \"debian:12\", \"command\": [\"sh\", \"-c\"], \"env\": {\"A\": \"1\"}, \"mounts\": "
                       "[{\"source\": \"/a\", \"target\": \"/b\", \"writable\": true}, {}], \"limits\": "
                       "{\"cpu_millis\": 500}, \"idle_ttl\": \"1h\", \"workspace\": {}}",
                       "image: debian:12\n"
                       "command:\n"
                       "  - sh\n"
                       "  - \"-c\"\n"
                       "env:\n"
                       "  A: \"1\"\n"
                       "mounts:\n"
                       "  - source: /a\n"
                       "    target: /b\n"
                       "    writable: true\n"
                       "  - {}\n"
                       "limits:\n"
                       "  cpu_millis: 500\n"
                       "idle_ttl: 3600s\n"
                       "workspace: {}\n");
        expect_written(types, "{\"inners\": {\"a b\": {\"list\": [{\"number\": 1}, {}]}}}",
                       "inners:\n"
                       "  a b:\n"
                       "    list:\n"
                       "      - number: 1\n"
                       "      - {}\n");
        expect_written(types, "{\"n\": \"a\\nb\\n\", \"text\": \"if a:\\n\\tb\\n\\nc\"}",
                       "text: |-\n"
                       "  if a:\n"
                       "  \tb\n"
                       "\n"
                       "  c\n"
                       "\"n\": |\n"
                       "  a\n"
                       "  b\n");
}

/* Spaces at the end of a line get lost in editors, those at the beginning look like indentation. */
static void blocks_have_no_spaces_that_nobody_sees(void **state) {
        expect_written(types, "{\"text\": \"a \\nb\"}", "text: \"a \\nb\"\n");
        expect_written(types, "{\"text\": \" a\\nb\"}", "text: \" a\\nb\"\n");
        expect_written(types, "{\"text\": \"a\\nb\\n\\n\"}", "text: \"a\\nb\\n\\n\"\n");
        expect_written(types, "{\"text\": \"a\\r\\nb\"}", "text: \"a\\r\\nb\"\n");
}

static void texts_have_quotes_where_they_are_needed(void **state) {
        static const char *const plain[] = { "host",      "/usr/bin",  "debian:12-slim",
                                             "a b",       "_x",        "600s",
                                             "a,b",       "user@host", "https://example.com/x=y",
                                             "3.12-slim", "NotNull" };
        static const char *const quoted[] = {
                "",    "yes", "No",   "TRUE", "null",  "~",          "on",   "y",    "1",        "-1", "1.5",
                "1e3", ".5",  "0x1f", "0b1",  "12:30", "2024-01-01", "1_0",  "- a",  "a: b",     "a:", "a #b",
                " a",  "a ",  "*a",   "&a",   "!a",    "%a",         "@a",   "`a",   "[a",       "{a", "?",
                "-",   "=",   "<<",   "'a",   "nan",   "Infinity",   "a  b", "4e5f", "\xc3\xa9", "5z"
        };

        for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]) + sizeof(quoted) / sizeof(quoted[0]); i++) {
                bool is_plain = i < sizeof(plain) / sizeof(plain[0]);
                const char *text = is_plain ? plain[i] : quoted[i - sizeof(plain) / sizeof(plain[0])];
                _cleanup_(message_freep) ProtobufCMessage *message = message_new(spec_type);
                _cleanup_free_ char *yaml = NULL;
                char expected[64];

                assert_int_equal(message_set(message, "command", text, NULL), 0);
                yaml = message_to_yaml(message);
                snprintf(expected, sizeof(expected), is_plain ? "command:\n  - %s\n" : "command:\n  - \"%s\"\n", text);
                assert_string_equal(yaml, expected);
        }
}

static void long_keys_stand_on_their_own_lines(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(spec_type), *read = NULL;
        char entry[3000], expected[3100];
        _cleanup_free_ char *yaml = NULL;

        memset(entry, 'k', sizeof(entry));
        memcpy(entry + sizeof(entry) - 3, "=v", 3);
        assert_int_equal(message_set(message, "env", entry, NULL), 0);
        yaml = message_to_yaml(message);
        snprintf(expected, sizeof(expected), "env:\n  ? %.*s\n  : v\n", (int) sizeof(entry) - 3, entry);
        assert_string_equal(yaml, expected);
        read = from_yaml(spec_type, yaml);
        assert_true(message_has(read, "env"));
}

static void json_can_be_indented(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message =
                from_json(spec_type, "{\"command\": [\"a\", \"b\"], \"env\": {\"A\": \"1\"}, \"limits\": {}}");
        _cleanup_free_ char *json = message_to_json(message, true);

        assert_string_equal(json, "{\n"
                                  "  \"command\": [\n"
                                  "    \"a\",\n"
                                  "    \"b\"\n"
                                  "  ],\n"
                                  "  \"env\": {\n"
                                  "    \"A\": \"1\"\n"
                                  "  },\n"
                                  "  \"limits\": {}\n"
                                  "}\n");
}

static void what_is_no_message_is_not_decoded(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(message_decode(spec_type, "\x0a\x05", 2, &message, &err), -EBADMSG);
        assert_string_equal(error_message(&err), "this is no encoded hutch.v1.SandboxSpec");
        assert_int_equal(message_decode(spec_type, "\x0a\x01\xff", 3, &message, &err), -EBADMSG);
        assert_string_equal(error_message(&err), "a text in this hutch.v1.SandboxSpec is not UTF-8");
        /* The same, as a value of a map. */
        assert_int_equal(message_decode(spec_type, "\x22\x03\x12\x01\xff", 5, &message, &err), -EBADMSG);
        assert_null(message);
}

static void an_empty_message_has_no_bytes(void **state) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(spec_type), *decoded = NULL;
        _cleanup_free_ void *bytes = NULL;
        size_t len = 1;

        message_encode(message, &bytes, &len);
        assert_non_null(bytes);
        assert_int_equal(len, 0);
        assert_int_equal(message_decode(spec_type, bytes, len, &decoded, NULL), 0);
        assert_json(decoded, "{}");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_are_those_of_the_contract_or_of_json),
                cmocka_unit_test(doubled_names_are_refused),
                cmocka_unit_test(whole_numbers_keep_every_digit_and_their_range),
                cmocka_unit_test(numbers_with_a_point_have_the_fewest_digits),
                cmocka_unit_test(booleans_are_true_or_false),
                cmocka_unit_test(enums_are_short_names_in_any_case_or_numbers),
                cmocka_unit_test(bytes_are_base64_of_either_alphabet),
                cmocka_unit_test(texts_may_hold_any_character_but_nul),
                cmocka_unit_test(null_is_as_if_it_were_not_there),
                cmocka_unit_test(optional_zeros_are_kept_and_others_left_out),
                cmocka_unit_test(only_one_member_of_a_oneof_is_set),
                cmocka_unit_test(maps_are_objects_and_sorted),
                cmocka_unit_test(of_doubled_entries_the_last_is_written),
                cmocka_unit_test(durations_are_texts),
                cmocka_unit_test(errors_of_durations_keep_their_reason),
                cmocka_unit_test(times_are_rfc_3339),
                cmocka_unit_test(field_masks_are_texts),
                cmocka_unit_test(json_is_strict),
                cmocka_unit_test(a_text_may_be_cut_anywhere),
                cmocka_unit_test(nesting_has_a_limit),
                cmocka_unit_test(what_stands_side_by_side_is_not_nested),
                cmocka_unit_test(plain_scalars_mean_what_their_field_takes),
                cmocka_unit_test(yaml_with_surprises_is_refused),
                cmocka_unit_test(yaml_is_written_in_blocks),
                cmocka_unit_test(blocks_have_no_spaces_that_nobody_sees),
                cmocka_unit_test(texts_have_quotes_where_they_are_needed),
                cmocka_unit_test(long_keys_stand_on_their_own_lines),
                cmocka_unit_test(json_can_be_indented),
                cmocka_unit_test(what_is_no_message_is_not_decoded),
                cmocka_unit_test(an_empty_message_has_no_bytes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
