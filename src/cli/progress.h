/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How far a transfer has come, on one line of stderr that is written anew a few times a second: only where that is a
 * terminal, and only for what takes longer than a moment. */

typedef struct Progress {
        const char *name;
        uint64_t total; /* bytes; 0: not known */
        uint64_t done;
        uint64_t first;        /* that were there before it began */
        uint64_t start, shown; /* when; 0 @shown: not yet */
        bool quiet;
} Progress;

Progress progress_start(const char *name, uint64_t total, uint64_t first, bool quiet) __attribute__((nonnull));
void progress_add(Progress *progress, uint64_t bytes) __attribute__((nonnull));

/* Leaves the line as it was before. */
void progress_end(Progress *progress) __attribute__((nonnull));
