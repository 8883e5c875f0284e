/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "control/control.h"

/* Events: made with a change, in the store with its commit, and then shown. The latest ones are in a ring in memory,
 * which all watches share; older ones are in the store alone. */

typedef struct Sandbox Sandbox;
typedef struct EventItem EventItem;

/* An event, encoded, with its texts behind it. */
struct EventItem {
        EventItem *next;
        EventRow row;
};

typedef struct EventLog {
        uint64_t last_cursor;    /* given out */
        uint64_t durable_cursor; /* the last that may be seen */
        EventItem *pending, **pending_end;
        EventItem **unwritten; /* where those begin that the store does not have */
        EventItem **ring;      /* by cursor modulo its size */
        size_t ring_size;
        uint64_t ring_first; /* the oldest in it */
} EventLog;

/* The log goes on after @last_cursor, which the store has. */
void event_log_init(EventLog *log, uint64_t last_cursor) __attribute__((nonnull));

/* Adds an event of @sandbox, which is changed by that. */
void event_add(Sandbox *sandbox, Event *event, const Caller *caller) __attribute__((nonnull(1, 2)));

/* Gives the store what it does not have yet. */
int event_log_write(EventLog *log, Store *store, HutchError *err) __attribute__((nonnull(1, 2)));

void event_log_publish(Control *control) __attribute__((nonnull)); /* after the commit: tells the watches */
void event_log_drop(EventLog *log) __attribute__((nonnull));       /* after one that failed */
void event_log_resize(EventLog *log, size_t size) __attribute__((nonnull));
void event_log_free(EventLog *log) __attribute__((nonnull));
