/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "daemon/config.h"

/* The daemon: everything put together, on one loop, from its start to its end. */

typedef struct DaemonOptions {
        const char *socket_flag; /* NULL: not given */
        const char *state_flag;
        const char *idle_exit_flag;
        const char *config_path;
        bool config_required; /* somebody named the file, or it was there once */
} DaemonOptions;

/* Serves until a signal ends it (SIGTERM, SIGINT: calls may finish; a second one: at once), or until it was of no use
 * for idle_exit. SIGHUP has it read its configuration again. Returns 0, or a negative errno when it could not begin. */
int daemon_run(Config *config, DaemonOptions *options, HutchError *err) __attribute__((nonnull(1, 2)));

/* Reads the configuration as the daemon does: the file, and over it the flags. A file that was read must be there from
 * then on. */
int daemon_read_config(Config *config, DaemonOptions *options, HutchError *err) __attribute__((nonnull(1, 2)));

/* Reads the files that @config names for callers over TCP, and says what is wrong with them. */
int daemon_check_files(const Config *config, const DaemonOptions *options, HutchError *err)
        __attribute__((nonnull(1, 2)));
