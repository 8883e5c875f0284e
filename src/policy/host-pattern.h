/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "policy/dns-name.h"

typedef struct HutchError HutchError;

/* Host patterns: the names an egress rule may reach.
 *
 * A pattern is a DNS name ("api.example.com") or a name with "*" as its whole first label ("*.example.com"), which
 * stands for one or more labels and never for the bare parent. Patterns and names are compared in their canonical
 * form. IP addresses are not names: a rule for an address names it by CIDR.
 *
 * A pattern is a plain value: it holds no memory and needs no freeing. */

typedef struct HostPattern {
        bool wildcard;
        DnsName name; /* without the "*." of a wildcard */
} HostPattern;

/* Parses the @len bytes at @text, which may contain anything. Fails with -EINVAL and the first of these reasons:
 *
 *   HOST_PATTERN_WILDCARD    '*' is not the whole first label
 *   HOST_PATTERN_ADDRESS     it is an IP address, in any form that a resolver would take for one
 *   HOST_PATTERN_MALFORMED   it is no DNS name
 *   HOST_PATTERN_WILDCARD    fewer than two labels follow the '*'
 */
int host_pattern_parse(const char *text, size_t len, HostPattern *ret_pattern, HutchError *err)
        __attribute__((nonnull(3)));

/* Tells whether @pattern covers @name, without allocating: a connection's name is parsed once, then asked for pattern
 * by pattern. What is no DNS name cannot be asked for, and a name that is an address is covered by no pattern. */
bool host_pattern_covers(const HostPattern *pattern, const DnsName *name) __attribute__((nonnull));
