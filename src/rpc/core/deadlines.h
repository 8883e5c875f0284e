/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Deadlines: the streams of a session by the time they expire, as a binary heap. Adding and removing cost the
 * logarithm of their number, looking at the first nothing. */

typedef struct Stream Stream;

typedef struct Deadlines {
        Stream **heap;
        size_t len;
        size_t size;
} Deadlines;

#define DEADLINE_NONE UINT64_MAX

/* Adds @stream, whose `deadline` is set. -ENOMEM. */
int deadlines_add(Deadlines *deadlines, Stream *stream);

/* Removes @stream when it is there. */
void deadlines_remove(Deadlines *deadlines, Stream *stream);

/* The stream that expires first; NULL: none. */
Stream *deadlines_first(const Deadlines *deadlines);

void deadlines_clear(Deadlines *deadlines);
