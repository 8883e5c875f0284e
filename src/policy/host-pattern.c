/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the grammar of host patterns and their comparison. What does not: which pattern belongs to which
 * rule, and what a name resolves to. Pure, and never aborts. */

#include "policy/host-pattern.h"

#include <errno.h>
#include <string.h>

#include "model/reason.h"

int host_pattern_parse(const char *text, size_t len, HostPattern *ret_pattern, HutchError *err) {
        HostPattern pattern = { .wildcard = len > 2 && memcmp(text, "*.", 2) == 0 };

        if (pattern.wildcard) {
                text += 2;
                len -= 2;
        }

        if (len > 0 && memchr(text, '*', len))
                return reason_set(err, -EINVAL, REASON_HOST_PATTERN_WILDCARD,
                                  "'*' may only be the whole first label of a host pattern, above at least two others");
        if (dns_name_is_address(text, len))
                return reason_set(err, -EINVAL, REASON_HOST_PATTERN_ADDRESS,
                                  "the host pattern is an address: name addresses by CIDR");
        if (dns_name_parse(text, len, &pattern.name) < 0)
                return reason_set(err, -EINVAL, REASON_HOST_PATTERN_MALFORMED,
                                  "the host pattern is not a DNS name: write other scripts in their xn-- form");

        /* "*.com" would open a whole top-level domain: nobody means that. */
        if (pattern.wildcard && dns_name_labels(&pattern.name) < 2)
                return reason_set(err, -EINVAL, REASON_HOST_PATTERN_WILDCARD,
                                  "'%s' is a top-level domain: at least two labels must follow '*'", pattern.name.text);

        *ret_pattern = pattern;
        return 0;
}

bool host_pattern_covers(const HostPattern *pattern, const DnsName *name) {
        const DnsName *suffix = &pattern->name;
        size_t rest;

        /* No pattern ends in a number, so no name that does, as addresses do, can be covered. */
        if (name->len < suffix->len)
                return false;

        rest = name->len - suffix->len;
        if (memcmp(name->text + rest, suffix->text, suffix->len) != 0)
                return false;
        if (!pattern->wildcard)
                return rest == 0;

        /* The dot has a label before it: no name begins with a dot. */
        return rest > 0 && name->text[rest - 1] == '.';
}
