/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "keeper/execs/pump-budget.h"

/* Pumps: carry what a process writes, into a pipe or a terminal, to its output file, as fast as it comes and the disk
 * takes it, within a budget, whoever reads the file. Each has one piece carried per turn of the loop. */

typedef struct Pump Pump;

/* Carries from @source, which must not block and is taken over, to the file @name in @folder, of which @limit bytes are
 * kept. @budget: NULL, or shared by all of a sandbox. The file is made with the first byte: many commands say nothing.
 * Calls @ended when the source has ended. NULL when the source cannot be waited for. */
Pump *pump_new(uv_loop_t *loop, PumpBudget *budget, int source, int folder, const char *name, uint64_t limit,
               void (*ended)(void *user), void *user) __attribute__((nonnull(1, 5, 7)));

/* Bytes that came so far, and how many of them are not kept. */
uint64_t pump_total(const Pump *pump) __attribute__((nonnull));
uint64_t pump_dropped(const Pump *pump) __attribute__((nonnull));

/* Carries what is there now, but for a bound. */
void pump_catch_up(Pump *pump) __attribute__((nonnull));

/* Lets go of it. When the source has not ended, what still comes is thrown away until it does: whoever writes goes on
 * undisturbed. Takes NULL. Returns NULL. */
Pump *pump_free(Pump *pump);
