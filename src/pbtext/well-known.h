/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "pbtext/node.h"
#include "pbtext/pbtext.h"
#include "pbtext/place.h"

/* Messages of google.protobuf that are written as a text: Duration, Timestamp and FieldMask. They are known by their
 * names. One that has no such text (a negative duration, a time after the year 9999) is written by its fields, and
 * every one can be read that way. */

/* Tells whether messages of @type are such. */
bool type_is_well_known(const ProtobufCMessageDescriptor *type) __attribute__((nonnull));

/* Reads one from its text. -EINVAL. */
int well_known_read(const ProtobufCMessageDescriptor *type, const Node *node, const Place *place,
                    ProtobufCMessage **ret_message, HutchError *err) __attribute__((nonnull(1, 2, 4)));

/* The text of one; NULL: it has none. */
Node *well_known_write(const ProtobufCMessage *message) __attribute__((nonnull));
