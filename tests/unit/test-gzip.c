/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/gzip.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "fail-alloc.h"
#include "test.h"

/* "hello hello hello hello\n", as gzip(1) makes it. */
static const uint8_t hello[] = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x27\xb9\x00"
                               "\x00\x88\x59\x0b\x18\x00\x00\x00";
static const char hello_text[] = "hello hello hello hello\n";

/* Bytes that do not compress, or do so by a factor of about a thousand. */
static uint8_t *made(size_t len, bool random) {
        uint8_t *bytes = malloc(len + 1);
        uint32_t x = 1;

        assert_non_null(bytes);
        for (size_t i = 0; i < len; i++) {
                x = x * 1664525 + 1013904223;
                bytes[i] = random ? (uint8_t) (x >> 24) : 'a';
        }

        return bytes;
}

static void assert_comes_back(size_t len, bool random) {
        _cleanup_free_ uint8_t *bytes = made(len, random), *packed = NULL, *unpacked = NULL;
        size_t packed_len, unpacked_len;

        assert_int_equal(gzip_compress(bytes, len, &packed, &packed_len), 0);
        assert_int_equal(gzip_decompress(packed, packed_len, len, &unpacked, &unpacked_len), 0);
        assert_non_null(unpacked);
        assert_int_equal(unpacked_len, len);
        assert_memory_equal(unpacked, bytes, len);
        if (!random && len >= 1000)
                assert_true(packed_len < len / 10);
}

static void what_was_compressed_comes_back(void **state) {
        static const size_t lens[] = { 0, 1, 2, 100, 1000, 32767, 32768, 65536, 100000, 1 << 20 };

        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
                assert_comes_back(lens[i], false);
                assert_comes_back(lens[i], true);
        }
}

static void nothing_may_be_null(void **state) {
        _cleanup_free_ uint8_t *packed = NULL;
        size_t packed_len;

        assert_int_equal(gzip_compress(NULL, 0, &packed, &packed_len), 0);
        assert_true(packed_len >= 18);
        assert_int_equal(gzip_decompress(NULL, 0, 100, &packed, &packed_len), -EBADMSG);
}

static void what_gzip_made_is_read(void **state) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(gzip_decompress(hello, sizeof(hello) - 1, 100, &bytes, &len), 0);
        assert_int_equal(len, strlen(hello_text));
        assert_memory_equal(bytes, hello_text, len);
}

static void the_limit_holds_to_the_byte(void **state) {
        static const size_t lens[] = { 1, 100, 4095, 4096, 4097, 100000 };

        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
                for (int random = 0; random <= 1; random++) {
                        _cleanup_free_ uint8_t *bytes = made(lens[i], random), *packed = NULL, *unpacked = NULL;
                        size_t packed_len, len = 7;

                        assert_int_equal(gzip_compress(bytes, lens[i], &packed, &packed_len), 0);
                        assert_int_equal(gzip_decompress(packed, packed_len, lens[i] - 1, &unpacked, &len), -EMSGSIZE);
                        assert_int_equal(gzip_decompress(packed, packed_len, 0, &unpacked, &len), -EMSGSIZE);
                        assert_null(unpacked);
                        assert_int_equal(len, 7);
                        assert_int_equal(gzip_decompress(packed, packed_len, lens[i], &unpacked, &len), 0);
                }
}

static void a_message_without_limit_is_read(void **state) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(gzip_decompress(hello, sizeof(hello) - 1, SIZE_MAX, &bytes, &len), 0);
        assert_int_equal(len, strlen(hello_text));
}

static void a_bomb_takes_no_more_memory_than_its_limit(void **state) {
        _cleanup_free_ uint8_t *bytes = made(10 << 20, false), *packed = NULL, *unpacked = NULL;
        size_t packed_len, len;

        assert_int_equal(gzip_compress(bytes, 10 << 20, &packed, &packed_len), 0);
        assert_true(packed_len < 11000);

        fail_alloc_above(100001);
        assert_int_equal(gzip_decompress(packed, packed_len, 100000, &unpacked, &len), -EMSGSIZE);
        assert_false(fail_alloc_happened());
        fail_alloc_off();
}

static void memory_follows_the_output_and_not_the_limit(void **state) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(gzip_decompress(hello, sizeof(hello) - 1, 1 << 30, &bytes, &len), 0);
        assert_true(malloc_usable_size(bytes) < 1000);
}

static void every_truncation_is_refused(void **state) {
        for (size_t n = 0; n < sizeof(hello) - 1; n++) {
                _cleanup_free_ uint8_t *cut = new0(uint8_t, n + 1), *bytes = NULL;
                size_t len;

                memcpy(cut, hello, n);
                assert_int_equal(gzip_decompress(cut, n, 100, &bytes, &len), -EBADMSG);
                assert_int_equal(gzip_decompress(cut, n, strlen(hello_text), &bytes, &len), -EBADMSG);
        }
}

static void every_flipped_bit_of_data_and_trailer_is_seen(void **state) {
        for (size_t bit = 8 * 10; bit < 8 * (sizeof(hello) - 1); bit++) {
                _cleanup_free_ uint8_t *bytes = NULL;
                uint8_t damaged[sizeof(hello)];
                size_t len;
                int r;

                memcpy(damaged, hello, sizeof(hello));
                damaged[bit / 8] ^= (uint8_t) (1 << bit % 8);
                r = gzip_decompress(damaged, sizeof(hello) - 1, 1000, &bytes, &len);
                assert_true(r == -EBADMSG || r == -EMSGSIZE);
        }
}

static void anything_behind_it_is_refused(void **state) {
        uint8_t more[2 * sizeof(hello)] = {};
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        memcpy(more, hello, sizeof(hello) - 1);
        assert_int_equal(gzip_decompress(more, sizeof(hello), 100, &bytes, &len), -EBADMSG);

        memcpy(more + sizeof(hello) - 1, hello, sizeof(hello) - 1);
        assert_int_equal(gzip_decompress(more, 2 * (sizeof(hello) - 1), 100, &bytes, &len), -EBADMSG);
}

static void other_formats_are_refused(void **state) {
        static const char zlib_empty[] = "\x78\x9c\x03\x00\x00\x00\x00\x01", deflate_empty[] = "\x03\x00";
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(gzip_decompress((const uint8_t *) zlib_empty, 8, 100, &bytes, &len), -EBADMSG);
        assert_int_equal(gzip_decompress((const uint8_t *) deflate_empty, 2, 100, &bytes, &len), -EBADMSG);
        assert_int_equal(gzip_decompress((const uint8_t *) hello_text, strlen(hello_text), 100, &bytes, &len),
                         -EBADMSG);
}

static void lengths_beyond_a_message_are_refused(void **state) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        /* Not a byte of it is looked at. */
        assert_int_equal(gzip_compress(hello, (size_t) UINT32_MAX + 1, &bytes, &len), -EMSGSIZE);
        assert_int_equal(gzip_compress(hello, UINT32_MAX, &bytes, &len), -EMSGSIZE);
        assert_int_equal(gzip_decompress(hello, (size_t) UINT32_MAX + 1, 100, &bytes, &len), -EMSGSIZE);
}

static void without_memory_compressing_fails(void **state) {
        _cleanup_free_ uint8_t *bytes = made(100000, true);
        int n_failed = 0;

        FAIL_ALLOC_LOOP {
                _cleanup_free_ uint8_t *packed = NULL;
                size_t len;
                int r = gzip_compress(bytes, 100000, &packed, &len);

                /* A result that cannot be shrunk is good as it is. */
                assert_true(r == 0 || (r == -ENOMEM && fail_alloc_happened() && !packed));
                n_failed += r < 0;
        }
        assert_true(n_failed >= 2);
}

static void without_memory_decompressing_fails(void **state) {
        _cleanup_free_ uint8_t *bytes = made(100000, false), *packed = NULL;
        int n_failed = 0;
        size_t packed_len;

        assert_int_equal(gzip_compress(bytes, 100000, &packed, &packed_len), 0);
        FAIL_ALLOC_LOOP {
                _cleanup_free_ uint8_t *unpacked = NULL;
                size_t len;
                int r = gzip_decompress(packed, packed_len, 100000, &unpacked, &len);

                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
                n_failed += r < 0;
        }

        /* Its state, its window, and the result, which grew. */
        assert_true(n_failed >= 4);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_compressed_comes_back),
                cmocka_unit_test(nothing_may_be_null),
                cmocka_unit_test(what_gzip_made_is_read),
                cmocka_unit_test(the_limit_holds_to_the_byte),
                cmocka_unit_test(a_message_without_limit_is_read),
                cmocka_unit_test(a_bomb_takes_no_more_memory_than_its_limit),
                cmocka_unit_test(memory_follows_the_output_and_not_the_limit),
                cmocka_unit_test(every_truncation_is_refused),
                cmocka_unit_test(every_flipped_bit_of_data_and_trailer_is_seen),
                cmocka_unit_test(anything_behind_it_is_refused),
                cmocka_unit_test(other_formats_are_refused),
                cmocka_unit_test(lengths_beyond_a_message_are_refused),
                cmocka_unit_test(without_memory_compressing_fails),
                cmocka_unit_test(without_memory_decompressing_fails),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
