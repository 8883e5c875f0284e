/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli/options.h"

/* The commands of hutch, in one table: what runs, what help says, what the shells complete and what the man page lists
 * comes from it. */

typedef struct Command {
        const char *name;     /* with the one it stands below: "exec list"; NULL ends the table */
        const char *alias;    /* NULL: none */
        const char *operands; /* how help writes them; "": none */
        const char *summary;  /* one line, as an order: "List sandboxes" */
        const char *details;  /* sentences below it; NULL: none */
        OptionGroups options;
        size_t min_operands;
        size_t max_operands;
        bool runs_program;                      /* the last operands are a program and its arguments: */
        size_t leading;                         /* after this many, options are no longer hutch's */
        Completes completes[2];                 /* the first operand, and those that follow */
        int (*run)(const Arguments *arguments); /* returns the exit code; NULL: it has only commands below it */
} Command;

extern const Command commands[];

/* Options that stand before a command, too. */
extern const Option global_options[];

/* Finds the command that @argv begins with and tells how many words name it. NULL: there is none. */
const Command *command_find(char *const argv[], size_t *ret_words) __attribute__((nonnull));

/* Whether @command stands below @above ("exec list" below "exec"). */
bool command_is_below(const Command *command, const char *above) __attribute__((nonnull));
