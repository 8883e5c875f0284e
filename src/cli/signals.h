/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Signals while there is something to clean up: they are read like any other input, and what blocks can be given up.
 * The first signal that asks to end (SIGINT, SIGTERM, SIGHUP, SIGQUIT) is remembered, and what is under way goes on for
 * a while. The second, or 10 s, gives up. */

typedef struct Signals {
        int fd;            /* readable when one has come */
        int end;           /* the first that asked to end; 0: none */
        uint64_t given_up; /* when what is under way is given up; UINT64_MAX: not so far */
} Signals;

/* From here on signals are read. SIGPIPE does nothing. */
int signals_open(Signals *ret_signals) __attribute__((nonnull));

/* Takes the next one: its number; 0: there is none. */
int signals_take(Signals *signals) __attribute__((nonnull));

/* Remembers @number if it asks to end: then 1. */
int signals_note_end(Signals *signals, int number) __attribute__((nonnull));

/* Milliseconds until what is under way is given up, for poll(2): -1: never. */
int signals_timeout(const Signals *signals) __attribute__((nonnull));

/* Calls @function, which blocks, beside listening to signals. Returns what it returns, or -EINTR when it was given up:
 * then it still runs, and the process has to end. */
int signals_call(Signals *signals, int (*function)(void *user), void *user) __attribute__((nonnull(1, 2)));

/* Ends the process as one that wrote to a pipe that nobody reads. */
void signals_end_by_pipe(void) __attribute__((noreturn));
