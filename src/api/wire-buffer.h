/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Encoded messages, put together out of parts, some of which are encoded already: specs and events are kept as the
 * bytes that callers get.
 *
 *         _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
 *         size_t sandbox = wire_begin(&buffer, 1);
 *
 *         wire_put_fields(&buffer, &message.base);
 *         wire_put_bytes(&buffer, 2, spec->encoded, spec->encoded_len);
 *         wire_end(&buffer, sandbox);
 *
 * When memory is out, @failed says so at the end; nothing else needs to be checked. */

typedef struct WireBuffer {
        uint8_t *bytes;
        size_t len;
        size_t size;
        bool failed;
} WireBuffer;

/* A field of bytes, text or an encoded message. */
void wire_put_bytes(WireBuffer *buffer, unsigned field, const void *bytes, size_t len) __attribute__((nonnull(1)));
void wire_put_text(WireBuffer *buffer, unsigned field, const char *text) __attribute__((nonnull));
void wire_put_uint(WireBuffer *buffer, unsigned field, uint64_t value) __attribute__((nonnull));

/* A field with @message; all the fields of @message. */
void wire_put_message(WireBuffer *buffer, unsigned field, const ProtobufCMessage *message) __attribute__((nonnull));
void wire_put_fields(WireBuffer *buffer, const ProtobufCMessage *message) __attribute__((nonnull));

/* Room for @len more bytes, to be counted into @len of the buffer by whoever writes them. NULL: memory is out. */
uint8_t *wire_reserve(WireBuffer *buffer, size_t len) __attribute__((nonnull));

/* A field with the message, or whatever else, that is put between the two. Returns what wire_end() is given. */
size_t wire_begin(WireBuffer *buffer, unsigned field) __attribute__((nonnull));
void wire_end(WireBuffer *buffer, size_t begun) __attribute__((nonnull));

void wire_buffer_clear(WireBuffer *buffer) __attribute__((nonnull));

/* Writes @value to @at, which has room for WIRE_VARINT_MAX bytes; returns how many it takes. */
#define WIRE_VARINT_MAX 10
size_t wire_varint(uint64_t value, uint8_t *at) __attribute__((nonnull));
