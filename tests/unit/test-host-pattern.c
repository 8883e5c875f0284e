/* SPDX-License-Identifier: Apache-2.0 */

#include "policy/host-pattern.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "test.h"

/* As a connection is judged: what is no name is covered by nothing. */
static bool covers_bytes(const HostPattern *pattern, const char *text, size_t len) {
        DnsName name;

        return dns_name_parse(text, len, &name) == 0 && host_pattern_covers(pattern, &name);
}

static bool covers(const HostPattern *pattern, const char *text) {
        return covers_bytes(pattern, text, strlen(text));
}

static HostPattern parse(const char *text) {
        HostPattern pattern;

        assert_int_equal(host_pattern_parse(text, strlen(text), &pattern, NULL), 0);
        return pattern;
}

static void expect_refusal(const char *text, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        HostPattern pattern;
        int r = host_pattern_parse(text, strlen(text), &pattern, &err);

        if (r != -EINVAL || err.code != STATUS_INVALID_ARGUMENT || !str_equal(err.reason, reason))
                fail_msg("'%s' gave %d %s instead of %s", text, r, err.reason, reason);
}

static void a_name_covers_itself_only(void **state) {
        HostPattern pattern = parse("API.example.com");

        assert_true(covers(&pattern, "api.example.com"));
        assert_true(covers(&pattern, "Api.Example.Com."));
        assert_false(covers(&pattern, "example.com"));
        assert_false(covers(&pattern, "x.api.example.com"));
        assert_false(covers(&pattern, "api.example.co"));
        assert_false(covers(&pattern, "api.example.comx"));
}

static void wildcard_covers_labels_below_but_not_the_parent(void **state) {
        HostPattern pattern = parse("*.Example.com.");

        assert_true(covers(&pattern, "api.example.com"));
        assert_true(covers(&pattern, "A.B.EXAMPLE.COM."));
        assert_false(covers(&pattern, "example.com"));
        assert_false(covers(&pattern, "badexample.com"));
        assert_false(covers(&pattern, "api.example.com.evil.net"));
        assert_false(covers(&pattern, "com"));
}

static void what_is_no_name_is_covered_by_nothing(void **state) {
        HostPattern pattern = parse("*.example.com");

        assert_false(covers(&pattern, ".example.com"));
        assert_false(covers(&pattern, "a..example.com"));
        assert_false(covers(&pattern, "*.example.com"));
        assert_false(covers(&pattern, "a b.example.com"));
        assert_false(covers_bytes(&pattern, "a\0.example.com", 14));
        assert_false(covers(&pattern, "127.0.0.1"));
        assert_false(covers(&pattern, "[::1]"));
        assert_false(covers(&pattern, ""));
}

static void a_wildcard_is_the_whole_first_label_above_two_others(void **state) {
        static const char *const wrong[] = { "*",       "*.",       "*.com",    "*.com.", "a.*.com",
                                             "*.*.com", "a*.b.com", "*a.b.com", "a.b.*",  "**.a.com" };

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                expect_refusal(wrong[i], "HOST_PATTERN_WILDCARD");
}

static void addresses_are_no_patterns(void **state) {
        static const char *const addresses[] = { "127.0.0.1", "127.1", "0x7f000001", "[::1]", "::1", "*.0.0.1" };

        for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
                expect_refusal(addresses[i], "HOST_PATTERN_ADDRESS");
}

static void malformed_names_are_no_patterns(void **state) {
        static const char *const malformed[] = {
                "", ".", "*..com", "a..b", "https://a.com", "a.com:443", "m\u00fcnchen.de"
        };

        for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
                expect_refusal(malformed[i], "HOST_PATTERN_MALFORMED");

        assert_int_equal(host_pattern_parse(NULL, 0, &(HostPattern){}, NULL), -EINVAL);
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "host-patterns.json") {
                _cleanup_(error_clear) HutchError err = {};
                HostPattern pattern;
                size_t len, name_len;
                const char *text = vector_bytes(v, "pattern", &len), *name;
                int r = host_pattern_parse(text, len, &pattern, &err);

                if (!vector_assert_result(v, r, &err) || r < 0)
                        continue;

                name = vector_bytes(v, "name", &name_len);
                vector_assert_bool(v, "covers", covers_bytes(&pattern, name, name_len));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_name_covers_itself_only),
                cmocka_unit_test(wildcard_covers_labels_below_but_not_the_parent),
                cmocka_unit_test(what_is_no_name_is_covered_by_nothing),
                cmocka_unit_test(a_wildcard_is_the_whole_first_label_above_two_others),
                cmocka_unit_test(addresses_are_no_patterns),
                cmocka_unit_test(malformed_names_are_no_patterns),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
