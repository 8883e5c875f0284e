/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "pbtext/field.h"
#include "pbtext/node.h"
#include "pbtext/place.h"

/* Messages and their fields to nodes and back. */

/* Reads a message, or a single value of @field: an element when that is repeated. -EINVAL. Reading sorts maps. */
int message_read(const ProtobufCMessageDescriptor *type, Node *node, const Place *place, ProtobufCMessage **ret_message,
                 HutchError *err) __attribute__((nonnull(1, 2, 4)));
int element_read(const ProtobufCFieldDescriptor *field, Node *node, const Place *place, FieldValue *ret_value,
                 HutchError *err) __attribute__((nonnull(1, 2, 4)));

/* Reads one entry of a map. */
int entry_read(const ProtobufCFieldDescriptor *map, const char *key, Node *value, const Place *place,
               FieldValue *ret_entry, HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));

Node *message_write(const ProtobufCMessage *message) __attribute__((nonnull, returns_nonnull));

/* All that a field has, which is something: a list, a map, or a single value. */
Node *field_write(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
        __attribute__((nonnull, returns_nonnull));
