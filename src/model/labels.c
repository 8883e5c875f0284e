/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the shape of labels. What does not: finding objects by them (selector.c). */

#include "model/labels.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strings.h"
#include "model/reason.h"

#define LABEL_NAME_LEN_MAX 63
#define LABEL_PREFIX_LEN_MAX 253
#define DNS_LABEL_LEN_MAX 63

static bool is_name(const char *text, size_t len) {
        if (len < 1 || len > LABEL_NAME_LEN_MAX)
                return false;
        if (!ascii_is_alnum(text[0]) || !ascii_is_alnum(text[len - 1]))
                return false;

        for (size_t i = 0; i < len; i++)
                if (!ascii_is_alnum(text[i]) && text[i] != '_' && text[i] != '-' && text[i] != '.')
                        return false;

        return true;
}

static bool is_dns_label(const char *text, size_t len) {
        if (len < 1 || len > DNS_LABEL_LEN_MAX || text[0] == '-' || text[len - 1] == '-')
                return false;

        for (size_t i = 0; i < len; i++)
                if (!ascii_is_lower(text[i]) && !ascii_is_digit(text[i]) && text[i] != '-')
                        return false;

        return true;
}

static bool is_prefix(const char *text, size_t len) {
        size_t begin = 0;

        if (len > LABEL_PREFIX_LEN_MAX)
                return false;

        for (size_t i = 0; i < len; i++)
                if (text[i] == '.') {
                        if (!is_dns_label(text + begin, i - begin))
                                return false;
                        begin = i + 1;
                }

        return is_dns_label(text + begin, len - begin);
}

int label_key_check(const char *key, size_t len, HutchError *err) {
        const char *slash = memchr(key, '/', len);
        size_t name_begin = slash ? (size_t) (slash - key) + 1 : 0;

        if (slash && !is_prefix(key, name_begin - 1))
                return reason_set(err, -EINVAL, REASON_LABEL_MALFORMED,
                                  "the prefix of a label's key is a lower-case DNS name of at most %d characters",
                                  LABEL_PREFIX_LEN_MAX);

        if (!is_name(key + name_begin, len - name_begin))
                return reason_set(err, -EINVAL, REASON_LABEL_MALFORMED,
                                  "the name of a label's key has 1 to %d letters, digits, '_', '-' and '.', and begins "
                                  "and ends with a letter or digit",
                                  LABEL_NAME_LEN_MAX);

        return 0;
}

int label_value_check(const char *value, size_t len, HutchError *err) {
        if (len == 0 || is_name(value, len))
                return 0;

        return reason_set(
                err, -EINVAL, REASON_LABEL_MALFORMED,
                "a label's value has at most %d letters, digits, '_', '-' and '.', and begins and ends with a "
                "letter or digit",
                LABEL_NAME_LEN_MAX);
}

int label_key_check_caller(const char *key, size_t len, HutchError *err) {
        static const char reserved[] = "hutch/";
        int r;

        r = label_key_check(key, len, err);
        if (r < 0)
                return r;

        if (len >= strlen(reserved) && memcmp(key, reserved, strlen(reserved)) == 0)
                return reason_set(err, -EINVAL, REASON_LABEL_RESERVED, "labels below '%s' are the daemon's own",
                                  reserved);

        return 0;
}

int label_count_check(size_t n, HutchError *err) {
        if (n <= LABELS_MAX)
                return 0;

        return reason_add_limit(
                err, "labels", LABELS_MAX,
                reason_set(err, -EINVAL, REASON_LABELS_TOO_MANY, "%zu labels are too many: at most %d", n, LABELS_MAX));
}

void labels_free(Label *labels, size_t n_labels) {
        for (size_t i = 0; i < n_labels; i++) {
                free((char *) labels[i].key);
                free((char *) labels[i].value);
        }
        free(labels);
}
