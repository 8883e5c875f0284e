/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "cli/options.h"

/* hutch doctor: what Hutch needs of this machine, what it found, and what mends it. Works without a daemon. Returns the
 * exit code: 1 when something is bad. */
int command_doctor(const Arguments *arguments);

/* What was found out. */
typedef enum Verdict {
        VERDICT_OK,
        VERDICT_WARNING, /* sandboxes run, but something is missing */
        VERDICT_BAD,     /* they do not */
} Verdict;

typedef struct Findings {
        struct Finding {
                const char *check;
                Verdict verdict;
                char *found;
                char *mend; /* a command, or a file and its key; "": there is none */
        } * list;
        size_t n;
} Findings;

/* Adds one; @mend may be NULL. */
void findings_add(Findings *findings, const char *check, Verdict verdict, const char *mend, const char *format, ...)
        __attribute__((format(printf, 5, 6), nonnull(1, 2, 5)));

/* Looks at the kernel and its limits. */
void examine_kernel(Findings *findings) __attribute__((nonnull));

/* Looks at what an ordinary user's daemon can have beyond that: other users in its sandboxes. */
void examine_user(Findings *findings) __attribute__((nonnull));

/* Tries which cgroups a daemon started from here would have; @state is a folder on the disk of its state, or "". */
void examine_cgroups(Findings *findings, const char *state) __attribute__((nonnull));

/* Looks at the folders where the daemon of this user has its state and its socket; with the first, at its cgroups. */
void examine_state(Findings *findings, const char *state) __attribute__((nonnull));
void examine_socket(Findings *findings, const char *socket) __attribute__((nonnull));
