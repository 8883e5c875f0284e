/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "host/sources.h"

/* Tools: named bundles of files and folders of the host, for sandboxes to have read-only. Some are known to everybody:
 * what programs have in their user's home. The operator names others, or the same ones otherwise.
 *
 *         for (size_t i = 0; (part = tool_part(rules, "git", i)); i++)
 *                 r = tool_open_part(rules, part, home, &source, &err);
 *
 * A part is "~/" and a path below the caller's home, and comes to be at the same place below the agent's; or it is
 * absolute, and comes to be there. What of a bundle is not there is left out. */

/* The tool's part number @i; NULL: it has no more; of number 0: there is no such tool. */
const char *tool_part(const SourceRules *rules, const char *name, size_t i) __attribute__((nonnull));

/* The names of all tools, each once; the caller frees the list and what is in it. */
char **tool_names(const SourceRules *rules, size_t *ret_n) __attribute__((nonnull, returns_nonnull));

/* Opens a part of a tool. @home may be NULL. In the home a symlink is followed, and where it leads must be allowed. An
 * absolute one is allowed, for it is the operator's, and leads through no symlink. Fails as source_open() does. */
int tool_open_part(const SourceRules *rules, const char *part, const char *home, Source *ret_source, HutchError *err)
        __attribute__((nonnull(1, 2, 4)));

/* Where a part comes to be inside; the caller frees it. */
char *tool_part_target(const char *part) __attribute__((nonnull, returns_nonnull));

/* What is wrong with a part that an operator names; NULL: nothing. */
const char *tool_part_problem(const char *part) __attribute__((nonnull));
