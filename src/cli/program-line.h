/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Runs `@program @flag` to its end and takes the first line that it prints, without its newline. -EIO: it failed, and
 * has said why. */
int program_line(const char *program, const char *flag, char *ret_line, size_t size) __attribute__((nonnull));
