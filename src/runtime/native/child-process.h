/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#include "base/error.h"

/* Processes that the daemon started, or that an earlier one did: known by a pidfd, so that none is ever taken for
 * another. */

typedef struct ChildProcess ChildProcess;

#define CHILD_FREE_DESCRIPTOR 256 /* above those that a process is given: a program that is one of these must be */

/* How a process ended. */
typedef struct ChildEnd {
        bool known; /* not of one that somebody else started */
        bool signaled;
        int status; /* the exit code, or the signal */
} ChildEnd;

/* Called once, from the loop, when it has ended; it is reaped then. */
typedef void (*ChildEnded)(void *user, ChildEnd end);

typedef struct ChildOptions {
        const char *program;
        char *const *argv;
        int standard_error;     /* also standard output; -1: those of the daemon */
        const int *descriptors; /* become 3, 4 and so on, below CHILD_FREE_DESCRIPTOR */
        size_t n_descriptors;
} ChildOptions;

/* Starts a process in a session of its own, with a clean environment and an empty standard input; it has no other
 * descriptors than the given ones. */
int child_process_spawn(uv_loop_t *loop, const ChildOptions *options, ChildEnded ended, void *user,
                        ChildProcess **ret_child, HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));

/* Watches @pid, a child of the daemon that nobody has reaped. When that fails it is killed. */
int child_process_watch(uv_loop_t *loop, pid_t pid, ChildEnded ended, void *user, ChildProcess **ret_child,
                        HutchError *err) __attribute__((nonnull(1, 3, 5)));

/* Watches the process of @pidfd, which is taken over, also when it fails. */
int child_process_adopt(uv_loop_t *loop, int pidfd, ChildEnded ended, void *user, ChildProcess **ret_child)
        __attribute__((nonnull(1, 3, 5)));

/* Has it end, by SIGKILL. */
void child_process_kill(ChildProcess *child) __attribute__((nonnull));

/* Lets go of it, whether it runs or not: its end is not told. @child may be NULL. Returns NULL. */
ChildProcess *child_process_free(ChildProcess *child);

/* Writes how it ended, for people: "exited with 1". */
const char *child_end_text(ChildEnd end, char *buffer, size_t size) __attribute__((nonnull));
