/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "base/strings.h"
#include "pbtext/node.h"

/* YAML, the part of it that holds no surprises: one document of maps with single texts as keys, lists and scalars.
 *
 * A scalar without quotes means whatever its field takes, so "no" is a text where a text is expected and never a
 * boolean; only an empty one, "~" and "null" are nothing. Anchors, aliases and tags are refused. */

/* -EINVAL, and the line. */
int yaml_read(const char *text, size_t len, Node **ret_node, HutchError *err) __attribute__((nonnull(3)));

/* In block style, with a newline at the end. Texts are in quotes where some reader of YAML might take them for
 * something else. */
void yaml_write(StringBuilder *out, const Node *node) __attribute__((nonnull));
