/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: hutchd's command line. What does not: the daemon (daemon.c). */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/paths.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "store/store.h"

static const char help[] = "Usage: hutchd [OPTION]...\n"
                           "Serves sandboxes on a Unix socket and, when it is configured, over TCP with TLS.\n"
                           "\n"
                           "  --socket PATH     where to listen (HUTCH_SOCKET)\n"
                           "  --state FOLDER    where to keep what must last (HUTCH_STATE)\n"
                           "  --config FILE     the configuration to read (HUTCH_CONFIG)\n"
                           "  --idle-exit TIME  end after having been of no use for that long: 10m (0: never)\n"
                           "  --check-config    read the configuration and its files, say what is wrong, and end\n"
                           "  --print-config    print the configuration's reference, with every default, and end\n"
                           "  --backup FILE     copy the store, also of a running daemon, to a new file, and end\n"
                           "  --version         print the version and end\n"
                           "  --help            print this and end\n"
                           "\n"
                           "SIGTERM ends the daemon once its calls are done; sandboxes run on. SIGHUP has it read its\n"
                           "configuration, certificates and tokens again.\n";

enum { EXIT_USAGE = 2 };

typedef struct Options {
        DaemonOptions daemon;
        const char *config_flag;
        const char *backup;
        bool check_config;
} Options;

/* Prints what was asked for and tells how to end, or returns -1 to go on. */
static int parse_options(int argc, char *argv[], Options *options) {
        enum {
                OPT_SOCKET = 256,
                OPT_STATE,
                OPT_CONFIG,
                OPT_IDLE_EXIT,
                OPT_CHECK,
                OPT_PRINT,
                OPT_BACKUP,
                OPT_VERSION,
                OPT_HELP
        };
        static const struct option table[] = {
                { "socket", required_argument, NULL, OPT_SOCKET },
                { "state", required_argument, NULL, OPT_STATE },
                { "config", required_argument, NULL, OPT_CONFIG },
                { "idle-exit", required_argument, NULL, OPT_IDLE_EXIT },
                { "check-config", no_argument, NULL, OPT_CHECK },
                { "print-config", no_argument, NULL, OPT_PRINT },
                { "backup", required_argument, NULL, OPT_BACKUP },
                { "version", no_argument, NULL, OPT_VERSION },
                { "help", no_argument, NULL, OPT_HELP },
                {},
        };

        for (;;)
                switch (getopt_long(argc, argv, "", table, NULL)) {
                case OPT_SOCKET:
                        options->daemon.socket_flag = optarg;
                        break;
                case OPT_STATE:
                        options->daemon.state_flag = optarg;
                        break;
                case OPT_CONFIG:
                        options->config_flag = optarg;
                        break;
                case OPT_IDLE_EXIT:
                        options->daemon.idle_exit_flag = optarg;
                        break;
                case OPT_CHECK:
                        options->check_config = true;
                        break;
                case OPT_BACKUP:
                        options->backup = optarg;
                        break;
                case OPT_PRINT:
                        config_print_reference(stdout);
                        return EXIT_SUCCESS;
                case OPT_VERSION:
                        (void) puts("hutchd " HUTCH_VERSION);
                        return EXIT_SUCCESS;
                case OPT_HELP:
                        (void) fputs(help, stdout);
                        return EXIT_SUCCESS;
                case -1:
                        if (optind == argc)
                                return -1;
                        (void) fprintf(stderr, "hutchd: unexpected argument '%s'; see hutchd --help\n", argv[optind]);
                        return EXIT_USAGE;
                default:
                        (void) fputs("see hutchd --help\n", stderr);
                        return EXIT_USAGE;
                }
}

static int backup(const Config *config, const Options *options, HutchError *err) {
        _cleanup_free_ char *state = path_of_state(options->daemon.state_flag, config->state, err);
        _cleanup_free_ char *file = NULL;

        if (!state)
                return -EINVAL;
        if (asprintf(&file, "%s/hutch.db", state) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory");
        return store_backup(file, options->backup, err);
}

static int run(Options *options, HutchError *err) {
        _cleanup_(config_clear) Config config = {};
        _cleanup_free_ char *path = path_of_configuration(options->config_flag, &options->daemon.config_required, err);
        int r;

        if (!path)
                return -EINVAL;

        options->daemon.config_path = path;
        r = daemon_read_config(&config, &options->daemon, err);
        if (r < 0)
                return r;
        if (options->check_config)
                return daemon_check_files(&config, &options->daemon, err);
        if (options->backup)
                return backup(&config, options, err);
        return daemon_run(&config, &options->daemon, err);
}

int main(int argc, char *argv[]) {
        _cleanup_(error_clear) HutchError err = {};
        Options options = {};
        int r = parse_options(argc, argv, &options);

        if (r >= 0)
                return r;

        r = run(&options, &err);
        if (r < 0)
                (void) fprintf(stderr, "hutchd: %s\n", error_message(&err));
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
