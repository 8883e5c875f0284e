/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "pbtext/node.h"

/* Where in a message a reader is, for its errors: "line 3: spec.mounts[1].target: …".
 *
 * Places stand on the stack of those who go down into a message, each pointing to the one above. The top has none. */
typedef struct Place {
        const struct Place *above; /* NULL: the top */
        const char *name;          /* of a field; NULL: of an element */
        const char *key;           /* of an element of a map; NULL: it is of a list */
        size_t index;
} Place;

/* Sets @err to what is wrong with @node, behind its line and @place, and returns -EINVAL. */
int place_error(const Place *place, const Node *node, HutchError *err, const char *reason, const char *format, ...)
        __attribute__((format(printf, 5, 6), nonnull(2, 4, 5)));

/* The same for "expected WHAT, not NODE". */
int place_expected(const Place *place, const Node *node, HutchError *err, const char *format, ...)
        __attribute__((format(printf, 4, 5), nonnull(2, 4)));

/* Checks that what came from outside is UTF-8. -EINVAL, and the line. */
int text_check_utf8(const char *text, size_t len, HutchError *err);

/* How many line breaks are in the @len bytes at @text, and one more: the line behind them. */
unsigned text_line(const char *text, size_t len);
