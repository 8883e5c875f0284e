/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* "Did you mean …?": the nearest of some words to one that was mistyped.
 *
 *         Suggestion suggestion = { .typed = "lsit" };
 *         suggestion_consider(&suggestion, "list");
 *         if (suggestion.best) … */

typedef struct Suggestion {
        const char *typed;
        const char *best; /* NULL: none is near */
        size_t distance;  /* to @best */
} Suggestion;

/* Takes @word for the best when it is nearer than all before: one letter wrong in three at most, or one that begins
 * with what was typed. A letter that is missing, too many, another or exchanged with its neighbour is wrong. */
void suggestion_consider(Suggestion *suggestion, const char *word) __attribute__((nonnull));
