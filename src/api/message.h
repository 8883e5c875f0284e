/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "api/violations.h"
#include "control/control.h"

/* Messages that peers sent, decoded: their texts checked, their memory capped, and brought into one form, in which two
 * messages that say the same are packed into the same bytes: no unknown fields, maps in the order of their keys, of
 * each key the last. */

/* Decodes a request, which the caller frees by protobuf_free(). What is wrong with it is added to @violations. NULL:
 * it cannot be read at all. With texts that cannot be read it is there nevertheless, for its other fields to be
 * checked, and then to be refused. */
ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len,
                                 Violations *violations) __attribute__((nonnull(1, 4)));

/* What a request asks for, without its request_id: the same for the same. -ENOMEM. */
int message_fingerprint(const ProtobufCMessage *message, const char *method,
                        uint8_t ret_fingerprint[static FINGERPRINT_SIZE]) __attribute__((nonnull));

/* The SHA-256 of some bytes. */
void api_sha256(const void *bytes, size_t len, uint8_t ret_digest[static 32]);
