/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: hutchd's command line. What does not: the daemon (daemon.c). */

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/remote.h"
#include "local/paths.h"
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
                           "  --print-tokens-file\n"
                           "                    print which file of tokens is configured, and end\n"
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
        bool print_tokens_file;
} Options;

static int __attribute__((format(printf, 1, 2))) refuse(const char *format, ...) {
        va_list list;

        (void) fputs("hutchd: ", stderr);
        va_start(list, format);
        (void) vfprintf(stderr, format, list);
        va_end(list);
        (void) fputs("; see hutchd --help\n", stderr);
        return EXIT_USAGE;
}

/* What getopt_long() has found wrong with the word before the next. */
static int refuse_option(int found, const char *word) {
        if (found == ':')
                return refuse("%s needs a value", word);
        if (optopt > UINT8_MAX)
                return refuse("%.*s takes no value", (int) strcspn(word, "="), word);
        return optopt ? refuse("unknown option '-%c'", optopt) : refuse("unknown option '%s'", word);
}

/* Prints what was asked for and tells how to end, or returns -1 to go on. */
static int parse_options(int argc, char *argv[], Options *options) {
        enum { SOCKET = 256, STATE, CONFIG, IDLE_EXIT, CHECK, PRINT, PRINT_TOKENS_FILE, BACKUP, VERSION, HELP };
        static const struct option table[] = {
                { "socket", required_argument, NULL, SOCKET },
                { "state", required_argument, NULL, STATE },
                { "config", required_argument, NULL, CONFIG },
                { "idle-exit", required_argument, NULL, IDLE_EXIT },
                { "check-config", no_argument, NULL, CHECK },
                { "print-config", no_argument, NULL, PRINT },
                { "print-tokens-file", no_argument, NULL, PRINT_TOKENS_FILE },
                { "backup", required_argument, NULL, BACKUP },
                { "version", no_argument, NULL, VERSION },
                { "help", no_argument, NULL, HELP },
                {},
        };
        int found, index = 0;

        opterr = 0;
        while ((found = getopt_long(argc, argv, ":", table, &index)) >= 0) {
                if (found >= SOCKET && optarg && !*optarg)
                        return refuse("--%s cannot be empty", table[index].name);
                switch (found) {
                case SOCKET:
                        options->daemon.socket_flag = optarg;
                        break;
                case STATE:
                        options->daemon.state_flag = optarg;
                        break;
                case CONFIG:
                        options->config_flag = optarg;
                        break;
                case IDLE_EXIT:
                        options->daemon.idle_exit_flag = optarg;
                        break;
                case CHECK:
                        options->check_config = true;
                        break;
                case PRINT_TOKENS_FILE:
                        options->print_tokens_file = true;
                        break;
                case BACKUP:
                        options->backup = optarg;
                        break;
                case PRINT:
                        config_print_reference(stdout);
                        return EXIT_SUCCESS;
                case VERSION:
                        (void) puts("hutchd " HUTCH_VERSION);
                        return EXIT_SUCCESS;
                case HELP:
                        (void) fputs(help, stdout);
                        return EXIT_SUCCESS;
                default:
                        return refuse_option(found, argv[optind - 1]);
                }
        }
        if (optind < argc)
                return refuse("unexpected argument '%s'", argv[optind]);
        if (options->check_config + options->print_tokens_file + (options->backup != NULL) > 1)
                return refuse("--check-config, --print-tokens-file and --backup exclude each other");
        return -1;
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

static int print_tokens_file(const Config *config, const Options *options, HutchError *err) {
        _cleanup_free_ char *state = path_of_state(options->daemon.state_flag, config->state, err);
        _cleanup_free_ char *file = state ? remote_tokens_file(config, state) : NULL;

        if (!file)
                return -EINVAL;
        return puts(file) < 0 || fflush(stdout) != 0
                       ? error_set(err, -errno, "INTERNAL", "cannot write: %s", strerror(errno))
                       : 0;
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
        if (options->print_tokens_file)
                return print_tokens_file(&config, options, err);
        if (options->backup)
                return backup(&config, options, err);
        return daemon_run(&config, &options->daemon, err);
}

int main(int argc, char *argv[]) {
        _cleanup_(error_clear) HutchError err = {};
        Options options = {};
        int r = parse_options(argc, argv, &options);

        if (r == EXIT_SUCCESS && (fflush(stdout) != 0 || ferror(stdout))) {
                (void) fprintf(stderr, "hutchd: cannot write: %s\n", strerror(errno));
                return EXIT_FAILURE;
        }
        if (r >= 0)
                return r;

        r = run(&options, &err);
        if (r < 0)
                (void) fprintf(stderr, "hutchd: %s\n", error_message(&err));
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
