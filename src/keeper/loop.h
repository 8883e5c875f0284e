/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* What the keeper waits for: descriptors and times, as objects that can be let go of at any moment, also from within
 * their own callback. Nothing is called after that. Aborts when memory is out. */

typedef struct Watch Watch;
typedef struct Alarm Alarm;

/* Calls @callback whenever one of @events (UV_READABLE, UV_WRITABLE, UV_PRIORITIZED) or an error is there on @fd, which
 * is borrowed and must stay open as long as the watch. NULL when @fd cannot be waited for. */
Watch *watch_new(uv_loop_t *loop, int fd, int events, void (*callback)(void *user), void *user)
        __attribute__((nonnull(1, 4)));

/* Stops waiting, or goes on. */
void watch_set_active(Watch *watch, bool active) __attribute__((nonnull));

/* Takes NULL. Returns NULL. */
Watch *watch_free(Watch *watch);

/* An alarm that is not set. */
Alarm *alarm_new(uv_loop_t *loop, void (*callback)(void *user), void *user)
        __attribute__((nonnull(1, 2), returns_nonnull));

/* Has it ring once, in @nanoseconds from now, and not as it was set before; UINT64_MAX: never. */
void alarm_set(Alarm *alarm, uint64_t nanoseconds) __attribute__((nonnull));

/* Takes NULL. Returns NULL. */
Alarm *alarm_free(Alarm *alarm);
