/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the arithmetic of bounded output. What does not: the bytes, and the files they are in (keeper). */

#include "model/output-window.h"

#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "model/reason.h"

static uint64_t larger_half(uint64_t limit) {
        return limit - limit / 2;
}

OutputWindow output_window(uint64_t limit, uint64_t total) {
        if (total <= limit)
                return (OutputWindow){ .head = total, .tail_start = total, .total = total };

        return (OutputWindow){ .head = larger_half(limit), .tail_start = total - limit / 2, .total = total };
}

int output_window_seek(OutputWindow window, uint64_t offset, bool finished, uint64_t *ret_offset,
                       uint64_t *ret_available, HutchError *err) {
        if (offset > window.total) {
                if (finished)
                        return reason_set(err, -ERANGE, REASON_OFFSET_OUT_OF_RANGE,
                                          "offset %" PRIu64 " is beyond the end of the output, %" PRIu64, offset,
                                          window.total);

                *ret_offset = offset;
                *ret_available = 0;
                return 0;
        }

        if (offset < window.head) {
                *ret_offset = offset;
                *ret_available = window.head - offset;
                return 0;
        }

        *ret_offset = offset > window.tail_start ? offset : window.tail_start;
        *ret_available = window.total - *ret_offset;
        return 0;
}

/* What is left of @limit when the other stream, of @other_total bytes, has taken what it needs. */
static uint64_t share(uint64_t limit, uint64_t entitlement, uint64_t other_total) {
        uint64_t left = other_total < limit ? limit - other_total : 0;

        return left > entitlement ? left : entitlement;
}

void output_share(uint64_t limit, uint64_t stdout_total, uint64_t stderr_total, uint64_t *ret_stdout_limit,
                  uint64_t *ret_stderr_limit) {
        *ret_stdout_limit = share(limit, larger_half(limit), stderr_total);
        *ret_stderr_limit = share(limit, limit / 2, stdout_total);
}
