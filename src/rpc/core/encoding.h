/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The ways in which the messages of a call may be compressed. */

typedef struct Message Message;

typedef enum Encoding {
        ENCODING_IDENTITY, /* not at all */
        ENCODING_GZIP,
        ENCODING_UNKNOWN,
} Encoding;

#define ENCODINGS "identity,gzip" /* those we read, as grpc-accept-encoding has them */

/* Reads the value of grpc-encoding. */
Encoding encoding_parse(const char *value, size_t len);

/* Tells whether gzip is in the value of grpc-accept-encoding. */
bool encoding_accepts_gzip(const char *value, size_t len);

/* Undoes the compression of @message, if it has one. -EBADMSG: it is not what @encoding makes; -EMSGSIZE: it has more
 * than @len_max bytes; -ENOMEM. */
int encoding_unpack(Encoding encoding, Message *message, size_t len_max) __attribute__((nonnull));
