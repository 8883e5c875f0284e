/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the lifetimes of libuv's handles. What does not: what is done when something happens. */

#include "keeper/loop.h"

#include "base/clock.h"
#include "base/memory.h"

struct Watch {
        uv_poll_t poll; /* first: it is freed by its handle */
        int events;
        bool active;
        void (*callback)(void *user);
        void *user;
};

struct Alarm {
        uv_timer_t timer; /* first */
        void (*callback)(void *user);
        void *user;
};

static void on_closed(uv_handle_t *handle) {
        free(handle);
}

static void on_event(uv_poll_t *poll, int status, int events) {
        Watch *watch = (Watch *) poll;

        (void) events;
        /* libuv stops at an error; whoever reads or writes next learns what it is. */
        if (status < 0)
                watch->active = false;
        watch->callback(watch->user);
}

Watch *watch_new(uv_loop_t *loop, int fd, int events, void (*callback)(void *user), void *user) {
        Watch *watch = new0(Watch, 1);

        watch->events = events;
        watch->callback = callback;
        watch->user = user;
        if (uv_poll_init(loop, &watch->poll, fd) < 0) {
                free(watch);
                return NULL;
        }

        watch_set_active(watch, true);
        return watch;
}

void watch_set_active(Watch *watch, bool active) {
        if (watch->active == active)
                return;

        watch->active = active;
        if (active)
                (void) uv_poll_start(&watch->poll, watch->events, on_event);
        else
                (void) uv_poll_stop(&watch->poll);
}

Watch *watch_free(Watch *watch) {
        if (watch)
                uv_close((uv_handle_t *) &watch->poll, on_closed);
        return NULL;
}

static void on_timer(uv_timer_t *timer) {
        Alarm *alarm = (Alarm *) timer;

        alarm->callback(alarm->user);
}

Alarm *alarm_new(uv_loop_t *loop, void (*callback)(void *user), void *user) {
        Alarm *alarm = new0(Alarm, 1);

        (void) uv_timer_init(loop, &alarm->timer);
        alarm->callback = callback;
        alarm->user = user;
        return alarm;
}

void alarm_set(Alarm *alarm, uint64_t nanoseconds) {
        if (nanoseconds == UINT64_MAX) {
                (void) uv_timer_stop(&alarm->timer);
                return;
        }

        /* libuv counts in milliseconds, rounded down, from when its turn began. No alarm is early. */
        uv_update_time(alarm->timer.loop);
        uint64_t due = clock_monotonic_ns();
        due = nanoseconds < UINT64_MAX - NSEC_PER_SEC - due ? due + nanoseconds + NSEC_PER_MSEC - 1 : UINT64_MAX;
        (void) uv_timer_start(&alarm->timer, on_timer, due / NSEC_PER_MSEC - uv_now(alarm->timer.loop), 0);
}

Alarm *alarm_free(Alarm *alarm) {
        if (alarm)
                uv_close((uv_handle_t *) &alarm->timer, on_closed);
        return NULL;
}
