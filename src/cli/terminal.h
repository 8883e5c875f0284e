/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

/* The terminal that hutch runs on. */

typedef struct Terminal {
        struct termios before;
        bool raw;
} Terminal;

/* Whether a person sits there: stdin and stdout are a terminal, and we are not in the background. */
bool terminal_is_interactive(void);

/* Hands over every key as it is typed, Ctrl-C among them. */
void terminal_make_raw(Terminal *terminal) __attribute__((nonnull));

/* Hands over keys as they are typed and shows none of them; Ctrl-C is a signal still, Ctrl-Z is nothing. */
void terminal_take_keys(Terminal *terminal) __attribute__((nonnull));

/* As it was before; does nothing to one that is. */
void terminal_restore(Terminal *terminal) __attribute__((nonnull));

/* Its size in characters; 0 and 0 where that is not known. */
void terminal_size(uint32_t *ret_rows, uint32_t *ret_columns) __attribute__((nonnull));
