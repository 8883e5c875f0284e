/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how the table of commands is told to people. What does not: the table (commands.c). */

#include "cli/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/exit-codes.h"
#include "cli/suggest.h"

#define NAME_WIDTH 16
#define OPTION_WIDTH 34

/* Commands of the machinery, which nobody types. */
static bool is_hidden(const Command *command) {
        return str_has_prefix(command->name, "__");
}

/* "-m, --memory SIZE". The caller frees it. */
static char *option_usage(const Option *option) {
        StringBuilder usage = {};

        if (option->letter)
                string_builder_appendf(&usage, "-%c, ", option->letter);
        string_builder_appendf(&usage, "--%s%s%s", option->name, option->value ? " " : "",
                               option->value ? option->value : "");
        return string_builder_take(&usage);
}

static void print_options(const Option *options) {
        for (; options && options->name; options++) {
                _cleanup_free_ char *usage = option_usage(options);

                (void) printf("  %s%-*s  %s\n", options->letter ? "" : "    ", OPTION_WIDTH - (options->letter ? 0 : 4),
                              usage, options->help);
        }
}

void help_print_all(void) {
        (void) puts("Usage: hutch COMMAND\n"
                    "\n"
                    "Runs commands in sandboxes of their own.\n"
                    "\n"
                    "Commands:");
        for (const Command *command = commands; command->name; command++)
                if (!is_hidden(command))
                        (void) printf("  %-*s  %s\n", NAME_WIDTH, command->name, command->summary);
        (void) puts("\nOptions, before the command or after it:");
        print_options(global_options);
        (void) puts("\n'hutch help COMMAND' tells more about one.");
}

static void print_below(const Command *above) {
        bool any = false;

        for (const Command *command = commands; command->name; command++) {
                if (!command_is_below(command, above->name))
                        continue;
                if (!any)
                        (void) puts("\nCommands:");
                any = true;
                (void) printf("  %-*s  %s\n", NAME_WIDTH, command->name, command->summary);
        }
}

void help_print_command(const Command *command) {
        (void) printf("Usage: hutch %s%s%s%s\n\n%s.\n", command->name, command->options[0] ? " [OPTION]..." : "",
                      *command->operands ? " " : "", command->operands, command->summary);
        if (command->details)
                (void) printf("%s\n", command->details);
        if (command->alias)
                (void) printf("Also called: hutch %s\n", command->alias);

        print_below(command);
        if (command->options[0])
                (void) puts("\nOptions:");
        for (size_t i = 0; i < OPTION_GROUPS_MAX && command->options[i]; i++)
                print_options(command->options[i]);
}

int help_refuse_command(const char *word) {
        const Arguments nothing = { .command = "" };
        Suggestion suggestion = { .typed = word };

        for (const Command *command = commands; command->name; command++)
                if (!is_hidden(command) && !strchr(command->name, ' '))
                        suggestion_consider(&suggestion, command->name);
        if (suggestion.best)
                return usage_error(&nothing, "unknown command '%s' (did you mean '%s'?)", word, suggestion.best);
        return usage_error(&nothing, "unknown command '%s'", word);
}

int command_help(const Arguments *arguments) {
        const Command *command;
        size_t words;

        if (arguments->n_operands == 0) {
                help_print_all();
                return EXIT_SUCCESS;
        }

        command = command_find(arguments->operands, &words);
        if (!command || words < arguments->n_operands)
                return help_refuse_command(arguments->operands[command ? words : 0]);
        help_print_command(command);
        return EXIT_SUCCESS;
}

/* "**-m**, **--memory** *SIZE*" and what it does, in Markdown. */
static void print_man_option(const Option *option) {
        if (option->letter)
                (void) printf("**-%c**, ", option->letter);
        (void) printf("**--%s**", option->name);
        if (option->value)
                (void) printf(" *%s*", option->value);
        (void) printf("\n\n: %s\n\n", option->help);
}

int command_man(const Arguments *arguments) {
        (void) arguments;
        for (const Command *command = commands; command->name; command++) {
                if (is_hidden(command))
                        continue;

                (void) printf("## hutch %s%s%s\n\n%s.\n", command->name, *command->operands ? " " : "",
                              command->operands, command->summary);
                if (command->details)
                        (void) printf("%s\n", command->details);
                if (command->alias)
                        (void) printf("Also called **hutch %s**.\n", command->alias);
                (void) putchar('\n');
                /* Those of all commands stand there once. */
                for (size_t i = 0; i < OPTION_GROUPS_MAX && command->options[i]; i++)
                        for (const Option *option = command->options[i];
                             command->options[i] != global_options && option->name; option++)
                                print_man_option(option);
        }
        return EXIT_SUCCESS;
}
