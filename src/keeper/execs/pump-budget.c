/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the time that pumps may take, and who waits for more. What does not: pumps (pump.c). */

#include "keeper/execs/pump-budget.h"

#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "keeper/loop.h"

#define PERIOD (100 * NSEC_PER_MSEC)
#define SHARE 4 /* of the sandbox's own time */

struct PumpBudget {
        uv_loop_t *loop;
        Alarm *alarm;   /* NULL: nobody waits */
        uint64_t limit; /* of each period, in nanoseconds */
        uint64_t period_begin, time_at_begin;
        PumpWaiter *waiting;
};

/* What the keeper has used of the processor, for this and for all else: pumps are what can wait. */
static uint64_t processor_time(void) {
        struct timespec time;

        (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return (uint64_t) time.tv_sec * NSEC_PER_SEC + (uint64_t) time.tv_nsec;
}

static void begin_period(PumpBudget *budget, uint64_t now) {
        budget->period_begin = now;
        budget->time_at_begin = processor_time();
}

static void on_alarm(void *user) {
        PumpBudget *budget = user;
        PumpWaiter *waiting = budget->waiting;

        budget->alarm = alarm_free(budget->alarm);
        begin_period(budget, clock_monotonic_ns());
        /* Who waits again from now on is in another list. */
        budget->waiting = NULL;
        if (waiting)
                waiting->at = &waiting;
        while (waiting) {
                PumpWaiter *waiter = waiting;

                pump_waiter_leave(waiter);
                waiter->go_on(waiter->user);
        }
}

PumpBudget *pump_budget_new(uv_loop_t *loop, uint32_t cpu_millis) {
        PumpBudget *budget;

        if (cpu_millis == 0)
                return NULL;

        budget = new0(PumpBudget, 1);
        budget->loop = loop;
        budget->limit = PERIOD / 1000 * cpu_millis / SHARE;
        begin_period(budget, clock_monotonic_ns());
        return budget;
}

bool pump_budget_is_spent(PumpBudget *budget) {
        uint64_t now;

        if (!budget)
                return false;
        if (budget->alarm)
                return true;

        now = clock_monotonic_ns();
        if (now - budget->period_begin >= PERIOD)
                begin_period(budget, now);
        return processor_time() - budget->time_at_begin >= budget->limit;
}

void pump_budget_wait(PumpBudget *budget, PumpWaiter *waiter) {
        uint64_t gone = clock_monotonic_ns() - budget->period_begin;

        if (!budget->alarm) {
                budget->alarm = alarm_new(budget->loop, on_alarm, budget);
                alarm_set(budget->alarm, gone < PERIOD ? PERIOD - gone : 0);
        }
        waiter->next = budget->waiting;
        waiter->at = &budget->waiting;
        if (waiter->next)
                waiter->next->at = &waiter->next;
        budget->waiting = waiter;
}

void pump_waiter_leave(PumpWaiter *waiter) {
        if (!waiter->at)
                return;

        *waiter->at = waiter->next;
        if (waiter->next)
                waiter->next->at = waiter->at;
        waiter->next = NULL;
        waiter->at = NULL;
}
