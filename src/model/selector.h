/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"
#include "model/labels.h"

/* Selectors: which objects are meant, told by their labels.
 *
 * A selector is a list of requirements separated by ","; all must hold:
 *
 *   key                the object has the label       key=value, key==value   it has it with that value
 *   !key               it does not                    key!=value              it does not have it with that value
 *   key in (v1,v2)     it has it with one of them     key notin (v1,v2)       it does not have it with any of them
 *
 * Spaces may stand between the tokens. A selector without requirements selects everything. Reading takes time linear in
 * the text; matching, in labels times requirements plus values, all of them bounded. */

#define SELECTOR_LEN_MAX 4096
#define SELECTOR_REQUIREMENTS_MAX 32
#define SELECTOR_VALUES_MAX 64 /* in one requirement */

typedef struct Selector Selector;
typedef struct HutchError HutchError;

/* Reads the @len bytes at @text; else -EINVAL and SELECTOR_MALFORMED, or -ENOMEM and HOST_EXHAUSTED. */
int selector_parse(const char *text, size_t len, Selector **ret_selector, HutchError *err);

/* Frees @selector, which may be NULL. Returns NULL. */
Selector *selector_free(Selector *selector);
DEFINE_CLEANUP(Selector *, selector_free);

/* Tells whether an object with these labels is selected. */
bool selector_matches(const Selector *selector, const Label labels[], size_t n_labels);

/* Tells whether @selector has no requirements. */
bool selector_is_empty(const Selector *selector);

/* For calls that change what they select: -EINVAL and SELECTOR_EMPTY when @selector has no requirements. */
int selector_check_not_empty(const Selector *selector, HutchError *err);
