/* SPDX-License-Identifier: Apache-2.0 */

#include "model/selector.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "base/strings.h"
#include "test.h"

static const Label labels[] = {
        { "app", "web" }, { "tier", "" }, { "example.com/team", "red" }, { "in", "notin" }, { "hutch/owner", "1000" },
};

#define N_LABELS (sizeof(labels) / sizeof(labels[0]))

static bool matches(const char *text) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        _cleanup_(error_clear) HutchError err = {};

        if (selector_parse(text, strlen(text), &selector, &err) < 0)
                fail_msg("'%s' is refused: %s", text, error_message(&err));

        return selector_matches(selector, labels, N_LABELS);
}

static void expect_refusal_of_bytes(const char *text, size_t len) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        _cleanup_(error_clear) HutchError err = {};
        int r = selector_parse(text, len, &selector, &err);

        if (r != -EINVAL || selector || !str_equal(err.reason, "SELECTOR_MALFORMED"))
                fail_msg("'%s' gives %d %s", text, r, err.reason);
}

static void expect_refusal(const char *text) {
        expect_refusal_of_bytes(text, strlen(text));
}

static void requirements_are_about_presence_and_values(void **state) {
        assert_true(matches("app"));
        assert_false(matches("!app"));
        assert_false(matches("ap"));
        assert_false(matches("appp"));
        assert_true(matches("!other"));
        assert_true(matches("app=web"));
        assert_true(matches("app==web"));
        assert_false(matches("app=we"));
        assert_false(matches("app=webs"));
        assert_false(matches("app=Web"));
        assert_false(matches("app!=web"));
        assert_true(matches("app!=api"));
        assert_true(matches("app in (api,web)"));
        assert_false(matches("app in (api)"));
        assert_false(matches("app notin (api,web)"));
        assert_true(matches("app notin (api)"));
        assert_true(matches("example.com/team=red"));
        assert_true(matches("hutch/owner=1000"));
}

static void all_requirements_must_hold(void **state) {
        assert_true(matches("app=web,tier,!other,in"));
        assert_false(matches("app=web,tier,other"));
        assert_false(matches("app=api,tier"));
        assert_false(matches("app in (web),app notin (web)"));
}

static void negations_hold_where_the_key_is_absent(void **state) {
        assert_true(matches("other!=x"));
        assert_true(matches("other!="));
        assert_true(matches("other notin (x,y)"));
        assert_false(matches("other=x"));
        assert_false(matches("other="));
        assert_false(matches("other in (x)"));
}

static void empty_value_is_a_value(void **state) {
        assert_true(matches("tier="));
        assert_true(matches("tier=="));
        assert_false(matches("tier!="));
        assert_false(matches("app="));
        assert_true(matches("app!="));
        assert_true(matches("tier=,app"));
}

static void operators_are_words_elsewhere(void **state) {
        assert_true(matches("in"));
        assert_true(matches("in=notin"));
        assert_true(matches("in in (in,notin)"));
        assert_true(matches("in notin (in)"));
        assert_true(matches("!notin"));
        assert_true(matches("app,in,app notin (in)"));
}

static void spaces_stand_between_tokens(void **state) {
        assert_true(matches("  app = web ,  ! other , app   in  ( web , api ) "));
        assert_true(matches("app in(web)"));
        assert_true(matches("tier = "));
        assert_true(matches("tier = , app"));
        expect_refusal("app ! = web");
        expect_refusal("app = = web");
        expect_refusal("app\t=web");
        expect_refusal("app=web\n");
        expect_refusal("a pp");
        expect_refusal("appin (web)");
}

static void other_forms_are_refused(void **state) {
        static const char *const texts[] = {
                ",",
                "app,",
                ",app",
                "app,,tier",
                "app,,",
                "!",
                "!!app",
                "!app=web",
                "!app in(a)",
                "=web",
                "!=web",
                "app=web=x",
                "app===web",
                "app=!web",
                "app!web",
                "app<5",
                "app>5",
                "app~web",
                "app in",
                "app notin",
                "app in web",
                "app in ()",
                "app in (",
                "app in (web",
                "app in )",
                "app in (,",
                "app in (,)",
                "app in (web,",
                "app in (web,)",
                "app in (,web)",
                "in (web)",
                "(app)",
                "app)",
                "app in (web))",
                "app in ((web))",
                "app in (web)(x)",
                "app IN (a)",
                "app exists",
                "app=web tier",
                "app in (a) tier",
                "app in (a b)",
                "app='web'",
                "app=\"w\"",
                "app=a/b",
                "app=-",
                "-app",
                "a/b/c",
                "Example.com/a",
                "app;tier",
                "app&tier",
                "*",
                "app=*",
                "app=\xc3\xa4",
                "app\x7f",
        };

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                expect_refusal(texts[i]);

        expect_refusal_of_bytes("app\0", 4);
        expect_refusal_of_bytes("\0", 1);
}

/* @count times @text, separated by commas. */
static char *repeated(const char *before, const char *text, size_t count, const char *after) {
        _cleanup_(string_builder_clear) StringBuilder builder = {};

        string_builder_append(&builder, before);
        for (size_t i = 0; i < count; i++)
                string_builder_appendf(&builder, "%s%s", i > 0 ? "," : "", text);
        string_builder_append(&builder, after);
        return string_builder_take(&builder);
}

static void size_is_bounded(void **state) {
        _cleanup_free_ char *requirements = repeated("", "app", 32, ""), *too_many = repeated("", "app", 33, "");
        _cleanup_free_ char *values = repeated("app in (", "web", 64, ")");
        _cleanup_free_ char *too_many_values = repeated("app in (", "web", 65, ")");
        _cleanup_free_ char *spaces = new0(char, 4098);

        assert_true(matches(requirements));
        expect_refusal(too_many);
        assert_true(matches(values));
        expect_refusal(too_many_values);

        memset(spaces, ' ', 4097);
        memcpy(spaces, "app", 3);
        expect_refusal(spaces);
        spaces[4096] = '\0';
        assert_true(matches(spaces));
}

static void as_many_values_as_fit_are_kept(void **state) {
        _cleanup_free_ char *list = repeated("app notin (", "w", 64, ")"), *many = repeated("", list, 25, ",app=web");

        assert_true(matches(many));
}

static void empty_selector_selects_everything_but_not_for_deletion(void **state) {
        _cleanup_(selector_freep) Selector *none = NULL, *spaces = NULL, *some = NULL;
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(selector_parse("", 0, &none, NULL), 0);
        assert_int_equal(selector_parse("   ", 3, &spaces, NULL), 0);
        assert_int_equal(selector_parse("!app", 4, &some, NULL), 0);

        assert_true(selector_is_empty(none));
        assert_true(selector_is_empty(spaces));
        assert_false(selector_is_empty(some));
        assert_true(selector_matches(none, labels, N_LABELS));
        assert_true(selector_matches(spaces, NULL, 0));

        assert_int_equal(selector_check_not_empty(some, &err), 0);
        assert_int_equal(selector_check_not_empty(spaces, &err), -EINVAL);
        assert_string_equal(err.reason, "SELECTOR_EMPTY");
}

static void error_says_where_and_what(void **state) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(selector_parse("app in web", 10, &selector, &err), -EINVAL);
        assert_string_equal(error_message(&err), "the selector has no '(' at byte 7");
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "selectors.json") {
                _cleanup_(selector_freep) Selector *selector = NULL;
                _cleanup_(error_clear) HutchError err = {};
                json_t *object = json_object_get(vector_json(v, "in"), "labels"), *value;
                _cleanup_free_ Label *list = new0(Label, json_object_size(object) + 1);
                size_t len, n = 0;
                const char *text = vector_bytes(v, "selector", &len), *key;

                json_object_foreach(object, key, value) list[n++] = (Label){ key, json_string_value(value) };

                vector_assert_result(v, selector_parse(text, len, &selector, &err), &err);
                if (!selector || !vector_json(v, "out"))
                        continue;

                vector_assert_bool(v, "matches", selector_matches(selector, list, n));
                vector_assert_bool(v, "empty", selector_is_empty(selector));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(requirements_are_about_presence_and_values),
                cmocka_unit_test(all_requirements_must_hold),
                cmocka_unit_test(negations_hold_where_the_key_is_absent),
                cmocka_unit_test(empty_value_is_a_value),
                cmocka_unit_test(operators_are_words_elsewhere),
                cmocka_unit_test(spaces_stand_between_tokens),
                cmocka_unit_test(other_forms_are_refused),
                cmocka_unit_test(size_is_bounded),
                cmocka_unit_test(as_many_values_as_fit_are_kept),
                cmocka_unit_test(empty_selector_selects_everything_but_not_for_deletion),
                cmocka_unit_test(error_says_where_and_what),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
