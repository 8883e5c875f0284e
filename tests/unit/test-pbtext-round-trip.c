/* SPDX-License-Identifier: Apache-2.0 */

#include "pbtext/pbtext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "base/strings.h"
#include "contract-types.h"
#include "pbtext-types.pb-c.h"
#include "pbtext/field.h"
#include "test.h"

/* Messages of every type, made at random by their descriptors, come back from JSON and from YAML with the same bytes.
 * Maps are made sorted, for so they are written. */

#define ROUNDS 20

static uint64_t random_state;

static uint64_t random_number(void) {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state;
}

static uint64_t random_below(uint64_t n) {
        return random_number() % n;
}

/* Zero, small, of any length, or at an end. */
static uint64_t random_bits(void) {
        static const uint64_t edges[] = {
                0, 1, UINT64_MAX, INT64_MAX, (uint64_t) INT64_MIN, UINT64_C(1) << 53, (UINT64_C(1) << 53) + 1
        };

        return random_below(2) ? edges[random_below(sizeof(edges) / sizeof(edges[0]))]
                               : random_number() >> random_below(64);
}

/* Texts that are hard on a writer, and pieces to make others of. */
static char *random_text(void) {
        static const char *const pieces[] = {
                "",
                "a",
                "Z",
                "0",
                "9",
                "-",
                " ",
                "  ",
                "\n",
                "\t",
                "\r",
                ":",
                ": ",
                "#",
                " #",
                "'",
                "\"",
                "\\",
                "\x01",
                "\x7f",
                "\xc2\x80",
                "\xc2\x85",
                "\xe2\x80\xa8",
                "\xef\xbb\xbf",
                "\xef\xbf\xbe",
                "\xc3\xa9",
                "\xf0\x9f\x90\x87",
                "{",
                "}",
                "[",
                "]",
                ",",
                "&",
                "*",
                "!",
                "|",
                ">",
                "%",
                "@",
                "`",
                "~",
                "?",
                ".",
                "_",
                "/",
                "=",
                "<<",
                "---",
                "...",
                "yes",
                "no",
                "null",
                "Null",
                "true",
                "FALSE",
                "on",
                "y",
                "1.5",
                "0x1f",
                "0o17",
                "1e3",
                "-1",
                "+1",
                ".inf",
                ".nan",
                "NaN",
                "12:30:45",
                "2024-01-02",
                "2024-01-02T03:04:05Z",
                "600s",
                "1_000",
                "line one\nline two\n",
                "  x\ny",
                "x\n\n",
        };
        StringBuilder text = {};

        for (uint64_t n = random_below(5); n > 0; n--)
                string_builder_append(&text, pieces[random_below(sizeof(pieces) / sizeof(pieces[0]))]);
        if (random_below(50) == 0)
                for (unsigned i = 0; i < 300; i++)
                        string_builder_append(&text, "long ");
        return string_builder_take(&text);
}

static ProtobufCMessage *random_message(const ProtobufCMessageDescriptor *type);

static FieldValue random_value(const ProtobufCFieldDescriptor *field) {
        const ProtobufCEnumDescriptor *enumeration = field->descriptor;
        uint64_t bits = random_bits();
        FieldValue value = { .uint64 = bits };

        switch (field->type) {
        case PROTOBUF_C_TYPE_FLOAT:
                value.float32 = (float) (int64_t) bits / (float) (1 << random_below(20));
                break;
        case PROTOBUF_C_TYPE_DOUBLE:
                value.float64 = (double) (int64_t) bits / (double) (1 + random_below(1000));
                break;
        case PROTOBUF_C_TYPE_BOOL:
                value.boolean = (protobuf_c_boolean) random_below(2);
                break;
        case PROTOBUF_C_TYPE_ENUM:
                value.int32 = random_below(4) ? enumeration->values[random_below(enumeration->n_values)].value
                                              : (int32_t) bits;
                break;
        case PROTOBUF_C_TYPE_STRING:
                value.text = random_text();
                break;
        case PROTOBUF_C_TYPE_BYTES:
                value.bytes.len = random_below(20);
                value.bytes.data = new0(uint8_t, value.bytes.len + 1);
                for (size_t i = 0; i < value.bytes.len; i++)
                        value.bytes.data[i] = (uint8_t) random_number();
                break;
        case PROTOBUF_C_TYPE_MESSAGE:
                value.message = random_message(field->descriptor);
                break;
        default:
                break;
        }
        return value;
}

/* Keys are sorted as texts; the number makes them unique. */
static void fill_map(ProtobufCMessage *message, const ProtobufCFieldDescriptor *map) {
        const ProtobufCMessageDescriptor *type = map->descriptor;
        bool of_bools = type->fields[0].type == PROTOBUF_C_TYPE_BOOL;

        for (uint64_t i = 0, n = random_below(of_bools ? 3 : 6); i < n; i++) {
                ProtobufCMessage *entry = message_new(type);
                FieldValue key = { .uint64 = i };

                if (type->fields[0].type == PROTOBUF_C_TYPE_STRING) {
                        _cleanup_free_ char *rest = random_text();

                        key.text = new0(char, strlen(rest) + 2);
                        sprintf(key.text, "%c%s", (int) ("0Ay~\x7f"[i % 5]), rest);
                } else if (of_bools)
                        key.boolean = i == 1;
                field_set(entry, &type->fields[0], key);
                field_set(entry, &type->fields[1], random_value(&type->fields[1]));
                field_append(message, map, (FieldValue){ .message = entry });
        }
}

static ProtobufCMessage *random_message(const ProtobufCMessageDescriptor *type) {
        ProtobufCMessage *message = message_new(type);

        for (unsigned i = 0; i < type->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &type->fields[i];

                if (random_below(2) || field_rival(message, field))
                        continue;
                if (field_is_mapping(field))
                        fill_map(message, field);
                else if (field_is_repeated(field))
                        for (uint64_t n = random_below(4); n > 0; n--)
                                field_append(message, field, random_value(field));
                else
                        field_set(message, field, random_value(field));
        }
        return message;
}

static void assert_same(const ProtobufCMessage *message, const ProtobufCMessage *other, const char *text) {
        _cleanup_free_ void *bytes = NULL, *other_bytes = NULL;
        size_t len, other_len;

        message_encode(message, &bytes, &len);
        message_encode(other, &other_bytes, &other_len);
        if (len != other_len || memcmp(bytes, other_bytes, len) != 0)
                fail_msg("%s came back as another from:\n%s", message->descriptor->name, text);
}

typedef int (*Reader)(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
                      ProtobufCMessage **ret_message, HutchError *err);

static void assert_reads(Reader reader, const ProtobufCMessage *message, const char *text) {
        _cleanup_(message_freep) ProtobufCMessage *read = NULL;
        _cleanup_(error_clear) HutchError err = {};

        if (reader(message->descriptor, text, strlen(text), &read, &err) < 0)
                fail_msg("%s: %s:\n%s", message->descriptor->name, error_message(&err), text);
        assert_same(message, read, text);
}

static void assert_comes_back(const ProtobufCMessage *message) {
        _cleanup_free_ char *json = message_to_json(message, false), *indented = message_to_json(message, true),
                            *yaml = message_to_yaml(message);

        assert_reads(message_from_json, message, json);
        assert_reads(message_from_json, message, indented);
        assert_reads(message_from_yaml, message, yaml);
        /* JSON on one line is one line. */
        assert_ptr_equal(strchr(json, '\n'), json + strlen(json) - 1);
}

static void every_message_of_the_contract_comes_back(void **state) {
        const ContractTypes *types = contract_types();

        assert_true(types->n_types > 100);
        random_state = 20240131;
        for (size_t i = 0; i < types->n_types; i++)
                for (unsigned round = 0; round < ROUNDS; round++) {
                        _cleanup_(message_freep) ProtobufCMessage *message = random_message(types->types[i]);

                        assert_comes_back(message);
                }
}

static void every_type_of_field_comes_back(void **state) {
        random_state = 19700101;
        for (unsigned round = 0; round < 50 * ROUNDS; round++) {
                _cleanup_(message_freep) ProtobufCMessage *message = random_message(&test__types__descriptor);

                assert_comes_back(message);
        }
}

/* What the text alone does not tell apart from its neighbours. */
static void every_duration_and_time_comes_back(void **state) {
        static const int64_t seconds[] = { 0,
                                           1,
                                           -1,
                                           DURATION_SECONDS_MAX,
                                           DURATION_SECONDS_MAX + 1,
                                           951782400,
                                           1709164800,
                                           -62135596800,
                                           -62135596801,
                                           253402300799,
                                           253402300800,
                                           INT64_MAX,
                                           INT64_MIN };
        static const int32_t nanos[] = { 0, 1, 1000, 1000000, 500000000, 999999999, 1000000000, -1, INT32_MIN };

        for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++)
                for (size_t j = 0; j < sizeof(nanos) / sizeof(nanos[0]); j++) {
                        const char *const names[] = { "google.protobuf.Duration", "google.protobuf.Timestamp" };

                        for (size_t k = 0; k < 2; k++) {
                                _cleanup_(message_freep) ProtobufCMessage *message =
                                        message_new(contract_type_find(names[k]));

                                field_set(message, &message->descriptor->fields[0],
                                          (FieldValue){ .int64 = seconds[i] });
                                field_set(message, &message->descriptor->fields[1], (FieldValue){ .int32 = nanos[j] });
                                assert_comes_back(message);
                        }
                }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_message_of_the_contract_comes_back),
                cmocka_unit_test(every_type_of_field_comes_back),
                cmocka_unit_test(every_duration_and_time_comes_back),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
