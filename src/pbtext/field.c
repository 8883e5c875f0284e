/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: getting at the fields of a message. What does not: what their values are as text (value.c). */

#include "pbtext/field.h"

#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "pbtext/pbtext.h"

/* Tells whether the @len bytes at @text are @name as JSON has it: each "_x" is "X". */
static bool is_camel_case(const char *name, const char *text, size_t len) {
        size_t n = 0;

        for (; *name != '\0'; name++) {
                bool upper = *name == '_';

                if (upper)
                        name++;
                if (n == len || text[n] != (upper && ascii_is_lower(*name) ? *name - 'a' + 'A' : *name))
                        return false;
                n++;
        }
        return n == len;
}

const ProtobufCFieldDescriptor *field_find(const ProtobufCMessageDescriptor *type, const char *name, size_t len) {
        for (unsigned i = 0; i < type->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &type->fields[i];

                if ((strlen(field->name) == len && memcmp(field->name, name, len) == 0) ||
                    is_camel_case(field->name, name, len))
                        return field;
        }
        return NULL;
}

bool field_is_repeated(const ProtobufCFieldDescriptor *field) {
        return field->label == PROTOBUF_C_LABEL_REPEATED;
}

bool field_is_mapping(const ProtobufCFieldDescriptor *field) {
        const ProtobufCMessageDescriptor *type = field->descriptor;

        return field_is_repeated(field) && field->type == PROTOBUF_C_TYPE_MESSAGE && type->n_fields == 2 &&
               str_has_suffix(type->short_name, "Entry") && str_equal(type->fields[0].name, "key") &&
               str_equal(type->fields[1].name, "value") && type->fields[0].id == 1 && type->fields[1].id == 2;
}

static size_t size_of(const ProtobufCFieldDescriptor *field) {
        switch (field->type) {
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
        case PROTOBUF_C_TYPE_DOUBLE:
                return sizeof(int64_t);
        case PROTOBUF_C_TYPE_STRING:
                return sizeof(char *);
        case PROTOBUF_C_TYPE_BYTES:
                return sizeof(ProtobufCBinaryData);
        case PROTOBUF_C_TYPE_MESSAGE:
                return sizeof(ProtobufCMessage *);
        default:
                return sizeof(int32_t);
        }
}

static void *member(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        return (char *) message + field->offset;
}

/* The number of elements. */
static size_t *count_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        return (void *) ((char *) message + field->quantifier_offset);
}

static bool is_in_oneof(const ProtobufCFieldDescriptor *field) {
        return (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
}

/* The number of the member that is set; 0: none is. */
static uint32_t *case_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        return (void *) ((char *) message + field->quantifier_offset);
}

size_t field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        static const uint64_t zero;
        const void *at = member(message, field);

        if (field_is_repeated(field))
                return *count_of(message, field);
        if (is_in_oneof(field) && *case_of(message, field) != field->id)
                return 0;

        switch (field->type) {
        case PROTOBUF_C_TYPE_MESSAGE:
                return *(ProtobufCMessage *const *) at != NULL;
        case PROTOBUF_C_TYPE_STRING:
                return is_in_oneof(field) || **(char *const *) at != '\0';
        case PROTOBUF_C_TYPE_BYTES:
                return is_in_oneof(field) || ((const ProtobufCBinaryData *) at)->len > 0;
        default:
                return is_in_oneof(field) || memcmp(at, &zero, size_of(field)) != 0;
        }
}

const void *field_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i) {
        if (!field_is_repeated(field))
                return member(message, field);

        return *(char **) member(message, field) + i * size_of(field);
}

ProtobufCMessage *field_message_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i) {
        return *(ProtobufCMessage *const *) field_at(message, field, i);
}

const ProtobufCFieldDescriptor *field_rival(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        uint32_t set = is_in_oneof(field) ? *case_of(message, field) : 0;

        return set == 0 || set == field->id ? NULL : protobuf_c_message_descriptor_get_field(message->descriptor, set);
}

static void free_value(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        void *at = member(message, field);

        /* What a oneof holds while none is set belongs to nobody. */
        if (is_in_oneof(field) && *case_of(message, field) == 0)
                return;

        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                message_free(*(ProtobufCMessage **) at);
        else if (field->type == PROTOBUF_C_TYPE_BYTES)
                free(((ProtobufCBinaryData *) at)->data);
        else if (field->type == PROTOBUF_C_TYPE_STRING && *(char **) at != protobuf_c_empty_string)
                free(*(char **) at);
}

void field_set(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, FieldValue value) {
        free_value(message, field);
        memcpy(member(message, field), &value, size_of(field));
        if (is_in_oneof(field))
                *case_of(message, field) = field->id;
}

void field_append(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, FieldValue value) {
        size_t *count = count_of(message, field), size = size_of(field);
        char **elements = member(message, field);

        *elements = xreallocarray(*elements, *count + 1, size);
        memcpy(*elements + *count * size, &value, size);
        (*count)++;
}
