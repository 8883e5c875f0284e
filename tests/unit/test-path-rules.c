/* SPDX-License-Identifier: Apache-2.0 */

#include "policy/path-rules.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "test.h"

static void expect_path(const char *text, const PathContext *context, const char *path, bool directory) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *resolved = NULL;
        bool is_directory;

        if (path_resolve(text, strlen(text), context, &resolved, &is_directory, &err) < 0)
                fail_msg("'%s' is refused: %s", text, err.reason);
        if (!str_equal(resolved, path) || is_directory != directory)
                fail_msg("'%s' became %s%s", text, resolved, is_directory ? ", a directory" : "");
}

static void expect_refusal_of_bytes(const char *text, size_t len, const PathContext *context, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        char *untouched = NULL;
        bool directory;
        int r = path_resolve(text, len, context, &untouched, &directory, &err);

        if (r != -EINVAL || err.code != STATUS_INVALID_ARGUMENT || !str_equal(err.reason, reason))
                fail_msg("'%.80s' gave %d %s instead of %s", text, r, err.reason, reason);
        assert_null(untouched);
}

static void expect_refusal(const char *text, const PathContext *context, const char *reason) {
        expect_refusal_of_bytes(text, strlen(text), context, reason);
}

static const PathContext anywhere = {};
static const PathContext removing = { .use = PATH_USE_REMOVE };
static const PathContext absolute = { .use = PATH_USE_ABSOLUTE };

static void relative_paths_stand_below_the_working_directory(void **state) {
        const PathContext elsewhere = { .working_directory = "/srv//data/./" };

        expect_path("a", &anywhere, "/workspace/a", false);
        expect_path("a", &(PathContext){ .working_directory = "" }, "/workspace/a", false);
        expect_path("a", &(PathContext){ .working_directory = "/" }, "/a", false);
        expect_path("a/b", &elsewhere, "/srv/data/a/b", false);
        expect_path("/a/b", &elsewhere, "/a/b", false);
}

static void results_are_normal_and_otherwise_what_was_given(void **state) {
        expect_path("/", &anywhere, "/", true);
        expect_path("//", &anywhere, "/", true);
        expect_path("///a//./b/.", &anywhere, "/a/b", true);
        expect_path("./a/", &anywhere, "/workspace/a", true);
        expect_path(".", &anywhere, "/workspace", true);
        expect_path("/.", &(PathContext){}, "/", true);
        expect_path("/a/..b/...", &anywhere, "/a/..b/...", false);
        expect_path("/a.", &anywhere, "/a.", false);
        expect_path("C:\\x y\\-r %2e%2e", &anywhere, "/workspace/C:\\x y\\-r %2e%2e", false);
        expect_path("/\u2024\u2024/\u2215\u00a0\u202e", &anywhere, "/\u2024\u2024/\u2215\u00a0\u202e", false);
}

static void dotdot_is_refused_wherever_it_stands(void **state) {
        static const char *const climbing[] = { "..", "/..", "a/..", "a/../b", "../a", "/a/../", "/a//..", "./.." };

        for (size_t i = 0; i < sizeof(climbing) / sizeof(climbing[0]); i++)
                expect_refusal(climbing[i], &anywhere, "PATH_DOTDOT");
}

static void every_control_character_is_refused_and_its_neighbours_are_not(void **state) {
        for (unsigned c = 0; c <= 0xff; c++) {
                bool control = c < 0x20 || (c >= 0x7f && c <= 0x9f);
                char text[] = { '/', (char) c, 'x', '\0', '\0' };
                size_t len = 3;

                if (c == '/')
                        continue;
                if (c >= 0x80) {
                        text[1] = (char) (0xc0 | (c >> 6));
                        text[2] = (char) (0x80 | (c & 0x3f));
                        text[3] = 'x';
                        len = 4;
                }

                if (control)
                        expect_refusal_of_bytes(text, len, &anywhere, "PATH_CONTROL_CHARACTER");
                else
                        expect_path(text, &anywhere, text, false);
        }
}

static void only_a_bare_tilde_at_the_beginning_is_refused(void **state) {
        expect_refusal("~", &anywhere, "PATH_TILDE");
        expect_refusal("~//a", &anywhere, "PATH_TILDE");
        expect_path("~a", &anywhere, "/workspace/~a", false);
        expect_path("./~", &anywhere, "/workspace/~", false);
        expect_path("/~", &anywhere, "/~", false);
        expect_path("a/~/b", &anywhere, "/workspace/a/~/b", false);
}

static void a_path_has_4096_bytes_and_no_more(void **state) {
        char text[PATH_BYTES_MAX + 2], working_directory[PATH_BYTES_MAX - 1];

        for (size_t i = 0; i < sizeof(text); i++)
                text[i] = i % 2 == 0 ? '/' : 'a';
        text[PATH_BYTES_MAX + 1] = '\0';
        expect_refusal(text, &anywhere, "PATH_TOO_LONG");
        text[PATH_BYTES_MAX] = '\0';
        expect_path(text, &anywhere, text, false);

        /* As given it is short; below the working directory, of 4094 bytes, there is room for one more character. */
        memcpy(working_directory, text, sizeof(working_directory));
        working_directory[sizeof(working_directory) - 1] = '\0';
        assert_int_equal(strlen(working_directory), PATH_BYTES_MAX - 2);
        expect_path("a", &(PathContext){ .working_directory = working_directory }, text, false);
        expect_refusal("ab", &(PathContext){ .working_directory = working_directory }, "PATH_TOO_LONG");
        expect_path(".//././.", &(PathContext){ .working_directory = working_directory }, working_directory, true);
}

static void a_component_has_255_bytes_and_no_more(void **state) {
        char text[1 + PATH_COMPONENT_BYTES_MAX + 1 + 1] = "/";

        memset(text + 1, 'a', PATH_COMPONENT_BYTES_MAX + 1);
        expect_refusal(text, &anywhere, "PATH_COMPONENT_TOO_LONG");
        text[1 + PATH_COMPONENT_BYTES_MAX] = '\0';
        expect_path(text, &anywhere, text, false);
}

static void what_holds_the_workspace_is_not_removed(void **state) {
        const PathContext deep = { .use = PATH_USE_REMOVE, .workspace = "/srv//data/." };
        const PathContext root = { .use = PATH_USE_REMOVE, .workspace = "/" };

        expect_refusal("/", &removing, "PATH_PROTECTED");
        expect_refusal(".", &removing, "PATH_PROTECTED");
        expect_refusal("//workspace/./", &removing, "PATH_PROTECTED");
        expect_path("/workspace2", &removing, "/workspace2", false);
        expect_path("/work", &removing, "/work", false);
        expect_path("/workspace/a", &removing, "/workspace/a", false);

        expect_refusal("/srv", &deep, "PATH_PROTECTED");
        expect_refusal("/srv/data", &deep, "PATH_PROTECTED");
        expect_path("/srv/other", &deep, "/srv/other", false);
        expect_path("/workspace", &deep, "/workspace", false);

        expect_refusal("/", &root, "PATH_PROTECTED");
        expect_path("/a", &root, "/a", false);
}

static void the_first_violated_rule_is_told(void **state) {
        char text[PATH_BYTES_MAX + 1];

        expect_refusal("", &absolute, "PATH_EMPTY");

        memset(text, '\xff', sizeof(text));
        expect_refusal_of_bytes(text, sizeof(text), &absolute, "PATH_TOO_LONG");
        expect_refusal("~/../\n\xff", &absolute, "PATH_NOT_UTF8");
        expect_refusal("~/../\n", &absolute, "PATH_CONTROL_CHARACTER");
        expect_refusal("~/..", &absolute, "PATH_NOT_ABSOLUTE");
        expect_refusal("~/..", &anywhere, "PATH_TILDE");

        memset(text, 'a', 300);
        memcpy(text + 300, "/..", sizeof("/.."));
        expect_refusal(text, &anywhere, "PATH_DOTDOT");
}

static void a_bad_working_directory_never_gets_into_a_result(void **state) {
        expect_refusal("a", &(PathContext){ .working_directory = "/a/.." }, "PATH_DOTDOT");
        expect_refusal("a", &(PathContext){ .working_directory = "relative" }, "PATH_NOT_ABSOLUTE");
        expect_refusal("~", &(PathContext){ .working_directory = "/a/.." }, "PATH_TILDE");
        expect_path("/a", &(PathContext){ .working_directory = "/a/.." }, "/a", false);
}

static void the_directory_need_not_be_asked_for(void **state) {
        _cleanup_free_ char *path = NULL;

        assert_int_equal(path_resolve("a/", 2, &anywhere, &path, NULL, NULL), 0);
        assert_string_equal(path, "/workspace/a");
}

static PathUse vector_use(Vector *v) {
        const char *use = vector_has(v, "use") ? vector_string(v, "use") : "any";

        vector_check(v, str_equal(use, "any") || str_equal(use, "absolute") || str_equal(use, "remove"),
                     "unknown use '%s'", use);
        return str_equal(use, "absolute") ? PATH_USE_ABSOLUTE
               : str_equal(use, "remove") ? PATH_USE_REMOVE
                                          : PATH_USE_ANY;
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "paths.json") {
                const PathContext context = {
                        .working_directory =
                                vector_has(v, "working_directory") ? vector_string(v, "working_directory") : NULL,
                        .workspace = vector_has(v, "workspace") ? vector_string(v, "workspace") : NULL,
                        .use = vector_use(v),
                };
                _cleanup_(error_clear) HutchError err = {};
                _cleanup_free_ char *path = NULL;
                bool directory;
                size_t len;
                const char *text = vector_bytes(v, "path", &len);
                int r = path_resolve(text, len, &context, &path, &directory, &err);

                if (!vector_assert_result(v, r, &err) || r < 0)
                        continue;

                vector_assert_string(v, "path", path);
                vector_assert_bool(v, "directory", directory);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(relative_paths_stand_below_the_working_directory),
                cmocka_unit_test(results_are_normal_and_otherwise_what_was_given),
                cmocka_unit_test(dotdot_is_refused_wherever_it_stands),
                cmocka_unit_test(every_control_character_is_refused_and_its_neighbours_are_not),
                cmocka_unit_test(only_a_bare_tilde_at_the_beginning_is_refused),
                cmocka_unit_test(a_path_has_4096_bytes_and_no_more),
                cmocka_unit_test(a_component_has_255_bytes_and_no_more),
                cmocka_unit_test(what_holds_the_workspace_is_not_removed),
                cmocka_unit_test(the_first_violated_rule_is_told),
                cmocka_unit_test(a_bad_working_directory_never_gets_into_a_result),
                cmocka_unit_test(the_directory_need_not_be_asked_for),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
