/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: bytes to text and back. What does not: which header fields are base64 (metadata.c). */

#include "rpc/core/base64.h"

#include <errno.h>
#include <stdint.h>

#include "base/strings.h"

void base64_encode(const void *bytes, size_t len, char *ret_text) {
        static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const uint8_t *from = bytes;
        uint32_t bits = 0;
        unsigned n_bits = 0;

        for (size_t i = 0; i < len; i++) {
                bits = bits << 8 | from[i];
                for (n_bits += 8; n_bits >= 6; n_bits -= 6)
                        *ret_text++ = alphabet[bits >> (n_bits - 6) & 63];
        }

        if (n_bits > 0)
                *ret_text = alphabet[bits << (6 - n_bits) & 63];
}

/* The length of @text without its padding, which is only looked for where it may stand. */
static size_t unpadded_len(const char *text, size_t len) {
        if (len == 0 || len % 4 != 0 || text[len - 1] != '=')
                return len;

        return text[len - 2] == '=' ? len - 2 : len - 1;
}

size_t base64_decoded_len(const char *text, size_t len) {
        len = unpadded_len(text, len);
        return len / 4 * 3 + len % 4 * 3 / 4;
}

static int value_of(char c) {
        if (ascii_is_upper(c))
                return c - 'A';
        if (ascii_is_lower(c))
                return c - 'a' + 26;
        if (ascii_is_digit(c))
                return c - '0' + 52;

        return c == '+' ? 62 : c == '/' ? 63 : -EINVAL;
}

int base64_decode(const char *text, size_t len, void *ret_bytes) {
        uint8_t *to = ret_bytes;
        uint32_t bits = 0;
        unsigned n_bits = 0;

        len = unpadded_len(text, len);
        if (len % 4 == 1)
                return -EINVAL;

        for (size_t i = 0; i < len; i++) {
                int value = value_of(text[i]);

                if (value < 0)
                        return value;

                bits = bits << 6 | (uint32_t) value;
                n_bits += 6;
                if (n_bits >= 8) {
                        n_bits -= 8;
                        *to++ = (uint8_t) (bits >> n_bits);
                }
        }

        return 0;
}
