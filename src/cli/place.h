/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "cli/options.h"

/* Places of files as people write them: "ID:PATH" is inside a sandbox; "ID:" is its working directory; what begins with
 * '/' or '.', or has no colon before its first slash, is on this machine; "-" is stdin or stdout. */

typedef struct Place {
        char *sandbox; /* NULL: on this machine */
        char *path;
        bool standard; /* stdin or stdout */
} Place;

/* Any place; the caller clears it. */
void place_parse(const char *text, Place *ret_place) __attribute__((nonnull));

/* One that must be inside a sandbox; "ID" alone is taken for "ID:". -EINVAL. */
int place_parse_inside(const char *text, Place *ret_place, HutchError *err) __attribute__((nonnull(1, 2)));

void place_clear(Place *place) __attribute__((nonnull));

/* @folder with @name below it, as a new text. */
char *path_join(const char *folder, const char *name) __attribute__((nonnull, returns_nonnull));

/* The last component of @path, as a new text; NULL when that is no name ("/", ".", ".."). */
char *path_base_name(const char *path) __attribute__((nonnull));

/* What is before that, as a new text. */
char *path_folder(const char *path) __attribute__((nonnull, returns_nonnull));
