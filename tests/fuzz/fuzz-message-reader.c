/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a byte, from which the sizes of the pieces follow, then the bytes of a stream. */

#include "rpc/core/message-reader.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define LEN_MAX 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What comes next in a stream, by the rule itself: returns 1 and the message with its prefix, or why there is none; 0
 * for a stream that ends before it is whole. */
static int next_message(const uint8_t *bytes, size_t len, Message *ret_message) {
        size_t message_len;

        if (len > 0 && bytes[0] > 1)
                return -EBADMSG;
        if (len < MESSAGE_PREFIX_LEN)
                return 0;

        message_len = (size_t) bytes[1] << 24 | (size_t) bytes[2] << 16 | (size_t) bytes[3] << 8 | bytes[4];
        if (message_len > LEN_MAX)
                return -EMSGSIZE;
        if (len - MESSAGE_PREFIX_LEN < message_len)
                return 0;

        *ret_message = (Message){
                .data = (uint8_t *) bytes,
                .len = MESSAGE_PREFIX_LEN + message_len,
                .compressed = bytes[0] == 1,
        };
        return 1;
}

/* The message is the one that stands next in the stream, and is written as it was read. */
static void check_message(const Message *message, const uint8_t *bytes, size_t len, size_t *position) {
        uint8_t prefix[MESSAGE_PREFIX_LEN];
        Message expected;

        assert(next_message(bytes + *position, len - *position, &expected) == 1);
        assert(message->data && message->len == expected.len - MESSAGE_PREFIX_LEN);
        assert(message->compressed == expected.compressed);

        message_prefix_write(prefix, message->compressed, (uint32_t) message->len);
        assert(memcmp(prefix, expected.data, MESSAGE_PREFIX_LEN) == 0);
        assert(memcmp(message->data, expected.data + MESSAGE_PREFIX_LEN, message->len) == 0);
        *position += expected.len;
}

/* Reads the stream in pieces of at most @piece_max bytes, whose sizes follow from @seed. */
static void check_stream(const uint8_t *bytes, size_t len, uint32_t seed, size_t piece_max) {
        _cleanup_(message_reader_clear) MessageReader reader;
        size_t position = 0, fed = 0;
        Message rest;
        int r = 0;

        message_reader_init(&reader, LEN_MAX);
        while (fed < len && r >= 0) {
                size_t piece, taken;

                seed = seed * 1664525 + 1013904223;
                piece = 1 + (seed >> 8) % piece_max;
                if (piece > len - fed)
                        piece = len - fed;

                for (size_t i = 0; i < piece && r >= 0; i += taken) {
                        _cleanup_(message_clear) Message message = {};

                        r = message_reader_feed(&reader, bytes + fed + i, piece - i, &taken, &message);
                        assert(r < 0 || (taken > 0 && taken <= piece - i && (r == 1 || taken == piece - i)));
                        assert(reader.size <= 2 * LEN_MAX);
                        if (r > 0)
                                check_message(&message, bytes, len, &position);
                }
                fed += piece;
        }

        if (r < 0)
                assert(next_message(bytes + position, len - position, &rest) == r);
        else {
                assert(next_message(bytes + position, len - position, &rest) == 0);
                assert(message_reader_is_between(&reader) == (position == len));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size < 1)
                return -1;

        check_stream(data + 1, size - 1, data[0], 1);
        check_stream(data + 1, size - 1, data[0], 7);
        check_stream(data + 1, size - 1, data[0], 64);
        check_stream(data + 1, size - 1, data[0], size);
        return 0;
}
