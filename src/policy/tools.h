/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "policy/sources.h"

/* Tools: named bundles of what a program has in its user's home, for sandboxes to have read-only in their agent's home.
 * What of a bundle is not there is left out. */

typedef struct Tool {
        const char *name;
        const char *parts[6]; /* below the home; ends with NULL */
} Tool;

extern const Tool tools[]; /* ends with one without a name */

/* NULL: there is no such tool. */
const Tool *tool_find(const char *name) __attribute__((nonnull));

/* Opens a part of a tool in @home, which may be NULL. A symlink is followed, and where it leads must be allowed.
 * Fails as source_open() does. */
int tool_open_part(const SourceRules *rules, const char *part, const char *home, Source *ret_source, HutchError *err)
        __attribute__((nonnull(1, 2, 4)));
