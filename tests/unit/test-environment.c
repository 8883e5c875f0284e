/* SPDX-License-Identifier: Apache-2.0 */

#include "model/environment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/strings.h"
#include "test.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* The merged environment, joined with spaces. */
static char *merged(const EnvLayer layers[], size_t n_layers, const char *const unset[], size_t n_unset) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        _cleanup_free_ char **environment = NULL;

        assert_int_equal(environment_merge(layers, n_layers, unset, n_unset, &environment, NULL), 0);
        for (char **variable = environment; *variable; variable++)
                string_builder_appendf(&text, "%s%s", variable > environment ? " " : "", *variable);
        return string_builder_take(&text);
}

static void later_layers_override_by_whole_name(void **state) {
        const EnvVariable defaults[] = { { "PATH", "/bin" }, { "HOME", "/" }, { "LANG", "C" } };
        const EnvVariable image[] = { { "PATH", "/usr/bin" }, { "Path", "x" } };
        const EnvVariable exec[] = { { "HOME", "/root" }, { "PATHS", "y" } };
        const EnvLayer layers[] = { { defaults, 3 }, { NULL, 0 }, { image, 2 }, { exec, 2 } };
        _cleanup_free_ char *text = merged(layers, N(layers), NULL, 0);

        assert_string_equal(text, "HOME=/root LANG=C PATH=/usr/bin PATHS=y Path=x");
}

static void later_in_one_layer_overrides_too(void **state) {
        const EnvVariable variables[] = { { "A", "1" }, { "B", "2" }, { "A", "3" }, { "A", "2" } };
        _cleanup_free_ char *text = merged(&(EnvLayer){ variables, 4 }, 1, NULL, 0);

        assert_string_equal(text, "A=2 B=2");
}

static void names_are_unset_whichever_layer_they_came_from(void **state) {
        const EnvVariable low[] = { { "A", "1" }, { "B", "1" }, { "AB", "1" } };
        const EnvVariable high[] = { { "A", "2" }, { "C", "2" } };
        const EnvLayer layers[] = { { low, 3 }, { high, 2 } };
        const char *const unset[] = { "C", "A", "MISSING", "A" };
        _cleanup_free_ char *text = merged(layers, N(layers), unset, N(unset));

        assert_string_equal(text, "AB=1 B=1");
}

static void empty_value_is_kept_and_nothing_is_expanded(void **state) {
        const EnvVariable low[] = { { "A", "1" }, { "B", "$A" } }, high[] = { { "A", "" }, { "C", "x=y" } };
        const EnvLayer layers[] = { { low, 2 }, { high, 2 } };
        _cleanup_free_ char *text = merged(layers, N(layers), NULL, 0);

        assert_string_equal(text, "A= B=$A C=x=y");
}

/* As text "A-=1" would come before "A=0". */
static void order_is_by_name_and_byte_by_byte(void **state) {
        const EnvVariable variables[] = {
                { "\xc3\xa4", "1" }, { "b", "1" }, { "A-", "1" }, { "B", "1" }, { "A", "0" }
        };
        _cleanup_free_ char *text = merged(&(EnvLayer){ variables, N(variables) }, 1, NULL, 0);

        assert_string_equal(text, "A=0 A-=1 B=1 b=1 \xc3\xa4=1");
}

static void no_layers_make_an_empty_environment(void **state) {
        _cleanup_free_ char *text = merged(NULL, 0, (const char *const[]){ "A" }, 1);

        assert_string_equal(text, "");
}

static void expect_name(const char *name, size_t len, bool accepted) {
        _cleanup_(error_clear) HutchError err = {};
        int r = env_name_check(name, len, &err);

        if (r != (accepted ? 0 : -EINVAL) || !str_equal(err.reason, accepted ? "" : "ENV_NAME_MALFORMED"))
                fail_msg("'%s' gives %d %s", name, r, err.reason);
}

static void names_have_no_equals_sign_and_no_control_character(void **state) {
        char longest[257];

        expect_name("A", 1, true);
        expect_name("a b-c.9", 7, true);
        expect_name("\xc3\xa4\xc2\xa0", 4, true);
        expect_name("", 0, false);
        expect_name("A=", 2, false);
        expect_name("=", 1, false);
        expect_name("A\0", 2, false);
        expect_name("A\n", 2, false);
        expect_name("\x7f", 1, false);
        expect_name("A\xc2\x80", 3, false);
        expect_name("A\xc2\x9f", 3, false);

        memset(longest, 'A', sizeof(longest) - 1);
        longest[256] = '\0';
        expect_name(longest, 255, true);
        expect_name(longest, 256, false);
}

static void values_have_no_nul(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(env_value_check("", 0, &err), 0);
        assert_int_equal(env_value_check("a\n\t\x7f=\xff", 6, &err), 0);
        assert_int_equal(env_value_check("a\0", 2, &err), -EINVAL);
        assert_string_equal(err.reason, "ENV_VALUE_MALFORMED");
}

/* Merges @n variables, named 0000, 0001 and so on, of @len bytes each, with their names and without their NULs. */
static int merge_large(size_t n, size_t len, HutchError *err) {
        _cleanup_free_ EnvVariable *variables = new0(EnvVariable, n);
        _cleanup_free_ char *value = new0(char, len), *names = new0(char, n * 5);
        _cleanup_free_ char **environment = NULL;

        memset(value, 'x', len - strlen("0000="));
        for (size_t i = 0; i < n; i++) {
                snprintf(names + i * 5, 5, "%04u", (unsigned) i % 10000);
                variables[i] = (EnvVariable){ names + i * 5, value };
        }

        return environment_merge(&(EnvLayer){ variables, n }, 1, NULL, 0, &environment, err);
}

static void environment_is_no_larger_than_a_process_may_have(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        assert_int_equal(merge_large(1, 131071, &err), 0);
        assert_int_equal(merge_large(1, 131072, &err), -E2BIG);
        assert_string_equal(err.reason, "ARGUMENTS_TOO_LARGE");
        assert_int_equal(err.code, STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(err.n_pairs, 2);
        assert_string_equal(err.pairs[0].value, "argument_bytes");
        assert_string_equal(err.pairs[1].value, "131071");

        assert_int_equal(merge_large(1024, 1023, &err), 0);
        assert_int_equal(merge_large(1025, 1023, &err), -E2BIG);
        assert_int_equal(err.n_pairs, 2);
        assert_string_equal(err.pairs[0].value, "arguments_bytes");
        assert_string_equal(err.pairs[1].value, "1048576");
        assert_int_equal(merge_large(1024, 1024, &err), -E2BIG);
}

static void arguments_and_environment_count_together(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *eighth = new0(char, 1 << 17);
        char *argv[9] = {}, *environment[] = { eighth + (1 << 17) - 1, NULL }, *none[] = { NULL };

        memset(eighth, 'x', (1 << 17) - 1);
        for (size_t i = 0; i < 8; i++)
                argv[i] = eighth;

        assert_int_equal(arguments_check_size(argv, none, &err), 0);
        assert_int_equal(arguments_check_size(none, argv, &err), 0);
        assert_int_equal(arguments_check_size(argv, environment, &err), -E2BIG);
        assert_string_equal(err.reason, "ARGUMENTS_TOO_LARGE");
        assert_int_equal(arguments_check_size(none, environment, &err), 0);
}

/* Takes the variables of @layer, which are checked as those of a request are. */
static int layer_read(json_t *layer, EnvVariable variables[], HutchError *err) {
        const char *name;
        json_t *value;
        size_t n = 0;
        int r;

        json_object_foreach(layer, name, value) {
                r = env_name_check(name, strlen(name), err);
                if (r < 0)
                        return r;

                r = env_value_check(json_string_value(value), json_string_length(value), err);
                if (r < 0)
                        return r;

                variables[n++] = (EnvVariable){ name, json_string_value(value) };
        }

        return 0;
}

static int case_merge(const Vector *v, char ***ret_environment, HutchError *err) {
        json_t *layers_in = json_object_get(vector_json(v, "in"), "layers");
        json_t *unset_in = json_object_get(vector_json(v, "in"), "unset");
        size_t n_layers = json_array_size(layers_in), n_unset = json_array_size(unset_in), n_variables = 0;
        _cleanup_free_ EnvLayer *layers = new0(EnvLayer, n_layers + 1);
        _cleanup_free_ const char **unset = new0(const char *, n_unset + 1);
        _cleanup_free_ EnvVariable *variables = NULL;
        EnvVariable *next;
        int r;

        for (size_t i = 0; i < n_layers; i++)
                n_variables += json_object_size(json_array_get(layers_in, i));

        variables = new0(EnvVariable, n_variables + 1);
        next = variables;
        for (size_t i = 0; i < n_layers; i++) {
                json_t *layer = json_array_get(layers_in, i);

                r = layer_read(layer, next, err);
                if (r < 0)
                        return r;

                layers[i] = (EnvLayer){ next, json_object_size(layer) };
                next += layers[i].n_variables;
        }

        for (size_t i = 0; i < n_unset; i++) {
                json_t *name = json_array_get(unset_in, i);

                unset[i] = json_string_value(name);
                r = env_name_check(unset[i], json_string_length(name), err);
                if (r < 0)
                        return r;
        }

        return environment_merge(layers, n_layers, unset, n_unset, ret_environment, err);
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "env.json") {
                _cleanup_(error_clear) HutchError err = {};
                _cleanup_free_ char **environment = NULL;
                json_t *expected = json_object_get(vector_json(v, "out"), "env");
                size_t n = 0;

                vector_assert_result(v, case_merge(v, &environment, &err), &err);
                if (!environment)
                        continue;

                for (; environment[n]; n++) {
                        const char *text = json_string_value(json_array_get(expected, n));

                        vector_check(v, str_equal(environment[n], text),
                                     "variable %zu is '%.80s', but should be '%.80s'", n, environment[n],
                                     text ? text : "nothing");
                }
                vector_check(v, n == json_array_size(expected), "there are %zu variables, but should be %zu", n,
                             json_array_size(expected));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(later_layers_override_by_whole_name),
                cmocka_unit_test(later_in_one_layer_overrides_too),
                cmocka_unit_test(names_are_unset_whichever_layer_they_came_from),
                cmocka_unit_test(empty_value_is_kept_and_nothing_is_expanded),
                cmocka_unit_test(order_is_by_name_and_byte_by_byte),
                cmocka_unit_test(no_layers_make_an_empty_environment),
                cmocka_unit_test(names_have_no_equals_sign_and_no_control_character),
                cmocka_unit_test(values_have_no_nul),
                cmocka_unit_test(environment_is_no_larger_than_a_process_may_have),
                cmocka_unit_test(arguments_and_environment_count_together),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
