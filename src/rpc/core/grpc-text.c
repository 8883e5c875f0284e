/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the forms of gRPC's own header values. What does not: which header fields there are, which the
 * sessions know. */

#include "rpc/core/grpc-text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "base/utf8.h"

#define TIMEOUT_DIGITS_MAX 8
#define TIMEOUT_VALUE_MAX 99999999

/* From the finest on. */
static const struct {
        char name;
        uint64_t ns;
} timeout_units[] = {
        { 'n', 1 },
        { 'u', NSEC_PER_USEC },
        { 'm', NSEC_PER_MSEC },
        { 'S', NSEC_PER_SEC },
        { 'M', 60 * NSEC_PER_SEC },
        { 'H', 3600 * NSEC_PER_SEC },
};

#define N_TIMEOUT_UNITS (sizeof(timeout_units) / sizeof(timeout_units[0]))

int grpc_timeout_parse(const char *text, size_t len, uint64_t *ret_ns) {
        uint64_t value = 0;

        if (len < 2 || len > TIMEOUT_DIGITS_MAX + 1)
                return -EINVAL;

        for (size_t i = 0; i < len - 1; i++) {
                if (!ascii_is_digit(text[i]))
                        return -EINVAL;
                value = 10 * value + (uint64_t) (text[i] - '0');
        }

        for (size_t i = 0; i < N_TIMEOUT_UNITS; i++)
                if (timeout_units[i].name == text[len - 1]) {
                        if (__builtin_mul_overflow(value, timeout_units[i].ns, ret_ns))
                                *ret_ns = UINT64_MAX;
                        return 0;
                }

        return -EINVAL;
}

size_t grpc_timeout_format(uint64_t ns, char ret_text[static GRPC_TIMEOUT_SIZE]) {
        uint64_t value = ns > 0 ? ns : 1;
        size_t unit = 0;

        /* In hours everything fits. */
        while (value > TIMEOUT_VALUE_MAX) {
                unit++;
                value = ns / timeout_units[unit].ns + (ns % timeout_units[unit].ns > 0);
        }

        return (size_t) snprintf(ret_text, GRPC_TIMEOUT_SIZE, "%u%c", (unsigned) value, timeout_units[unit].name);
}

/* Tells whether the byte at @i cannot stand for itself. */
static bool needs_escape(const char *message, size_t len, size_t i) {
        if (message[i] == ' ')
                return i == 0 || i == len - 1;

        return message[i] <= 0x20 || message[i] > 0x7e || message[i] == '%';
}

size_t grpc_message_encode(const char *message, size_t len, char *ret_text, size_t size) {
        static const char hex[] = "0123456789ABCDEF";
        size_t n = 0;

        for (size_t i = 0; i < len;) {
                uint32_t code_point;
                size_t char_len = utf8_next(message + i, len - i, &code_point);
                size_t end = i + (char_len > 0 ? char_len : 1), room = 0;

                for (size_t j = i; j < end; j++)
                        room += needs_escape(message, len, j) ? 3 : 1;

                if (room > size - n) {
                        /* What is last now may not be a space either. */
                        while (n > 0 && ret_text[n - 1] == ' ')
                                n--;
                        return n;
                }

                for (; i < end; i++) {
                        uint8_t byte = (uint8_t) message[i];

                        if (needs_escape(message, len, i)) {
                                ret_text[n++] = '%';
                                ret_text[n++] = hex[byte >> 4];
                                ret_text[n++] = hex[byte & 15];
                        } else
                                ret_text[n++] = message[i];
                }
        }

        return n;
}

static int hex_value(char c) {
        if (ascii_is_digit(c))
                return c - '0';

        c = ascii_lower(c);
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that @text, which is not empty, begins with, as it is or escaped. Returns how many characters it takes. */
static size_t next_byte(const char *text, size_t len, char *ret_byte) {
        int high = len >= 3 && text[0] == '%' ? hex_value(text[1]) : -1, low = high >= 0 ? hex_value(text[2]) : -1;

        if (low >= 0) {
                *ret_byte = (char) (high << 4 | low);
                return 3;
        }

        *ret_byte = text[0];
        return 1;
}

/* The first character of @text, which is not empty, once decoded. Returns how much of @text it takes. */
static size_t next_char(const char *text, size_t len, char ret_char[static 4], size_t *ret_char_len) {
        static const char replacement[] = { '\xef', '\xbf', '\xbd' }; /* U+FFFD */
        size_t ends[4], n_bytes = 0, end = 0, char_len;
        uint32_t code_point;

        do {
                end += next_byte(text + end, len - end, &ret_char[n_bytes]);
                ends[n_bytes++] = end;
        } while (n_bytes < 4 && end < len);

        char_len = utf8_next(ret_char, n_bytes, &code_point);
        if (char_len > 0) {
                *ret_char_len = char_len;
                return ends[char_len - 1];
        }

        memcpy(ret_char, replacement, sizeof(replacement));
        *ret_char_len = sizeof(replacement);
        return ends[0];
}

size_t grpc_message_decode(const char *text, size_t len, char *ret_message, size_t size) {
        size_t n = 0, i = 0;

        while (i < len) {
                char c[4];
                size_t char_len;

                i += next_char(text + i, len - i, c, &char_len);
                if (char_len >= size - n)
                        break;

                memcpy(ret_message + n, c, char_len);
                n += char_len;
        }

        ret_message[n] = '\0';
        return n;
}

int grpc_content_type_check(const char *value, size_t len) {
        static const char base[] = "application/grpc", proto[] = "+proto";
        const char *parameters = len > 0 ? memchr(value, ';', len) : NULL;

        if (parameters)
                len = (size_t) (parameters - value);

        if (len < strlen(base) || memcmp(value, base, strlen(base)) != 0)
                return -EINVAL;

        value += strlen(base);
        len -= strlen(base);
        if (len == 0 || (len == strlen(proto) && memcmp(value, proto, len) == 0))
                return 0;

        return value[0] == '+' ? -EOPNOTSUPP : -EINVAL;
}

int grpc_path_split(const char *path, size_t len, GrpcPath *ret_path) {
        const char *slash = len > 1 && path[0] == '/' ? memchr(path + 1, '/', len - 1) : NULL;
        GrpcPath parts;

        if (!slash)
                return -EINVAL;

        parts = (GrpcPath){ .service = path + 1, .method = slash + 1 };
        parts.service_len = (size_t) (slash - parts.service);
        parts.method_len = len - parts.service_len - 2;
        if (parts.service_len == 0 || parts.method_len == 0 || memchr(parts.method, '/', parts.method_len))
                return -EINVAL;

        *ret_path = parts;
        return 0;
}
