/* SPDX-License-Identifier: Apache-2.0 */

/* Input: limit, total, another total and an offset, 8 bytes each. */

#include "model/output-window.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t smaller(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

static bool keeps(OutputWindow window, uint64_t offset) {
        return offset < window.head || (offset >= window.tail_start && offset < window.total);
}

static void check_window(OutputWindow window, uint64_t limit, uint64_t total) {
        assert(window.head <= window.tail_start && window.tail_start <= window.total && window.total == total);
        assert(window.head + (total - window.tail_start) == smaller(limit, total));
        assert((output_window_dropped(window) > 0) == (total > limit));
        if (total > limit)
                assert(window.head == limit / 2 + limit % 2);
}

/* What a longer stream keeps of the bytes of a shorter one was kept then too. */
static void check_keeps_only_what_was_kept(OutputWindow earlier, OutputWindow later, uint64_t offset) {
        if (offset < earlier.total && keeps(later, offset))
                assert(keeps(earlier, offset));
}

static void check_seek(OutputWindow window, uint64_t from, bool finished) {
        _cleanup_(error_clear) HutchError err = {};
        uint64_t offset, available;

        if (output_window_seek(window, from, finished, &offset, &available, &err) < 0) {
                assert(finished && from > window.total && str_equal(err.reason, "OFFSET_OUT_OF_RANGE"));
                return;
        }

        assert(from <= window.total || !finished);
        assert(offset >= from);
        if (offset > from)
                assert(!keeps(window, from) && offset == window.tail_start);
        if (available > 0)
                assert(keeps(window, offset) && keeps(window, offset + available - 1));
        assert(!keeps(window, offset + available));
}

/* Both streams together keep as much as the limit lets them. */
static void check_share(uint64_t limit, uint64_t stdout_total, uint64_t stderr_total) {
        uint64_t stdout_limit, stderr_limit, stdout_kept, stderr_kept;

        output_share(limit, stdout_total, stderr_total, &stdout_limit, &stderr_limit);
        assert(stdout_limit <= limit && stdout_limit >= limit / 2 + limit % 2);
        assert(stderr_limit <= limit && stderr_limit >= limit / 2);

        stdout_kept = smaller(stdout_total, stdout_limit);
        stderr_kept = smaller(stderr_total, stderr_limit);
        assert(stdout_kept <= limit && stderr_kept <= limit - stdout_kept);
        if (stdout_kept < stdout_total || stderr_kept < stderr_total)
                assert(stdout_kept + stderr_kept == limit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        uint64_t n[4];
        OutputWindow a, b;

        if (size != sizeof(n))
                return -1;
        memcpy(n, data, sizeof(n));

        a = output_window(n[0], n[1]);
        b = output_window(n[0], n[2]);
        check_window(a, n[0], n[1]);
        check_window(b, n[0], n[2]);

        if (n[1] <= n[2])
                check_keeps_only_what_was_kept(a, b, n[3]);
        else
                check_keeps_only_what_was_kept(b, a, n[3]);

        check_seek(a, n[3], false);
        check_seek(a, n[3], true);
        check_share(n[0], n[1], n[2]);
        return 0;
}
