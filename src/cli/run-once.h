/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* `run --once`. Returns the exit code. */
int run_in_one_call(const Arguments *arguments) __attribute__((nonnull));
