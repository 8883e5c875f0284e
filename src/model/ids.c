/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the shape of ids and names. What does not: making them, and which are taken (control). */

#include "model/ids.h"

#include <errno.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/strings.h"
#include "model/reason.h"

static bool is_id_char(char c) {
        return ascii_is_alnum(c) || c == '_' || c == '-';
}

static bool is_name_char(char c) {
        return ascii_is_lower(c) || ascii_is_digit(c) || c == '-';
}

static bool is_request_id_char(char c) {
        return is_id_char(c) || c == '.' || c == ':';
}

static bool consists_of(const char *text, size_t len, bool (*is_char)(char c)) {
        for (size_t i = 0; i < len; i++)
                if (!is_char(text[i]))
                        return false;

        return true;
}

/* @len is at least 1. */
static bool has_alnum_ends(const char *text, size_t len) {
        return ascii_is_alnum(text[0]) && ascii_is_alnum(text[len - 1]);
}

int id_check(const char *text, size_t len, HutchError *err) {
        if (len >= ID_LEN_MIN && len <= ID_LEN_MAX && has_alnum_ends(text, len) && consists_of(text, len, is_id_char))
                return 0;

        return reason_set(err, -EINVAL, REASON_ID_MALFORMED,
                          "an id has %d to %d letters, digits, '_' and '-', and begins and ends with a letter or digit",
                          ID_LEN_MIN, ID_LEN_MAX);
}

int name_check(const char *text, size_t len, HutchError *err) {
        if (len >= 1 && len <= NAME_LEN_MAX && has_alnum_ends(text, len) && consists_of(text, len, is_name_char))
                return 0;

        return reason_set(err, -EINVAL, REASON_NAME_MALFORMED,
                          "a name has 1 to %d lower-case letters, digits and '-', and begins and ends with a letter or "
                          "digit",
                          NAME_LEN_MAX);
}

int request_id_check(const char *text, size_t len, HutchError *err) {
        if (len >= 1 && len <= REQUEST_ID_LEN_MAX && consists_of(text, len, is_request_id_char))
                return 0;

        return reason_set(err, -EINVAL, REASON_REQUEST_ID_MALFORMED,
                          "a request id has 1 to %d letters, digits, '-', '_', '.' and ':'", REQUEST_ID_LEN_MAX);
}
