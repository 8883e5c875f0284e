/* SPDX-License-Identifier: Apache-2.0 */

/* The vectors' reader, tested because what it overlooks, every rule's test overlooks. A loop that must fail runs in a
 * child process, under a cmocka of its own. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"

static char dir[] = "/tmp/hutch-test-vectors-XXXXXX";

static char *path_of(const char *file) {
        StringBuilder path = {};

        string_builder_appendf(&path, "%s/%s", dir, file);
        return string_builder_take(&path);
}

static void write_file(const char *file, const char *text) {
        _cleanup_free_ char *path = path_of(file);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

/* Writes the suite "t" with the cases @cases. */
static void write_cases(const char *cases) {
        _cleanup_(string_builder_clear) StringBuilder text = {};

        string_builder_appendf(&text, "{\"suite\": \"t\", \"cases\": [%s]}", cases);
        write_file("t.json", text.text);
}

/* Reads until the end, or as much as fits. */
static char *read_all(int fd) {
        char *text = new0(char, 10000);
        size_t len = 0;
        ssize_t n;

        while (len < 9999 && (n = read(fd, text + len, 9999 - len)) > 0)
                len += (size_t) n;

        return text;
}

/* Runs @test in a child, and returns what it prints when it fails, or NULL when it passes. */
static char *run(CMUnitTestFunction test) {
        _cleanup_free_ char *text = NULL;
        int pipe_fds[2], status;
        pid_t pid;

        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                const struct CMUnitTest tests[] = { { "child", test, NULL, NULL, NULL } };

                /* What the child fails on purpose is not to be counted. */
                unsetenv("CMOCKA_MESSAGE_OUTPUT");
                unsetenv("CMOCKA_XML_FILE");
                dup2(pipe_fds[1], STDOUT_FILENO);
                dup2(pipe_fds[1], STDERR_FILENO);
                status = cmocka_run_group_tests(tests, NULL, NULL);
                fflush(NULL);
                _exit(status == 0 ? 0 : 1); /* without a leak check: a failed loop leaves its memory behind */
        }

        fd_close(pipe_fds[1]);
        text = read_all(pipe_fds[0]);
        fd_close(pipe_fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status) == 0 ? NULL : TAKE_PTR(text);
}

static void assert_passes(CMUnitTestFunction test) {
        _cleanup_free_ char *text = run(test);

        if (text)
                fail_msg("it fails: %s", text);
}

static void assert_fails(CMUnitTestFunction test, const char *saying) {
        _cleanup_free_ char *text = run(test);

        if (!text)
                fail_msg("it passes, but should say: %s", saying);
        else if (!strstr(text, saying))
                fail_msg("it says '%s', but should: %s", text, saying);
}

static void loop_checks_true(void **state) {
        VECTOR_FOREACH(v, "t.json")
                vector_check(v, true, "never");
}

static void loop_checks_nothing(void **state) {
        VECTOR_FOREACH(v, "t.json")
                ;
}

static void loop_is_left(void **state) {
        VECTOR_FOREACH(v, "t.json")
                break;
}

static void loop_reads_n(void **state) {
        VECTOR_FOREACH(v, "t.json")
                vector_check(v, vector_int(v, "n") < 2, "n is %d", (int) vector_int(v, "n"));
}

static void loop_reads_string(void **state) {
        VECTOR_FOREACH(v, "t.json")
                vector_check(v, vector_string(v, "s"), "never");
}

static void loop_reads_flag(void **state) {
        VECTOR_FOREACH(v, "t.json")
                vector_check(v, vector_bool(v, "flag"), "flag is false");
}

static void loop_succeeds(void **state) {
        VECTOR_FOREACH(v, "t.json")
                vector_assert_result(v, 0, &(HutchError){});
}

static void loop_fails_with_a(void **state) {
        VECTOR_FOREACH(v, "t.json") {
                _cleanup_(error_clear) HutchError err = {};

                vector_assert_result(v, error_set(&err, -EINVAL, "A", "message"), &err);
        }
}

static void loop_compares(void **state) {
        VECTOR_FOREACH(v, "t.json") {
                vector_assert_string(v, "s", "x");
                vector_assert_bytes(v, "b", "\0\xff", 2);
                vector_assert_int(v, "n", -5);
                vector_assert_bool(v, "t", true);
                vector_assert_string(v, "none", NULL);
        }
}

static void input_is_read(void **state) {
        size_t len, n_cases = 0;

        write_cases("{\"name\": \"first\", \"in\": {\"s\": \"text\", \"nul\": \"a\\u0000b\", \"raw_base64\": \"AP8=\","
                    " \"empty_base64\": \"\", \"n\": -9223372036854775808, \"yes\": true, \"no\": false}, \"out\": {}},"
                    "{\"name\": \"second\", \"in\": {}, \"error\": {\"reason\": \"WHY\"}}");

        VECTOR_FOREACH(v, "t.json") {
                vector_check(v, true, "never");
                if (n_cases++ > 0) {
                        assert_string_equal(vector_name(v), "second");
                        assert_string_equal(vector_expects_error(v), "WHY");
                        assert_null(vector_json(v, "out"));
                        continue;
                }

                assert_string_equal(vector_name(v), "first");
                assert_null(vector_expects_error(v));
                assert_string_equal(vector_string(v, "s"), "text");
                assert_memory_equal(vector_bytes(v, "nul", &len), "a\0b", 4);
                assert_int_equal(len, 3);
                assert_memory_equal(vector_bytes(v, "raw", &len), "\0\xff", 3);
                assert_int_equal(len, 2);
                assert_string_equal(vector_bytes(v, "empty", &len), "");
                assert_int_equal(len, 0);
                assert_true(vector_int(v, "n") == INT64_MIN);
                assert_true(vector_bool(v, "yes"));
                assert_false(vector_bool(v, "no"));
                assert_false(vector_bool(v, "missing"));
                assert_true(vector_has(v, "s") && vector_has(v, "raw") && !vector_has(v, "missing"));
                assert_true(json_is_object(vector_json(v, "out")));
        }

        assert_int_equal(n_cases, 2);
}

static void base64_of_every_length_is_read(void **state) {
        static const char *const encoded[] = { "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy", "+/+/" };
        static const char *const decoded[] = { "", "f", "fo", "foo", "foob", "fooba", "foobar", "\xfb\xff\xbf" };

        for (size_t i = 0; i < 8; i++) {
                _cleanup_(string_builder_clear) StringBuilder text = {};

                string_builder_appendf(&text, "{\"name\": \"a\", \"in\": {\"s_base64\": \"%s\"}, \"out\": {}}",
                                       encoded[i]);
                write_cases(text.text);
                VECTOR_FOREACH(v, "t.json")
                        vector_check(v, str_equal(vector_string(v, "s"), decoded[i]), "is %s", vector_string(v, "s"));
        }
}

static void all_failing_cases_are_named(void **state) {
        write_cases("{\"name\": \"one\", \"in\": {\"n\": 1}, \"out\": {}},"
                    "{\"name\": \"two\", \"in\": {\"n\": 2}, \"out\": {}},"
                    "{\"name\": \"three\", \"in\": {\"n\": 3}, \"out\": {}}");

        assert_fails(loop_reads_n, "t/two: n is 2\nt/three: n is 3\n2 of 3 cases of t failed");
}

static void the_last_case_is_checked_too(void **state) {
        write_cases("{\"name\": \"one\", \"in\": {\"n\": 1}, \"out\": {}},"
                    "{\"name\": \"two\", \"in\": {\"n\": 1}, \"out\": {}}");
        assert_passes(loop_reads_n);

        write_cases("{\"name\": \"one\", \"in\": {\"n\": 1}, \"out\": {}},"
                    "{\"name\": \"two\", \"in\": {\"n\": 2}, \"out\": {}}");
        assert_fails(loop_reads_n, "1 of 2 cases");
}

static void loops_that_prove_nothing_fail(void **state) {
        write_cases("{\"name\": \"one\", \"in\": {}, \"out\": {}}");

        assert_passes(loop_checks_true);
        assert_fails(loop_checks_nothing, "t/one: nothing was checked");
        assert_fails(loop_is_left, "the loop over t was left at 'one'");
}

static void malformed_files_fail(void **state) {
        write_cases("");
        assert_fails(loop_checks_true, "no cases");
        write_cases("{\"in\": {}, \"out\": {}}");
        assert_fails(loop_checks_true, "no name");
        write_cases("{\"name\": \"a\", \"out\": {}}");
        assert_fails(loop_checks_true, "no \"in\"");
        write_cases("{\"name\": \"a\", \"in\": {}}");
        assert_fails(loop_checks_true, "either \"out\" or");
        write_cases("{\"name\": \"a\", \"in\": {}, \"out\": {}, \"error\": {\"reason\": \"A\"}}");
        assert_fails(loop_checks_true, "either \"out\" or");
        write_cases("{\"name\": \"a\", \"in\": {}, \"error\": {}}");
        assert_fails(loop_checks_true, "either \"out\" or");
        write_file("t.json", "{\"suite\": \"u\", \"cases\": [{\"name\": \"a\", \"in\": {}, \"out\": {}}]}");
        assert_fails(loop_checks_true, "not the name of the file");
        write_file("t.json", "{");
        assert_fails(loop_checks_true, "t.json:");
        write_file("t.json", "");
        assert_fails(loop_checks_true, "t.json:");
}

static void input_of_the_wrong_type_fails(void **state) {
        write_cases("{\"name\": \"a\", \"in\": {\"n\": \"1\", \"s\": \"a\\u0000b\", \"flag\": 1}, \"out\": {}}");
        assert_fails(loop_reads_n, "t/a: in.n is no integer");
        assert_fails(loop_reads_string, "t/a: in.s has NUL bytes");
        assert_fails(loop_reads_flag, "t/a: in.flag is no boolean");

        write_cases("{\"name\": \"a\", \"in\": {}, \"out\": {}}");
        assert_fails(loop_reads_string, "t/a: in.s is no string");
        assert_fails(loop_reads_flag, "flag is false");

        write_cases("{\"name\": \"a\", \"in\": {\"s_base64\": \"Zm8\"}, \"out\": {}}");
        assert_fails(loop_reads_string, "t/a: in.s is no string");
        write_cases("{\"name\": \"a\", \"in\": {\"s_base64\": \"Z-8=\"}, \"out\": {}}");
        assert_fails(loop_reads_string, "t/a: in.s is no string");
}

static void results_are_compared(void **state) {
        write_cases("{\"name\": \"a\", \"in\": {}, \"out\": {}}");
        assert_passes(loop_succeeds);
        assert_fails(loop_fails_with_a, "t/a: fails with -22, A: message");

        write_cases("{\"name\": \"a\", \"in\": {}, \"error\": {\"reason\": \"A\"}}");
        assert_passes(loop_fails_with_a);
        assert_fails(loop_succeeds, "t/a: succeeds, but should fail with A");

        write_cases("{\"name\": \"a\", \"in\": {}, \"error\": {\"reason\": \"B\"}}");
        assert_fails(loop_fails_with_a, "t/a: fails with A (message), but should with B");
}

static void output_is_compared(void **state) {
        write_cases("{\"name\": \"a\", \"in\": {},"
                    " \"out\": {\"s\": \"x\", \"b_base64\": \"AP8=\", \"n\": -5, \"t\": true, \"none\": null}}");
        assert_passes(loop_compares);

        write_cases("{\"name\": \"a\", \"in\": {},"
                    " \"out\": {\"s\": \"x\\u0000\", \"b_base64\": \"AP4=\", \"n\": 5, \"t\": false, \"none\": \"\"}}");
        assert_fails(loop_compares, "t/a: s is \"x\", but should be \"x\\x00\"\n"
                                    "t/a: b is \"\\x00\\xff\", but should be \"\\x00\\xfe\"\n"
                                    "t/a: n is -5, but should be 5\n"
                                    "t/a: t is true, but should not be\n"
                                    "t/a: none is nothing, but should be \"\"\n"
                                    "1 of 1 cases");

        write_cases("{\"name\": \"a\", \"in\": {}, \"out\": {\"s\": 1, \"b\": null, \"n\": \"\", \"t\": 1}}");
        assert_fails(loop_compares, "t/a: out.s is no string\n"
                                    "t/a: b is \"\\x00\\xff\", but should be nothing\n"
                                    "t/a: out.n is no integer\n"
                                    "t/a: out.t is no boolean\n"
                                    "t/a: has no out.none\n");
}

static void results_are_reported_by_requirement(void **state) {
        _cleanup_free_ char *report = NULL, *path = path_of("c-t.tsv");
        _cleanup_close_ int fd = -1;

        write_cases("{\"name\": \"good one\", \"requires\": [\"T-001\", \"T-002\"], \"in\": {\"n\": 1}, \"out\": {}},"
                    "{\"name\": \"bad\", \"requires\": [\"T-002\"], \"in\": {\"n\": 2}, \"out\": {}}");

        assert_int_equal(setenv("HUTCH_CONFORMANCE_DIR", dir, 1), 0);
        assert_fails(loop_reads_n, "1 of 2");
        assert_passes(loop_checks_true);
        assert_int_equal(unsetenv("HUTCH_CONFORMANCE_DIR"), 0);

        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        report = read_all(fd);
        assert_string_equal(report, "T-001\tpass\tt/good one\nT-002\tpass\tt/good one\nT-002\tfail\tt/bad\n"
                                    "T-001\tpass\tt/good one\nT-002\tpass\tt/good one\nT-002\tpass\tt/bad\n");
}

static int set_up(void **state) {
        /* These cases are not the contract's: they must not be among its results. */
        unsetenv("HUTCH_CONFORMANCE_DIR");
        return mkdtemp(dir) ? setenv("HUTCH_VECTORS_DIR", dir, 1) : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static int tear_down(void **state) {
        return nftw(dir, remove_entry, 4, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(input_is_read),
                cmocka_unit_test(base64_of_every_length_is_read),
                cmocka_unit_test(all_failing_cases_are_named),
                cmocka_unit_test(the_last_case_is_checked_too),
                cmocka_unit_test(loops_that_prove_nothing_fail),
                cmocka_unit_test(malformed_files_fail),
                cmocka_unit_test(input_of_the_wrong_type_fails),
                cmocka_unit_test(results_are_compared),
                cmocka_unit_test(output_is_compared),
                cmocka_unit_test(results_are_reported_by_requirement),
        };

        return cmocka_run_group_tests(tests, set_up, tear_down);
}
