/* SPDX-License-Identifier: Apache-2.0 */

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "test.h"

/* A logger that writes packets: what one write(2) wrote is what one read returns. */
typedef struct Capture {
        Logger logger;
        int fd;
        char line[LOG_LINE_MAX + 1];
} Capture;

static void capture_close(Capture *capture) {
        fd_close(capture->logger.fd);
        fd_close(capture->fd);
}

static Capture capture_open(LogFormat format) {
        int pipe_fds[2];

        assert_int_equal(pipe2(pipe_fds, O_DIRECT | O_CLOEXEC | O_NONBLOCK), 0);
        return (Capture){
                .logger = { .fd = pipe_fds[1], .level = LOG_LEVEL_DEBUG, .format = format },
                .fd = pipe_fds[0],
        };
}

/* The next line with its newline; NULL when none was written. */
static const char *capture_line(Capture *capture) {
        ssize_t n = read(capture->fd, capture->line, LOG_LINE_MAX);

        if (n < 0)
                return NULL;

        capture->line[n] = '\0';
        return capture->line;
}

/* The same without the time, which a logfmt line begins with. */
static const char *capture_fields(Capture *capture) {
        const char *line = capture_line(capture);

        assert_non_null(line);
        assert_true(str_has_prefix(line, "time="));
        return strchr(line, ' ') + 1;
}

static json_t *capture_json(Capture *capture) {
        const char *line = capture_line(capture);
        json_t *object;

        assert_non_null(line);
        object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!object)
                fail_msg("not JSON: %s", line);
        return object;
}

static void a_line_has_time_level_message_and_fields(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);
        regex_t regex;

        log_to(&c.logger, LOG_LEVEL_INFO, "sandbox ready", LOG_STR("sandbox", "sbx-1"), LOG_INT("pid", -1),
               LOG_UINT("bytes", UINT64_MAX), LOG_BOOL("warm", true));

        assert_int_equal(regcomp(&regex,
                                 "^time=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z level=info "
                                 "msg=\"sandbox ready\" sandbox=sbx-1 pid=-1 bytes=18446744073709551615 warm=true\n$",
                                 REG_EXTENDED | REG_NOSUB),
                         0);
        assert_int_equal(regexec(&regex, capture_line(&c), 0, NULL, 0), 0);
        regfree(&regex);
}

static void json_has_the_same_fields_with_their_types(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_JSON);
        json_t *line;

        log_to(&c.logger, LOG_LEVEL_ERROR, "exec lost", LOG_STR("exec", "e 1"), LOG_INT("code", INT64_MIN),
               LOG_UINT("n", 7), LOG_BOOL("tty", false));

        line = capture_json(&c);
        assert_int_equal(json_object_size(line), 7);
        assert_int_equal(json_string_length(json_object_get(line, "time")), strlen("2026-01-31T08:05:01.000123Z"));
        assert_string_equal(json_string_value(json_object_get(line, "level")), "error");
        assert_string_equal(json_string_value(json_object_get(line, "msg")), "exec lost");
        assert_string_equal(json_string_value(json_object_get(line, "exec")), "e 1");
        assert_true(json_integer_value(json_object_get(line, "code")) == INT64_MIN);
        assert_int_equal(json_integer_value(json_object_get(line, "n")), 7);
        assert_true(json_is_false(json_object_get(line, "tty")));
        json_decref(line);
}

static void a_message_needs_no_fields(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);

        log_to(&c.logger, LOG_LEVEL_WARNING, "stopping");
        assert_string_equal(capture_fields(&c), "level=warning msg=stopping\n");
}

static void a_null_string_leaves_its_field_out(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);

        log_to(&c.logger, LOG_LEVEL_DEBUG, "x", LOG_STR("sandbox", NULL), LOG_STR("exec", ""));
        assert_string_equal(capture_fields(&c), "level=debug msg=x exec=\"\"\n");
}

static void logfmt_quotes_what_would_be_ambiguous(void **state) {
        static const struct {
                const char *value, *written;
        } table[] = {
                { "/var/lib/hutch-1.2_3:4+5@6", "/var/lib/hutch-1.2_3:4+5@6" },
                { "a b", "\"a b\"" },
                { "a=b", "\"a=b\"" },
                { "\"", "\"\\\"\"" },
                { "a\\b", "\"a\\\\b\"" },
                { "a\nlevel=error", "\"a\\nlevel=error\"" },
                { "\r\t\x01\x1b[2J\x7f", "\"\\r\\t\\u0001\\u001b[2J\\u007f\"" },
                { "\xc2\x85\xc2\x9b", "\"\\u0085\\u009b\"" },
                { "\u00a0h\u00fctte\U0001f407", "\"\u00a0h\u00fctte\U0001f407\"" },
                { "a\xff\xc3(\xed\xa0\x80z", "\"a\uFFFD\uFFFD(\uFFFD\uFFFD\uFFFDz\"" },
        };
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
                char expected[256];

                snprintf(expected, sizeof(expected), "level=info msg=x v=%s\n", table[i].written);
                log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_STR("v", table[i].value));
                assert_string_equal(capture_fields(&c), expected);
        }
}

static void json_reads_back_as_it_was(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_JSON);
        char all[128] = "";
        json_t *line;

        for (int i = 1; i < 128; i++)
                all[i - 1] = (char) i;

        log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_STR("all", all), LOG_STR("c1", "\xc2\x80\xc2\x9f"),
               LOG_STR("bad", "\xc0\xaf"));

        line = capture_json(&c);
        assert_string_equal(json_string_value(json_object_get(line, "all")), all);
        assert_string_equal(json_string_value(json_object_get(line, "c1")), "\xc2\x80\xc2\x9f");
        assert_string_equal(json_string_value(json_object_get(line, "bad")), "\uFFFD\uFFFD");
        json_decref(line);
}

static void long_values_are_cut_between_characters(void **state) {
        static const char *const characters[] = { "a", "\u00e4", "\u20ac", "\n", "\x01", "\xff" };
        static const LogFormat formats[] = { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

        for (size_t f = 0; f < 2; f++)
                for (size_t i = 0; i < sizeof(characters) / sizeof(characters[0]); i++) {
                        _cleanup_(capture_close) Capture c = capture_open(formats[f]);
                        _cleanup_(string_builder_clear) StringBuilder value = {};
                        const char *line, *end;

                        while (value.len <= LOG_VALUE_MAX)
                                string_builder_append(&value, characters[i]);
                        log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_STR("v", value.text), LOG_INT("after", 1));

                        line = capture_line(&c);
                        end = strstr(line, "\u2026\"");
                        assert_non_null(end);
                        assert_string_equal(end + 4, f == 0 ? " after=1\n" : ",\"after\":1}\n");
                        assert_in_range(end - strchr(strstr(line, f == 0 ? " v=" : "\"v\":") + 3, '"') - 1,
                                        LOG_VALUE_MAX - 7, LOG_VALUE_MAX);
                }
}

static void a_value_of_just_the_limit_is_whole(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);
        char value[LOG_VALUE_MAX + 1] = "";

        memset(value, 'v', LOG_VALUE_MAX);
        log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_STR("v", value));
        assert_non_null(strstr(capture_line(&c), value));

        value[0] = ' ';
        log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_STR("v", value));
        assert_non_null(strstr(capture_line(&c), value));
}

/* Whatever the lengths, a line is bounded, well-formed, and says when a field is missing. */
static void fields_that_do_not_fit_are_left_out_whole(void **state) {
        static const LogFormat formats[] = { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };
        char full[LOG_VALUE_MAX + 1] = "", last[LOG_VALUE_MAX + 1] = "";
        bool seen[2] = {};

        memset(full, 'f', LOG_VALUE_MAX);
        for (size_t f = 0; f < 2; f++)
                for (size_t len = 0; len < LOG_VALUE_MAX; len++) {
                        _cleanup_(capture_close) Capture c = capture_open(formats[f]);
                        const char *line;
                        bool cut;

                        memset(last, 'l', len);
                        last[len] = '\0';
                        log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_STR("a", full), LOG_STR("b", full),
                               LOG_STR("c", full), LOG_STR("d", last), LOG_INT("e", 5));

                        line = capture_line(&c);
                        assert_true(str_has_suffix(line, "\n"));
                        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);

                        cut = strstr(line, "truncated");
                        seen[cut] = true;
                        if (f == 0)
                                assert_int_equal(cut, !strstr(line, " d=") || !strstr(line, " e=5"));
                        else
                                assert_int_equal(cut, !strstr(line, ",\"d\":") || !strstr(line, ",\"e\":5"));
                        if (strchr(line, 'l') && strstr(line, "lll"))
                                assert_int_equal(strspn(strstr(line, "lll"), "l"), len);

                        if (f == 1) {
                                json_t *object = json_loads(line, 0, NULL);

                                assert_non_null(object);
                                json_decref(object);
                        }
                }

        assert_true(seen[false] && seen[true]);
}

static int n_evaluated;

static int64_t evaluated(void) {
        return ++n_evaluated;
}

static void below_the_level_nothing_is_written_or_evaluated(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);

        n_evaluated = 0;
        c.logger.level = LOG_LEVEL_WARNING;
        log_to(&c.logger, LOG_LEVEL_INFO, "x", LOG_INT("n", evaluated()));
        assert_null(capture_line(&c));
        assert_int_equal(n_evaluated, 0);

        log_to(&c.logger, LOG_LEVEL_WARNING, "x", LOG_INT("n", evaluated()));
        assert_non_null(capture_line(&c));
        assert_int_equal(n_evaluated, 1);
}

static void the_default_logger_writes_from_info_upward(void **state) {
        _cleanup_(capture_close) Capture c = capture_open(LOG_FORMAT_LOGFMT);
        Logger saved = log_default;

        assert_int_equal(saved.fd, STDERR_FILENO);
        assert_int_equal(saved.format, LOG_FORMAT_LOGFMT);

        log_default.fd = c.logger.fd;
        log_debug("d");
        log_info("i");
        log_warning("w");
        log_error("e", LOG_INT("n", 1));
        log_default = saved;

        assert_string_equal(capture_fields(&c), "level=info msg=i\n");
        assert_string_equal(capture_fields(&c), "level=warning msg=w\n");
        assert_string_equal(capture_fields(&c), "level=error msg=e n=1\n");
        assert_null(capture_line(&c));
}

static void a_failing_write_is_nobodys_error(void **state) {
        _cleanup_close_ int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
        Logger logger = { .fd = full };

        errno = ENOENT;
        log_to(&logger, LOG_LEVEL_ERROR, "x");
        assert_int_equal(errno, ENOENT);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_line_has_time_level_message_and_fields),
                cmocka_unit_test(json_has_the_same_fields_with_their_types),
                cmocka_unit_test(a_message_needs_no_fields),
                cmocka_unit_test(a_null_string_leaves_its_field_out),
                cmocka_unit_test(logfmt_quotes_what_would_be_ambiguous),
                cmocka_unit_test(json_reads_back_as_it_was),
                cmocka_unit_test(long_values_are_cut_between_characters),
                cmocka_unit_test(a_value_of_just_the_limit_is_whole),
                cmocka_unit_test(fields_that_do_not_fit_are_left_out_whole),
                cmocka_unit_test(below_the_level_nothing_is_written_or_evaluated),
                cmocka_unit_test(the_default_logger_writes_from_info_upward),
                cmocka_unit_test(a_failing_write_is_nobodys_error),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
