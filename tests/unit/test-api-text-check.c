/* SPDX-License-Identifier: Apache-2.0 */

#include "api/text-check.h"

#include <errno.h>
#include <string.h>

#include "api/message.h"
#include "api/wire-buffer.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"
#include "test.h"

static const ProtobufCMessageDescriptor *const create_sandbox = &hutch__v1__create_sandbox_request__descriptor;

/* Fields of CreateSandboxRequest and SandboxSpec. */
enum {
        REQUEST_SANDBOX_ID = 1,
        REQUEST_SPEC = 2,
        SPEC_IMAGE = 1,
        SPEC_COMMAND = 2,
        SPEC_ENV = 3,
        SPEC_LABELS = 4,
        SPEC_WORKING_DIRECTORY = 5,
        SPEC_MOUNTS = 7,
        MOUNT_TARGET = 2,
};

static int check(const WireBuffer *buffer, Violations *violations) {
        return text_check(create_sandbox, buffer->bytes, buffer->len, violations);
}

static void assert_violation(const Violations *violations, size_t i, const char *field, Reason reason) {
        assert_true(i < violations->n);
        assert_string_equal(violations->list[i].field, field);
        assert_string_equal(reason_name(violations->list[i].reason), reason_name(reason));
}

static void put_member(WireBuffer *buffer, unsigned field, const char *key, const void *value, size_t len) {
        size_t entry = wire_begin(buffer, field);

        wire_put_text(buffer, 1, key);
        wire_put_bytes(buffer, 2, value, len);
        wire_end(buffer, entry);
}

static void every_violation_is_told_with_its_path_and_reason(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        size_t spec, entry;

        wire_put_bytes(&buffer, REQUEST_SANDBOX_ID, "ab\0cd", 5);
        spec = wire_begin(&buffer, REQUEST_SPEC);
        wire_put_bytes(&buffer, SPEC_IMAGE, "\xff", 1);
        wire_put_text(&buffer, SPEC_COMMAND, "fine");
        wire_put_bytes(&buffer, SPEC_COMMAND, "a\0b", 3);
        put_member(&buffer, SPEC_ENV, "GOOD", "value", 5);
        put_member(&buffer, SPEC_ENV, "NUL", "\0", 1);
        put_member(&buffer, SPEC_ENV, "UTF", "\xc0\x80", 2);
        put_member(&buffer, SPEC_ENV, "\xed\xa0\x80", "", 0);
        put_member(&buffer, SPEC_LABELS, "key", "\xf8", 1);
        wire_put_bytes(&buffer, SPEC_WORKING_DIRECTORY, "/\0", 2);
        for (size_t i = 0; i < 3; i++) {
                entry = wire_begin(&buffer, SPEC_MOUNTS);
                wire_put_bytes(&buffer, MOUNT_TARGET, i == 2 ? "/\xff" : "/ok", i == 2 ? 2 : 3);
                wire_end(&buffer, entry);
        }
        wire_end(&buffer, spec);

        assert_int_equal(check(&buffer, &violations), 0);
        assert_int_equal(violations.n, 9);
        assert_violation(&violations, 0, "sandbox_id", REASON_ID_MALFORMED);
        assert_violation(&violations, 1, "spec.image", REASON_FIELD_NOT_UTF8);
        assert_violation(&violations, 2, "spec.command[1]", REASON_ARGV_MALFORMED);
        assert_violation(&violations, 3, "spec.env[NUL]", REASON_ENV_VALUE_MALFORMED);
        assert_violation(&violations, 4, "spec.env[UTF]", REASON_FIELD_NOT_UTF8);
        assert_violation(&violations, 5, "spec.env[3]", REASON_FIELD_NOT_UTF8);
        assert_violation(&violations, 6, "spec.labels[key]", REASON_LABEL_MALFORMED);
        assert_violation(&violations, 7, "spec.working_directory", REASON_PATH_CONTROL_CHARACTER);
        assert_violation(&violations, 8, "spec.mounts[2].target", REASON_PATH_NOT_UTF8);
        assert_int_equal(violations.path_len, 0);
}

static void clean_text_passes(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        size_t spec;

        wire_put_text(&buffer, REQUEST_SANDBOX_ID, "");
        spec = wire_begin(&buffer, REQUEST_SPEC);
        wire_put_text(&buffer, SPEC_IMAGE, "żółw \xf0\x9f\x90\xa2");
        put_member(&buffer, SPEC_ENV, "", "", 0);
        wire_end(&buffer, spec);
        wire_put_bytes(&buffer, 99, "\xff\0", 2); /* unknown fields are nobody's text */

        assert_int_equal(check(&buffer, &violations), 0);
        assert_int_equal(violations.n, 0);
}

static void bytes_fields_are_not_text(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};

        wire_put_bytes(&buffer, 3, "\xff\0\xfe", 3);
        assert_int_equal(text_check(&hutch__v1__attach_exec_request__descriptor, buffer.bytes, buffer.len, &violations),
                         0);
        assert_int_equal(violations.n, 0);
}

static void what_is_no_message_is_refused(void **state) {
        static const struct {
                const char *bytes;
                size_t len;
        } cases[] = {
                { "\x0a", 1 }, /* no length */
                { "\x0a\x05"
                  "abc",
                  5 },                                                          /* too short */
                { "\x0a\xff\xff\xff\xff\xff\x01", 7 },                          /* a length of more than five bytes */
                { "\x0a\xff\xff\xff\xff\x0f", 6 },                              /* a length beyond what there can be */
                { "\x08\x01", 2 },                                              /* a number where a text stands */
                { "\x0b", 1 },                                                  /* a group */
                { "\x02\x00", 2 },                                              /* field 0 */
                { "\xff\xff\xff\xff\xff\x01", 6 },                              /* a tag of more than five bytes */
                { "\x12\x02\x0a\x05", 4 },                                      /* a nested one that ends early */
                { "\x12\x04\x1a\x02\x08\x01", 6 },                              /* a map's key that is a number */
                { "\x18", 1 },                                                  /* a number that is not there */
                { "\x19\x01\x02", 3 },                                          /* eight bytes that are not there */
                { "\xf8\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13 }, /* a number of eleven bytes */
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_(violations_clear) Violations violations = {};

                assert_int_equal(
                        text_check(create_sandbox, (const uint8_t *) cases[i].bytes, cases[i].len, &violations),
                        -EBADMSG);
        }
}

static void violations_that_are_not_kept_are_counted(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(violations_clear) Violations violations = {};
        size_t spec = wire_begin(&buffer, REQUEST_SPEC);

        for (size_t i = 0; i < 1000; i++)
                wire_put_bytes(&buffer, SPEC_COMMAND, "\xff", 1);
        wire_end(&buffer, spec);

        assert_int_equal(check(&buffer, &violations), 0);
        assert_int_equal(violations.n, 1000);
        assert_int_equal(violations_kept(&violations), VIOLATIONS_MAX);
        assert_violation(&violations, VIOLATIONS_MAX - 1, "spec.command[63]", REASON_FIELD_NOT_UTF8);
        assert_true(violations_result(&violations, &err) < 0);
        assert_string_equal(error_message(&err), "spec.command[0]: the text is not valid UTF-8 (and 999 more)");
}

static void a_request_with_unreadable_texts_is_checked_in_full(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        size_t spec, above;

        wire_put_bytes(&buffer, REQUEST_SANDBOX_ID, "\xff", 1);
        spec = wire_begin(&buffer, REQUEST_SPEC);
        wire_put_text(&buffer, SPEC_IMAGE, "host");
        wire_end(&buffer, spec);

        message = message_unpack(create_sandbox, buffer.bytes, buffer.len, &violations);
        assert_non_null(message);
        assert_string_equal(((const Hutch__V1__CreateSandboxRequest *) message)->spec->image, "host");
        assert_int_equal(violations.n, 1);
        assert_violation(&violations, 0, "sandbox_id", REASON_ID_MALFORMED);

        /* What the text says does not count, and that of others does. */
        violations_add(&violations, "sandbox_id", REASON_FIELD_REQUIRED, "the field is required");
        above = violations_enter(&violations, "spec");
        violations_add(&violations, "sandbox_id", REASON_FIELD_INVALID, "another field");
        violations_add(&violations, "sandbox_id", REASON_FIELD_TOO_LONG, "with two violations");
        violations_leave(&violations, above);
        assert_int_equal(violations.n, 3);
        assert_violation(&violations, 1, "spec.sandbox_id", REASON_FIELD_INVALID);
        assert_violation(&violations, 2, "spec.sandbox_id", REASON_FIELD_TOO_LONG);
        assert_int_equal(violations.path_len, 0);
}

static void the_first_violation_tells_its_limit(void **state) {
        for (int first = 0; first < 2; first++) {
                _cleanup_(violations_clear) Violations violations = {};
                _cleanup_(error_clear) HutchError err = {};

                if (!first)
                        violations_add(&violations, "b", REASON_FIELD_INVALID, "something else");
                violations_add_limit(&violations, "a", REASON_FIELD_TOO_LONG, "a_bytes", 7, "at most 7 bytes");
                assert_true(violations_result(&violations, &err) < 0);
                assert_int_equal(err.n_pairs, first ? 2 : 0);
                if (!first)
                        continue;
                assert_string_equal(err.pairs[0].key, "limit");
                assert_string_equal(err.pairs[0].value, "a_bytes");
                assert_string_equal(err.pairs[1].key, "value");
                assert_string_equal(err.pairs[1].value, "7");
        }
}

static void a_refusal_tells_its_limit_or_its_field(void **state) {
        for (int limit = 0; limit < 2; limit++) {
                _cleanup_(violations_clear) Violations violations = {};
                _cleanup_(error_clear) HutchError err = {};

                if (limit)
                        violations_add_limit(&violations, "a", REASON_LIMIT_NOT_ENFORCEABLE, "a", 7, "not here");
                else
                        violations_add(&violations, "a", REASON_FEATURE_UNSUPPORTED, "not here");
                assert_true(violations_result(&violations, &err) < 0);
                assert_int_equal(err.code, STATUS_FAILED_PRECONDITION);
                assert_string_equal(error_message(&err), "a: not here");
                assert_int_equal(err.n_pairs, limit ? 2 : 1);
                assert_string_equal(err.pairs[0].key, limit ? "limit" : "field");
                assert_string_equal(err.pairs[0].value, "a");
        }
}

static void long_keys_are_cut_between_characters(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        size_t spec = wire_begin(&buffer, REQUEST_SPEC);
        char key[1001] = {};

        for (size_t i = 0; i < 500; i++)
                memcpy(key + 2 * i, "ü", 2);
        memmove(key + 1, key, 999);
        key[0] = 'x';
        key[999] = '\0';
        put_member(&buffer, SPEC_ENV, key, "\0", 1);
        wire_end(&buffer, spec);

        assert_int_equal(check(&buffer, &violations), 0);
        assert_int_equal(violations.n, 1);
        assert_true(strlen(violations.list[0].field) < 100);
        assert_non_null(strstr(violations.list[0].field, "…]"));
}

static void unpacking_brings_messages_into_one_form(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        const Hutch__V1__SandboxSpec *spec;
        size_t begun = wire_begin(&buffer, REQUEST_SPEC);

        put_member(&buffer, SPEC_ENV, "B", "first", 5);
        put_member(&buffer, SPEC_ENV, "C", "c", 1);
        put_member(&buffer, SPEC_ENV, "A", "a", 1);
        put_member(&buffer, SPEC_ENV, "B", "last", 4);
        wire_put_text(&buffer, 77, "unknown");
        wire_end(&buffer, begun);

        message = message_unpack(create_sandbox, buffer.bytes, buffer.len, &violations);
        assert_non_null(message);
        spec = ((const Hutch__V1__CreateSandboxRequest *) message)->spec;
        assert_int_equal(spec->base.n_unknown_fields, 0);
        assert_int_equal(spec->n_env, 3);
        assert_string_equal(spec->env[0]->key, "A");
        assert_string_equal(spec->env[1]->key, "B");
        assert_string_equal(spec->env[1]->value, "last");
        assert_string_equal(spec->env[2]->key, "C");
}

static void what_unfolds_too_far_is_refused(void **state) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(error_clear) HutchError err = {};
        size_t spec = wire_begin(&buffer, REQUEST_SPEC);

        for (size_t i = 0; i < 1 << 20; i++)
                wire_put_bytes(&buffer, SPEC_MOUNTS, NULL, 0);
        wire_end(&buffer, spec);

        assert_null(message_unpack(create_sandbox, buffer.bytes, buffer.len, &violations));
        assert_true(violations_result(&violations, &err) < 0);
        assert_string_equal(err.reason, "MESSAGE_TOO_LARGE");
        assert_int_equal(err.code, STATUS_RESOURCE_EXHAUSTED);
}

static void a_malformed_message_is_one_violation(void **state) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(error_clear) HutchError err = {};

        assert_null(message_unpack(create_sandbox, (const uint8_t *) "\x0a\x01\xff\x0a", 4, &violations));
        assert_int_equal(violations.n, 1);
        assert_violation(&violations, 0, "", REASON_FIELD_INVALID);
        assert_true(violations_result(&violations, &err) < 0);
        assert_string_equal(err.reason, "FIELD_INVALID");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_violation_is_told_with_its_path_and_reason),
                cmocka_unit_test(clean_text_passes),
                cmocka_unit_test(bytes_fields_are_not_text),
                cmocka_unit_test(what_is_no_message_is_refused),
                cmocka_unit_test(violations_that_are_not_kept_are_counted),
                cmocka_unit_test(a_request_with_unreadable_texts_is_checked_in_full),
                cmocka_unit_test(the_first_violation_tells_its_limit),
                cmocka_unit_test(a_refusal_tells_its_limit_or_its_field),
                cmocka_unit_test(long_keys_are_cut_between_characters),
                cmocka_unit_test(unpacking_brings_messages_into_one_form),
                cmocka_unit_test(what_unfolds_too_far_is_refused),
                cmocka_unit_test(a_malformed_message_is_one_violation),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
