/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a pattern, a newline, and the name that is asked for. */

#include "policy/host-pattern.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pattern(const HostPattern *pattern) {
        char text[sizeof("*.") + DNS_NAME_MAX + sizeof(".")];
        HostPattern again;
        int len = snprintf(text, sizeof(text), "%s%s.", pattern->wildcard ? "*." : "", pattern->name.text);

        assert(!dns_name_is_address(pattern->name.text, pattern->name.len));
        assert(!pattern->wildcard || dns_name_labels(&pattern->name) >= 2);

        /* Its own text gives the same pattern, with and without a trailing dot. */
        for (int dot = 0; dot <= 1; dot++) {
                assert(host_pattern_parse(text, (size_t) (len - dot), &again, NULL) == 0);
                assert(again.wildcard == pattern->wildcard && str_equal(again.name.text, pattern->name.text));
        }
}

/* The bare name is covered exactly when there is no wildcard; one label below it exactly when there is. */
static void check_covers_what_it_must(const HostPattern *pattern) {
        char text[sizeof("a.") + DNS_NAME_MAX];
        DnsName below;
        int len = snprintf(text, sizeof(text), "a.%s", pattern->name.text);

        assert(host_pattern_covers(pattern, &pattern->name) == !pattern->wildcard);
        if (dns_name_parse(text, (size_t) len, &below) == 0)
                assert(host_pattern_covers(pattern, &below) == pattern->wildcard);
        else
                assert(len > DNS_NAME_MAX);
}

static void check_covered(const HostPattern *pattern, const DnsName *name) {
        assert(!dns_name_is_address(name->text, name->len));
        assert(str_has_suffix(name->text, pattern->name.text));
        if (!pattern->wildcard)
                assert(name->len == pattern->name.len);
        else
                assert(dns_name_labels(name) > dns_name_labels(&pattern->name) &&
                       name->text[name->len - pattern->name.len - 1] == '.');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *text = (const char *) data, *newline = size > 0 ? memchr(text, '\n', size) : NULL;
        _cleanup_(error_clear) HutchError err = {};
        HostPattern pattern;
        DnsName name;
        int r;

        if (!newline)
                return -1;

        r = host_pattern_parse(text, (size_t) (newline - text), &pattern, &err);
        if (r < 0) {
                assert(r == -EINVAL && str_has_prefix(err.reason, "HOST_PATTERN_"));
                if (str_equal(err.reason, "HOST_PATTERN_WILDCARD"))
                        assert(memchr(text, '*', (size_t) (newline - text)));
                return 0;
        }

        check_pattern(&pattern);
        check_covers_what_it_must(&pattern);
        if (dns_name_parse(newline + 1, size - (size_t) (newline + 1 - text), &name) == 0 &&
            host_pattern_covers(&pattern, &name))
                check_covered(&pattern, &name);

        return 0;
}
