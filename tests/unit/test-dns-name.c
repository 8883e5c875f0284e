/* SPDX-License-Identifier: Apache-2.0 */

#include "policy/dns-name.h"

#include <errno.h>
#include <string.h>

#include "test.h"

static void expect_name(const char *text, const char *canonical) {
        DnsName name;

        assert_int_equal(dns_name_parse(text, strlen(text), &name), 0);
        assert_string_equal(name.text, canonical);
        assert_int_equal(name.len, strlen(canonical));
}

static void expect_malformed(const char *text, size_t len) {
        DnsName name = { .len = 42 };

        if (dns_name_parse(text, len, &name) != -EINVAL)
                fail_msg("'%.*s' became '%s'", (int) len, text, name.text);
        assert_int_equal(name.len, 42);
}

static bool is_address(const char *text) {
        return dns_name_is_address(text, strlen(text));
}

static void the_canonical_form_is_lower_case_without_the_trailing_dot(void **state) {
        expect_name("API.Example.COM.", "api.example.com");
        expect_name("_dmarc.XN--Mnchen-3ya.de", "_dmarc.xn--mnchen-3ya.de");
        expect_name("a", "a");
        expect_name("a--b.c_", "a--b.c_");
        expect_name("10.0.0.1", "10.0.0.1");
}

static void malformed_names_are_refused(void **state) {
        static const char *const malformed[] = {
                "",         ".",     "..",    "a..",       ".a",
                "a..b",     "-a.b",  "a-.b",  "a.-",       "a b",
                "a/b",      "a:1",   "*.ab",  "a\xc3\xbc", "m\u00fcnchen.de",
                "a\u3002b", "[::1]", "a.b\n",
        };

        for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
                expect_malformed(malformed[i], strlen(malformed[i]));

        expect_malformed("a\0b", 3);
        expect_malformed("a.b", 0);
        expect_malformed(NULL, 0);
}

static void labels_have_63_characters_and_names_253(void **state) {
        char text[DNS_NAME_MAX + 3];
        DnsName name;

        for (size_t i = 0; i < sizeof(text); i++)
                text[i] = i % (DNS_LABEL_MAX + 1) == DNS_LABEL_MAX ? '.' : 'a';

        assert_int_equal(dns_name_parse(text, DNS_NAME_MAX, &name), 0);
        assert_int_equal(dns_name_labels(&name), 4);
        expect_malformed(text, DNS_NAME_MAX + 1);
        text[DNS_NAME_MAX] = '.';
        assert_int_equal(dns_name_parse(text, DNS_NAME_MAX + 1, &name), 0);
        assert_int_equal(name.len, DNS_NAME_MAX);
        text[DNS_NAME_MAX + 1] = '.';
        expect_malformed(text, DNS_NAME_MAX + 2);

        text[DNS_LABEL_MAX] = 'a';
        assert_int_equal(dns_name_parse(text, DNS_LABEL_MAX, &name), 0);
        expect_malformed(text, DNS_LABEL_MAX + 1);
}

static void labels_are_counted(void **state) {
        DnsName name;

        assert_int_equal(dns_name_parse("com.", 4, &name), 0);
        assert_int_equal(dns_name_labels(&name), 1);
        assert_int_equal(dns_name_parse("a.b.c", 5, &name), 0);
        assert_int_equal(dns_name_labels(&name), 3);
}

static void addresses_are_known_in_every_form(void **state) {
        static const char *const addresses[] = {
                "127.0.0.1",
                "127.0.0.1.",
                "127.1",
                "2130706433",
                "017700000001",
                "0x7f000001",
                "0X7F.1",
                "127.0x1",
                "a.0xFf",
                "0x",
                "example.123",
                "256.256.256.256",
                "1.2.3.4.5",
                "::",
                "::1",
                "[::1]",
                "FE80::A",
                "::ffff:127.0.0.1",
                "fe80::1%eth0",
                "[fe80::1%25lo]",
                "2001:db8:0:0:0:0:0:1",
        };
        static const char *const others[] = {
                "",           ".",   "example.com", "1.2.3.4a", "0xfg", "a.x7f",    "1.example", "deadbeef",
                "1.2.3.4:80", "a:b", "[::1",        "::1]",     "[]",   "[",        "%",         "1:2",
                ":::",        "::g", "[1.2.3.4]",   "1..2",     "-1",   "[::1]:80", "[[::1]]",
        };

        for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
                if (!is_address(addresses[i]))
                        fail_msg("'%s' was not taken for an address", addresses[i]);
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                if (is_address(others[i]))
                        fail_msg("'%s' was taken for an address", others[i]);

        assert_false(dns_name_is_address(NULL, 0));
        assert_false(dns_name_is_address("::1\0", 4));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_canonical_form_is_lower_case_without_the_trailing_dot),
                cmocka_unit_test(malformed_names_are_refused),
                cmocka_unit_test(labels_have_63_characters_and_names_253),
                cmocka_unit_test(labels_are_counted),
                cmocka_unit_test(addresses_are_known_in_every_form),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
