/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* `hutch cp`: files and folders between this machine and sandboxes, and between sandboxes. Returns the exit code. */
int command_copy(const Arguments *arguments);
