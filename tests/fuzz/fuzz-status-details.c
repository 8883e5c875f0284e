/* SPDX-License-Identifier: Apache-2.0 */

/* Input: an encoded google.rpc.Status, as a server sends it. */

#include "rpc/core/status-details.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_is_text(const char *text) {
        assert(text && utf8_valid(text, strlen(text)));
}

static void check_is_sane(const StatusDetails *details) {
        assert(!details->reason == !details->domain);
        if (details->reason) {
                check_is_text(details->reason);
                check_is_text(details->domain);
        }

        assert(details->n_pairs <= (details->reason ? STATUS_DETAILS_PAIRS_MAX : 0));
        for (size_t i = 0; i < details->n_pairs; i++) {
                check_is_text(details->pairs[i].key);
                check_is_text(details->pairs[i].value);
        }

        assert(details->n_violations <= STATUS_DETAILS_VIOLATIONS_MAX);
        for (size_t i = 0; i < details->n_violations; i++) {
                check_is_text(details->violations[i].field);
                check_is_text(details->violations[i].reason);
                check_is_text(details->violations[i].description);
        }
}

/* What fits comes back as it was, and of what does not, the last violations are missing, then the last pairs. */
static void check_goes_and_comes_back(const StatusDetails *details) {
        _cleanup_(status_details_freep) StatusDetails *back = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r = status_details_encode(STATUS_NOT_FOUND, "gone", details, &bytes, &len);

        assert(r == 0 || r == -E2BIG);
        if (r < 0)
                return;

        assert(len <= STATUS_DETAILS_ENCODED_MAX);
        assert(status_details_decode(bytes, len, &back) == 0);
        check_is_sane(back);
        assert(!back->reason == !details->reason);
        if (back->reason)
                assert(str_equal(back->reason, details->reason) && str_equal(back->domain, details->domain));

        assert(back->n_pairs == details->n_pairs || (back->n_pairs < details->n_pairs && back->n_violations == 0));
        for (size_t i = 0; i < back->n_pairs; i++) {
                assert(str_equal(back->pairs[i].key, details->pairs[i].key));
                assert(str_equal(back->pairs[i].value, details->pairs[i].value));
        }

        assert(back->n_violations <= details->n_violations);
        for (size_t i = 0; i < back->n_violations; i++) {
                assert(str_equal(back->violations[i].field, details->violations[i].field));
                assert(str_equal(back->violations[i].reason, details->violations[i].reason));
                assert(str_equal(back->violations[i].description, details->violations[i].description));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        int r = status_details_decode(data, size, &details);

        assert(r == 0 || r == -EBADMSG || r == -EMSGSIZE);
        assert(!details == (r < 0));
        if (r < 0)
                return 0;

        check_is_sane(details);
        check_goes_and_comes_back(details);
        return 0;
}
