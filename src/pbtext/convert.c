/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: messages to nodes and back, field by field, and what pbtext.h offers for whole messages. What does
 * not: single values (value.c), and fields by their path (path.c). */

#include "pbtext/convert.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"
#include "pbtext/json.h"
#include "pbtext/nearest.h"
#include "pbtext/pbtext.h"
#include "pbtext/value.h"
#include "pbtext/well-known.h"
#include "pbtext/yaml.h"

int element_read(const ProtobufCFieldDescriptor *field, Node *node, const Place *place, FieldValue *ret_value,
                 HutchError *err) {
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                return message_read(field->descriptor, node, place, &ret_value->message, err);

        return value_read(field, node, place, ret_value, err);
}

static int read_list(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, Node *node, const Place *place,
                     HutchError *err) {
        if (node->kind != NODE_LIST)
                return place_expected(place, node, err, "a list");

        for (Node *child = node->first; child; child = child->next) {
                Place element = { .above = place, .index = child->index };
                FieldValue value;
                int r = element_read(field, child, &element, &value, err);

                if (r < 0)
                        return r;
                field_append(message, field, value);
        }
        return 0;
}

int entry_read(const ProtobufCFieldDescriptor *map, const char *key, Node *value, const Place *place,
               FieldValue *ret_entry, HutchError *err) {
        const ProtobufCMessageDescriptor *type = map->descriptor;
        _cleanup_(message_freep) ProtobufCMessage *entry = message_new(type);
        const Node key_node = { .kind = NODE_PLAIN, .line = value->line, .text = (char *) key };
        FieldValue read;
        int r;

        r = value_read(&type->fields[0], &key_node, place, &read, err);
        if (r < 0)
                return r;
        field_set(entry, &type->fields[0], read);

        r = element_read(&type->fields[1], value, place, &read, err);
        if (r < 0)
                return r;
        field_set(entry, &type->fields[1], read);

        ret_entry->message = TAKE_PTR(entry);
        return 0;
}

static int read_map(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, Node *node, const Place *place,
                    HutchError *err) {
        if (node->kind != NODE_MAP)
                return place_expected(place, node, err, "keys with values");

        node_sort(node);
        for (Node *child = node->first; child; child = child->next) {
                Place element = { .above = place, .key = child->key };
                FieldValue entry;
                int r;

                if (child->next && str_equal(child->key, child->next->key))
                        return place_error(&element, child->next, err, "FIELD_INVALID", "this key is there twice");
                r = entry_read(field, child->key, child, &element, &entry, err);
                if (r < 0)
                        return r;
                field_append(message, field, entry);
        }
        return 0;
}

static int read_field(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, Node *node, const Place *place,
                      HutchError *err) {
        const ProtobufCFieldDescriptor *rival = field_rival(message, field);
        FieldValue value;
        int r;

        if (node->kind == NODE_NULL)
                return 0; /* as if it were not there */
        if (rival)
                return place_error(place, node, err, "FIELD_CONFLICT", "only one of this and '%s' can be set",
                                   rival->name);
        if (field_is_mapping(field))
                return read_map(message, field, node, place, err);
        if (field_is_repeated(field))
                return read_list(message, field, node, place, err);

        r = element_read(field, node, place, &value, err);
        if (r == 0)
                field_set(message, field, value);
        return r;
}

static int unknown_key(const ProtobufCMessageDescriptor *type, const Node *node, const Place *place, HutchError *err) {
        Nearest nearest = { .text = node->key };

        for (unsigned i = 0; i < type->n_fields; i++)
                nearest_offer(&nearest, type->fields[i].name);
        return place_error(place, node, err, "FIELD_INVALID", "unknown key '%s'%s", node->key,
                           nearest_question(&nearest));
}

int message_read(const ProtobufCMessageDescriptor *type, Node *node, const Place *place, ProtobufCMessage **ret_message,
                 HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_free_ bool *seen = NULL;

        if (type_is_well_known(type) && node->kind != NODE_MAP)
                return well_known_read(type, node, place, ret_message, err);
        if (node->kind != NODE_MAP)
                return place_expected(place, node, err, "keys with values");

        message = message_new(type);
        seen = new0(bool, type->n_fields + 1);
        for (Node *child = node->first; child; child = child->next) {
                const ProtobufCFieldDescriptor *field = field_find(type, child->key, strlen(child->key));
                Place below = { .above = place, .name = child->key };
                int r;

                if (!field)
                        return unknown_key(type, child, place, err);
                if (seen[field - type->fields])
                        return place_error(&below, child, err, "FIELD_INVALID", "this key is there twice");
                seen[field - type->fields] = true;

                r = read_field(message, field, child, &below, err);
                if (r < 0)
                        return r;
        }

        *ret_message = TAKE_PTR(message);
        return 0;
}

static Node *write_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i) {
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                return message_write(field_message_at(message, field, i));

        return value_write(field, field_at(message, field, i));
}

/* A map, sorted. Of entries with the same key the last one counts, as for those who read the encoded message. */
static Node *write_map(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        const ProtobufCMessageDescriptor *type = field->descriptor;
        _cleanup_(node_freep) Node *all = node_new(NODE_MAP, 0);
        Node *map = node_new(NODE_MAP, 0), *next;

        for (size_t i = 0; i < field_count(message, field); i++) {
                const ProtobufCMessage *entry = field_message_at(message, field, i);
                _cleanup_(node_freep) Node *key = write_element(entry, &type->fields[0], 0);

                node_append(all, TAKE_PTR(key->text), write_element(entry, &type->fields[1], 0));
        }

        node_sort(all);
        for (Node *child = TAKE_PTR(all->first); child; child = next) {
                next = child->next;
                if (next && str_equal(child->key, next->key))
                        node_free(child);
                else
                        node_append(map, child->key, child);
        }
        return map;
}

Node *field_write(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        Node *list;

        if (field_is_mapping(field))
                return write_map(message, field);
        if (!field_is_repeated(field))
                return write_element(message, field, 0);

        list = node_new(NODE_LIST, 0);
        for (size_t i = 0; i < field_count(message, field); i++)
                node_append(list, NULL, write_element(message, field, i));
        return list;
}

Node *message_write(const ProtobufCMessage *message) {
        Node *node = type_is_well_known(message->descriptor) ? well_known_write(message) : NULL;

        if (node)
                return node;

        node = node_new(NODE_MAP, 0);
        for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

                if (field_count(message, field) > 0)
                        node_append(node, xstrdup(field->name), field_write(message, field));
        }
        return node;
}

ProtobufCMessage *message_free(ProtobufCMessage *message) {
        protobuf_c_message_free_unpacked(message, NULL);
        return NULL;
}

ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *type) {
        ProtobufCMessage *message = xcalloc(1, type->sizeof_message);

        protobuf_c_message_init(type, message);
        return message;
}

/* protobuf-c takes any bytes for a text. */
static bool is_utf8(const ProtobufCMessage *message) {
        for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

                for (size_t j = 0; j < field_count(message, field); j++) {
                        const char *const *text = field_at(message, field, j);

                        if (field->type == PROTOBUF_C_TYPE_MESSAGE && !is_utf8(field_message_at(message, field, j)))
                                return false;
                        if (field->type == PROTOBUF_C_TYPE_STRING && !utf8_valid(*text, strlen(*text)))
                                return false;
                }
        }
        return true;
}

int message_decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                   ProtobufCMessage **ret_message, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *message = protobuf_c_message_unpack(type, NULL, len, bytes);

        if (!message)
                return error_set(err, -EBADMSG, "MESSAGE_MALFORMED", "this is no encoded %s", type->name);
        if (!is_utf8(message))
                return error_set(err, -EBADMSG, "FIELD_NOT_UTF8", "a text in this %s is not UTF-8", type->name);

        *ret_message = TAKE_PTR(message);
        return 0;
}

void message_encode(const ProtobufCMessage *message, void **ret_bytes, size_t *ret_len) {
        size_t len = protobuf_c_message_get_packed_size(message);
        uint8_t *bytes = new0(uint8_t, len + 1);

        *ret_len = protobuf_c_message_pack(message, bytes);
        *ret_bytes = bytes;
}

char *message_to_json(const ProtobufCMessage *message, bool indented) {
        _cleanup_(node_freep) Node *node = message_write(message);
        StringBuilder text = {};

        json_write(&text, node, indented);
        string_builder_append(&text, "\n");
        return string_builder_take(&text);
}

char *message_to_yaml(const ProtobufCMessage *message) {
        _cleanup_(node_freep) Node *node = message_write(message);
        StringBuilder text = {};

        yaml_write(&text, node);
        return string_builder_take(&text);
}

int message_from_json(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
                      ProtobufCMessage **ret_message, HutchError *err) {
        _cleanup_(node_freep) Node *node = NULL;
        int r = json_read(text, len, &node, err);

        return r < 0 ? r : message_read(type, node, NULL, ret_message, err);
}

int message_from_yaml(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
                      ProtobufCMessage **ret_message, HutchError *err) {
        _cleanup_(node_freep) Node *node = NULL;
        int r = yaml_read(text, len, &node, err);

        return r < 0 ? r : message_read(type, node, NULL, ret_message, err);
}
