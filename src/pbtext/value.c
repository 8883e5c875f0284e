/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: single values to nodes and back. What does not: messages, also those that are written as a text
 * (well-known.c).
 *
 * Numbers with a point are in the form of the C locale, which no program of ours leaves. */

#include "pbtext/value.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strings.h"
#include "pbtext/json.h"
#include "pbtext/nearest.h"

#define EXACT_MAX (INT64_C(1) << 53) /* the largest number up to which every reader of JSON keeps every digit */

static Node *scalar(NodeKind kind, const char *text) {
        return node_new_scalar(kind, 0, xstrdup(text));
}

/* The magnitude of the whole number @text, in JSON's form; 1.5e3 is one as well. */
static bool whole_parse(const char *text, bool *ret_negative, uint64_t *ret_magnitude) {
        bool negative = text[0] == '-';
        const char *digits = text + negative;
        size_t len = strlen(text);
        double number;

        if (len == 0 || json_number_len(text, len) != len)
                return false;

        *ret_negative = negative;
        if (!strpbrk(digits, ".eE")) {
                errno = 0;
                *ret_magnitude = strtoull(digits, NULL, 10);
                return errno == 0;
        }

        number = strtod(digits, NULL);
        if (number > (double) EXACT_MAX)
                return false;
        *ret_magnitude = (uint64_t) number;
        return (double) *ret_magnitude == number;
}

static int read_signed(const Node *node, int64_t min, int64_t max, const Place *place, int64_t *ret_number,
                       HutchError *err) {
        uint64_t magnitude;
        bool negative;

        if (!(node->kind & (NODE_NUMBER | NODE_TEXT | NODE_PLAIN)) || !whole_parse(node->text, &negative, &magnitude) ||
            magnitude > (uint64_t) max + negative)
                return place_expected(place, node, err, "a whole number from %" PRId64 " to %" PRId64, min, max);

        *ret_number = (int64_t) (negative ? -magnitude : magnitude);
        return 0;
}

static int read_unsigned(const Node *node, uint64_t max, const Place *place, uint64_t *ret_number, HutchError *err) {
        uint64_t magnitude;
        bool negative;

        if (!(node->kind & (NODE_NUMBER | NODE_TEXT | NODE_PLAIN)) || !whole_parse(node->text, &negative, &magnitude) ||
            magnitude > max || (negative && magnitude > 0))
                return place_expected(place, node, err, "a whole number from 0 to %" PRIu64, max);

        *ret_number = magnitude;
        return 0;
}

static int read_float(const Node *node, double max, const Place *place, double *ret_number, HutchError *err) {
        static const char *const names[] = { "NaN", "Infinity", "-Infinity" };
        const double numbers[] = { NAN, INFINITY, -INFINITY };
        size_t len;

        if (!(node->kind & (NODE_NUMBER | NODE_TEXT | NODE_PLAIN)))
                return place_expected(place, node, err, "a number");

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (str_equal(node->text, names[i])) {
                        *ret_number = numbers[i];
                        return 0;
                }

        len = strlen(node->text);
        if (len == 0 || json_number_len(node->text, len) != len)
                return place_expected(place, node, err, "a number");
        *ret_number = strtod(node->text, NULL);
        if (fabs(*ret_number) > max)
                return place_expected(place, node, err, "a smaller number");
        return 0;
}

static int read_bool(const Node *node, const Place *place, protobuf_c_boolean *ret_boolean, HutchError *err) {
        bool is_true = str_equal(node->text, "true");

        if (!(node->kind & (NODE_BOOL | NODE_PLAIN)) || (!is_true && !str_equal(node->text, "false")))
                return place_expected(place, node, err, "true or false");

        *ret_boolean = is_true;
        return 0;
}

/* The name of an enum's value without the type's prefix: "READY" of SANDBOX_STATE_READY. One that would then look like
 * a number keeps it. */
static const char *enum_short_name(const ProtobufCEnumDescriptor *type, const char *name) {
        const char *rest = name;

        for (const char *c = type->short_name; *c != '\0'; c++) {
                if (*rest == '_')
                        rest++;
                if (ascii_lower(*rest++) != ascii_lower(*c))
                        return name;
        }
        return rest[0] == '_' && rest[1] != '\0' && !ascii_is_digit(rest[1]) ? rest + 1 : name;
}

static int read_enum(const ProtobufCEnumDescriptor *type, const Node *node, const Place *place, int32_t *ret_number,
                     HutchError *err) {
        Nearest nearest = { .text = node->text };
        int64_t number = 0;

        if (!(node->kind & (NODE_NUMBER | NODE_TEXT | NODE_PLAIN)))
                return place_expected(place, node, err, "the name of a %s", type->short_name);

        if (json_number_len(node->text, strlen(node->text)) > 0) {
                int r = read_signed(node, INT32_MIN, INT32_MAX, place, &number, err);

                if (r == 0)
                        *ret_number = (int32_t) number;
                return r;
        }

        for (unsigned i = 0; i < type->n_value_names; i++) {
                const char *name = type->values_by_name[i].name, *short_name = enum_short_name(type, name);

                if (strcasecmp(node->text, name) == 0 || strcasecmp(node->text, short_name) == 0) {
                        *ret_number = type->values[type->values_by_name[i].index].value;
                        return 0;
                }
                nearest_offer(&nearest, short_name);
        }
        return place_error(place, node, err, "FIELD_INVALID", "'%s' is no %s%s", node->text, type->short_name,
                           nearest_question(&nearest));
}

static int base64_digit(char c) {
        if (ascii_is_upper(c))
                return c - 'A';
        if (ascii_is_lower(c))
                return c - 'a' + 26;
        if (ascii_is_digit(c))
                return c - '0' + 52;

        return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -EINVAL;
}

/* Reads base64 of either alphabet, with and without padding, as JSON's mapping wants it. */
static int read_bytes(const Node *node, const Place *place, ProtobufCBinaryData *ret_bytes, HutchError *err) {
        bool is_text = node->kind & (NODE_TEXT | NODE_PLAIN);
        size_t len = is_text ? strlen(node->text) : 0, padded_len = len;
        _cleanup_free_ uint8_t *bytes = new0(uint8_t, len / 4 * 3 + 3);
        ProtobufCBinaryData data = { .data = bytes };
        uint32_t bits = 0;

        for (unsigned i = 0; i < 2 && padded_len % 4 == 0 && len > 0 && node->text[len - 1] == '='; i++)
                len--;
        if (!is_text || len % 4 == 1)
                return place_expected(place, node, err, "base64");

        for (size_t i = 0; i < len; i++) {
                int digit = base64_digit(node->text[i]);

                if (digit < 0)
                        return place_expected(place, node, err, "base64");
                bits = bits << 6 | (uint32_t) digit;
                if (i % 4 != 0)
                        bytes[data.len++] = (uint8_t) (bits >> (6 - 2 * (i % 4)));
        }

        *ret_bytes = data;
        TAKE_PTR(bytes);
        return 0;
}

static Node *write_bytes(const ProtobufCBinaryData *bytes) {
        static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        char *text = new0(char, (bytes->len + 2) / 3 * 4 + 1), *to = text;

        for (size_t i = 0; i < bytes->len; i += 3) {
                size_t n = bytes->len - i < 3 ? bytes->len - i : 3;
                uint32_t bits = (uint32_t) bytes->data[i] << 16 | (n > 1 ? (uint32_t) bytes->data[i + 1] << 8 : 0) |
                                (n > 2 ? bytes->data[i + 2] : 0);

                for (size_t digit = 0; digit < 4; digit++)
                        *to++ = digit <= n ? alphabet[bits >> (18 - 6 * digit) & 63] : '=';
        }
        return node_new_scalar(NODE_TEXT, 0, text);
}

int value_read(const ProtobufCFieldDescriptor *field, const Node *node, const Place *place, FieldValue *ret_value,
               HutchError *err) {
        uint64_t natural = 0;
        int64_t whole = 0;
        double number = 0;
        int r;

        switch (field->type) {
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32:
                r = read_signed(node, INT32_MIN, INT32_MAX, place, &whole, err);
                ret_value->int32 = (int32_t) whole;
                return r;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
                return read_signed(node, INT64_MIN, INT64_MAX, place, &ret_value->int64, err);
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                r = read_unsigned(node, UINT32_MAX, place, &natural, err);
                ret_value->uint32 = (uint32_t) natural;
                return r;
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
                return read_unsigned(node, UINT64_MAX, place, &ret_value->uint64, err);
        case PROTOBUF_C_TYPE_FLOAT:
                r = read_float(node, FLT_MAX, place, &number, err);
                ret_value->float32 = (float) number;
                return r;
        case PROTOBUF_C_TYPE_DOUBLE:
                return read_float(node, DBL_MAX, place, &ret_value->float64, err);
        case PROTOBUF_C_TYPE_BOOL:
                return read_bool(node, place, &ret_value->boolean, err);
        case PROTOBUF_C_TYPE_ENUM:
                return read_enum(field->descriptor, node, place, &ret_value->int32, err);
        case PROTOBUF_C_TYPE_BYTES:
                return read_bytes(node, place, &ret_value->bytes, err);
        default:
                if (!(node->kind & (NODE_TEXT | NODE_PLAIN)))
                        return place_expected(place, node, err, "a text");
                ret_value->text = xstrdup(node->text);
                return 0;
        }
}

/* A number in digits; beyond what every reader keeps exactly, as a text. */
static Node *write_whole(bool negative, uint64_t magnitude) {
        char text[24];

        snprintf(text, sizeof(text), "%s%" PRIu64, negative ? "-" : "", magnitude);
        return scalar(magnitude <= (uint64_t) EXACT_MAX ? NODE_NUMBER : NODE_TEXT, text);
}

static Node *write_signed(int64_t number) {
        return write_whole(number < 0, number < 0 ? -(uint64_t) number : (uint64_t) number);
}

/* The fewest digits that read back as the same number: @digits, or up to three more. */
static Node *write_float(double number, bool is_single, int digits) {
        char text[32];

        if (isnan(number))
                return scalar(NODE_TEXT, "NaN");
        if (isinf(number))
                return scalar(NODE_TEXT, number < 0 ? "-Infinity" : "Infinity");

        for (int i = 0; i <= 3; i++) {
                snprintf(text, sizeof(text), "%.*g", digits + i, number);
                if (is_single ? strtof(text, NULL) == (float) number : strtod(text, NULL) == number)
                        break;
        }
        return scalar(NODE_NUMBER, text);
}

static Node *write_enum(const ProtobufCEnumDescriptor *type, int32_t number) {
        const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(type, number);

        return value ? scalar(NODE_TEXT, enum_short_name(type, value->name)) : write_signed(number);
}

Node *value_write(const ProtobufCFieldDescriptor *field, const void *at) {
        switch (field->type) {
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32:
                return write_signed(*(const int32_t *) at);
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
                return write_signed(*(const int64_t *) at);
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                return write_whole(false, *(const uint32_t *) at);
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
                return write_whole(false, *(const uint64_t *) at);
        case PROTOBUF_C_TYPE_FLOAT:
                return write_float(*(const float *) at, true, FLT_DIG);
        case PROTOBUF_C_TYPE_DOUBLE:
                return write_float(*(const double *) at, false, DBL_DIG);
        case PROTOBUF_C_TYPE_BOOL:
                return scalar(NODE_BOOL, *(const protobuf_c_boolean *) at ? "true" : "false");
        case PROTOBUF_C_TYPE_ENUM:
                return write_enum(field->descriptor, *(const int32_t *) at);
        case PROTOBUF_C_TYPE_BYTES:
                return write_bytes(at);
        default:
                return scalar(NODE_TEXT, *(char *const *) at);
        }
}
