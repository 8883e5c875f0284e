/* SPDX-License-Identifier: Apache-2.0 */

#include "policy/path-patterns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "test.h"

/* What the patterns in @lines say about @path; one that ends in '/' is a folder's. */
static PatternVerdict verdict(const char *lines, const char *path) {
        _cleanup_(pattern_list_freep) PatternList *list = pattern_list_new();
        assert_int_equal(pattern_list_add_lines(list, lines, strlen(lines)), 0);
        size_t len = strlen(path);
        bool is_folder = path[len - 1] == '/';
        return pattern_list_match(list, path, is_folder ? len - 1 : len, is_folder);
}

static void assert_verdict(const char *lines, const char *path, PatternVerdict expected) {
        PatternVerdict actual = verdict(lines, path);
        if (actual != expected)
                fail_msg("'%s' says %d instead of %d about '%s'", lines, actual, expected, path);
}

static bool glob(const char *pattern, const char *path) {
        return glob_match(pattern, strlen(pattern), path, strlen(path));
}

/* Pattern, path, and whether it matches. */
static const struct {
        const char *pattern, *path;
        bool matches;
} CASES[] = {
        { "a", "a", true },
        { "a", "x/y/a", true },
        { "a", "a/", true },
        { "a", "ab", false },
        { "/a", "a", true },
        { "/a", "x/a", false },
        { "//a", "a", false },
        { "a/", "a", false },
        { "a/", "a/", true },
        { "a/", "x/a/", true },
        { "/a/", "x/a/", false },
        { "a//", "a/", false },
        { "x/a", "x/a", true },
        { "x/a", "y/x/a", false },
        { "x/a/", "x/a/", true },
        { "x/a/", "x/a", false },
        { "x//a", "x/a", false },
        { "*", "a", true },
        { "*", "x/y", true },
        { "/*", "a", true },
        { "/*", "x/y", false },
        { "*.o", "x/a.o", true },
        { "*.o", ".o", true },
        { "*.o", "a.op", false },
        { "/*.o", "x/a.o", false },
        { "x/*", "x/a", true },
        { "x/*", "x/y/a", false },
        { "x/*/a", "x/y/a", true },
        { "x/*/a", "x/a", false },
        { "x/*/a", "x/y/z/a", false },
        { "a*b*c", "aXbYbZc", true },
        { "a*b*c", "aXbYbZ", false },
        { "*a", "aaaa", true },
        { "*ab", "aaab", true },
        { "*aab*", "aaaab", true },
        { "a*", "a", true },
        { "a**", "ab", true },
        { "/a**", "a/b", false },
        { "/a**b", "axxb", true },
        { "?", "a", true },
        { "?", "ab", false },
        { "a?c", "abc", true },
        { "x?y", "x/y", false },
        { "/x?y", "x/y", false },
        { "**", "a", true },
        { "**", "x/a", true },
        { "**/a", "a", true },
        { "**/a", "x/y/a", true },
        { "**/a", "x/y/ba", false },
        { "x/**", "x/a", true },
        { "x/**", "x/y/a", true },
        { "x/**", "x", false },
        { "x/**", "x/", false },
        { "x/**/", "x/a", false },
        { "x/**/", "x/a/", true },
        { "x/**/a", "x/a", true },
        { "x/**/a", "x/1/2/3/a", true },
        { "x/**/a", "y/x/a", false },
        { "x/**/a/b", "x/a/a/b", true },
        { "x/**/a/**/b", "x/1/a/2/3/b", true },
        { "x/**/a/**/b", "x/1/a/2/3/c", false },
        { "x/***/a", "x/1/2/a", true },
        { "**/*.c", "a.c", true },
        { "**/*.c", "x/y/a.c", true },
        { "**/x/*.c", "y/x/a.c", true },
        { "**/x/*.c", "y/x/z/a.c", false },
        { "[abc]", "b", true },
        { "[abc]", "d", false },
        { "[!abc]", "d", true },
        { "[^abc]", "a", false },
        { "[a-c]x", "bx", true },
        { "[a-c-e]", "-", true },
        { "[a-c-e]", "d", false },
        { "[c-a]", "b", false },
        { "[c-a]", "c", true },
        { "[]a]", "]", true },
        { "[!]a]", "]", false },
        { "[]-a]", "^", true },
        { "[a-]", "-", true },
        { "[\\]]", "]", true },
        { "[\\-x]", "-", true },
        { "[a\\-z]", "b", false },
        { "[[:digit:]]", "7", true },
        { "[[:digit:]x]", "x", true },
        { "[![:digit:]]", "7", false },
        { "[[:nonsense:]]", "n", false },
        { "[[:]", ":", true },
        { "[[:]", "[", true },
        { "[a/b]", "a", true },
        { "x[/]y", "x/y", false },
        { "[", "[", false },
        { "[a", "[a", false },
        { "[]", "[]", false },
        { "[!]", "!", false },
        { "\\[", "[", true },
        { "\\*", "*", true },
        { "\\*", "a", false },
        { "\\a", "a", true },
        { "\\\\", "\\", true },
        { "a\\", "a", false },
        { "a\\", "a\\", false },
        { "x\\/a", "x/a", true },
        { "\\#a", "#a", true },
        { "#a", "#a", false },
        { "\\!a", "!a", true },
        { "a ", "a", true },
        { "a  ", "a ", false },
        { "a\\ ", "a ", true },
        { "a\\  ", "a ", true },
        { " a", " a", true },
        { "a\t", "a\t", true },
        { "a\r\n", "a", true },
        { "\xef\xbb\xbf"
          "a",
          "a", true },
        { "", "a", false },
        { " ", "a", false },
        { "/", "a/", false },
        { "!", "a", false },
        { "\xff*", "\xff\xfe", true },
};

static void patterns_match_what_they_mean(void **state) {
        for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++)
                assert_verdict(CASES[i].pattern, CASES[i].path, CASES[i].matches ? PATTERN_MATCHED : PATTERN_NONE);
}

static void the_last_pattern_that_matches_decides(void **state) {
        assert_verdict("*.o\n!keep.o\n", "keep.o", PATTERN_NEGATED);
        assert_verdict("*.o\n!keep.o\n", "other.o", PATTERN_MATCHED);
        assert_verdict("*.o\n!keep.o\n*.o\n", "keep.o", PATTERN_MATCHED);
        assert_verdict("# a comment\n\n!*.c\n", "a.c", PATTERN_NEGATED);
        assert_verdict("!x/", "x", PATTERN_NONE);
}

static void globs_are_simpler(void **state) {
        assert_true(glob("*.c", "a.c"));
        assert_false(glob("*.c", "x/a.c"));
        assert_true(glob("**/*.c", "a.c"));
        assert_true(glob("**/*.c", "x/y/a.c"));
        assert_true(glob("x/**", "x/y/z"));
        assert_false(glob("x/**", "x"));
        assert_true(glob("**", "x/y"));
        assert_true(glob("x/*/z", "x/y/z"));
        assert_false(glob("x*z", "x/z"));
        assert_true(glob("[a]\\", "[a]\\"));
        assert_false(glob("[a]", "a"));
        assert_true(glob("!a#", "!a#"));
        assert_true(glob("?", "\xc3\xa4"));
        assert_false(glob("??", "\xc3\xa4"));
        assert_true(glob("?b", "\xff"
                               "b"));
        assert_false(glob("/a", "a"));
        assert_false(glob("a/", "a"));
        assert_false(glob("", "a"));
}

/* Each would take longer than anybody lives, if every way to match were tried. */
static void hostile_patterns_end_soon(void **state) {
        char path[4096], pattern[4096], deep[4096];
        memset(path, 'a', sizeof(path));
        for (size_t i = 0; i < sizeof(pattern); i++)
                pattern[i] = i % 2 ? '*' : 'a';
        pattern[sizeof(pattern) - 1] = 'b';
        assert_false(glob_match(pattern, sizeof(pattern), path, sizeof(path)));

        for (size_t i = 0; i < sizeof(deep); i++)
                deep[i] = i % 2 ? '/' : 'a';
        for (size_t i = 0; i < sizeof(pattern); i++)
                pattern[i] = "**/a/"[i % 5];
        pattern[sizeof(pattern) - 1] = 'b';
        assert_false(glob_match(pattern, sizeof(pattern), deep, sizeof(deep) - 1));

        _cleanup_(pattern_list_freep) PatternList *list = pattern_list_new();
        for (size_t i = 0; i < sizeof(pattern); i++)
                pattern[i] = "*[a-z]"[i % 6];
        assert_int_equal(pattern_list_add(list, pattern, sizeof(pattern) / 6 * 6), 0);
        pattern[sizeof(pattern) / 6 * 6 - 2] = 'y';
        assert_int_equal(pattern_list_match(list, path, 600, false), PATTERN_NONE);
}

static void a_list_is_bounded(void **state) {
        _cleanup_(pattern_list_freep) PatternList *list = pattern_list_new();
        assert_true(pattern_list_is_empty(list));
        size_t n = 0;
        while (pattern_list_add(list, "0123456789abcdef", 16) == 0)
                n++;
        assert_int_equal(n, PATTERN_LIST_BYTES_MAX / 16);
        assert_int_equal(pattern_list_add(list, "0123456789abcdef", 16), -E2BIG);
        assert_int_equal(pattern_list_add(list, "# comments take nothing", 23), 0);
        assert_int_equal(pattern_list_match(list, "0123456789abcdef", 16, false), PATTERN_MATCHED);
        assert_false(pattern_list_is_empty(list));
}

/* What is there for git to ask about: folders end in '/'. */
static const char *const TREE[] = {
        "a",         "b",         "ab",        "abc",        ".a",      "a b",      "a ",      "x/",
        "x/a",       "x/b",       "x/ab",      "x/y/",       "x/y/a",   "x/y/b",    "x/y/z/",  "x/y/z/a",
        "x/y/z/abc", "x/y/z/x/",  "y/",        "y/x/",       "y/x/a",   "y/x/y/",   "y/x/y/b", "y/b",
        "y/a.b",     "y/b.a",     "[",         "]",          "[a]",     "*",        "**",      "?",
        "\\",        "!a",        "#a",        "-",          "a-b",     "z/",       "z/a/",    "z/a/b/",
        "z/a/b/c/",  "z/a/b/c/a", "z/a/b/c/b", "z/a/b/c/x/", "z/a/b/x", "z/b/",     "z/b/[",   "z/b/x y",
        "ba",        "bb",        "aaab",      "c",          "7",       "\xc3\xa4", "z/\xff",
};

static void make_tree(const char *root) {
        char path[512], git[512];
        for (size_t i = 0; i < sizeof(TREE) / sizeof(*TREE); i++) {
                (void) snprintf(path, sizeof(path), "%s/%s", root, TREE[i]);
                if (str_has_suffix(path, "/"))
                        assert_int_equal(mkdir(path, 0755), 0);
                else
                        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        }
        (void) snprintf(git, sizeof(git), "git -C %s init -q 2>/dev/null", root);
        assert_int_equal(system(git), 0);
}

/* How long a path of the tree is without the slash of a folder. */
static size_t path_len(const char *path) {
        size_t len = strlen(path);
        return path[len - 1] == '/' ? len - 1 : len;
}

/* Whether the list leaves out @path. As for git, a folder that is left out takes all below it with it. */
static bool leaves_out(const PatternList *list, const char *path) {
        size_t len = path_len(path);
        for (size_t i = 1; i <= len; i++)
                if ((path[i] == '/' || i == len) &&
                    pattern_list_match(list, path, i, path[i] == '/') == PATTERN_MATCHED)
                        return true;
        return false;
}

/* Asks git what it leaves out by @lines, and compares. Returns how many paths that are. */
static size_t compare_with_git(const char *root, const char *lines) {
        char path[512], command[2048];
        (void) snprintf(path, sizeof(path), "%s/.gitignore", root);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        (void) fputs(lines, file);
        (void) fclose(file);
        (void) snprintf(path, sizeof(path), "%s/.git/paths", root);
        file = fopen(path, "we");
        for (size_t i = 0; i < sizeof(TREE) / sizeof(*TREE); i++)
                (void) fprintf(file, "%.*s%c", (int) path_len(TREE[i]), TREE[i], '\0');
        (void) fclose(file);
        (void) snprintf(command, sizeof(command),
                        "cd %s && git -c core.excludesFile= check-ignore --no-index --stdin -z <.git/paths", root);
        file = popen(command, "re");
        assert_non_null(file);
        char told[16384];
        size_t n = fread(told, 1, sizeof(told), file), n_told = 0;
        (void) pclose(file);

        _cleanup_(pattern_list_freep) PatternList *list = pattern_list_new();
        assert_int_equal(pattern_list_add_lines(list, lines, strlen(lines)), 0);
        const char *at = told;
        for (size_t i = 0; i < sizeof(TREE) / sizeof(*TREE); i++) {
                bool expected = at < told + n && strlen(at) == path_len(TREE[i]) && str_has_prefix(TREE[i], at);
                if (expected) {
                        at += strlen(at) + 1;
                        n_told++;
                }
                if (leaves_out(list, TREE[i]) != expected)
                        fail_msg("git %s '%s' by '%s'", expected ? "leaves out" : "has", TREE[i], lines);
        }
        return n_told;
}

/* A pattern of parts that mean something together. "**" is a whole component only: where it is not, git itself is not
 * of one mind, as it compares what stands before it apart. */
static void random_pattern(unsigned *seed, char *target, size_t size) {
        static const char *const parts[] = { "a",    "b",    "x",   "y",     "z",  "*", "?",
                                             "[ab]", "[!a]", "\\*", "[x-z]", ".",  "c", "[[:alpha:]]",
                                             "\\a",  "[]a]", "-",   " ",     "ab", "*a" };
        size_t n_components = 1 + rand_r(seed) % 4;
        StringBuilder builder = {};
        if (rand_r(seed) % 5 == 0)
                string_builder_append(&builder, "!");
        if (rand_r(seed) % 4 == 0)
                string_builder_append(&builder, "/");
        for (size_t i = 0; i < n_components; i++) {
                if (i > 0)
                        string_builder_append(&builder, "/");
                if (rand_r(seed) % 4 == 0)
                        string_builder_append(&builder, "**");
                else
                        for (size_t n = 1 + rand_r(seed) % 2; n > 0; n--)
                                string_builder_append(&builder, parts[rand_r(seed) % (sizeof(parts) / sizeof(*parts))]);
        }
        if (rand_r(seed) % 4 == 0)
                string_builder_append(&builder, "/");
        (void) snprintf(target, size, "%s", builder.text);
        string_builder_clear(&builder);
}

static void git_says_the_same(void **state) {
        if (system("git --version >/dev/null 2>&1") != 0)
                skip();
        assert_int_equal(setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1), 0);
        char root[] = "/tmp/hutch-patterns-XXXXXX", command[256];
        assert_non_null(mkdtemp(root));
        make_tree(root);

        size_t n = 0;
        for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++)
                n += compare_with_git(root, CASES[i].pattern);
        unsigned seed = 1;
        for (int i = 0; i < 300; i++) {
                char lines[512], more[2][120];
                random_pattern(&seed, more[0], sizeof(more[0]));
                random_pattern(&seed, more[1], sizeof(more[1]));
                (void) snprintf(lines, sizeof(lines), "%s\n%s\n", more[0], more[1]);
                n += compare_with_git(root, lines);
        }
        /* Most patterns are about something that is there. */
        assert_true(n > 1000);
        (void) snprintf(command, sizeof(command), "rm -rf %s", root);
        assert_int_equal(system(command), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(patterns_match_what_they_mean),
                cmocka_unit_test(the_last_pattern_that_matches_decides),
                cmocka_unit_test(globs_are_simpler),
                cmocka_unit_test(hostile_patterns_end_soon),
                cmocka_unit_test(a_list_is_bounded),
                cmocka_unit_test(git_says_the_same),
        };

        return cmocka_run_group_tests_name("path-patterns", tests, NULL, NULL);
}
