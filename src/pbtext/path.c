/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: fields of a message by their path. What does not: whole messages (convert.c). */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"
#include "pbtext/convert.h"
#include "pbtext/field.h"
#include "pbtext/json.h"
#include "pbtext/pbtext.h"
#include "pbtext/place.h"
#include "pbtext/value.h"
#include "pbtext/well-known.h"

/* Takes the first name from @path: a field of @type. */
static const ProtobufCFieldDescriptor *path_take(const ProtobufCMessageDescriptor *type, const char **path) {
        size_t len = strcspn(*path, ".");
        const ProtobufCFieldDescriptor *field = field_find(type, *path, len);

        assert(field);
        *path += len + ((*path)[len] == '.');
        /* Only single messages have something below them. */
        assert(**path == '\0' || (field->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(field)));
        return field;
}

/* Finds the field at @path, and the message it is in: NULL when that is not there. */
static const ProtobufCFieldDescriptor *path_find(const ProtobufCMessage *message, const char *path,
                                                 const ProtobufCMessage **ret_message) {
        const ProtobufCFieldDescriptor *field = path_take(message->descriptor, &path);

        while (*path != '\0') {
                message = message && field_count(message, field) > 0 ? field_message_at(message, field, 0) : NULL;
                field = path_take(field->descriptor, &path);
        }

        *ret_message = message;
        return field;
}

/* How many values are at @path. */
static size_t path_count(const ProtobufCMessage *message, const char *path) {
        const ProtobufCFieldDescriptor *field = path_find(message, path, &message);

        return message ? field_count(message, field) : 0;
}

static void append_value(StringBuilder *text, const Node *node) {
        if (node->text)
                string_builder_append(text, node->text);
        else
                json_write(text, node, false);
}

char *message_get(const ProtobufCMessage *message, const char *path) {
        return message_join(message, path, ",");
}

char *message_join(const ProtobufCMessage *message, const char *path, const char *separator) {
        const ProtobufCFieldDescriptor *field = path_find(message, path, &message);
        _cleanup_(node_freep) Node *node = NULL;
        StringBuilder text = {};

        if (!message || field_count(message, field) == 0)
                return xstrdup("");

        node = field_write(message, field);
        if (!field_is_repeated(field))
                append_value(&text, node);
        else
                for (const Node *child = node->first; child; child = child->next) {
                        string_builder_append(&text, child->index > 0 ? separator : "");
                        if (child->key)
                                string_builder_appendf(&text, "%s=", child->key);
                        append_value(&text, child);
                }
        return string_builder_take(&text);
}

bool message_has(const ProtobufCMessage *message, const char *path) {
        return path_count(message, path) > 0;
}

size_t message_count(const ProtobufCMessage *message, const char *path) {
        return path_count(message, path);
}

const ProtobufCMessage *message_at(const ProtobufCMessage *message, const char *path, size_t i) {
        const ProtobufCFieldDescriptor *field = path_find(message, path, &message);

        assert(message && i < field_count(message, field));
        return field_message_at(message, field, i);
}

/* Makes a node of @text, for a value of @field: what is written by its fields is JSON. */
static int node_from_text(const ProtobufCFieldDescriptor *field, const char *text, const Place *place, Node **ret_node,
                          HutchError *err) {
        static const Node no_line;
        _cleanup_(error_clear) HutchError problem = {};

        if (field->type != PROTOBUF_C_TYPE_MESSAGE || type_is_well_known(field->descriptor)) {
                *ret_node = node_new_scalar(NODE_PLAIN, 0, xstrdup(text));
                return 0;
        }

        return json_read(text, strlen(text), ret_node, &problem) == 0
                       ? 0
                       : place_error(place, &no_line, err, problem.reason, "%s", error_message(&problem));
}

/* Reads "KEY=VALUE". */
static int entry_from_text(const ProtobufCFieldDescriptor *map, const char *text, const Place *place,
                           FieldValue *ret_entry, HutchError *err) {
        const ProtobufCMessageDescriptor *type = map->descriptor;
        const Node whole = { .kind = NODE_PLAIN, .text = (char *) text };
        const char *equals = strchr(text, '=');
        _cleanup_(node_freep) Node *value = NULL;
        _cleanup_free_ char *key = NULL;
        int r;

        if (!equals)
                return place_expected(place, &whole, err, "KEY=VALUE");

        key = xstrndup(text, (size_t) (equals - text));
        r = node_from_text(&type->fields[1], equals + 1, place, &value, err);
        return r < 0 ? r : entry_read(map, key, value, &(Place){ .above = place, .key = key }, ret_entry, err);
}

static int value_from_text(const ProtobufCFieldDescriptor *field, const char *text, const Place *place,
                           FieldValue *ret_value, HutchError *err) {
        _cleanup_(node_freep) Node *node = NULL;
        int r;

        if (field_is_mapping(field))
                return entry_from_text(field, text, place, ret_value, err);

        r = node_from_text(field, text, place, &node, err);
        return r < 0 ? r : element_read(field, node, place, ret_value, err);
}

/* Fails when something on the way of @path cannot be set because another member of its oneof is. */
static int check_rivals(const ProtobufCMessage *message, const char *path, const Place *place, HutchError *err) {
        static const Node no_line;

        while (message && *path != '\0') {
                const ProtobufCFieldDescriptor *field = path_take(message->descriptor, &path);
                const ProtobufCFieldDescriptor *rival = field_rival(message, field);

                if (rival)
                        return place_error(place, &no_line, err, "FIELD_CONFLICT",
                                           "only one of '%s' and '%s' can be set", field->name, rival->name);
                message = *path != '\0' && field_count(message, field) > 0 ? field_message_at(message, field, 0) : NULL;
        }
        return 0;
}

/* The entry of @map that has the same key as @entry; NULL: there is none. */
static ProtobufCMessage **find_entry(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *map,
                                     const ProtobufCMessage *entry) {
        const ProtobufCFieldDescriptor *key = entry->descriptor->fields;
        _cleanup_(node_freep) Node *wanted = value_write(key, field_at(entry, key, 0));

        for (size_t i = field_count(message, map); i > 0; i--) {
                const ProtobufCMessage *other = field_message_at(message, map, i - 1);
                _cleanup_(node_freep) Node *found = value_write(key, field_at(other, key, 0));

                if (str_equal(found->text, wanted->text))
                        return (ProtobufCMessage **) field_at(message, map, i - 1);
        }
        return NULL;
}

static void put(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, FieldValue value) {
        ProtobufCMessage **entry = field_is_mapping(field) ? find_entry(message, field, value.message) : NULL;

        if (entry) {
                message_free(*entry);
                *entry = value.message;
        } else if (field_is_repeated(field))
                field_append(message, field, value);
        else
                field_set(message, field, value);
}

int message_set(ProtobufCMessage *message, const char *path, const char *text, HutchError *err) {
        const Place place = { .name = path };
        const ProtobufCMessage *unused;
        const ProtobufCFieldDescriptor *field = path_find(message, path, &unused);
        FieldValue value;
        int r;

        if (!utf8_valid(text, strlen(text)))
                return error_set(err, -EINVAL, "FIELD_NOT_UTF8", "%s: this is not UTF-8", path);
        r = check_rivals(message, path, &place, err);
        if (r < 0)
                return r;
        r = value_from_text(field, text, &place, &value, err);
        if (r < 0)
                return r;

        for (;;) {
                field = path_take(message->descriptor, &path);
                if (*path == '\0')
                        break;
                if (field_count(message, field) == 0)
                        field_set(message, field, (FieldValue){ .message = message_new(field->descriptor) });
                message = field_message_at(message, field, 0);
        }
        put(message, field, value);
        return 0;
}
