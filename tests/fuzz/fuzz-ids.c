/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a text. */

#include "model/ids.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool accepted(int (*check)(const char *text, size_t len, HutchError *err), const char *text, size_t len,
                     const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        int r = check(text, len, &err);

        assert(r == 0 || (r == -EINVAL && err.code == STATUS_INVALID_ARGUMENT && str_equal(err.reason, reason)));
        return r == 0;
}

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define ALNUM LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Tells whether the text has @min to @max bytes, all in @alphabet, and begins and ends with one in @ends. */
static bool is_made_of(const char *text, size_t len, size_t min, size_t max, const char *alphabet, const char *ends) {
        return len >= min && len <= max && strspn(text, alphabet) == len && strchr(ends, text[0]) &&
               strchr(ends, text[len - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = new0(char, size + 1);
        bool id, name, request_id;

        if (size > 0)
                memcpy(text, data, size);

        id = accepted(id_check, text, size, "ID_MALFORMED");
        name = accepted(name_check, text, size, "NAME_MALFORMED");
        request_id = accepted(request_id_check, text, size, "REQUEST_ID_MALFORMED");

        assert(id == is_made_of(text, size, 4, 200, ALNUM "_-", ALNUM));
        assert(name == is_made_of(text, size, 1, 63, LOWER "-", LOWER));
        assert(request_id == is_made_of(text, size, 1, 128, ALNUM "-_.:", ALNUM "-_.:"));
        return 0;
}
