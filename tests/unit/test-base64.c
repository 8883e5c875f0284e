/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/base64.h"

#include <errno.h>
#include <string.h>

#include "test.h"

/* The examples of RFC 4648 §10, and the ends of the alphabet. */
static const struct {
        const char *bytes;
        size_t len;
        const char *text, *padded;
} examples[] = {
        { "", 0, "", "" },
        { "f", 1, "Zg", "Zg==" },
        { "fo", 2, "Zm8", "Zm8=" },
        { "foo", 3, "Zm9v", "Zm9v" },
        { "foob", 4, "Zm9vYg", "Zm9vYg==" },
        { "fooba", 5, "Zm9vYmE", "Zm9vYmE=" },
        { "foobar", 6, "Zm9vYmFy", "Zm9vYmFy" },
        { "\0\0\0", 3, "AAAA", "AAAA" },
        { "\xff\xff\xff", 3, "////", "////" },
        { "\xfb\xef\xbe", 3, "++++", "++++" },
        { "\xff", 1, "/w", "/w==" },
};

#define N_EXAMPLES (sizeof(examples) / sizeof(examples[0]))

/* Decodes into memory of the exact size, so that a byte too many is found. */
static int decode(const char *text, size_t len, uint8_t **ret_bytes, size_t *ret_len) {
        *ret_len = base64_decoded_len(text, len);
        assert_true(*ret_len <= len);
        *ret_bytes = new0(uint8_t, *ret_len);
        return base64_decode(text, len, *ret_bytes);
}

static void encodes_without_padding(void **state) {
        for (size_t i = 0; i < N_EXAMPLES; i++) {
                char text[16] = {};

                assert_int_equal(base64_encoded_len(examples[i].len), strlen(examples[i].text));
                base64_encode(examples[i].bytes, examples[i].len, text);
                assert_string_equal(text, examples[i].text);
        }
}

static void decodes_with_and_without_padding(void **state) {
        for (size_t i = 0; i < N_EXAMPLES; i++)
                for (int padded = 0; padded <= 1; padded++) {
                        const char *text = padded ? examples[i].padded : examples[i].text;
                        _cleanup_free_ uint8_t *bytes = NULL;
                        size_t len;

                        assert_int_equal(decode(text, strlen(text), &bytes, &len), 0);
                        assert_int_equal(len, examples[i].len);
                        assert_memory_equal(bytes, examples[i].bytes, len);
                }
}

static void all_lengths_come_back(void **state) {
        uint8_t bytes[257];

        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t) (i * 167 + 13);

        for (size_t len = 0; len <= sizeof(bytes); len++) {
                _cleanup_free_ char *text = new0(char, base64_encoded_len(len));
                _cleanup_free_ uint8_t *back = NULL;
                size_t back_len;

                base64_encode(bytes, len, text);
                assert_int_equal(decode(text, base64_encoded_len(len), &back, &back_len), 0);
                assert_int_equal(back_len, len);
                assert_memory_equal(back, bytes, len);
        }
}

static void exactly_the_alphabet_is_read(void **state) {
        static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

        for (int c = 0; c < 256; c++) {
                const char *place = c > 0 ? strchr(alphabet, c) : NULL;
                char text[4] = { 'A', 'A', 'A', (char) c };
                uint8_t bytes[3];

                if (c == '=')
                        continue;
                assert_int_equal(base64_decode(text, 4, bytes), place ? 0 : -EINVAL);
                if (place)
                        assert_int_equal(bytes[2], place - alphabet);
        }
}

static void malformed_texts_are_refused(void **state) {
        static const char *const malformed[] = {
                "A",     "AAAAA", "=",     "==",    "===",  "====",     "A=",    "A==",    "A===",       "AA=",
                "AAA==", "AAAA=", "AA=A",  "AAA=A", "A=AA", "AAAA====", "AA==A", "=AAA",   "AA==AA==",   "AAA=AAAA",
                " AAA",  "AA A",  "AAA\n", "AAA ",  "AA-_", "AAA,",     "AA%3D", "AAAA=A", "AA\xc3\xa9",
        };

        for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
                _cleanup_free_ uint8_t *bytes = NULL;
                size_t len;

                if (decode(malformed[i], strlen(malformed[i]), &bytes, &len) != -EINVAL)
                        fail_msg("'%s' is read", malformed[i]);
        }
        assert_int_equal(base64_decode("AA\0A", 4, (uint8_t[3]){}), -EINVAL);
}

static void bits_of_no_byte_are_ignored(void **state) {
        static const char *const texts[] = { "/w", "/x", "//", "/w==", "//==" };

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                _cleanup_free_ uint8_t *bytes = NULL;
                size_t len;

                assert_int_equal(decode(texts[i], strlen(texts[i]), &bytes, &len), 0);
                assert_int_equal(len, 1);
                assert_int_equal(bytes[0], 0xff);
        }
}

static void nothing_may_be_null(void **state) {
        base64_encode(NULL, 0, NULL);
        assert_int_equal(base64_decoded_len(NULL, 0), 0);
        assert_int_equal(base64_decode(NULL, 0, NULL), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(encodes_without_padding),     cmocka_unit_test(decodes_with_and_without_padding),
                cmocka_unit_test(all_lengths_come_back),       cmocka_unit_test(exactly_the_alphabet_is_read),
                cmocka_unit_test(malformed_texts_are_refused), cmocka_unit_test(bits_of_no_byte_are_ignored),
                cmocka_unit_test(nothing_may_be_null),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
