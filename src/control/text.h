/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Copies @text into the @size bytes at @to, as much as fits with a NUL, and not a part of a character. */
void text_copy(char *to, size_t size, const char *text) __attribute__((nonnull));
