/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the entry of the `hutch` command line, which finds the command and runs it. What does not: the
 * commands, and their table (commands.c). */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/exit-codes.h"
#include "cli/help.h"
#include "cli/suggest.h"

/* Who closed stdin, stdout or stderr wants nothing in or out: not that a socket takes its place. */
static void open_standard_files(void) {
        int fd;

        do
                fd = open("/dev/null", O_RDWR);
        while (fd >= STDIN_FILENO && fd <= STDERR_FILENO);
        if (fd > STDERR_FILENO)
                (void) close(fd);
}

/* A command that only has others below it. */
static int refuse_group(const Command *group, const Arguments *arguments, const char *word) {
        Suggestion suggestion = { .typed = word ? word : "" };

        for (const Command *command = commands; command->name; command++)
                if (command_is_below(command, group->name))
                        suggestion_consider(&suggestion, command->name + strlen(group->name) + 1);
        if (!word)
                return usage_error(arguments, "no command given");
        if (suggestion.best)
                return usage_error(arguments, "unknown command '%s %s' (did you mean '%s %s'?)", group->name, word,
                                   group->name, suggestion.best);
        return usage_error(arguments, "unknown command '%s %s'", group->name, word);
}

static int check_operands(const Command *command, const Arguments *arguments) {
        if (!command->run)
                return refuse_group(command, arguments, arguments->n_operands > 0 ? arguments->operands[0] : NULL);
        if (arguments->n_operands < command->min_operands)
                return usage_error(arguments, "'%s' needs %s", command->name, command->operands);
        if (arguments->n_operands > command->max_operands)
                return usage_error(arguments, "'%s' does not take '%s'", command->name,
                                   arguments->operands[command->max_operands]);
        return EXIT_SUCCESS;
}

/* Of the options that all commands have. */
static int check_conflicts(const Arguments *arguments) {
        static const char *const pairs[][2] = {
                { "socket", "address" },     { "socket", "context" },    { "address", "context" },
                { "socket", "ca" },          { "socket", "cert" },       { "socket", "key" },
                { "socket", "server-name" }, { "socket", "token-file" },
        };

        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
                if (arguments_have(arguments, pairs[i][0]) && arguments_have(arguments, pairs[i][1]))
                        return usage_error(arguments, "--%s and --%s exclude each other", pairs[i][0], pairs[i][1]);
        return EXIT_SUCCESS;
}

/* Runs @command with @argv, the words after its name, and the options in @arguments that stood before it. */
static int run_command(const Command *command, char *argv[], Arguments *arguments) {
        _cleanup_(error_clear) HutchError err = {};
        int r;

        arguments->command = command->name;
        if (options_parse(command->options, argv, command->runs_program ? command->leading : EVERYWHERE, arguments,
                          &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (arguments_have(arguments, "help")) {
                help_print_command(command);
                return EXIT_SUCCESS;
        }

        r = check_operands(command, arguments);
        if (r == EXIT_SUCCESS)
                r = check_conflicts(arguments);
        return r == EXIT_SUCCESS ? command->run(arguments) : r;
}

static int run(char *argv[]) {
        static const Option version_options[] = { { "version", .help = "" }, {} };
        _cleanup_(arguments_clear) Arguments arguments = { .command = "" };
        _cleanup_(error_clear) HutchError err = {};
        const Command *command;
        size_t words;
        char **rest;

        if (options_parse((OptionGroups){ global_options, version_options }, argv, 0, &arguments, &err) < 0)
                return usage_error(&arguments, "%s", error_message(&err));
        if (arguments_have(&arguments, "help")) {
                help_print_all();
                return EXIT_SUCCESS;
        }
        if (arguments_have(&arguments, "version")) {
                arguments.n_operands = 0;
                return run_command(command_find((char *[]){ (char *) "version", NULL }, &words), (char *[]){ NULL },
                                   &arguments);
        }
        if (arguments.n_operands == 0)
                return usage_error(&arguments, "no command given");

        command = command_find(arguments.operands, &words);
        if (!command)
                return help_refuse_command(arguments.operands[0]);

        rest = argv;
        while (*rest != arguments.operands[0])
                rest++;
        arguments.n_operands = 0;
        return run_command(command, rest + words, &arguments);
}

int main(int argc, char *argv[]) {
        int exit_code;

        open_standard_files();
        exit_code = run(argc > 0 ? argv + 1 : argv);
        if (fflush(stdout) != 0 || ferror(stdout)) {
                (void) fprintf(stderr, "hutch: cannot write: %s\n", strerror(errno));
                return exit_code == EXIT_SUCCESS ? EXIT_FAILURE : exit_code;
        }
        return exit_code;
}
