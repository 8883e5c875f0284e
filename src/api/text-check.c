/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a walk over encoded messages. It reads them as protobuf-c does, so that what it has not seen is not
 * there for the decoder either. What does not: rules about what a text says (model, policy). */

#include "api/text-check.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"
#include "policy/path-rules.h"

#define FIELDS_MAX 64 /* of one message */

typedef struct Span {
        const uint8_t *bytes;
        size_t len;
} Span;

/* A field as it stands in a message. */
typedef struct WireField {
        uint32_t number;
        uint8_t type;
        Span content; /* of a length-delimited one */
} WireField;

/* Reasons of fields that have their own. */
static const struct {
        const char *field; /* of a map: "env[]" for its keys, "env" for its values; "Message.field": of that one */
        Reason not_utf8;
        Reason nul;
} own_reasons[] = {
        { "MoveFileRequest.source", REASON_PATH_NOT_UTF8, REASON_PATH_CONTROL_CHARACTER },
        { "argv", REASON_FIELD_NOT_UTF8, REASON_ARGV_MALFORMED },
        { "command", REASON_FIELD_NOT_UTF8, REASON_ARGV_MALFORMED },
        { "env", REASON_FIELD_NOT_UTF8, REASON_ENV_VALUE_MALFORMED },
        { "env[]", REASON_FIELD_NOT_UTF8, REASON_ENV_NAME_MALFORMED },
        { "exec_id", REASON_ID_MALFORMED, REASON_ID_MALFORMED },
        { "labels", REASON_LABEL_MALFORMED, REASON_LABEL_MALFORMED },
        { "labels[]", REASON_LABEL_MALFORMED, REASON_LABEL_MALFORMED },
        { "page_token", REASON_PAGE_TOKEN_INVALID, REASON_PAGE_TOKEN_INVALID },
        { "path", REASON_PATH_NOT_UTF8, REASON_PATH_CONTROL_CHARACTER },
        { "paths", REASON_FIELD_MASK_INVALID, REASON_FIELD_MASK_INVALID },
        { "request_id", REASON_REQUEST_ID_MALFORMED, REASON_REQUEST_ID_MALFORMED },
        { "sandbox_id", REASON_ID_MALFORMED, REASON_ID_MALFORMED },
        { "sandbox_ids", REASON_ID_MALFORMED, REASON_ID_MALFORMED },
        { "selector", REASON_SELECTOR_MALFORMED, REASON_SELECTOR_MALFORMED },
        { "target", REASON_PATH_NOT_UTF8, REASON_PATH_CONTROL_CHARACTER },
        { "unset_env", REASON_FIELD_NOT_UTF8, REASON_ENV_NAME_MALFORMED },
        { "working_directory", REASON_PATH_NOT_UTF8, REASON_PATH_CONTROL_CHARACTER },
};

static void skip(Span *rest, size_t n) {
        rest->bytes += n;
        rest->len -= n;
}

/* A field's number and type: at most five bytes, whose upper bits are lost as protobuf-c loses them. */
static int take_tag(Span *rest, WireField *field) {
        size_t max = rest->len < 5 ? rest->len : 5;
        uint32_t number = (rest->bytes[0] & 0x7fU) >> 3;
        unsigned shift = 4;
        size_t n = 0;

        while (rest->bytes[n] & 0x80) {
                if (++n == max)
                        return -EBADMSG;
                number |= (uint32_t) (rest->bytes[n] & 0x7f) << shift;
                shift += 7;
        }

        field->type = rest->bytes[0] & 7;
        field->number = number;
        skip(rest, n + 1);
        return number == 0 ? -EBADMSG : 0;
}

static int take_content(Span *rest, Span *ret_content) {
        uint64_t len = 0;

        for (size_t i = 0; i < rest->len && i < 5; i++) {
                len |= (uint64_t) (rest->bytes[i] & 0x7f) << (7 * i);
                if (rest->bytes[i] & 0x80)
                        continue;

                skip(rest, i + 1);
                if (len > INT_MAX || len > rest->len)
                        return -EBADMSG;
                *ret_content = (Span){ rest->bytes, (size_t) len };
                skip(rest, (size_t) len);
                return 0;
        }

        return -EBADMSG;
}

static int take_varint(Span *rest) {
        for (size_t i = 0; i < rest->len && i < 10; i++)
                if (!(rest->bytes[i] & 0x80)) {
                        skip(rest, i + 1);
                        return 0;
                }

        return -EBADMSG;
}

static int take_fixed(Span *rest, size_t n) {
        if (rest->len < n)
                return -EBADMSG;

        skip(rest, n);
        return 0;
}

/* Takes the next field from the front of @rest, which is not empty. */
static int take_field(Span *rest, WireField *ret_field) {
        int r = take_tag(rest, ret_field);

        ret_field->content = (Span){};
        if (r < 0)
                return r;

        switch (ret_field->type) {
        case PROTOBUF_C_WIRE_TYPE_VARINT:
                return take_varint(rest);
        case PROTOBUF_C_WIRE_TYPE_64BIT:
                return take_fixed(rest, 8);
        case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
                return take_content(rest, &ret_field->content);
        case PROTOBUF_C_WIRE_TYPE_32BIT:
                return take_fixed(rest, 4);
        default:
                return -EBADMSG;
        }
}

static bool is_field(const char *field, const char *message, const char *name) {
        const char *dot = strchr(field, '.');

        if (!dot)
                return str_equal(field, name);
        return strlen(message) == (size_t) (dot - field) && str_has_prefix(field, message) && str_equal(dot + 1, name);
}

static void check_text(const char *message, const char *name, Span text, Violations *violations) {
        Reason not_utf8 = REASON_FIELD_NOT_UTF8, nul = REASON_FIELD_INVALID;
        bool is_utf8 = utf8_valid((const char *) text.bytes, text.len);

        if (text.len == 0 || (is_utf8 && !memchr(text.bytes, '\0', text.len)))
                return;

        for (size_t i = 0; i < sizeof(own_reasons) / sizeof(own_reasons[0]); i++)
                if (is_field(own_reasons[i].field, message, name)) {
                        not_utf8 = own_reasons[i].not_utf8;
                        nul = own_reasons[i].nul;
                }

        /* Of a path that violates several rules, its length is told first (PATH-016). */
        if (not_utf8 == REASON_PATH_NOT_UTF8 && text.len > PATH_BYTES_MAX)
                violations_add_limit(violations, NULL, REASON_PATH_TOO_LONG, "path_bytes", PATH_BYTES_MAX,
                                     "the path is longer than %d bytes", PATH_BYTES_MAX);
        else if (!is_utf8)
                violations_add(violations, NULL, not_utf8, "the text is not valid UTF-8");
        else
                violations_add(violations, NULL, nul, "the text contains a NUL");
}

bool field_is_map(const ProtobufCFieldDescriptor *field) {
        const ProtobufCMessageDescriptor *entry = field->descriptor;

        return field->type == PROTOBUF_C_TYPE_MESSAGE && field->label == PROTOBUF_C_LABEL_REPEATED &&
               str_has_suffix(entry->short_name, "Entry") && entry->n_fields == 2 &&
               str_equal(entry->fields[0].name, "key") && str_equal(entry->fields[1].name, "value") &&
               entry->fields[0].type == PROTOBUF_C_TYPE_STRING && entry->fields[1].type == PROTOBUF_C_TYPE_STRING;
}

/* A member of a map: of each part the last one counts, but all are checked. */
static int check_member(const ProtobufCFieldDescriptor *map, Span entry, size_t index, Violations *violations) {
        Span rest = entry, key = { .bytes = (const uint8_t *) "" };
        char keys_name[32];
        size_t above;
        WireField field;
        int r = 0;

        while (rest.len > 0) {
                r = take_field(&rest, &field);
                if (r < 0)
                        return r;
                if (field.number == 1 && field.content.bytes)
                        key = field.content;
        }

        if (key.len > 0 && utf8_valid((const char *) key.bytes, key.len) && !memchr(key.bytes, '\0', key.len))
                above = violations_enter_member(violations, map->name, (const char *) key.bytes, key.len);
        else
                above = violations_enter_element(violations, map->name, index);

        (void) stpcpy(stpcpy(keys_name, strlen(map->name) < sizeof(keys_name) - 2 ? map->name : ""), "[]");
        for (rest = entry; rest.len > 0;) {
                (void) take_field(&rest, &field);
                if (field.number > 2)
                        continue;
                if (field.type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
                        r = -EBADMSG;
                        break;
                }
                check_text("", field.number == 1 ? keys_name : map->name, field.content, violations);
        }

        violations_leave(violations, above);
        return r;
}

static int check_field(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                       const WireField *wire, size_t index, Violations *violations) {
        size_t above;
        int r = 0;

        if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
                return 0;
        if (wire->type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
                return -EBADMSG;
        if (field_is_map(field))
                return check_member(field, wire->content, index, violations);

        above = field->label == PROTOBUF_C_LABEL_REPEATED ? violations_enter_element(violations, field->name, index)
                                                          : violations_enter(violations, field->name);
        if (field->type == PROTOBUF_C_TYPE_STRING)
                check_text(type->short_name, field->name, wire->content, violations);
        else
                r = text_check(field->descriptor, wire->content.bytes, wire->content.len, violations);
        violations_leave(violations, above);
        return r;
}

int text_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len, Violations *violations) {
        size_t n_seen[FIELDS_MAX] = {};
        Span rest = { bytes, len };

        assert(type->n_fields <= FIELDS_MAX);

        while (rest.len > 0) {
                const ProtobufCFieldDescriptor *field;
                WireField wire = {};
                int r = take_field(&rest, &wire);

                if (r < 0)
                        return r;

                field = protobuf_c_message_descriptor_get_field(type, wire.number);
                if (!field)
                        continue;

                r = check_field(type, field, &wire, n_seen[field - type->fields]++, violations);
                if (r < 0)
                        return r;
        }

        return 0;
}
