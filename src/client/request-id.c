/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: making ids, and putting them into messages that are encoded already. What does not: which requests
 * have one (methods.c). */

#include "client/request-id.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define VARINT_MAX 10 /* bytes */

int request_id_make(char ret_id[static REQUEST_ID_SIZE]) {
        uint8_t random[(REQUEST_ID_SIZE - 1) / 2];

        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return -EIO;

        for (size_t i = 0; i < sizeof(random); i++)
                snprintf(ret_id + 2 * i, 3, "%02x", random[i]);
        return 0;
}

int exec_id_make(char ret_id[static EXEC_ID_SIZE]) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        uint32_t random[EXEC_ID_SIZE - sizeof("ex-")];

        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return -EIO;

        memcpy(ret_id, "ex-", 3);
        for (size_t i = 0; i < sizeof(random) / sizeof(random[0]); i++)
                ret_id[3 + i] = letters[random[i] % (sizeof(letters) - 1)];
        ret_id[EXEC_ID_SIZE - 1] = '\0';
        return 0;
}

/* Reads a number. Returns what stands behind it; NULL: there is none. */
static const uint8_t *read_varint(const uint8_t *next, const uint8_t *end, uint64_t *ret_number) {
        uint64_t number = 0;

        for (unsigned i = 0; i < VARINT_MAX && next < end; i++, next++) {
                number |= (uint64_t) (*next & 0x7f) << (7 * i);
                if (!(*next & 0x80)) {
                        *ret_number = number;
                        return next + 1;
                }
        }

        return NULL;
}

/* Passes over the value of a field; *@ret_len: its bytes, if it is a text. NULL: it is none. */
static const uint8_t *pass_value(unsigned wire_type, const uint8_t *next, const uint8_t *end, uint64_t *ret_len) {
        uint64_t len = 0;

        switch (wire_type) {
        case PROTOBUF_C_WIRE_TYPE_VARINT:
                return read_varint(next, end, &len);
        case PROTOBUF_C_WIRE_TYPE_64BIT:
                len = 8;
                break;
        case PROTOBUF_C_WIRE_TYPE_32BIT:
                len = 4;
                break;
        case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
                next = read_varint(next, end, &len);
                break;
        default:
                return NULL;
        }
        if (!next || len > (uint64_t) (end - next))
                return NULL;

        *ret_len = len;
        return next + len;
}

/* Tells whether the message has a text, and not an empty one, in field @id; also when it is none that can be read: who
 * decodes it will say so. */
static bool has_text(uint32_t id, const uint8_t *bytes, size_t len) {
        const uint8_t *next = bytes, *end = bytes + len;

        while (next < end) {
                uint64_t tag, value_len = 0;

                next = read_varint(next, end, &tag);
                if (next)
                        next = pass_value(tag & 7, next, end, &value_len);
                if (!next || (tag >> 3 == id && value_len > 0))
                        return true;
        }

        return false;
}

int request_id_add(const ProtobufCFieldDescriptor *field, const uint8_t *bytes, size_t len, uint8_t **ret_bytes,
                   size_t *ret_len) {
        char id[REQUEST_ID_SIZE];
        uint8_t *made, *next;
        uint32_t tag = field->id << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
        int r;

        if (has_text(field->id, bytes, len))
                return 0;
        r = request_id_make(id);
        if (r < 0)
                return r;

        made = malloc(len + VARINT_MAX + sizeof(id));
        if (!made)
                return -ENOMEM;
        if (len > 0)
                memcpy(made, bytes, len);
        next = made + len;
        for (; tag > 0x7f; tag >>= 7)
                *next++ = (uint8_t) (tag | 0x80);
        *next++ = (uint8_t) tag;
        *next++ = REQUEST_ID_SIZE - 1;
        memcpy(next, id, REQUEST_ID_SIZE - 1);

        *ret_bytes = made;
        *ret_len = (size_t) (next - made) + REQUEST_ID_SIZE - 1;
        return 1;
}
