/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct HutchError HutchError;

/* Output windows: which bytes of a stream are kept when there are more than its limit.
 *
 * Up to the limit all are. Past it the first half and the last half of the limit are, the first being larger by one
 * when the limit is odd, and what lies between is dropped:
 *
 *         0          head                  tail_start        total
 *         |== kept ==|······ dropped ······|====== kept =====|
 *
 * Offsets count the bytes that the process wrote, also those that were dropped. When bytes are added, what a window
 * keeps of the old ones was kept by the window before. All arithmetic holds for every 64-bit number. */

typedef struct OutputWindow {
        uint64_t head;       /* how many bytes are kept at the beginning; all of them when nothing is dropped */
        uint64_t tail_start; /* offset of the first byte of the kept tail; @head when nothing is dropped */
        uint64_t total;
} OutputWindow;

/* The window of a stream of @total bytes with a limit of @limit. */
OutputWindow output_window(uint64_t limit, uint64_t total);

/* How many bytes are dropped. The stream is truncated exactly when that is more than 0. */
static inline uint64_t output_window_dropped(OutputWindow window) {
        return window.tail_start - window.head;
}

/* Where reading at @offset goes on, and how many bytes are kept from there without a gap. What was dropped is skipped.
 * Past the end there is nothing yet, unless the stream has @finished: then an offset beyond the end is -ERANGE and
 * OFFSET_OUT_OF_RANGE. */
int output_window_seek(OutputWindow window, uint64_t offset, bool finished, uint64_t *ret_offset,
                       uint64_t *ret_available, HutchError *err);

/* Shares one @limit between two streams of these totals: each has the half it is entitled to, stdout's being larger by
 * one when the limit is odd, and what the other does not need. */
void output_share(uint64_t limit, uint64_t stdout_total, uint64_t stderr_total, uint64_t *ret_stdout_limit,
                  uint64_t *ret_stderr_limit);
