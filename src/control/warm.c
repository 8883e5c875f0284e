/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the warm pool: sandboxes that are started before anybody asks for them. They belong to nobody and
 * are in no row of the store, until a create that wants one just like them takes one over, which is then as with any
 * other whose start was asked for, but that it is answered before the commit. What does not: how it goes on with that.
 *
 * They are of the shape of the latest create that could be served, and made one by one, when nothing else is being
 * started. Who is let down by the pool has the oldest one of another shape replaced. What a daemon that crashed left of
 * them is removed by the next as everything is that belongs to nobody (recover.c). */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"
#include "control/text.h"

#define SETTLE_TIME (20 * NSEC_PER_MSEC) /* of quiet before one is made: what was created has its first exec started */
#define PAUSE_MIN NSEC_PER_SEC           /* after one that failed; it doubles, up to */
#define PAUSE_MAX (60 * NSEC_PER_SEC)
#define END_TIME (3 * NSEC_PER_SEC)

struct WarmSandbox {
        Control *control;
        WarmSandbox *next;
        RuntimeSandbox *remote;
        WarmShape shape;
        uint32_t uid_slot;
        uint64_t keep_until;
        bool is_ready;
        char id[ID_LEN_MAX + 1];
};

void warm_shape_clear(WarmShape *shape) {
        free(shape->bytes);
        *shape = (WarmShape){};
}

static bool shapes_are_equal(const WarmShape *a, const WarmShape *b) {
        return a->runtime == b->runtime && a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static WarmShape shape_copy(const WarmShape *shape) {
        WarmShape copy = { .runtime = shape->runtime, .bytes = new0(uint8_t, shape->len), .len = shape->len };

        memcpy(copy.bytes, shape->bytes, shape->len);
        return copy;
}

static size_t wanted_size(const Control *control) {
        return control->warm.is_ended ? 0 : control->options.limits.warm_sandboxes;
}

/* Where the link to it is. */
static WarmSandbox **place_of(Control *control, const char *id) {
        WarmSandbox **place = &control->warm.oldest;

        while (*place && !str_equal((*place)->id, id))
                place = &(*place)->next;
        return place;
}

/* Takes it out of the pool; the caller has what it had. */
static WarmSandbox *unlink_warm(Control *control, WarmSandbox **place) {
        WarmSandbox *warm = *place;

        *place = warm->next;
        control->warm.n--;
        return warm;
}

static void warm_sandbox_free(WarmSandbox *warm) {
        warm_shape_clear(&warm->shape);
        free(warm);
}

static void retire(Control *control, WarmSandbox **place) {
        WarmSandbox *warm = unlink_warm(control, place);

        log_debug("a warm sandbox is removed", LOG_STR("sandbox", warm->id));
        orphan_add(control, warm->id, warm->remote, warm->uid_slot);
        warm_sandbox_free(warm);
}

/* The oldest that is not of the shape that is wanted; what it points to is NULL when there is none. */
static WarmSandbox **find_other_shape(Control *control) {
        WarmSandbox **place = &control->warm.oldest;

        while (*place && shapes_are_equal(&(*place)->shape, &control->warm.shape))
                place = &(*place)->next;
        return place;
}

static bool is_starting_one(const Control *control) {
        for (const WarmSandbox *warm = control->warm.oldest; warm; warm = warm->next)
                if (!warm->is_ready)
                        return true;
        return false;
}

static bool wants_one(Control *control, uint64_t now) {
        const WarmPool *pool = &control->warm;
        size_t size = wanted_size(control);

        return size > 0 && pool->spec && now < pool->last_create + control->options.warm_time &&
               !is_starting_one(control) && (pool->n < size || (pool->missed && *find_other_shape(control)));
}

static void on_timer(uv_timer_t *handle);

static void arm(Control *control) {
        uint64_t now = clock_monotonic_ns(), next = UINT64_MAX;
        WarmPool *pool = &control->warm;

        if (wants_one(control, now))
                next = pool->not_before;
        if (pool->oldest && pool->oldest->keep_until < next)
                next = pool->oldest->keep_until;
        if (pool->end_done)
                next = control->orphans ? pool->end_latest : now;
        if (next == UINT64_MAX) {
                (void) uv_timer_stop(&pool->timer);
                return;
        }
        uv_update_time(control->loop);
        (void) uv_timer_start(&pool->timer, on_timer, next > now ? (next - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 0,
                              0);
}

static void not_before(WarmPool *pool, uint64_t time) {
        if (pool->not_before < time)
                pool->not_before = time;
}

/* What the runtime tells. */

static void on_started(void *user) {
        WarmSandbox *warm = user;

        log_debug("a warm sandbox is ready", LOG_STR("sandbox", warm->id));
        FAILPOINT("control.warm.ready");
        warm->is_ready = true;
        not_before(&warm->control->warm, clock_monotonic_ns() + SETTLE_TIME);
        arm(warm->control);
}

static void on_failed(void *user, const HutchError *err) {
        WarmSandbox *warm = user;
        Control *control = warm->control;
        WarmPool *pool = &control->warm;

        log_warning("a warm sandbox failed", LOG_STR("sandbox", warm->id),
                    LOG_STR("error", err ? error_message(err) : NULL));
        retire(control, place_of(control, warm->id));
        pool->pause = pool->pause == 0 ? PAUSE_MIN : 2 * pool->pause;
        if (pool->pause > PAUSE_MAX)
                pool->pause = PAUSE_MAX;
        not_before(pool, clock_monotonic_ns() + pool->pause);
        arm(control);
}

static void make_one(Control *control) {
        WarmSandbox *warm = new0(WarmSandbox, 1), **end = &control->warm.oldest;
        WarmPool *pool = &control->warm;

        warm->control = control;
        warm->shape = shape_copy(&pool->shape);
        warm->uid_slot = uid_slots_take(&control->uid_slots);
        warm->keep_until = clock_monotonic_ns() + control->options.warm_time;
        id_make("sb-", warm->id);
        while (*end)
                end = &(*end)->next;
        *end = warm;
        pool->n++;
        pool->missed = false;

        warm->remote = pool->shape.runtime->verbs->attach(pool->shape.runtime, warm->id, &pool->events, warm);
        warm->remote->verbs->start(warm->remote, &(RuntimeSpec){
                                                         .spec = pool->spec,
                                                         .uid_slot = warm->uid_slot,
                                                         .owner = "",
                                                         .expected_user = pool->spec->user,
                                                         .expects_patiently = true,
                                                 });
        FAILPOINT("control.warm.started");
}

static void on_timer(uv_timer_t *handle) {
        Control *control = handle->data;
        uint64_t now = clock_monotonic_ns();
        WarmPool *pool = &control->warm;

        if (pool->end_done && (!control->orphans || pool->end_latest <= now)) {
                TAKE_PTR(pool->end_done)(pool->end_user);
                return;
        }

        while (pool->oldest && pool->oldest->keep_until <= now)
                retire(control, &pool->oldest);
        if (wants_one(control, now) && pool->not_before <= now) {
                if (control->n_pending > 0) {
                        pool->not_before = now + SETTLE_TIME;
                } else {
                        if (pool->n >= wanted_size(control))
                                retire(control, find_other_shape(control));
                        make_one(control);
                }
        }
        arm(control);
}

/* What the others ask. */

void warm_init(Control *control) {
        WarmPool *pool = &control->warm;

        (void) uv_timer_init(control->loop, &pool->timer);
        pool->timer.data = control;
        /* Nothing is asked of one but its start. */
        pool->events = orphan_runtime_events;
        pool->events.started = on_started;
        pool->events.start_failed = pool->events.lost = on_failed;
}

void warm_choose_id(Control *control, const SandboxSpec *spec, WarmShape *ret_shape,
                    char ret_id[static ID_LEN_MAX + 1]) {
        Runtime *runtime = wanted_size(control) > 0 ? runtime_find(control, spec->runtime) : NULL;
        const WarmSandbox *warm = control->warm.oldest;

        id_make("sb-", ret_id);
        if (!runtime || runtime->verbs->get_shape(runtime, spec, &ret_shape->bytes, &ret_shape->len) < 0)
                return;

        ret_shape->runtime = runtime;
        while (warm && !(warm->is_ready && shapes_are_equal(&warm->shape, ret_shape)))
                warm = warm->next;
        if (warm)
                text_copy(ret_id, ID_LEN_MAX + 1, warm->id);
}

bool warm_is_there(const Control *control, const char *id) {
        for (const WarmSandbox *warm = control->warm.oldest; warm; warm = warm->next)
                if (str_equal(warm->id, id))
                        return true;
        return false;
}

bool warm_take(Sandbox *sandbox, WarmShape *shape) {
        Control *control = sandbox->control;
        WarmPool *pool = &control->warm;
        WarmSandbox **place = place_of(control, sandbox->record.id);
        uint64_t now = clock_monotonic_ns();

        not_before(pool, now + SETTLE_TIME);
        if (!shape->bytes)
                return false;

        pool->last_create = now;
        pool->missed = !*place;
        warm_shape_clear(&pool->shape);
        pool->shape = *shape;
        *shape = (WarmShape){};
        (void) sandbox_spec_unref(pool->spec);
        pool->spec = sandbox_spec_ref(sandbox->record.spec);
        if (*place) {
                WarmSandbox *warm = unlink_warm(control, place);

                pool->pause = 0;
                sandbox->was_warm = true;
                sandbox->operation = OPERATION_START;
                sandbox->record.uid_slot = warm->uid_slot;
                sandbox->remote = warm->remote;
                sandbox->remote->verbs->rebind(sandbox->remote, &sandbox_runtime_events, sandbox);
                warm_sandbox_free(warm);
        }
        arm(control);
        return sandbox->was_warm;
}

void warm_tell_started(Control *control) {
        for (Sandbox *sandbox = control->touched; sandbox; sandbox = sandbox->next_touched)
                if (sandbox->is_new && sandbox->was_warm && sandbox->operation == OPERATION_START)
                        sandbox_runtime_events.started(sandbox);
}

void warm_update(Control *control) {
        while (control->warm.n > wanted_size(control))
                retire(control, &control->warm.oldest);
        arm(control);
}

void control_end_warm(Control *control, void (*done)(void *user), void *user) {
        WarmPool *pool = &control->warm;

        pool->is_ended = true;
        pool->end_latest = clock_monotonic_ns() + END_TIME;
        pool->end_done = done;
        pool->end_user = user;
        warm_update(control);
}

void warm_free(Control *control) {
        WarmPool *pool = &control->warm;

        while (pool->oldest) {
                WarmSandbox *warm = unlink_warm(control, &pool->oldest);

                warm->remote->verbs->free(warm->remote);
                warm_sandbox_free(warm);
        }
        warm_shape_clear(&pool->shape);
        pool->spec = sandbox_spec_unref(pool->spec);
}
