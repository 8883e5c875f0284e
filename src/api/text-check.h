/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/violations.h"

/* The texts of a message, checked before it is decoded: protobuf-c takes any bytes for text and cuts them at a NUL.
 *
 * Walks the encoded message by its descriptor, into nested messages and maps, and adds a violation for each text that
 * is not UTF-8 or contains a NUL, with the field's own reason where it has one. -EBADMSG: it is no message of @type. */
int text_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len, Violations *violations)
        __attribute__((nonnull(1, 4)));

/* Tells whether a field is a map from text to text; the contract has no others. */
bool field_is_map(const ProtobufCFieldDescriptor *field) __attribute__((nonnull));
