/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* DNS names: what one looks like, the form in which names are compared, and what only looks like one.
 *
 * A name is of labels of 1 to 63 letters, digits, '-' and '_', neither first nor last '-', with single dots between
 * them. One trailing dot means nothing. The canonical form is in lower case and without that dot. Names outside ASCII
 * are written in their "xn--" form, which is a label like any other. */

#define DNS_NAME_MAX 253 /* characters, without the trailing dot */
#define DNS_LABEL_MAX 63

typedef struct DnsName {
        size_t len;
        char text[DNS_NAME_MAX + 1]; /* canonical, ends in NUL */
} DnsName;

/* Reads the @len bytes at @text, which may contain anything, without allocating. -EINVAL when they are no DNS name. An
 * address may well be one: "127.1" is. */
int dns_name_parse(const char *text, size_t len, DnsName *ret_name) __attribute__((nonnull(3)));

/* How many labels @name has, at least 1. */
size_t dns_name_labels(const DnsName *name) __attribute__((nonnull));

/* Tells whether some resolver would take the @len bytes at @text for an IP address: IPv6, in brackets or not, with or
 * without a zone, or a DNS name whose last label is a number, decimal or hexadecimal ("10.0.0.1", "127.1",
 * "0x7f000001"). */
bool dns_name_is_address(const char *text, size_t len);
