/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <uv.h>

#include "base/error.h"

/* Files that grow, and who wants to hear of it: one inotify instance for all, which watches the folders they are in,
 * because a file is made with its first byte. */

typedef struct OutputWatch OutputWatch;
typedef struct OutputFollow OutputFollow;

int output_watch_new(uv_loop_t *loop, OutputWatch **ret_watch, HutchError *err) __attribute__((nonnull(1, 2)));

/* @watch, which nobody follows anything with, may be NULL. Returns NULL. */
OutputWatch *output_watch_free(OutputWatch *watch);

/* Has @grew called whenever a file in @folder whose name is @name, a dot and anything was made or written to; once for
 * many writes. NULL when the folder cannot be watched. */
OutputFollow *output_follow_new(OutputWatch *watch, const char *folder, const char *name, void (*grew)(void *user),
                                void *user) __attribute__((nonnull(1, 2, 3, 4)));

/* @follow may be NULL. Returns NULL. */
OutputFollow *output_follow_free(OutputFollow *follow);
