/* SPDX-License-Identifier: Apache-2.0 */

#include "base/utf8.h"

#include <string.h>

#include "test.h"

/* Encodes without looking, so that also what must be refused can be made. Returns the length. */
static size_t encode(uint32_t code_point, size_t len, char ret_bytes[static 4]) {
        static const uint8_t marks[] = { 0x00, 0x00, 0xc0, 0xe0, 0xf0 };

        for (size_t i = len; i-- > 1; code_point >>= 6)
                ret_bytes[i] = (char) (0x80 | (code_point & 0x3f));
        ret_bytes[0] = (char) (marks[len] | code_point);
        return len;
}

static size_t shortest(uint32_t code_point) {
        return code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
}

static void every_code_point_in_its_shortest_form_and_no_other(void **state) {
        for (uint32_t c = 0; c <= 0x1fffff; c++) {
                bool good = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);

                for (size_t n = shortest(c); n <= 4; n++) {
                        char bytes[4];
                        uint32_t decoded = 0xdead;
                        size_t len = encode(c, n, bytes), expected = good && n == shortest(c) ? n : 0;

                        if (utf8_next(bytes, len, &decoded) != expected || decoded != (expected ? c : 0xdead))
                                fail_msg("U+%04X in %zu bytes", c, n);
                        if (utf8_valid(bytes, len) != (expected > 0))
                                fail_msg("U+%04X in %zu bytes is%s valid", c, n, expected ? " not" : "");
                }
        }
}

static void cut_and_stray_bytes_are_malformed(void **state) {
        static const char *const malformed[] = {
                "\x80",  "\xbf",      "\xc3",      "\xe2\x82",      "\xf0\x9f\x92",
                "\xc3(", "\xe2(\xac", "\xe2\x82(", "\xf0\x9f\x92(", "\xf8\x88\x80\x80\x80",
                "\xfe",  "\xff",
        };
        uint32_t c;

        for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
                assert_int_equal(utf8_next(malformed[i], strlen(malformed[i]), &c), 0);
                assert_false(utf8_valid(malformed[i], strlen(malformed[i])));
        }
}

static void one_bad_byte_spoils_the_text(void **state) {
        char text[] = "h\u00fc\u20ac\U0001f407!";

        assert_true(utf8_valid(text, strlen(text)));
        assert_true(utf8_valid("a\0b", 3));
        text[strlen(text) - 1] = '\xff';
        assert_false(utf8_valid(text, strlen(text)));
}

static void nothing_is_valid_but_has_no_first_character(void **state) {
        uint32_t c;

        assert_true(utf8_valid(NULL, 0));
        assert_int_equal(utf8_next(NULL, 0, &c), 0);
}

static void a_text_is_cut_between_characters(void **state) {
        assert_int_equal(utf8_prefix("", 0), 0);
        assert_int_equal(utf8_prefix("abc", 2), 2);
        assert_int_equal(utf8_prefix("abc", 3), 3);
        assert_int_equal(utf8_prefix("abc", 9), 3);
        assert_int_equal(utf8_prefix("a\u20acb", 2), 1);
        assert_int_equal(utf8_prefix("a\u20acb", 3), 1);
        assert_int_equal(utf8_prefix("a\u20acb", 4), 4);
        assert_int_equal(utf8_prefix("\U0001f407", 3), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_code_point_in_its_shortest_form_and_no_other),
                cmocka_unit_test(cut_and_stray_bytes_are_malformed),
                cmocka_unit_test(one_bad_byte_spoils_the_text),
                cmocka_unit_test(nothing_is_valid_but_has_no_first_character),
                cmocka_unit_test(a_text_is_cut_between_characters),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
