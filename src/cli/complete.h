/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* Completion for shells. The scripts ask `hutch __complete -- WORD...` with the words up to the cursor, the last of
 * which is the one to complete. It answers with one candidate in a line, a tab and what it is, or with ":files" or
 * ":programs" where the shell knows better. It never starts a daemon, and leaves ids out when none answers in time. */

/* hutch completion bash|zsh|fish: prints the script. */
int command_completion(const Arguments *arguments);

int command_complete(const Arguments *arguments);
