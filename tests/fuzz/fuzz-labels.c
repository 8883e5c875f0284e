/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a text, taken for a key and for a value. */

#include "model/labels.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_key(const char *text, size_t len) {
        _cleanup_(error_clear) HutchError err = {};
        int r = label_key_check(text, len, &err);

        assert(r == 0 || (r == -EINVAL && str_equal(err.reason, "LABEL_MALFORMED")));
        return r == 0;
}

static bool is_value(const char *text, size_t len) {
        _cleanup_(error_clear) HutchError err = {};
        int r = label_value_check(text, len, &err);

        assert(r == 0 || (r == -EINVAL && str_equal(err.reason, "LABEL_MALFORMED")));
        return r == 0;
}

/* Callers may use every key but those with the daemon's prefix. */
static void check_caller(const char *text, size_t len) {
        _cleanup_(error_clear) HutchError err = {};
        int r = label_key_check_caller(text, len, &err);
        bool reserved = str_has_prefix(text, "hutch/");

        assert((r == 0) == (is_key(text, len) && !reserved));
        assert(r == 0 || str_equal(err.reason, is_key(text, len) ? "LABEL_RESERVED" : "LABEL_MALFORMED"));
}

/* What a name is does not depend on where it stands. */
static void check_names(const char *text, size_t len) {
        _cleanup_(string_builder_clear) StringBuilder prefixed = {};

        string_builder_append(&prefixed, "a.b/");
        string_builder_append_bytes(&prefixed, text, len);

        assert(is_key(prefixed.text, prefixed.len) == (len > 0 && is_value(text, len)));
        assert(is_value(text, len) == (len == 0 || (is_key(text, len) && !memchr(text, '/', len))));
}

/* A prefix is made of labels that are prefixes themselves. */
static void check_prefix(const char *text) {
        for (const char *label = text, *slash = strchr(text, '/'); slash && label < slash;) {
                size_t len = strcspn(label, "./");
                _cleanup_(string_builder_clear) StringBuilder key = {};

                string_builder_append_bytes(&key, label, len);
                string_builder_append(&key, "/a");
                assert(is_key(key.text, key.len));
                label += len + 1;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = new0(char, size + 1);

        if (size > 0)
                memcpy(text, data, size);

        check_caller(text, size);
        check_names(text, size);

        if (is_key(text, size)) {
                assert(size <= 253 + 1 + 63 && strlen(text) == size);
                check_prefix(text);
        }

        return 0;
}
