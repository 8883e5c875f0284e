/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* What sandboxes use, as top(1) shows it of processes. */

#define TOP_SORT_KEYS "cpu|memory|processes|disk|execs|age|state|id"

int command_top(const Arguments *arguments) __attribute__((nonnull));
