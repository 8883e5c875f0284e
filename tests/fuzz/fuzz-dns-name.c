/* SPDX-License-Identifier: Apache-2.0 */

/* Input: the text of a name or an address. */

#include "policy/dns-name.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_is_canonical(const DnsName *name) {
        size_t labels = 0;

        assert(name->len >= 1 && name->len <= DNS_NAME_MAX);
        assert(strlen(name->text) == name->len);
        assert(strspn(name->text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == name->len);

        for (const char *label = name->text;; label++) {
                size_t len = strcspn(label, ".");

                assert(len >= 1 && len <= DNS_LABEL_MAX);
                assert(label[0] != '-' && label[len - 1] != '-');
                labels++;
                label += len;
                if (!*label)
                        break;
        }
        assert(dns_name_labels(name) == labels);
}

/* Case and one trailing dot mean nothing. */
static void check_is_its_own_name(const DnsName *name) {
        char loud[DNS_NAME_MAX + 1];
        DnsName again;

        for (size_t i = 0; i < name->len; i++)
                loud[i] = ascii_is_lower(name->text[i]) ? (char) (name->text[i] - 'a' + 'A') : name->text[i];
        loud[name->len] = '.';

        for (size_t dot = 0; dot <= 1; dot++) {
                assert(dns_name_parse(loud, name->len + dot, &again) == 0);
                assert(str_equal(again.text, name->text) && again.len == name->len);
        }

        assert(dns_name_is_address(loud, name->len + 1) == dns_name_is_address(name->text, name->len));
}

/* What the C library's own readers take for an address is known to be one, or is no name at all. inet_aton() reads up
 * to the first space. */
static void check_knows_addresses(const char *text, bool is_name, bool is_address) {
        if (!strpbrk(text, " \t\n\v\f\r") && inet_aton(text, &(struct in_addr){}))
                assert(is_address || !is_name);
        if (inet_pton(AF_INET6, text, &(struct in6_addr){}) == 1)
                assert(is_address && !is_name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *text = (const char *) data;
        bool is_address = dns_name_is_address(text, size), is_name;
        _cleanup_free_ char *copy = NULL;
        DnsName name;

        is_name = dns_name_parse(text, size, &name) == 0;
        if (is_name) {
                check_is_canonical(&name);
                check_is_its_own_name(&name);
        }

        copy = xstrndup(size > 0 ? text : "", size);
        if (strlen(copy) == size)
                check_knows_addresses(copy, is_name, is_address);
        else
                assert(!is_name);

        return 0;
}
