/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* hutch events: what has happened to sandboxes, and with --follow what happens. Returns the exit code. */
int command_events(const Arguments *arguments);
