/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: cutting a stream of bytes into messages. What does not: decompressing them (gzip.c), and which
 * status an error becomes (the sessions). */

#include "rpc/core/message-reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void message_reader_init(MessageReader *reader, size_t len_max) {
        *reader = (MessageReader){ .len_max = len_max };
}

static size_t announced_len(const MessageReader *reader) {
        const uint8_t *b = reader->prefix + 1;

        return (size_t) b[0] << 24 | (size_t) b[1] << 16 | (size_t) b[2] << 8 | b[3];
}

/* Reads what is missing of the prefix. Returns how many bytes were taken. */
static size_t feed_prefix(MessageReader *reader, const uint8_t *bytes, size_t len) {
        size_t missing = MESSAGE_PREFIX_LEN - reader->prefix_len, n = len < missing ? len : missing;

        if (n > 0)
                memcpy(reader->prefix + reader->prefix_len, bytes, n);
        reader->prefix_len += (uint8_t) n;
        return n;
}

/* Begins with the shared buffer, when the message is one for it. */
static void take_spare(MessageReader *reader, size_t announced) {
        SpareBuffer *spare = reader->spare;

        if (reader->data || !spare || announced < SPARE_BUFFER_MIN || announced > spare->size)
                return;

        reader->data = spare->data;
        reader->size = spare->size;
        *spare = (SpareBuffer){};
}

/* Makes room for @len bytes in all, at most @announced: four times as many, so that few copies are made. What is not
 * used of it is only an address. */
static int reserve(MessageReader *reader, size_t len, size_t announced) {
        size_t size = len < announced / 4 ? 4 * len : announced;
        uint8_t *data;

        if (len <= reader->size)
                return 0;

        data = realloc(reader->data, size);
        if (!data)
                return -ENOMEM;

        reader->data = data;
        reader->size = size;
        return 0;
}

/* Hands over the message, which is whole. */
static int finish(MessageReader *reader, Message *ret_message) {
        if (!reader->data)
                reader->data = malloc(1);
        if (!reader->data)
                return -ENOMEM;

        *ret_message = (Message){ .len = reader->len, .size = reader->size, .compressed = reader->prefix[0] == 1 };
        ret_message->data = TAKE_PTR(reader->data);
        message_reader_clear(reader);
        return 1;
}

int message_reader_feed(MessageReader *reader, const uint8_t *bytes, size_t len, size_t *ret_taken,
                        Message *ret_message) {
        size_t taken = feed_prefix(reader, bytes, len), announced, n;
        int r;

        if (reader->prefix_len > 0 && reader->prefix[0] > 1)
                return -EBADMSG;
        if (reader->prefix_len < MESSAGE_PREFIX_LEN) {
                *ret_taken = taken;
                return 0;
        }

        announced = announced_len(reader);
        if (announced > reader->len_max)
                return -EMSGSIZE;

        n = announced - reader->len;
        if (n > len - taken)
                n = len - taken;
        if (n > 0) {
                take_spare(reader, announced);
                r = reserve(reader, reader->len + n, announced);
                if (r < 0)
                        return r;

                memcpy(reader->data + reader->len, bytes + taken, n);
                reader->len += n;
        }

        r = reader->len == announced ? finish(reader, ret_message) : 0;
        if (r >= 0)
                *ret_taken = taken + n;
        return r;
}

bool message_reader_is_between(const MessageReader *reader) {
        return reader->prefix_len == 0;
}

void message_reader_clear(MessageReader *reader) {
        SpareBuffer *spare = reader->spare;

        free(reader->data);
        message_reader_init(reader, reader->len_max);
        reader->spare = spare;
}

void message_clear(Message *message) {
        free(message->data);
        *message = (Message){};
}

uint8_t *message_take(Message *message) {
        uint8_t *data = message->data;

        *message = (Message){};
        return data;
}

void message_recycle(Message *message, SpareBuffer *spare) {
        if (message->size > spare->size && message->size >= SPARE_BUFFER_MIN && message->size <= SPARE_BUFFER_MAX) {
                free(spare->data);
                spare->size = message->size;
                spare->data = TAKE_PTR(message->data);
        }
        message_clear(message);
}

void spare_buffer_clear(SpareBuffer *spare) {
        free(spare->data);
        *spare = (SpareBuffer){};
}

void message_prefix_write(uint8_t ret_prefix[static MESSAGE_PREFIX_LEN], bool compressed, uint32_t len) {
        ret_prefix[0] = compressed;
        ret_prefix[1] = (uint8_t) (len >> 24);
        ret_prefix[2] = (uint8_t) (len >> 16);
        ret_prefix[3] = (uint8_t) (len >> 8);
        ret_prefix[4] = (uint8_t) len;
}
