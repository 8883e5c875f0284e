/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strings.h"
#include "pbtext/node.h"

/* JSON (RFC 8259), to the letter: no comments, no trailing commas, no NUL in texts. Doubled keys are left for those who
 * know what the keys are. */

/* -EINVAL, and the line. */
int json_read(const char *text, size_t len, Node **ret_node, HutchError *err) __attribute__((nonnull(3)));

/* On one line, or indented; without a newline at the end. */
void json_write(StringBuilder *out, const Node *node, bool indented) __attribute__((nonnull));

/* @text in quotes. Whatever is not printable is escaped, so that it is a text in YAML as well and does nothing to a
 * terminal. What is not UTF-8 becomes U+FFFD. */
void json_write_text(StringBuilder *out, const char *text) __attribute__((nonnull));

/* Tells whether a character may stand in a text of YAML as it is. Line breaks and tabs are not printable. */
bool character_is_printable(uint32_t c);

/* How long the number is that the @len bytes at @text begin with; 0: there is none. */
size_t json_number_len(const char *text, size_t len);
