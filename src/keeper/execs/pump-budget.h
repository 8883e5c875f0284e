/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A bound on the processor time that pumps take for a sandbox whose own is limited: who prints at full speed has the
 * keeper work as hard, outside of the sandbox's limit. Pumps that have spent it wait for the next period, and so, with
 * a full pipe, does who prints. */

typedef struct PumpBudget PumpBudget;

/* One that waits; in what it belongs to. */
typedef struct PumpWaiter PumpWaiter;
struct PumpWaiter {
        PumpWaiter *next, **at; /* in the list, and what points to it there; NULL: it does not wait */
        void (*go_on)(void *user);
        void *user;
};

/* A quarter of @cpu_millis more. NULL, with 0: there is no bound. The caller frees it when no pump has
 * it any more. */
PumpBudget *pump_budget_new(uv_loop_t *loop, uint32_t cpu_millis) __attribute__((nonnull));

/* Whether nothing is left of the period. NULL: never. */
bool pump_budget_is_spent(PumpBudget *budget);

/* Calls @waiter when the next period begins, once. */
void pump_budget_wait(PumpBudget *budget, PumpWaiter *waiter) __attribute__((nonnull));

/* Has it not be called, if it waits. */
void pump_waiter_leave(PumpWaiter *waiter) __attribute__((nonnull));
