/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: writing protobuf's encoding by hand. What does not: which fields there are (convert.c). */

#include "api/wire-buffer.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX 5 /* bytes of a length, for wire_end() */

uint8_t *wire_reserve(WireBuffer *buffer, size_t len) {
        size_t size = buffer->size > 0 ? buffer->size : 512;
        uint8_t *bytes;

        if (buffer->failed || len > PTRDIFF_MAX / 2 - buffer->len) {
                buffer->failed = true;
                return NULL;
        }

        while (size < buffer->len + len)
                size *= 2;
        if (size > buffer->size) {
                bytes = realloc(buffer->bytes, size);
                if (!bytes) {
                        buffer->failed = true;
                        return NULL;
                }
                buffer->bytes = bytes;
                buffer->size = size;
        }

        return buffer->bytes + buffer->len;
}

size_t wire_varint(uint64_t value, uint8_t *at) {
        size_t n = 0;

        for (; value >= 0x80; value >>= 7)
                at[n++] = (uint8_t) (value | 0x80);
        at[n++] = (uint8_t) value;
        return n;
}

static void put_varint(WireBuffer *buffer, uint64_t value) {
        uint8_t *at = wire_reserve(buffer, WIRE_VARINT_MAX);

        if (at)
                buffer->len += wire_varint(value, at);
}

static void put_tag(WireBuffer *buffer, unsigned field, ProtobufCWireType type) {
        put_varint(buffer, (uint64_t) field << 3 | type);
}

void wire_put_bytes(WireBuffer *buffer, unsigned field, const void *bytes, size_t len) {
        uint8_t *at;

        put_tag(buffer, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
        put_varint(buffer, len);
        at = wire_reserve(buffer, len);
        if (!at || len == 0)
                return;

        memcpy(at, bytes, len);
        buffer->len += len;
}

void wire_put_text(WireBuffer *buffer, unsigned field, const char *text) {
        wire_put_bytes(buffer, field, text, strlen(text));
}

void wire_put_uint(WireBuffer *buffer, unsigned field, uint64_t value) {
        put_tag(buffer, field, PROTOBUF_C_WIRE_TYPE_VARINT);
        put_varint(buffer, value);
}

void wire_put_fields(WireBuffer *buffer, const ProtobufCMessage *message) {
        uint8_t *at = wire_reserve(buffer, protobuf_c_message_get_packed_size(message));

        if (at)
                buffer->len += protobuf_c_message_pack(message, at);
}

void wire_put_message(WireBuffer *buffer, unsigned field, const ProtobufCMessage *message) {
        put_tag(buffer, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
        put_varint(buffer, protobuf_c_message_get_packed_size(message));
        wire_put_fields(buffer, message);
}

size_t wire_begin(WireBuffer *buffer, unsigned field) {
        put_tag(buffer, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
        if (wire_reserve(buffer, LENGTH_MAX))
                buffer->len += LENGTH_MAX;
        return buffer->len;
}

/* The length is written where room was left for it, and what follows moves up to it. */
void wire_end(WireBuffer *buffer, size_t begun) {
        uint8_t length[WIRE_VARINT_MAX];
        size_t len = buffer->len - begun, n;

        if (buffer->failed)
                return;

        n = wire_varint(len, length);
        memcpy(buffer->bytes + begun - LENGTH_MAX, length, n);
        memmove(buffer->bytes + begun - LENGTH_MAX + n, buffer->bytes + begun, len);
        buffer->len -= LENGTH_MAX - n;
}

void wire_buffer_clear(WireBuffer *buffer) {
        free(buffer->bytes);
        *buffer = (WireBuffer){};
}
