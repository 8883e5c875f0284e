/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

typedef struct HutchError HutchError;

/* Labels: what callers write on sandboxes to find them again.
 *
 *   key    a name, or a prefix, "/" and a name
 *   name   1 to 63 of A-Z a-z 0-9 _ - . that begin and end with a letter or digit
 *   prefix a lower-case DNS name of at most 253 characters; "hutch" is the daemon's own
 *   value  empty, or like a name */

#define LABELS_MAX 64 /* on one object */

typedef struct Label {
        const char *key;
        const char *value;
} Label;

/* Frees labels whose texts were allocated one by one, and their list, which may be NULL. */
void labels_free(Label *labels, size_t n_labels);

/* These check the @len bytes at a text against the rules above, also for what only the daemon may set and for
 * selectors. They fail with -EINVAL and LABEL_MALFORMED. */
int label_key_check(const char *key, size_t len, HutchError *err);
int label_value_check(const char *value, size_t len, HutchError *err);

/* Checks the key of a label that a caller sets, changes or removes: also fails with LABEL_RESERVED. */
int label_key_check_caller(const char *key, size_t len, HutchError *err);

/* Checks that an object may have @n labels; else -EINVAL and LABELS_TOO_MANY. */
int label_count_check(size_t n, HutchError *err);
