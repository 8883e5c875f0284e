/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "local/private-file.h"
#include "local/token-file.h"

#define DIGEST "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" /* of "test" */

static void a_token_has_its_name_and_its_digest(void **state) {
        char text[TOKEN_TEXT_SIZE], again[TOKEN_TEXT_SIZE], name[TOKEN_NAME_MAX + 1], longest[TOKEN_NAME_MAX + 1];
        uint8_t digest[TOKEN_DIGEST_SIZE], same[TOKEN_DIGEST_SIZE];

        (void) state;
        assert_int_equal(token_make("a-1", text, digest), 0);
        assert_int_equal(token_make("a-1", again, same), 0);
        assert_string_not_equal(text, again);
        assert_true(token_read_name(text, strlen(text), name));
        assert_string_equal(name, "a-1");
        token_digest(text, strlen(text), same);
        assert_memory_equal(digest, same, sizeof(digest));

        memset(longest, 'x', TOKEN_NAME_MAX);
        longest[TOKEN_NAME_MAX] = '\0';
        assert_int_equal(token_make(longest, text, digest), 0);
        assert_true(token_read_name(text, strlen(text), name));
        assert_string_equal(name, longest);
}

static void what_is_no_token_has_no_name(void **state) {
        static const char *const texts[] = {
                "",
                "hutch_",
                "hutch_ci",
                "hutch_ci_",
                "hutch__" DIGEST,
                "hutch_ci" DIGEST,
                "hutch_CI_" DIGEST,
                "hutch_-ci_" DIGEST,
                "hutch_c_i_" DIGEST,
                "hutch_ci_" DIGEST "0",
                "hutch_ci_g" DIGEST,
                "Hutch_ci_" DIGEST,
                DIGEST,
        };
        char name[TOKEN_NAME_MAX + 1];

        (void) state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                if (token_read_name(texts[i], strlen(texts[i]), name))
                        fail_msg("'%s' has the name %s", texts[i], name);
        assert_true(token_read_name("hutch_ci_" DIGEST, strlen("hutch_ci_" DIGEST), name));
}

static void tokens_are_found_by_name(void **state) {
        static const char text[] = "# a comment\n"
                                   "zed " DIGEST " 2026-11-15T20:00:00Z 2026-12-15T20:00:00Z\n"
                                   "\n"
                                   "ci " DIGEST " 1970-01-01T00:00:01Z -";
        uint8_t digest[TOKEN_DIGEST_SIZE];
        TokenFile file = {};
        Token *token;

        (void) state;
        assert_int_equal(token_file_parse(&file, "tokens", text, strlen(text), NULL), 0);
        token = token_file_find(&file, "ci");
        assert_non_null(token);
        token_digest("test", 4, digest);
        assert_memory_equal(token->digest, digest, sizeof(digest));
        assert_int_equal(token->created, 1);
        assert_true(token->expires == UINT64_MAX);
        assert_int_equal(token_file_find(&file, "zed")->expires, 1797364800);
        assert_null(token_file_find(&file, "c"));

        token_file_add(&file, &(Token){ .name = "middle" });
        assert_non_null(token_file_find(&file, "middle"));
        token_file_remove(&file, token_file_find(&file, "ci"));
        assert_null(token_file_find(&file, "ci"));
        assert_non_null(token_file_find(&file, "zed"));
        assert_int_equal(file.n, 2);
        token_file_clear(&file);
}

static void what_was_written_is_read_again(void **state) {
        char folder[] = "/tmp/test-token-file-XXXXXX", path[64];
        _cleanup_(error_clear) HutchError err = {};
        TokenFile file = {}, again = {};
        struct stat info;

        (void) state;
        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof(path), "%s/tokens", folder);
        assert_int_equal(token_file_read(&again, path, NULL), -ENOENT);
        token_file_add(&file, &(Token){ .name = "b", .digest = { 1, 2, 255 }, .created = 1, .expires = 2 });
        token_file_add(&file, &(Token){ .name = "a", .created = 3, .expires = UINT64_MAX });
        assert_int_equal(token_file_write(&file, path, &err), 0);
        assert_int_equal(token_file_read(&again, path, &err), 0);
        assert_int_equal(again.n, 2);
        assert_memory_equal(again.tokens, file.tokens, 2 * sizeof(Token));
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0600);

        token_file_clear(&again);
        assert_int_equal(chmod(path, 0604), 0);
        assert_int_equal(token_file_read(&again, path, NULL), -EPERM);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
        token_file_clear(&file);
}

static void a_file_that_is_too_large_is_not_read(void **state) {
        char path[] = "/tmp/test-token-file-XXXXXX";
        _cleanup_free_ char *text = NULL;
        int fd = mkstemp(path);
        size_t len;

        (void) state;
        assert_int_equal(write(fd, "12345", 5), 5);
        assert_int_equal(close(fd), 0);
        assert_int_equal(private_file_read(path, 4, &text, &len, NULL), -EFBIG);
        assert_int_equal(private_file_read(path, 5, &text, &len, NULL), 0);
        assert_int_equal(len, 5);
        assert_string_equal(text, "12345");
        assert_int_equal(unlink(path), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_token_has_its_name_and_its_digest),
                cmocka_unit_test(what_is_no_token_has_no_name),
                cmocka_unit_test(tokens_are_found_by_name),
                cmocka_unit_test(what_was_written_is_read_again),
                cmocka_unit_test(a_file_that_is_too_large_is_not_read),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
