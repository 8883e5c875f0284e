/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* The commands about files of a sandbox. Each returns the exit code. */

int command_file_list(const Arguments *arguments);
int command_file_cat(const Arguments *arguments);
int command_file_stat(const Arguments *arguments);
int command_file_remove(const Arguments *arguments);
int command_file_make_directory(const Arguments *arguments);
int command_file_move(const Arguments *arguments);
int command_file_diff(const Arguments *arguments);
int command_file_watch(const Arguments *arguments);
