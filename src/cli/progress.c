/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the line that tells how far a transfer has come. What does not: transfers (copy.c). */

#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/output.h"
#include "cli/terminal.h"

#define DELAY (300 * NSEC_PER_MSEC)
#define INTERVAL (100 * NSEC_PER_MSEC)
#define BAR_WIDTH 24
#define REST_WIDTH 62 /* of all but the name */

Progress progress_start(const char *name, uint64_t total, uint64_t first, bool quiet) {
        return (Progress){
                .name = name,
                .total = total,
                .done = first,
                .first = first,
                .start = clock_monotonic_ns(),
                .quiet = quiet || !isatty(STDERR_FILENO),
        };
}

/* "[########                ]  33 %", where the end is known. */
static void format_bar(const Progress *progress, char ret_bar[static BAR_WIDTH + 16]) {
        uint64_t share = progress->total > 0 ? progress->done * 100 / progress->total : 0;
        char bar[BAR_WIDTH + 1];

        ret_bar[0] = '\0';
        if (progress->total == 0 || share > 100)
                return;

        memset(bar, ' ', BAR_WIDTH);
        memset(bar, '#', share * BAR_WIDTH / 100);
        bar[BAR_WIDTH] = '\0';
        (void) snprintf(ret_bar, BAR_WIDTH + 16, "[%s] %3" PRIu64 " %%  ", bar, share);
}

static void show(Progress *progress, uint64_t now) {
        double seconds = (double) (now - progress->start) / (double) NSEC_PER_SEC;
        uint64_t rate = (uint64_t) ((double) (progress->done - progress->first) / seconds);
        _cleanup_free_ char *name = text_printable(progress->name), *line = NULL;
        char bar[BAR_WIDTH + 16], done[BYTES_SIZE], speed[BYTES_SIZE], left[32] = "";
        uint32_t rows, columns;
        size_t width;

        terminal_size(&rows, &columns);
        width = columns > REST_WIDTH + 8 ? columns - REST_WIDTH : 8;
        format_bar(progress, bar);
        bytes_format(progress->done, done);
        bytes_format(rate, speed);
        if (progress->total > progress->done && rate > 0)
                (void) snprintf(left, sizeof(left), "  %" PRIu64 " s left", (progress->total - progress->done) / rate);
        if (asprintf(&line, "%.*s  %s%s  %s/s%s", (int) text_prefix(name, width), name, bar, done, speed, left) < 0)
                abort();
        /* A line that wraps could not be drawn over. */
        (void) fprintf(stderr, "\r%.*s\033[K", (int) text_prefix(line, columns > 0 ? columns - 1 : SIZE_MAX), line);
        (void) fflush(stderr);
        progress->shown = now;
}

void progress_add(Progress *progress, uint64_t bytes) {
        uint64_t now;

        progress->done += bytes;
        if (progress->quiet)
                return;

        now = clock_monotonic_ns();
        if (now - progress->start >= DELAY && now - progress->shown >= INTERVAL)
                show(progress, now);
}

void progress_end(Progress *progress) {
        if (progress->shown > 0)
                (void) fprintf(stderr, "\r\033[K");
        progress->shown = 0;
}
