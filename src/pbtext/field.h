/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The fields of a message in memory, by their descriptors. Of proto3 only, so a field is plain, repeated or a member of
 * a oneof; an `optional` field is the only member of its own. */

/* A value of any type, as protobuf-c keeps it. Texts, bytes and messages are owned. */
typedef union FieldValue {
        int32_t int32; /* also of enums */
        uint32_t uint32;
        int64_t int64;
        uint64_t uint64;
        float float32;
        double float64;
        protobuf_c_boolean boolean;
        char *text;
        ProtobufCBinaryData bytes;
        ProtobufCMessage *message;
} FieldValue;

/* The field that is called @name ("idle_ttl" or "idleTtl", @len bytes); NULL: there is none. */
const ProtobufCFieldDescriptor *field_find(const ProtobufCMessageDescriptor *type, const char *name, size_t len)
        __attribute__((nonnull));

bool field_is_repeated(const ProtobufCFieldDescriptor *field) __attribute__((nonnull));

/* Tells whether @field is a map: a list of messages called "…Entry", each of a key and a value. */
bool field_is_mapping(const ProtobufCFieldDescriptor *field) __attribute__((nonnull));

/* How many values the field has: elements of a list, else 1 or 0. One whose presence is not kept has a value when that
 * is not zero. */
size_t field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) __attribute__((nonnull));

/* Where value number @i is, which is there. It points to what the type has in FieldValue. */
const void *field_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i)
        __attribute__((nonnull, returns_nonnull));
ProtobufCMessage *field_message_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i)
        __attribute__((nonnull, returns_nonnull));

/* The other member of the field's oneof that is set; NULL: there is none. */
const ProtobufCFieldDescriptor *field_rival(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
        __attribute__((nonnull));

/* Takes @value over: in the place of what the field has, or behind its last element. It must have no rival. */
void field_set(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, FieldValue value)
        __attribute__((nonnull));
void field_append(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, FieldValue value)
        __attribute__((nonnull));
