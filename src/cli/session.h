/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <stdbool.h>

#include "cli/options.h"
#include "cli/signals.h"

/* A command in a sandbox with this process's stdin, stdout and stderr: what comes in is sent, what it prints is
 * written, the terminal's size and signals are passed on. */

typedef struct Session {
        HutchClient *client;
        const char *sandbox_id;
        HutchExecSpec exec; /* what it is to run; its terminal and stdin are decided by session_choose_input() */

        /* Instead of these: a one-shot, as an encoded hutch.v1.ExecRequest; NULL: none. It ends with a signal. */
        const void *once;
        size_t once_len;
        void (*note_limits)(const void *effective, size_t len, void *user); /* once it has begun; may be NULL */
        void *user;
} Session;

/* Decides by the options --interactive, --tty and --no-tty, and by what stdin and stdout are, whether the command gets
 * a terminal and our stdin. @input: it gets a stdin that is no terminal without being told to. */
void session_choose_input(Session *session, const Arguments *arguments, bool input) __attribute__((nonnull));

/* Runs it to its end.
 *
 *   0            it has ended; *@ret_exit_code is its exit code, or 125 after having told why there is none
 *   -EINTR       it was given up, because @signals had asked to end
 *   -EPIPE       nobody reads its output any more
 *   others       *@ret_error says why, unless it is NULL: then our output cannot be written for that errno */
int session_run(const Session *session, Signals *signals, int *ret_exit_code, HutchError **ret_error)
        __attribute__((nonnull));

/* Tells why it did not end well: what session_run() returned. Returns the exit code. */
int session_report(int r, const HutchError *error, const Signals *signals) __attribute__((nonnull(3)));
