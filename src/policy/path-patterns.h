/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"

/* Path patterns: which paths below a folder are meant.
 *
 * Lists of patterns are written as lines of a .gitignore file are:
 *
 *         *.o           any name that ends in ".o", in any folder
 *         /build        "build" in the folder itself; every pattern with a '/' before its end is for the whole path
 *         docs/         a folder named "docs", and no file
 *         a/ ** /b      without the blanks: "b" below "a", with any number of folders between. "**" as a part of a
 *                       component is "*"
 *         [a-z]? \*     classes ("[!x]", "[[:digit:]]"), one byte, and a character that stands for itself
 *         !keep.o       not this one, though a pattern above matches it
 *         # words       a comment
 *
 * A pattern that makes no sense (an open class, a '\' at its end) matches nothing. Globs are simpler: '*' and '?' (one
 * character) within a component and "**" as a whole one; all else stands for itself, and the whole path must match.
 *
 * Paths are relative, with single slashes and none at either end. A match takes at most as many steps as the pattern's
 * length times the path's, and no memory, whatever both are. */

#define PATTERN_LIST_BYTES_MAX (256 * 1024) /* of all patterns of a list */

typedef struct PatternList PatternList;

typedef enum PatternVerdict {
        PATTERN_NONE,    /* no pattern says anything about the path */
        PATTERN_MATCHED, /* the last that does, matches it */
        PATTERN_NEGATED, /* the last that does, begins with '!' */
} PatternVerdict;

/* Makes an empty list. NULL when memory is out. */
PatternList *pattern_list_new(void);

/* Frees @list, which may be NULL. Returns NULL. */
PatternList *pattern_list_free(PatternList *list);
DEFINE_CLEANUP(PatternList *, pattern_list_free);

/* Adds the pattern in the @len bytes at @line, which may contain anything. -E2BIG when the list would be too large,
 * -ENOMEM. */
int pattern_list_add(PatternList *list, const char *line, size_t len) __attribute__((nonnull(1)));

/* Adds the patterns of a whole file: a line each. Fails as pattern_list_add() does, with the lines before added. */
int pattern_list_add_lines(PatternList *list, const char *text, size_t len) __attribute__((nonnull(1)));

/* Whether the list has no pattern that could match anything. */
bool pattern_list_is_empty(const PatternList *list) __attribute__((nonnull));

/* Tells what @list says about the thing at @path itself. What follows for things below it, is the caller's. */
PatternVerdict pattern_list_match(const PatternList *list, const char *path, size_t len, bool is_directory)
        __attribute__((nonnull));

/* Tells whether @glob matches @path. */
bool glob_match(const char *glob, size_t glob_len, const char *path, size_t len) __attribute__((nonnull));
