/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/commands.h"

/* Help texts, all made from the table of commands. */

/* hutch help [COMMAND]. */
int command_help(const Arguments *arguments);

/* hutch __man: the part of the man page that lists commands and options, in Markdown. */
int command_man(const Arguments *arguments);

/* What `hutch --help` and `hutch COMMAND --help` print. */
void help_print_all(void);
void help_print_command(const Command *command) __attribute__((nonnull));

/* Says that there is no such command, and which one may be meant. Returns EXIT_USAGE. */
int help_refuse_command(const char *word) __attribute__((nonnull));
