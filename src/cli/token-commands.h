/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* The commands about the tokens that a daemon accepts over TCP. Each returns the exit code. */

int command_token_create(const Arguments *arguments);
int command_token_list(const Arguments *arguments);
int command_token_revoke(const Arguments *arguments);
