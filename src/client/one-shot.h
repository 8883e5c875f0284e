/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* One-shots: a command in a sandbox that exists only for it. */

typedef struct OneShot {
        const char *socket; /* of the daemon */
        char *const *argv;  /* ends with NULL */
        /* Output as it comes: @stream is 1 or 2. A negative errno ends the command. */
        int (*output)(int stream, const void *bytes, size_t len, void *user);
        void *user;
} OneShot;

/* Makes a sandbox, runs the command in it, hands on what it prints, and removes the sandbox, whatever happens. Sets the
 * command's exit code. -EPROTO, STREAM_INCOMPLETE: the end of the command was never told. */
int one_shot_run(const OneShot *one_shot, int *ret_exit_code, HutchError *err) __attribute__((nonnull(1, 2)));
