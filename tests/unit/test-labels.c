/* SPDX-License-Identifier: Apache-2.0 */

#include "model/labels.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/strings.h"
#include "test.h"

typedef int (*Check)(const char *text, size_t len, HutchError *err);

static void expect(Check check, const char *text, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        int r = check(text, strlen(text), &err);

        if (!reason && r != 0)
                fail_msg("'%s' is refused: %s", text, error_message(&err));
        if (reason && (r != -EINVAL || err.code != STATUS_INVALID_ARGUMENT || !str_equal(err.reason, reason)))
                fail_msg("'%s' gives %d %s instead of %s", text, r, err.reason, reason);
}

/* @before, @n times "a", @after. */
static const char *with_run(const char *before, int n, const char *after) {
        static const char run[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        static char text[400];

        snprintf(text, sizeof(text), "%s%.*s%s", before, n, run, after);
        return text;
}

#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A192 A63 "." A63 "." A63 "."

static void key_is_a_name_or_a_prefix_and_a_name(void **state) {
        expect(label_key_check, "a", NULL);
        expect(label_key_check, "App_1.x-Y", NULL);
        expect(label_key_check, "example.com/app", NULL);
        expect(label_key_check, "x/y", NULL);
        expect(label_key_check, "0/0", NULL);

        expect(label_key_check, "", "LABEL_MALFORMED");
        expect(label_key_check, "/", "LABEL_MALFORMED");
        expect(label_key_check, "a/", "LABEL_MALFORMED");
        expect(label_key_check, "/a", "LABEL_MALFORMED");
        expect(label_key_check, "a/b/c", "LABEL_MALFORMED");
        expect(label_key_check, "a b", "LABEL_MALFORMED");
        expect(label_key_check, "-a", "LABEL_MALFORMED");
        expect(label_key_check, "a.", "LABEL_MALFORMED");
        expect(label_key_check, "\xc3\xa4", "LABEL_MALFORMED");
        assert_int_equal(label_key_check("a\0b", 3, NULL), -EINVAL);
}

static void name_has_at_most_63_characters(void **state) {
        expect(label_key_check, with_run("", 63, ""), NULL);
        expect(label_key_check, with_run("", 64, ""), "LABEL_MALFORMED");
        expect(label_key_check, with_run("x/", 63, ""), NULL);
        expect(label_key_check, with_run("x/", 64, ""), "LABEL_MALFORMED");
        expect(label_value_check, with_run("", 63, ""), NULL);
        expect(label_value_check, with_run("", 64, ""), "LABEL_MALFORMED");
}

static void prefix_is_a_lower_case_dns_name(void **state) {
        expect(label_key_check, "a-b.c/x", NULL);
        expect(label_key_check, "Example.com/x", "LABEL_MALFORMED");
        expect(label_key_check, "a_b/x", "LABEL_MALFORMED");
        expect(label_key_check, "-a.b/x", "LABEL_MALFORMED");
        expect(label_key_check, "a-.b/x", "LABEL_MALFORMED");
        expect(label_key_check, "a..b/x", "LABEL_MALFORMED");
        expect(label_key_check, ".a/x", "LABEL_MALFORMED");
        expect(label_key_check, "a./x", "LABEL_MALFORMED");
        expect(label_key_check, with_run("", 63, "/x"), NULL);
        expect(label_key_check, with_run("", 64, "/x"), "LABEL_MALFORMED");
}

static void prefix_has_at_most_253_characters(void **state) {
        expect(label_key_check, with_run(A192, 61, "/x"), NULL);
        expect(label_key_check, with_run(A192, 62, "/x"), "LABEL_MALFORMED");
}

static void value_is_empty_or_like_a_name(void **state) {
        expect(label_value_check, "", NULL);
        expect(label_value_check, "A.b_c-9", NULL);
        expect(label_value_check, "a/b", "LABEL_MALFORMED");
        expect(label_value_check, " ", "LABEL_MALFORMED");
        expect(label_value_check, "-", "LABEL_MALFORMED");
        assert_int_equal(label_value_check("\0", 1, NULL), -EINVAL);
}

static void callers_cannot_set_the_daemons_labels(void **state) {
        expect(label_key_check_caller, "hutch/owner", "LABEL_RESERVED");
        expect(label_key_check_caller, "hutch/-", "LABEL_MALFORMED");
        expect(label_key_check_caller, "hutch", NULL);
        expect(label_key_check_caller, "hutch.dev/owner", NULL);
        expect(label_key_check_caller, "hutchling/owner", NULL);
        expect(label_key_check_caller, "a.hutch/owner", NULL);
        expect(label_key_check, "hutch/owner", NULL);
}

static void object_has_at_most_64_labels(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(label_count_check(64, &err), 0);
        assert_int_equal(label_count_check(65, &err), -EINVAL);
        assert_string_equal(err.reason, "LABELS_TOO_MANY");
        assert_int_equal(err.n_pairs, 2);
        assert_string_equal(err.pairs[0].value, "labels");
        assert_string_equal(err.pairs[1].value, "64");
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "labels.json") {
                _cleanup_(error_clear) HutchError err = {};
                size_t key_len, value_len;
                const char *key = vector_bytes(v, "key", &key_len), *value = vector_bytes(v, "value", &value_len);
                int r;

                r = label_key_check_caller(key, key_len, &err);
                if (r >= 0)
                        r = label_value_check(value, value_len, &err);
                vector_assert_result(v, r, &err);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(key_is_a_name_or_a_prefix_and_a_name),
                cmocka_unit_test(name_has_at_most_63_characters),
                cmocka_unit_test(prefix_is_a_lower_case_dns_name),
                cmocka_unit_test(prefix_has_at_most_253_characters),
                cmocka_unit_test(value_is_empty_or_like_a_name),
                cmocka_unit_test(callers_cannot_set_the_daemons_labels),
                cmocka_unit_test(object_has_at_most_64_labels),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
