/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: protobuf-c with memory that has a cap and may run out. What does not: what messages mean. */

#include "rpc/core/protobuf.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/core/call.h"

/* What one message may still allocate, and why it could not. */
typedef struct Budget {
        size_t left;
        int error;
} Budget;

static void *budget_alloc(void *user, size_t size) {
        Budget *budget = user;
        void *pointer;

        if (size > budget->left) {
                budget->error = -EMSGSIZE;
                return NULL;
        }

        pointer = malloc(size);
        if (pointer)
                budget->left -= size;
        else
                budget->error = -ENOMEM;
        return pointer;
}

static void budget_free(void *user, void *pointer) {
        (void) user;
        free(pointer);
}

int protobuf_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len, size_t cap,
                    ProtobufCMessage **ret_message) {
        Budget budget = { .left = cap, .error = -EBADMSG };
        ProtobufCAllocator allocator = { .alloc = budget_alloc, .free = budget_free, .allocator_data = &budget };
        ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, len, bytes);

        if (!message)
                return budget.error;

        *ret_message = message;
        return 0;
}

ProtobufCMessage *protobuf_free(ProtobufCMessage *message) {
        if (message)
                protobuf_c_message_free_unpacked(message, NULL);
        return NULL;
}

int protobuf_pack(const ProtobufCMessage *message, uint8_t **ret_bytes, size_t *ret_len) {
        size_t len = protobuf_c_message_get_packed_size(message);
        uint8_t *bytes = malloc(len + 1);

        if (!bytes)
                return -ENOMEM;

        *ret_len = protobuf_c_message_pack(message, bytes);
        *ret_bytes = bytes;
        return 0;
}

/* Reads a number of protobuf. Returns its bytes; 0: there is none. */
static size_t read_varint(const uint8_t *bytes, size_t len, uint64_t *ret_value) {
        uint64_t value = 0;

        for (size_t i = 0; i < len && i < 10; i++) {
                value |= (uint64_t) (bytes[i] & 0x7f) << (7 * i);
                if (!(bytes[i] & 0x80)) {
                        *ret_value = value;
                        return i + 1;
                }
        }
        return 0;
}

bool protobuf_find_bytes(const uint8_t *message, size_t len, uint32_t field, const uint8_t **ret_bytes,
                         size_t *ret_len) {
        uint64_t tag, bytes_len;
        size_t n = read_varint(message, len, &tag), head;

        if (n == 0 || tag != ((uint64_t) field << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED))
                return false;
        head = n + read_varint(message + n, len - n, &bytes_len);
        if (head == n || bytes_len != len - head)
                return false;

        *ret_bytes = message + head;
        *ret_len = bytes_len;
        return true;
}

size_t protobuf_write_bytes_head(uint8_t ret_head[static PROTOBUF_BYTES_HEAD_MAX], uint32_t field, size_t len) {
        size_t n = 0;

        ret_head[n++] = (uint8_t) (field << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
        for (; len > 0x7f; len >>= 7)
                ret_head[n++] = (uint8_t) ((len & 0x7f) | 0x80);
        ret_head[n++] = (uint8_t) len;
        return n;
}

ProtobufCMessage *call_unpack(Call *call, const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                              size_t cap) {
        ProtobufCMessage *message = NULL;
        int r = protobuf_unpack(type, bytes, len, cap, &message);

        if (r == -EBADMSG)
                call_fail_with(call, STATUS_INTERNAL, "MESSAGE_MALFORMED", "the message is no request of this method");
        else if (r < 0)
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE",
                               "the message takes too much memory");
        return message;
}

int call_send_protobuf(Call *call, const ProtobufCMessage *message) {
        uint8_t *bytes;
        size_t len;
        int r;

        r = protobuf_pack(message, &bytes, &len);
        return r < 0 ? r : call_send_taken(call, bytes, len);
}

void call_reply_protobuf(Call *call, const ProtobufCMessage *message) {
        uint8_t *bytes;
        size_t len;

        if (protobuf_pack(message, &bytes, &len) < 0) {
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory for the answer");
                return;
        }

        call_reply_taken(call, bytes, len);
}
