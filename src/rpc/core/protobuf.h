/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* Messages of protobuf-c, decoded with a cap: a message of a few bytes that unfolds into many fails, and so does one
 * that memory is out for. protobuf-c takes any bytes for text: who reads a text checks it by base/utf8.h. */

typedef struct Call Call;

/* Decodes a message of @type into at most about @cap bytes. -EBADMSG: it is none; -EMSGSIZE: it takes more; -ENOMEM. */
int protobuf_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len, size_t cap,
                    ProtobufCMessage **ret_message) __attribute__((nonnull(1, 5)));

/* Frees what protobuf_unpack() made, which may be NULL. Returns NULL. */
ProtobufCMessage *protobuf_free(ProtobufCMessage *message);
DEFINE_CLEANUP(ProtobufCMessage *, protobuf_free);

/* Encodes @message. The caller frees the bytes, which are never NULL. -ENOMEM. */
int protobuf_pack(const ProtobufCMessage *message, uint8_t **ret_bytes, size_t *ret_len) __attribute__((nonnull));

/* Finds the bytes of a message that is one field, of number @field, and nothing else: without a copy. False: it is made
 * of anything else. */
bool protobuf_find_bytes(const uint8_t *message, size_t len, uint32_t field, const uint8_t **ret_bytes, size_t *ret_len)
        __attribute__((nonnull(1, 4, 5)));

/* Writes what stands in front of @len bytes that are the field @field (below 16). Returns how many bytes that takes. */
#define PROTOBUF_BYTES_HEAD_MAX 11
size_t protobuf_write_bytes_head(uint8_t ret_head[static PROTOBUF_BYTES_HEAD_MAX], uint32_t field, size_t len);

/* As protobuf_unpack(), for a handler's message: ends the call and returns NULL when it fails. */
ProtobufCMessage *call_unpack(Call *call, const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                              size_t cap) __attribute__((nonnull(1, 2)));

/* As call_send(). */
int call_send_protobuf(Call *call, const ProtobufCMessage *message) __attribute__((nonnull));

/* As call_reply(). */
void call_reply_protobuf(Call *call, const ProtobufCMessage *message) __attribute__((nonnull));
