/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what happens because time passes: idle and lifetime ends, tries after a failure, and the purge of
 * history. One timer, for the earliest of all. What does not: what a stop or delete is (sandboxes.c). */

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "control/plane.h"

#define IDLE_WRITE_INTERVAL (60 * NSEC_PER_SEC) /* how exactly a restarted daemon knows when there was file work */
#define STOP_GRACE (10 * NSEC_PER_SEC)
#define PURGE_BATCH 100
#define PURGE_PAUSE (100 * NSEC_PER_MSEC)      /* while there is more */
#define PURGE_INTERVAL_MIN NSEC_PER_SEC        /* when there was no more: as long as history is kept, */
#define PURGE_INTERVAL_MAX (60 * NSEC_PER_SEC) /* but within these */

uint64_t deadline_after(uint64_t now, uint64_t duration) {
        return duration < UINT64_MAX - now ? now + duration : UINT64_MAX;
}

static void on_timer(uv_timer_t *handle);

static void start_timer(Control *control) {
        uint64_t now = clock_monotonic_ns(), next = control->deadlines.purge_deadline, pause;

        if (control->deadlines.n_heap > 0 && control->deadlines.heap[0]->deadline < next)
                next = control->deadlines.heap[0]->deadline;
        pause = next > now ? (next - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 0;
        uv_update_time(control->loop);
        (void) uv_timer_start(&control->deadlines.timer, on_timer, pause, 0);
}

/* The heap: no sandbox's deadline is before that of the one above it. */

static void heap_put(Control *control, size_t i, Sandbox *sandbox) {
        control->deadlines.heap[i] = sandbox;
        sandbox->heap_index = i;
}

static void heap_sift(Control *control, size_t i) {
        Sandbox *sandbox = control->deadlines.heap[i];

        for (; i > 0 && control->deadlines.heap[(i - 1) / 2]->deadline > sandbox->deadline; i = (i - 1) / 2)
                heap_put(control, i, control->deadlines.heap[(i - 1) / 2]);
        for (;;) {
                size_t child = 2 * i + 1;

                if (child + 1 < control->deadlines.n_heap &&
                    control->deadlines.heap[child + 1]->deadline < control->deadlines.heap[child]->deadline)
                        child++;
                if (child >= control->deadlines.n_heap || control->deadlines.heap[child]->deadline >= sandbox->deadline)
                        break;
                heap_put(control, i, control->deadlines.heap[child]);
                i = child;
        }
        heap_put(control, i, sandbox);
}

void sandbox_disarm(Sandbox *sandbox) {
        Control *control = sandbox->control;
        size_t i = sandbox->heap_index;

        if (i == SIZE_MAX)
                return;
        sandbox->heap_index = SIZE_MAX;
        if (i == --control->deadlines.n_heap)
                return;
        heap_put(control, i, control->deadlines.heap[control->deadlines.n_heap]);
        heap_sift(control, i);
}

void sandbox_arm(Sandbox *sandbox) {
        Control *control = sandbox->control;
        uint64_t next = sandbox->idle_deadline;

        next = next < sandbox->lifetime_deadline ? next : sandbox->lifetime_deadline;
        next = next < sandbox->unclaimed_deadline ? next : sandbox->unclaimed_deadline;
        next = next < sandbox->retry_deadline ? next : sandbox->retry_deadline;
        if (next == UINT64_MAX || sandbox->is_gone) {
                sandbox_disarm(sandbox);
                return;
        }

        sandbox->deadline = next > sandbox->not_before ? next : sandbox->not_before;
        if (sandbox->heap_index == SIZE_MAX) {
                if (control->deadlines.n_heap == control->deadlines.heap_size) {
                        control->deadlines.heap_size = 2 * control->deadlines.heap_size + 16;
                        control->deadlines.heap =
                                xreallocarray(control->deadlines.heap, control->deadlines.heap_size, sizeof(Sandbox *));
                }
                heap_put(control, control->deadlines.n_heap++, sandbox);
        }
        heap_sift(control, sandbox->heap_index);
        if (sandbox->heap_index == 0)
                start_timer(control);
}

/* Idle and lifetime. */

uint64_t sandbox_lifetime_left(const Sandbox *sandbox, uint64_t now) {
        if (sandbox->lifetime_deadline == UINT64_MAX)
                return 0;
        return sandbox->lifetime_deadline > now ? sandbox->lifetime_deadline - now : 0;
}

static uint64_t idle_left(const Sandbox *sandbox) {
        uint64_t ttl = sandbox->record.spec->idle_ttl, now = clock_realtime_ns(), since = sandbox->record.idle_since;
        uint64_t passed = now > since ? now - since : 0;

        return passed < ttl ? ttl - passed : 0;
}

static uint64_t idle_deadline(const Sandbox *sandbox) {
        return sandbox->record.idle_since != 0 && sandbox->record.spec->idle_ttl > 0 && sandbox->n_file_calls == 0
                       ? deadline_after(clock_monotonic_ns(), sandbox->record.spec->idle_ttl)
                       : UINT64_MAX;
}

/* One that is to be deleted is so also when it cannot be used any more. */
static bool can_be_idle(const Sandbox *sandbox) {
        SandboxState state = sandbox->record.state;

        return state == SANDBOX_READY || (sandbox->record.spec->idle_action == IDLE_DELETE &&
                                          (state == SANDBOX_STOPPED || state == SANDBOX_FAILED));
}

void sandbox_update_idle(Sandbox *sandbox) {
        bool is_idle = can_be_idle(sandbox) && sandbox->n_active == 0 && sandbox->n_readers == 0;

        if (sandbox->is_gone || is_idle == (sandbox->record.idle_since != 0))
                return;

        sandbox_change(sandbox);
        sandbox->record.idle_since = is_idle ? clock_realtime_ns() : 0;
        sandbox->idle_deadline = idle_deadline(sandbox);
        sandbox_arm(sandbox);
}

void sandbox_count_file_call(Sandbox *sandbox, int sign) {
        uint64_t now = clock_realtime_ns();

        sandbox->n_file_calls += (uint32_t) sign;
        if (sandbox->is_gone || sandbox->record.idle_since == 0)
                return;

        sandbox->idle_deadline = idle_deadline(sandbox);
        if (sandbox->record.idle_since + IDLE_WRITE_INTERVAL <= now) {
                sandbox->control->lingers = true;
                sandbox_change(sandbox);
                sandbox->record.idle_since = now;
                sandbox->control->lingers = false;
        }
        sandbox_arm(sandbox);
}

void sandbox_init_times(Sandbox *sandbox, uint64_t lifetime_left) {
        const SandboxSpec *spec = sandbox->record.spec;
        uint64_t now = clock_monotonic_ns();

        sandbox->lifetime_deadline =
                spec->max_lifetime > 0 && !sandbox->record.expired ? deadline_after(now, lifetime_left) : UINT64_MAX;
        sandbox->idle_deadline = spec->idle_ttl > 0 && sandbox->record.idle_since != 0
                                         ? deadline_after(now, idle_left(sandbox))
                                         : UINT64_MAX;
        sandbox_arm(sandbox);
}

static void end_lifetime(Sandbox *sandbox) {
        static const char message[] = "its maximum lifetime has passed";

        sandbox_change(sandbox);
        sandbox->record.expired = true;
        sandbox->lifetime_deadline = UINT64_MAX;
        if (sandbox->record.spec->lifetime_action == LIFETIME_DELETE)
                (void) sandbox_delete(sandbox, REASON_SANDBOX_EXPIRED, message, NULL, NULL);
        else
                (void) sandbox_stop(sandbox, STOP_GRACE, REASON_SANDBOX_EXPIRED, message, NULL, NULL);
        FAILPOINT("control.timer.lifetime");
}

static void end_idle(Sandbox *sandbox) {
        static const char message[] = "nothing used it for its idle time";

        if (sandbox->record.spec->idle_action == IDLE_DELETE)
                (void) sandbox_delete(sandbox, REASON_UNSPECIFIED, message, NULL, NULL);
        else
                (void) sandbox_stop(sandbox, STOP_GRACE, REASON_UNSPECIFIED, message, NULL, NULL);
        FAILPOINT("control.timer.idle");
}

void exec_await_claim(Exec *exec, uint64_t time) {
        Sandbox *sandbox = exec->sandbox;

        exec->claim_deadline = clock_monotonic_ns() + time;
        if (exec->claim_deadline < sandbox->unclaimed_deadline)
                sandbox->unclaimed_deadline = exec->claim_deadline;
}

/* What a call ran, and nobody came back to in time. */
static void end_unclaimed(Sandbox *sandbox, uint64_t now) {
        sandbox->unclaimed_deadline = UINT64_MAX;
        for (size_t i = sandbox->n_execs; i > 0; i--) {
                Exec *exec = sandbox->execs[i - 1];

                if (exec->claim_deadline > now && exec->claim_deadline < sandbox->unclaimed_deadline)
                        sandbox->unclaimed_deadline = exec->claim_deadline;
                if (exec->claim_deadline == 0 || exec->claim_deadline > now)
                        continue;

                exec->claim_deadline = 0;
                if (exec_is_active(exec))
                        exec_cancel(exec, exec->record.spec->kill_grace, NULL);
        }
        FAILPOINT("control.timer.unclaimed");
}

static void time_passed(Sandbox *sandbox, uint64_t now) {
        if (sandbox->retry_deadline <= now) {
                sandbox->retry_deadline = UINT64_MAX;
                sandbox_touch(sandbox);
        }
        if (sandbox->unclaimed_deadline <= now)
                end_unclaimed(sandbox, now);
        if (sandbox->lifetime_deadline <= now)
                end_lifetime(sandbox);
        /* A commit that failed has put these back, whoever came or went meanwhile. */
        sandbox_update_idle(sandbox);
        if (sandbox->n_file_calls > 0)
                sandbox->idle_deadline = UINT64_MAX;
        if (sandbox->idle_deadline <= now)
                end_idle(sandbox);
        sandbox_arm(sandbox);
}

static uint64_t purge_interval(const ControlLimits *limits) {
        if (limits->history_retention < PURGE_INTERVAL_MIN)
                return PURGE_INTERVAL_MIN;
        return limits->history_retention < PURGE_INTERVAL_MAX ? limits->history_retention : PURGE_INTERVAL_MAX;
}

/* History: in a transaction of its own, so that nothing else fails with it. */
static void purge(Control *control) {
        _cleanup_(error_clear) HutchError err = {};
        Store *store = control->options.store;
        const ControlLimits *limits = &control->options.limits;
        uint64_t now = clock_realtime_ns();
        int requests = 0, sandboxes = 0, r = 0;
        bool is_more;

        control_commit(control);
        if (limits->request_retention < now)
                r = requests = store_purge_requests(store, now - limits->request_retention, PURGE_BATCH, &err);
        if (r >= 0 && limits->history_retention < now)
                r = sandboxes = store_purge_sandboxes(store, now - limits->history_retention, PURGE_BATCH, &err);
        if (r >= 0)
                r = store_commit(store, &err);
        else
                (void) store_commit(store, NULL); /* takes it back */
        if (r < 0)
                log_warning("history cannot be purged", LOG_STR("error", error_message(&err)));

        is_more = r >= 0 && (requests == PURGE_BATCH || sandboxes == PURGE_BATCH);
        control->deadlines.purge_deadline = clock_monotonic_ns() + (is_more ? PURGE_PAUSE : purge_interval(limits));
        FAILPOINT("control.timer.purge");
}

static void on_timer(uv_timer_t *handle) {
        Control *control = handle->data;
        uint64_t now = clock_monotonic_ns();

        while (control->deadlines.n_heap > 0 && control->deadlines.heap[0]->deadline <= now)
                time_passed(control->deadlines.heap[0], now);
        if (control->deadlines.purge_deadline <= now)
                purge(control);
        start_timer(control);
}

void deadlines_start(Control *control) {
        control->deadlines.purge_deadline = clock_monotonic_ns() + PURGE_PAUSE;
        start_timer(control);
}
