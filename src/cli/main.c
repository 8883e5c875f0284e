/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the entry of the `hutch` command line, which finds the subcommand and runs it. What does not: the
 * subcommands themselves, and talking to the daemon (client/). */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit codes of the command line itself. */
#define EXIT_USAGE 2

static int print_version(void) {
        printf("hutch %s\n", HUTCH_VERSION);
        return EXIT_SUCCESS;
}

static int print_help(void) {
        printf("Usage: hutch COMMAND\n"
               "\n"
               "Runs commands in sandboxes of their own.\n"
               "\n"
               "Commands:\n"
               "  version    Print the version (also: --version)\n"
               "  help       Print this text (also: --help)\n");
        return EXIT_SUCCESS;
}

static const struct {
        const char *name;
        const char *option;
        int (*run)(void);
} commands[] = {
        { "version", "--version", print_version },
        { "help", "--help", print_help },
};

int main(int argc, char *argv[]) {
        if (argc < 2) {
                fprintf(stderr, "hutch: no command given; see 'hutch --help'\n");
                return EXIT_USAGE;
        }

        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                if (strcmp(argv[1], commands[i].name) == 0 || strcmp(argv[1], commands[i].option) == 0) {
                        if (argc > 2) {
                                fprintf(stderr, "hutch: '%s' takes no arguments; see 'hutch --help'\n", argv[1]);
                                return EXIT_USAGE;
                        }
                        return commands[i].run();
                }

        fprintf(stderr, "hutch: unknown command '%s'; see 'hutch --help'\n", argv[1]);
        return EXIT_USAGE;
}
