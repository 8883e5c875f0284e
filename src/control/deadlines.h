/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "control/control.h"

/* What happens because time passes: idle and lifetime ends, tries after a failure, bound execs that nobody claims, and
 * the purge of history. One timer, for the earliest of all. Times are by the clock that does not jump. */

typedef struct Sandbox Sandbox;
typedef struct Exec Exec;

typedef struct Deadlines {
        uv_timer_t timer;
        Sandbox **heap; /* no sandbox's deadline is before that of the one above it */
        size_t n_heap, heap_size;
        uint64_t purge_deadline;
} Deadlines;

void deadlines_start(Control *control) __attribute__((nonnull));

/* @duration after @now; UINT64_MAX, which is never, where that is too late to be told. */
uint64_t deadline_after(uint64_t now, uint64_t duration);

/* Has the timer know the deadlines of a sandbox, after one of them has changed; or forget them. */
void sandbox_arm(Sandbox *sandbox) __attribute__((nonnull));
void sandbox_disarm(Sandbox *sandbox) __attribute__((nonnull));

void sandbox_init_times(Sandbox *sandbox, uint64_t lifetime_left) __attribute__((nonnull));
uint64_t sandbox_lifetime_left(const Sandbox *sandbox, uint64_t now) __attribute__((nonnull));

/* Whether the sandbox is in use has perhaps changed. */
void sandbox_update_idle(Sandbox *sandbox) __attribute__((nonnull));
/* The same of file work, which comes and goes too often to be written down each time. @sign: 1 or -1. */
void sandbox_count_file_call(Sandbox *sandbox, int sign) __attribute__((nonnull));

/* Has an exec cancelled after @time, unless somebody holds it by then. The sandbox is to be armed afterwards. */
void exec_await_claim(Exec *exec, uint64_t time) __attribute__((nonnull));
