/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "pbtext/field.h"
#include "pbtext/node.h"
#include "pbtext/place.h"

/* Values that are no messages: numbers, booleans, enums, texts and bytes. */

/* Reads a value for @field. -EINVAL. */
int value_read(const ProtobufCFieldDescriptor *field, const Node *node, const Place *place, FieldValue *ret_value,
               HutchError *err) __attribute__((nonnull(1, 2, 4)));

/* The node of a value of @field, which stands at @at. */
Node *value_write(const ProtobufCFieldDescriptor *field, const void *at) __attribute__((nonnull, returns_nonnull));
