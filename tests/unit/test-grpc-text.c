/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/grpc-text.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "test.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

#define MINUTE (60 * NSEC_PER_SEC)
#define HOUR (60 * MINUTE)

static uint64_t parsed(const char *text) {
        uint64_t ns;

        if (grpc_timeout_parse(text, strlen(text), &ns) != 0)
                fail_msg("'%s' is refused", text);
        return ns;
}

static void timeouts_have_digits_and_a_unit(void **state) {
        assert_int_equal(parsed("1n"), 1);
        assert_int_equal(parsed("2u"), 2 * NSEC_PER_USEC);
        assert_int_equal(parsed("3m"), 3 * NSEC_PER_MSEC);
        assert_int_equal(parsed("4S"), 4 * NSEC_PER_SEC);
        assert_int_equal(parsed("5M"), 5 * MINUTE);
        assert_int_equal(parsed("6H"), 6 * HOUR);
        assert_int_equal(parsed("0S"), 0);
        assert_int_equal(parsed("00000001S"), NSEC_PER_SEC);
        assert_int_equal(parsed("99999999n"), 99999999);
        assert_int_equal(parsed("99999999S"), 99999999 * NSEC_PER_SEC);
}

static void timeouts_that_do_not_fit_saturate(void **state) {
        assert_int_equal(parsed("5124095H"), 5124095 * HOUR);
        assert_true(parsed("5124096H") == UINT64_MAX);
        assert_true(parsed("99999999H") == UINT64_MAX);
        assert_int_equal(parsed("99999999M"), 99999999 * MINUTE);
}

static void other_timeouts_are_refused(void **state) {
        static const char *const malformed[] = {
                "",    "1",   "S",   "12",         "1s",  "1h", "1N",   "1U",  "1 S",  " 1S",       "1S ",
                "+1S", "-1S", "1.S", "123456789S", "1SS", "S1", "0x1S", "1ms", "1e3S", "\xd9\xa1S",
        };
        uint64_t ns = 7;

        for (size_t i = 0; i < N(malformed); i++)
                if (grpc_timeout_parse(malformed[i], strlen(malformed[i]), &ns) != -EINVAL)
                        fail_msg("'%s' is read", malformed[i]);
        assert_int_equal(grpc_timeout_parse("1\0S", 3, &ns), -EINVAL);
        assert_int_equal(grpc_timeout_parse("1S", 1, &ns), -EINVAL);
        assert_int_equal(grpc_timeout_parse(NULL, 0, &ns), -EINVAL);
        assert_int_equal(ns, 7);
}

static void timeouts_are_written_finely_and_rounded_up(void **state) {
        static const struct {
                uint64_t ns;
                const char *text;
        } examples[] = {
                { 0, "1n" },
                { 1, "1n" },
                { 99999999, "99999999n" },
                { 100000000, "100000u" },
                { 100000001, "100001u" },
                { 60 * NSEC_PER_SEC, "60000000u" },
                { 99999999 * NSEC_PER_USEC, "99999999u" },
                { 99999999 * NSEC_PER_USEC + 1, "100000m" },
                { 99999999 * NSEC_PER_MSEC, "99999999m" },
                { 99999999 * NSEC_PER_MSEC + 1, "100000S" },
                { 99999999 * NSEC_PER_SEC, "99999999S" },
                { 99999999 * NSEC_PER_SEC + 1, "1666667M" },
                { 99999999 * MINUTE, "99999999M" },
                { 99999999 * MINUTE + 1, "1666667H" },
                { UINT64_MAX, "5124096H" },
        };

        for (size_t i = 0; i < N(examples); i++) {
                char text[GRPC_TIMEOUT_SIZE];

                assert_int_equal(grpc_timeout_format(examples[i].ns, text), strlen(examples[i].text));
                assert_string_equal(text, examples[i].text);
                assert_true(parsed(text) >= examples[i].ns);
        }
}

/* Encodes into memory of exactly @size bytes. */
static char *encoded(const char *message, size_t len, size_t size) {
        _cleanup_free_ char *text = new0(char, size);
        size_t n = grpc_message_encode(message, len, text, size);

        assert_true(n <= size);
        return xstrndup(n > 0 ? text : "", n);
}

static void assert_encodes(const char *message, const char *expected) {
        _cleanup_free_ char *text = encoded(message, strlen(message), 3 * strlen(message)),
                            *exact = encoded(message, strlen(message), strlen(expected));

        assert_string_equal(text, expected);
        assert_string_equal(exact, expected);
}

/* Decodes into memory of exactly @size bytes, from memory of exactly the length of @text. */
static char *decoded(const char *text, size_t size) {
        size_t len = strlen(text), n;
        _cleanup_free_ char *exact = new0(char, len);
        char *message = new0(char, size);

        for (size_t i = 0; i < len; i++)
                exact[i] = text[i];
        n = grpc_message_decode(exact, len, message, size);
        assert_true(n < size);
        assert_int_equal(message[n], '\0');
        assert_true(utf8_valid(message, n));
        return message;
}

static void assert_decodes(const char *text, const char *expected) {
        _cleanup_free_ char *message = decoded(text, 3 * strlen(text) + 1),
                            *exact = decoded(text, strlen(expected) + 1);

        assert_string_equal(message, expected);
        assert_string_equal(exact, expected);
}

static void messages_are_percent_encoded(void **state) {
        assert_encodes("", "");
        assert_encodes("plain text, ~!\"#$&'()*+/:;<=>?@[]^`{|}", "plain text, ~!\"#$&'()*+/:;<=>?@[]^`{|}");
        assert_encodes("100%", "100%25");
        assert_encodes("%41", "%2541");
        assert_encodes("a\nb\x7f", "a%0Ab%7F");
        assert_encodes("\u00fc\u20ac\U0001f407", "%C3%BC%E2%82%AC%F0%9F%90%87");
        assert_encodes("\xff", "%FF");
        assert_encodes("\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n",
                       "%09%0Atest with whitespace%0D%0Aand Unicode BMP %E2%98%BA and non-BMP %F0%9F%98%88%09%0A");
}

static void no_space_begins_or_ends_the_value(void **state) {
        assert_encodes(" a b ", "%20a b%20");
        assert_encodes(" ", "%20");
        assert_encodes("  ", "%20%20");
        assert_encodes("   ", "%20 %20");
}

static void long_messages_are_cut_between_characters(void **state) {
        static const char message[] = "a \u20ac b";
        static const char *const by_size[] = {
                "", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a %E2%82%AC", "a %E2%82%AC", "a %E2%82%AC b",
        };

        for (size_t size = 0; size < N(by_size); size++) {
                _cleanup_free_ char *text = encoded(message, strlen(message), size);

                assert_string_equal(text, by_size[size]);
        }

        for (size_t size = 1; size <= strlen(message) + 1; size++) {
                _cleanup_free_ char *cut = decoded("a %E2%82%AC b", size);

                assert_int_equal(strncmp(message, cut, strlen(cut)), 0);
                assert_int_equal(strlen(cut), size <= 3 ? size - 1 : size <= 5 ? 2 : size - 1);
        }
}

static void messages_are_decoded(void **state) {
        assert_decodes("", "");
        assert_decodes("plain text", "plain text");
        assert_decodes("%41%6a%6A%2541", "Ajj%41");
        assert_decodes("%C3%BC%e2%82%ac\U0001f407", "\u00fc\u20ac\U0001f407");
        assert_decodes("%20a%20", " a ");
        assert_decodes("a+b", "a+b");
}

static void what_is_no_escape_stays(void **state) {
        static const char *const texts[] = { "%", "100%", "%4", "%%", "%g1", "%1g", "% 1", "%-1", "%+1", "%0x", "a%" };

        for (size_t i = 0; i < N(texts); i++)
                assert_decodes(texts[i], texts[i]);
        assert_decodes("%%41", "%A");
        assert_decodes("%4%41", "%4A");
}

static void what_is_not_utf8_is_replaced(void **state) {
        assert_decodes("%FF", "\ufffd");
        assert_decodes("\xff", "\ufffd");
        assert_decodes("a%80b", "a\ufffdb");
        assert_decodes("%E2%82", "\ufffd\ufffd");
        assert_decodes("%E2%82(", "\ufffd\ufffd(");
        assert_decodes("%C3\xbc", "\u00fc");
        assert_decodes("%ED%A0%80", "\ufffd\ufffd\ufffd");
        assert_decodes("%C0%AF", "\ufffd\ufffd");
        assert_decodes("%F0%9F%90%C3%BC", "\ufffd\ufffd\ufffd\u00fc");
}

static void a_nul_in_a_message_is_a_character(void **state) {
        char message[8], text[8];

        assert_int_equal(grpc_message_decode("a%00b", 5, message, sizeof(message)), 3);
        assert_memory_equal(message, "a\0b", 4);
        assert_int_equal(grpc_message_encode(message, 3, text, sizeof(text)), 5);
        assert_memory_equal(text, "a%00b", 5);
}

static void no_message_may_be_null(void **state) {
        char message[1] = { 'x' };

        assert_int_equal(grpc_message_encode(NULL, 0, NULL, 0), 0);
        assert_int_equal(grpc_message_decode(NULL, 0, message, 1), 0);
        assert_int_equal(message[0], '\0');
}

static int content_type(const char *value) {
        return grpc_content_type_check(value, strlen(value));
}

static void content_types_of_grpc_are_known(void **state) {
        static const char *const good[] = {
                "application/grpc",
                "application/grpc+proto",
                "application/grpc;charset=utf-8",
                "application/grpc+proto;a=b;c",
                "application/grpc;",
        };
        static const char *const other_format[] = {
                "application/grpc+json",   "application/grpc+thrift;x", "application/grpc+",
                "application/grpc+proto2", "application/grpc+prot",     "application/grpc+Proto",
        };
        static const char *const other[] = {
                "",     "application/json",        "application/grpc-web",        "application/grp",
                "text", "application/grpcx",       "application/grpc-web+proto",  " application/grpc",
                "grpc", "Application/grpc",        "application/grpc ",           ";application/grpc",
                ";",    "xapplication/grpc+proto", "application/grpc,text/plain", "application",
        };

        for (size_t i = 0; i < N(good); i++)
                assert_int_equal(content_type(good[i]), 0);
        for (size_t i = 0; i < N(other_format); i++)
                assert_int_equal(content_type(other_format[i]), -EOPNOTSUPP);
        for (size_t i = 0; i < N(other); i++)
                assert_int_equal(content_type(other[i]), -EINVAL);
        assert_int_equal(grpc_content_type_check(NULL, 0), -EINVAL);
}

static void paths_have_a_service_and_a_method(void **state) {
        static const char path[] = "/pkg.v1.Service/Method";
        GrpcPath parts;

        assert_int_equal(grpc_path_split(path, strlen(path), &parts), 0);
        assert_ptr_equal(parts.service, path + 1);
        assert_int_equal(parts.service_len, strlen("pkg.v1.Service"));
        assert_ptr_equal(parts.method, strchr(path, 'M'));
        assert_int_equal(parts.method_len, strlen("Method"));

        assert_int_equal(grpc_path_split("/s/m", 4, &parts), 0);
        assert_int_equal(parts.service_len, 1);
        assert_int_equal(parts.method_len, 1);
}

static void other_paths_are_refused(void **state) {
        static const char *const malformed[] = { "",    "/",   "//",    "///", "s",     "/s",     "/s/",   "//m",
                                                 "s/m", "s//", "/s/m/", "*",   "/s//m", "/a/b/c", "//s/m", "s/m/x" };
        GrpcPath parts;

        for (size_t i = 0; i < N(malformed); i++)
                if (grpc_path_split(malformed[i], strlen(malformed[i]), &parts) != -EINVAL)
                        fail_msg("'%s' is split", malformed[i]);
        assert_int_equal(grpc_path_split(NULL, 0, &parts), -EINVAL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(timeouts_have_digits_and_a_unit),
                cmocka_unit_test(timeouts_that_do_not_fit_saturate),
                cmocka_unit_test(other_timeouts_are_refused),
                cmocka_unit_test(timeouts_are_written_finely_and_rounded_up),
                cmocka_unit_test(messages_are_percent_encoded),
                cmocka_unit_test(no_space_begins_or_ends_the_value),
                cmocka_unit_test(long_messages_are_cut_between_characters),
                cmocka_unit_test(messages_are_decoded),
                cmocka_unit_test(what_is_no_escape_stays),
                cmocka_unit_test(what_is_not_utf8_is_replaced),
                cmocka_unit_test(a_nul_in_a_message_is_a_character),
                cmocka_unit_test(no_message_may_be_null),
                cmocka_unit_test(content_types_of_grpc_are_known),
                cmocka_unit_test(paths_have_a_service_and_a_method),
                cmocka_unit_test(other_paths_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
