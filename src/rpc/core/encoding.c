/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: names of encodings, and undoing them. What does not: gzip itself (gzip.c). */

#include "rpc/core/encoding.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/core/gzip.h"
#include "rpc/core/message-reader.h"

static bool is(const char *value, size_t len, const char *name) {
        return len == strlen(name) && memcmp(value, name, len) == 0;
}

Encoding encoding_parse(const char *value, size_t len) {
        if (is(value, len, "identity"))
                return ENCODING_IDENTITY;

        return is(value, len, "gzip") ? ENCODING_GZIP : ENCODING_UNKNOWN;
}

bool encoding_accepts_gzip(const char *value, size_t len) {
        const char *end = value + len;

        while (value < end) {
                const char *comma = memchr(value, ',', (size_t) (end - value));
                const char *stop = comma ? comma : end;

                while (value < stop && *value == ' ')
                        value++;
                if (is(value, (size_t) (stop - value), "gzip"))
                        return true;
                value = stop + 1;
        }

        return false;
}

int encoding_unpack(Encoding encoding, Message *message, size_t len_max) {
        uint8_t *data;
        size_t len;
        int r;

        if (!message->compressed)
                return 0;
        if (encoding != ENCODING_GZIP)
                return -EBADMSG;

        r = gzip_decompress(message->data, message->len, len_max, &data, &len);
        if (r < 0)
                return r;

        free(message->data);
        *message = (Message){ .data = data, .len = len, .size = len };
        return 0;
}
