/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"
#include "control/control.h"

/* Those who watch events. They are found by what they want: certain sandboxes, those of an owner (in the owner), or
 * all. */

typedef struct Watches {
        Watch *for_all;          /* everybody's that are for all sandboxes */
        Table by_id;             /* lists of WatchLink */
        size_t n;                /* all of them */
        Watch *wake, **wake_end; /* have something to read */
        size_t n_wake;
        size_t looks_left; /* events that watches may look at in this turn */
} Watches;

/* An event may be seen. */
void watches_tell(Control *control, const EventRow *row) __attribute__((nonnull));

/* Calls those that have something to read. */
void watches_wake(Control *control) __attribute__((nonnull));
