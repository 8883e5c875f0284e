/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. NUL is a character like any other. */

/* Tells whether the @len bytes at @bytes are UTF-8. No bytes at all are. */
bool utf8_valid(const char *bytes, size_t len);

/* Decodes the first character of the @len bytes at @bytes. Returns how many bytes it takes, 1 to 4; 0 when there is
 * none or it is malformed. */
size_t utf8_next(const char *bytes, size_t len, uint32_t *ret_code_point) __attribute__((nonnull(3)));

/* How many bytes of @text, which is UTF-8, fit into @max without a character being cut. */
size_t utf8_prefix(const char *text, size_t max) __attribute__((nonnull));
