/* SPDX-License-Identifier: Apache-2.0 */

#include "base/strings.h"

#include <limits.h>
#include <string.h>

#include "test.h"

static void equal_knows_null(void **state) {
        assert_true(str_equal("a", "a"));
        assert_true(str_equal(NULL, NULL));
        assert_false(str_equal("a", "b"));
        assert_false(str_equal("a", "ab"));
        assert_false(str_equal("", NULL));
        assert_false(str_equal(NULL, ""));
}

static void prefix_and_suffix(void **state) {
        assert_true(str_has_prefix("hutch", "hu"));
        assert_true(str_has_prefix("hutch", "hutch"));
        assert_true(str_has_prefix("hutch", ""));
        assert_false(str_has_prefix("hutch", "hutchd"));
        assert_false(str_has_prefix("hutch", "ut"));

        assert_true(str_has_suffix("hutch", "ch"));
        assert_true(str_has_suffix("hutch", "hutch"));
        assert_true(str_has_suffix("hutch", ""));
        assert_false(str_has_suffix("hutch", "a hutch"));
        assert_false(str_has_suffix("hutch", "c"));
}

static void classes_are_those_of_ascii(void **state) {
        for (int i = CHAR_MIN; i <= CHAR_MAX; i++) {
                char c = (char) i;
                bool lower = i > 0 && strchr("abcdefghijklmnopqrstuvwxyz", i);
                bool upper = i > 0 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", i);
                bool digit = i > 0 && strchr("0123456789", i);

                assert_int_equal(ascii_is_lower(c), lower);
                assert_int_equal(ascii_is_upper(c), upper);
                assert_int_equal(ascii_is_digit(c), digit);
                assert_int_equal(ascii_is_alpha(c), lower || upper);
                assert_int_equal(ascii_is_alnum(c), lower || upper || digit);
                assert_int_equal(ascii_is_control(c), (i >= 0 && i < 32) || i == 127);
                assert_int_equal(ascii_lower(c), upper ? i + 32 : i);
        }
}

static void printable_texts_have_nothing_to_obey(void **state) {
        char text[] = "a\x1b[31m\n\x7f\xc2\x9b\xc3\xa4\xc2\xa0\xc2", empty[] = "";

        str_make_printable(text);
        str_make_printable(empty);
        assert_string_equal(text, "a?[31m????\xc3\xa4\xc2\xa0\xc2");
        assert_string_equal(empty, "");
}

static void builder_appends_text_bytes_and_formats(void **state) {
        _cleanup_(string_builder_clear) StringBuilder builder = {};

        string_builder_append(&builder, "a");
        string_builder_append_bytes(&builder, "b\0c", 3);
        string_builder_append_bytes(&builder, NULL, 0);
        string_builder_appendf(&builder, "%s-%d", "d", 42);

        assert_int_equal(builder.len, 8);
        assert_memory_equal(builder.text, "ab\0cd-42", 9);
}

static void builder_grows(void **state) {
        _cleanup_(string_builder_clear) StringBuilder builder = {};

        for (int i = 0; i < 1000; i++) {
                string_builder_append(&builder, "0123456789");
                string_builder_appendf(&builder, "%0*d", i % 200, 0);
                assert_int_equal(strlen(builder.text), builder.len);
        }

        assert_true(str_has_prefix(builder.text, "01234567890"));
}

static void builder_hands_over_and_starts_again(void **state) {
        _cleanup_(string_builder_clear) StringBuilder builder = {};
        _cleanup_free_ char *first = NULL, *second = NULL;

        string_builder_append(&builder, "first");
        first = string_builder_take(&builder);
        second = string_builder_take(&builder);

        assert_string_equal(first, "first");
        assert_string_equal(second, "");
        assert_int_equal(builder.len, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(equal_knows_null),
                cmocka_unit_test(prefix_and_suffix),
                cmocka_unit_test(classes_are_those_of_ascii),
                cmocka_unit_test(printable_texts_have_nothing_to_obey),
                cmocka_unit_test(builder_appends_text_bytes_and_formats),
                cmocka_unit_test(builder_grows),
                cmocka_unit_test(builder_hands_over_and_starts_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
