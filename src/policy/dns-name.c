/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the grammar of DNS names, and telling them from addresses. What does not: patterns over names
 * (host-pattern.c), and resolving them. Pure, and never aborts. */

#include "policy/dns-name.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/strings.h"

static bool is_label(const char *label, size_t len) {
        if (len < 1 || len > DNS_LABEL_MAX || label[0] == '-' || label[len - 1] == '-')
                return false;

        for (size_t i = 0; i < len; i++)
                if (!ascii_is_alnum(label[i]) && label[i] != '-' && label[i] != '_')
                        return false;

        return true;
}

int dns_name_parse(const char *text, size_t len, DnsName *ret_name) {
        if (len > 0 && text[len - 1] == '.')
                len--;
        if (len < 1 || len > DNS_NAME_MAX)
                return -EINVAL;

        for (size_t start = 0, end; start <= len; start = end + 1) {
                const char *dot = memchr(text + start, '.', len - start);

                end = dot ? (size_t) (dot - text) : len;
                if (!is_label(text + start, end - start))
                        return -EINVAL;
        }

        for (size_t i = 0; i < len; i++)
                ret_name->text[i] = ascii_lower(text[i]);
        ret_name->text[len] = '\0';
        ret_name->len = len;
        return 0;
}

size_t dns_name_labels(const DnsName *name) {
        size_t labels = 1;

        for (const char *dot = name->text; (dot = strchr(dot, '.')); dot++)
                labels++;

        return labels;
}

/* Tells whether @text is all digits, or "0x" and hexadecimal digits. That may be none: some resolvers
 * take "0x" for 0. */
static bool is_number(const char *text) {
        if (str_has_prefix(text, "0x"))
                return text[2 + strspn(text + 2, "0123456789abcdef")] == '\0';

        return text[strspn(text, "0123456789")] == '\0';
}

static bool is_ipv6(const char *text, size_t len) {
        char address[INET6_ADDRSTRLEN];
        const char *zone;

        if (len < strlen("::"))
                return false;
        if (text[0] == '[' && text[len - 1] == ']') {
                text++;
                len -= 2;
        }

        zone = memchr(text, '%', len);
        if (zone)
                len = (size_t) (zone - text);
        if (len >= sizeof(address))
                return false;

        memcpy(address, text, len);
        address[len] = '\0';
        return strlen(address) == len && inet_pton(AF_INET6, address, &(struct in6_addr){}) == 1;
}

bool dns_name_is_address(const char *text, size_t len) {
        const char *last_dot;
        DnsName name;

        if (dns_name_parse(text, len, &name) < 0)
                return is_ipv6(text, len);

        last_dot = strrchr(name.text, '.');
        return is_number(last_dot ? last_dot + 1 : name.text);
}
