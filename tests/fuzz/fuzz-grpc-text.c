/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a text, which is read as a timeout, as a message, as a content type and as a path. */

#include "rpc/core/grpc-text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is written is read as the same time, or a little more when it has more than eight digits. */
static void check_timeout_is_kept(uint64_t ns) {
        char text[GRPC_TIMEOUT_SIZE];
        size_t len = grpc_timeout_format(ns, text);
        uint64_t back;

        assert(strlen(text) == len && len <= 9);
        assert(grpc_timeout_parse(text, len, &back) == 0);
        assert(back >= ns);
        assert(back - ns <= ns / 100000 + 1);
}

static void check_timeout(const char *text, size_t len) {
        uint64_t ns = 0;

        if (grpc_timeout_parse(text, len, &ns) == 0)
                check_timeout_is_kept(ns);

        memcpy(&ns, text, len < sizeof(ns) ? len : sizeof(ns));
        check_timeout_is_kept(ns);
}

static void check_is_field_value(const char *text, size_t len) {
        for (size_t i = 0; i < len; i++)
                assert(text[i] >= 0x20 && text[i] <= 0x7e);
        assert(len == 0 || (text[0] != ' ' && text[len - 1] != ' '));
}

/* However little room there is, what is written begins the whole, and ends between two characters. */
static void check_cuts(const char *message, size_t len, const char *encoded, size_t encoded_len) {
        size_t sizes[] = { 0, 1, len / 2, len, encoded_len / 2, encoded_len > 0 ? encoded_len - 1 : 0 };

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                _cleanup_free_ char *text = new0(char, sizes[i]), *cut = new0(char, sizes[i] + 1);
                size_t n = grpc_message_encode(message, len, text, sizes[i]);

                assert(n <= sizes[i] && memcmp(text, encoded, n) == 0);
                check_is_field_value(text, n);

                n = grpc_message_decode(encoded, encoded_len, cut, sizes[i] + 1);
                assert(n <= sizes[i] && cut[n] == '\0' && utf8_valid(cut, n));
                assert(n <= len && memcmp(cut, message, n) == 0);
        }
}

/* UTF-8 that is written is read as the same. */
static void check_message_is_kept(const char *message, size_t len) {
        _cleanup_free_ char *encoded = new0(char, 3 * len), *back = new0(char, len + 1);
        size_t encoded_len = grpc_message_encode(message, len, encoded, 3 * len);

        assert(encoded_len >= len);
        check_is_field_value(encoded, encoded_len);
        assert(grpc_message_decode(encoded, encoded_len, back, len + 1) == len);
        assert(memcmp(back, message, len) == 0);
        check_cuts(message, len, encoded, encoded_len);
}

/* The rule in two steps: escapes become bytes, then what is not UTF-8 is replaced. */
static char *decoded_simply(const char *text, size_t len, size_t *ret_len) {
        _cleanup_free_ char *bytes = new0(char, len);
        _cleanup_(string_builder_clear) StringBuilder message = {};
        size_t n_bytes = 0;

        for (size_t i = 0; i < len; i++)
                if (len - i >= 3 && text[i] == '%' && isxdigit((uint8_t) text[i + 1]) &&
                    isxdigit((uint8_t) text[i + 2])) {
                        const char digits[] = { text[i + 1], text[i + 2], '\0' };

                        bytes[n_bytes++] = (char) strtoul(digits, NULL, 16);
                        i += 2;
                } else
                        bytes[n_bytes++] = text[i];

        for (size_t i = 0; i < n_bytes;) {
                uint32_t code_point;
                size_t n = utf8_next(bytes + i, n_bytes - i, &code_point);

                string_builder_append_bytes(&message, n > 0 ? bytes + i : "\ufffd", n > 0 ? n : 3);
                i += n > 0 ? n : 1;
        }

        *ret_len = message.len;
        return string_builder_take(&message);
}

static void check_message(const char *text, size_t len) {
        _cleanup_free_ char *message = new0(char, 3 * len + 1), *encoded = new0(char, 3 * len), *expected = NULL;
        size_t n = grpc_message_decode(text, len, message, 3 * len + 1), expected_len;

        expected = decoded_simply(text, len, &expected_len);
        assert(n == expected_len && memcmp(message, expected, n + 1) == 0);
        assert(n <= 3 * len && utf8_valid(message, n));
        check_message_is_kept(message, n);

        /* Bytes of any kind become a field's value. */
        check_is_field_value(encoded, grpc_message_encode(text, len, encoded, 3 * len));
}

static void check_content_type(const char *text, size_t len) {
        int r = grpc_content_type_check(text, len);

        assert(r == 0 || r == -EINVAL || r == -EOPNOTSUPP);
        if (r != -EINVAL)
                assert(len >= 16 && memcmp(text, "application/grpc", 16) == 0);
        if (r == -EOPNOTSUPP)
                assert(text[16] == '+');
}

static void check_path(const char *text, size_t len) {
        GrpcPath path;

        if (grpc_path_split(text, len, &path) < 0)
                return;

        assert(path.service == text + 1 && text[0] == '/');
        assert(path.service_len > 0 && path.service[path.service_len] == '/');
        assert(path.method == path.service + path.service_len + 1);
        assert(path.method_len > 0 && path.method + path.method_len == text + len);
        assert(!memchr(path.service, '/', path.service_len) && !memchr(path.method, '/', path.method_len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *text = (const char *) data;

        if (size == 0)
                return 0;

        check_timeout(text, size);
        check_message(text, size);
        check_content_type(text, size);
        check_path(text, size);
        return 0;
}
