/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the one decoder of UTF-8. What does not: which characters are allowed where (policy). */

#include "base/utf8.h"

#include <string.h>

bool utf8_valid(const char *bytes, size_t len) {
        while (len > 0) {
                uint32_t code_point;
                size_t n = utf8_next(bytes, len, &code_point);

                if (n == 0)
                        return false;

                bytes += n;
                len -= n;
        }

        return true;
}

size_t utf8_next(const char *bytes, size_t len, uint32_t *ret_code_point) {
        /* By length: the bits that mark the first byte, and the smallest code point that needs so many bytes. */
        static const struct {
                uint8_t mask, mark;
                uint32_t least;
        } forms[] = {
                { 0x80, 0x00, 0 },
                { 0xe0, 0xc0, 0x80 },
                { 0xf0, 0xe0, 0x800 },
                { 0xf8, 0xf0, 0x10000 },
        };
        const uint8_t *b = (const uint8_t *) bytes;

        for (size_t n = 1; n <= 4 && n <= len; n++) {
                uint32_t code_point;

                if ((b[0] & forms[n - 1].mask) != forms[n - 1].mark)
                        continue;

                code_point = b[0] & (uint8_t) ~forms[n - 1].mask;
                for (size_t i = 1; i < n; i++) {
                        if ((b[i] & 0xc0) != 0x80)
                                return 0;
                        code_point = code_point << 6 | (b[i] & 0x3f);
                }

                if (code_point < forms[n - 1].least || code_point > 0x10ffff || (code_point & ~0x7ffu) == 0xd800)
                        return 0;

                *ret_code_point = code_point;
                return n;
        }

        return 0;
}

size_t utf8_prefix(const char *text, size_t max) {
        size_t len = strnlen(text, max);

        if (len < max)
                return len;
        while (len > 0 && ((uint8_t) text[len] & 0xc0) == 0x80)
                len--;
        return len;
}
