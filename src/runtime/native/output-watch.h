/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <uv.h>

#include "base/error.h"

/* Files that grow, and who wants to hear of it: one inotify instance for all. */

typedef struct OutputWatch OutputWatch;
typedef struct OutputFollow OutputFollow;

int output_watch_new(uv_loop_t *loop, OutputWatch **ret_watch, HutchError *err) __attribute__((nonnull(1, 2)));

/* @watch, which nobody follows anything with, may be NULL. Returns NULL. */
OutputWatch *output_watch_free(OutputWatch *watch);

/* Has @grew called whenever one of the @n_paths files at @paths, at most 2, was written to; once for many writes.
 * Files that are not there are left out. NULL when none is. */
OutputFollow *output_follow_new(OutputWatch *watch, const char *const paths[], unsigned n_paths,
                                void (*grew)(void *user), void *user) __attribute__((nonnull(1, 2, 4)));

/* @follow may be NULL. Returns NULL. */
OutputFollow *output_follow_free(OutputFollow *follow);
