/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the subcommand `run`. What does not: talking to the daemon (client/). */

#include "cli/run.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/paths.h"
#include "cli/exit-codes.h"
#include "client/local-daemon.h"
#include "client/one-shot.h"

static const char help[] = "Usage: hutch run [--socket PATH] [--] COMMAND [ARGUMENT]...\n"
                           "Runs a command in a fresh sandbox, prints what it prints, and removes the sandbox.\n"
                           "\n"
                           "  --socket PATH    the daemon's socket (HUTCH_SOCKET)\n"
                           "  --help           print this and end\n"
                           "\n"
                           "Ends with the command's exit code, or with 125 when Hutch itself failed. When no daemon\n"
                           "answers, one is started for this user, and stays.\n";

static int print_output(int stream, const void *bytes, size_t len, void *user) {
        (void) user;
        return fd_write_all(stream == 2 ? STDERR_FILENO : STDOUT_FILENO, bytes, len);
}

/* Sees to it that a daemon answers on @socket. */
static int find_daemon(const char *socket, HutchError *err) {
        int r = local_daemon_is_there(socket);

        if (r < 0)
                return error_set(err, r, "DAEMON_UNREACHABLE", "cannot connect to %s: %s", socket, strerror(-r));
        if (r > 0)
                return 0;

        r = local_daemon_start(socket, err);
        if (r == 0)
                (void) fprintf(stderr, "hutch: started a daemon on %s\n", socket);
        return r;
}

static int run(const char *socket_flag, char *const argv[], int *ret_exit_code, HutchError *err) {
        _cleanup_free_ char *socket = path_of_socket(socket_flag, NULL, err);
        int r;

        if (!socket)
                return -EINVAL;

        r = find_daemon(socket, err);
        if (r < 0)
                return r;
        return one_shot_run(&(OneShot){ .socket = socket, .argv = argv, .output = print_output }, ret_exit_code, err);
}

int command_run(int argc, char *argv[]) {
        static const struct option options[] = {
                { "socket", required_argument, NULL, 's' },
                { "help", no_argument, NULL, 'h' },
                {},
        };
        _cleanup_(error_clear) HutchError err = {};
        const char *socket = NULL;
        int option, exit_code;

        while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1)
                switch (option) {
                case 's':
                        socket = optarg;
                        break;
                case 'h':
                        (void) fputs(help, stdout);
                        return EXIT_SUCCESS;
                default:
                        (void) fputs("see 'hutch run --help'\n", stderr);
                        return EXIT_USAGE;
                }
        if (optind == argc) {
                (void) fprintf(stderr, "hutch: no command to run; see 'hutch run --help'\n");
                return EXIT_USAGE;
        }

        if (run(socket, argv + optind, &exit_code, &err) < 0) {
                (void) fprintf(stderr, "hutch: %s\n", error_message(&err));
                return EXIT_HUTCH_FAILED;
        }
        return exit_code;
}
