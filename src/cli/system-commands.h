/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* The commands about the daemon itself. Each returns the exit code. */

int command_info(const Arguments *arguments);
int command_version(const Arguments *arguments);
int command_daemon_start(const Arguments *arguments);
int command_daemon_stop(const Arguments *arguments);
int command_daemon_status(const Arguments *arguments);
