/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rpc/core/message-reader.h"

/* What a fuzzer's bytes say to one end of an HTTP/2 connection.
 *
 * The first byte has options: INPUT_STRUCTURED and what the target makes of the others. The second is the size of the
 * pieces in which bytes arrive; 0: as they come. Without INPUT_STRUCTURED the rest is bytes of a connection. With it,
 * the rest is a list of steps, each an opcode and its operands:
 *
 *   0 … 9   a frame of that type: flags, stream, length, payload
 *   'H'     a header block that makes sense: stream, kind, flags; the target writes it
 *   'M'     a message in a DATA frame: flags, stream, length, bytes
 *   'T'     time passes: exponent of 2, in microseconds
 *   other   whatever the target makes of it, with one operand
 *
 * Streams are numbers from 0 on and stand for 1, 3, 5 …; 255 for the connection. */

#define INPUT_STRUCTURED 0x01

#define INPUT_FRAME_MAX 512 /* bytes of what one step makes */

typedef struct Input {
        const uint8_t *data;
        size_t len;
} Input;

static inline uint8_t input_byte(Input *input) {
        if (input->len == 0)
                return 0;

        input->len--;
        return *input->data++;
}

/* Takes @len bytes, or as many as there are. */
static inline const uint8_t *input_bytes(Input *input, size_t *len) {
        const uint8_t *bytes = input->data;

        *len = *len < input->len ? *len : input->len;
        input->data += *len;
        input->len -= *len;
        return bytes;
}

static inline uint32_t input_stream(Input *input) {
        uint8_t index = input_byte(input);

        return index == 255 ? 0 : 2 * (uint32_t) index + 1;
}

static inline size_t frame_write(uint8_t *ret_frame, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
                                 size_t len) {
        const uint8_t head[9] = {
                (uint8_t) (len >> 16),
                (uint8_t) (len >> 8),
                (uint8_t) len,
                type,
                flags,
                (uint8_t) (stream >> 24),
                (uint8_t) (stream >> 16),
                (uint8_t) (stream >> 8),
                (uint8_t) stream,
        };

        memcpy(ret_frame, head, sizeof(head));
        if (len > 0)
                memcpy(ret_frame + sizeof(head), payload, len);
        return sizeof(head) + len;
}

/* Appends a field to a header block, as a literal that no table remembers. */
static inline size_t field_write(uint8_t *block, size_t at, const char *name, const char *value) {
        size_t name_len = strlen(name), value_len = strlen(value);

        block[at++] = 0;
        block[at++] = (uint8_t) name_len;
        memcpy(block + at, name, name_len);
        at += name_len;
        block[at++] = (uint8_t) value_len;
        memcpy(block + at, value, value_len);
        return at + value_len;
}

/* A frame of @type from the input's operands. */
static inline size_t input_frame(Input *input, uint8_t type, uint8_t ret_frame[static INPUT_FRAME_MAX]) {
        uint8_t flags = input_byte(input);
        uint32_t stream = input_stream(input);
        size_t len = input_byte(input);
        const uint8_t *payload = input_bytes(input, &len);

        return frame_write(ret_frame, type, flags, stream, payload, len);
}

/* A DATA frame with one whole message; of the flags, bit 0 ends the stream, bit 1 says that it is compressed, and bit 2
 * leaves out its last byte. */
static inline size_t input_message(Input *input, uint8_t ret_frame[static INPUT_FRAME_MAX]) {
        uint8_t flags = input_byte(input), payload[MESSAGE_PREFIX_LEN + 255];
        uint32_t stream = input_stream(input);
        size_t len = input_byte(input);
        const uint8_t *bytes = input_bytes(input, &len);

        message_prefix_write(payload, flags & 2, (uint32_t) len);
        if (len > 0)
                memcpy(payload + MESSAGE_PREFIX_LEN, bytes, len);
        return frame_write(ret_frame, 0, flags & 1, stream, payload, MESSAGE_PREFIX_LEN + len - (flags & 4 ? 1 : 0));
}
