/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* The commands that run something with our stdin, stdout and stderr. Each returns the exit code: the command's own, or
 * one of exit-codes.h. */

/* In a sandbox of its own, which is deleted whatever happens. */
int command_run(const Arguments *arguments);

/* In a sandbox that is there. */
int command_exec(const Arguments *arguments);
int command_shell(const Arguments *arguments);
