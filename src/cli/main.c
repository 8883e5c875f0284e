/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the entry of the `hutch` command line, which finds the subcommand and runs it. What does not: the
 * subcommands themselves, and talking to the daemon (client/). */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exit-codes.h"
#include "cli/run.h"

/* Says that @argv has more than the subcommand, where it takes nothing. */
static int take_nothing(int argc, char *argv[]) {
        if (argc == 1)
                return EXIT_SUCCESS;

        (void) fprintf(stderr, "hutch: '%s' takes no arguments; see 'hutch --help'\n", argv[0]);
        return EXIT_USAGE;
}

static int print_version(int argc, char *argv[]) {
        if (take_nothing(argc, argv) != EXIT_SUCCESS)
                return EXIT_USAGE;

        (void) printf("hutch %s\n", HUTCH_VERSION);
        return EXIT_SUCCESS;
}

static int print_help(int argc, char *argv[]) {
        if (take_nothing(argc, argv) != EXIT_SUCCESS)
                return EXIT_USAGE;

        (void) printf("Usage: hutch COMMAND\n"
                      "\n"
                      "Runs commands in sandboxes of their own.\n"
                      "\n"
                      "Commands:\n"
                      "  run        Run a command in a fresh sandbox\n"
                      "  version    Print the version (also: --version)\n"
                      "  help       Print this text (also: --help)\n");
        return EXIT_SUCCESS;
}

static const struct {
        const char *name;
        const char *option; /* NULL: none */
        int (*run)(int argc, char *argv[]);
} commands[] = {
        { "run", NULL, command_run },
        { "version", "--version", print_version },
        { "help", "--help", print_help },
};

int main(int argc, char *argv[]) {
        if (argc < 2) {
                (void) fprintf(stderr, "hutch: no command given; see 'hutch --help'\n");
                return EXIT_USAGE;
        }

        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                if (strcmp(argv[1], commands[i].name) == 0 ||
                    (commands[i].option && strcmp(argv[1], commands[i].option) == 0))
                        return commands[i].run(argc - 1, argv + 1);

        (void) fprintf(stderr, "hutch: unknown command '%s'; see 'hutch --help'\n", argv[1]);
        return EXIT_USAGE;
}
