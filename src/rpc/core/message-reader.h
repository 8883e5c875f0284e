/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Messages in a stream of bytes: each stands behind a prefix of five bytes, a flag that tells whether it is compressed
 * and its length, big-endian.
 *
 *         while (len > 0) {
 *                 _cleanup_(message_clear) Message message = {};
 *                 size_t taken;
 *                 int r = message_reader_feed(&reader, bytes, len, &taken, &message);
 *
 *                 if (r < 0)
 *                         return r;
 *                 if (r > 0)
 *                         handle(&message);
 *                 bytes += taken;
 *                 len -= taken;
 *         }
 *
 * The bytes may come in pieces of any size. A reader takes memory for at most four times the bytes that came of a
 * message, however many were announced. Readers may share a buffer, so that a stream of large messages does not take
 * memory anew for each: message_recycle() puts one there, and whoever begins with a message that fits takes it. */

#define MESSAGE_PREFIX_LEN 5

typedef struct Message {
        uint8_t *data; /* from malloc(), owned; not NULL in a message that was read, even an empty one */
        size_t len;
        size_t size; /* room in @data */
        bool compressed;
} Message;

/* A buffer that waits for the next large message. */
typedef struct SpareBuffer {
        uint8_t *data;
        size_t size;
} SpareBuffer;

#define SPARE_BUFFER_MIN ((size_t) 32 << 10) /* smaller ones are not worth it */
#define SPARE_BUFFER_MAX ((size_t) 2 << 20)

typedef struct MessageReader {
        size_t len_max;
        uint8_t prefix[MESSAGE_PREFIX_LEN];
        uint8_t prefix_len; /* how much of the prefix came */
        uint8_t *data;      /* what came of the message, and room for more */
        size_t len, size;
        SpareBuffer *spare; /* NULL: none */
} MessageReader;

/* Makes a reader that refuses messages longer than @len_max. */
void message_reader_init(MessageReader *reader, size_t len_max) __attribute__((nonnull));

/* Takes bytes until a message is whole or the @len bytes are used up. Returns 1 and the message, which is the
 * caller's, or 0 when more bytes are needed, and how many were taken. Fails, for good, with
 *
 *   -EBADMSG   the flag is neither 0 nor 1
 *   -EMSGSIZE  the message is too long; known before memory is taken for it
 *   -ENOMEM
 */
int message_reader_feed(MessageReader *reader, const uint8_t *bytes, size_t len, size_t *ret_taken,
                        Message *ret_message) __attribute__((nonnull(1, 4, 5)));

/* Tells whether no message is begun: false at the end of the stream means that it ended in the middle of one. */
bool message_reader_is_between(const MessageReader *reader) __attribute__((nonnull));

/* Frees what came of a message. */
void message_reader_clear(MessageReader *reader) __attribute__((nonnull));

/* Frees the data of @message, which may have none. */
void message_clear(Message *message) __attribute__((nonnull));

/* Hands the data of @message over to the caller, who frees it. */
uint8_t *message_take(Message *message) __attribute__((nonnull));

/* As message_clear(), but keeps its memory in @spare when that is worth it. */
void message_recycle(Message *message, SpareBuffer *spare) __attribute__((nonnull));

void spare_buffer_clear(SpareBuffer *spare) __attribute__((nonnull));

void message_prefix_write(uint8_t ret_prefix[static MESSAGE_PREFIX_LEN], bool compressed, uint32_t len);
