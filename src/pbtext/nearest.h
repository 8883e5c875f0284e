/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* The known name that a mistyped one was probably meant to be:
 *
 *         Nearest nearest = { .text = "imgae" };
 *         nearest_offer(&nearest, "image");
 *         nearest_offer(&nearest, "user");
 *         nearest_question(&nearest);           "; did you mean 'image'?"
 */
typedef struct Nearest {
        const char *text; /* what was typed */
        const char *name; /* the nearest so far; NULL: none is near */
        size_t distance;
        char question[128];
} Nearest;

/* Considers @name, which must outlive @nearest. */
void nearest_offer(Nearest *nearest, const char *name) __attribute__((nonnull));

/* What to put behind an error; "" when no name is near. Lives as long as @nearest. */
const char *nearest_question(Nearest *nearest) __attribute__((nonnull, returns_nonnull));
