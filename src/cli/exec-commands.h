/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>

#include "cli/options.h"

/* The commands about execs that nobody here is attached to. Each returns the exit code. */

int command_exec_list(const Arguments *arguments);
int command_exec_get(const Arguments *arguments);
int command_exec_cancel(const Arguments *arguments);
int command_exec_logs(const Arguments *arguments);

/* Starts @exec and prints its id: `exec --detach`. */
int exec_detached(const Arguments *arguments, HutchExecSpec *exec) __attribute__((nonnull));

/* What the options of `exec` say. @env holds the variables that @exec points to, for strv_free(). */
int exec_spec_from_arguments(const Arguments *arguments, HutchExecSpec *exec, char ***ret_env, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));
