/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "keeper/box/sandbox.h"

/* Keeps a sandbox within its limit of memory where no cgroup does: its memory is counted again and again
 * (memory-usage.h, memory-rule.h), and the exec that has most is killed when it is too much. */

typedef struct MemoryWatch MemoryWatch;

typedef struct MemoryWatchEvents {
        /* Tells the first processes of the execs that run, as the host numbers them: writes up to @max of them to
         * @ret_pids, and returns how many. */
        size_t (*list)(pid_t *ret_pids, size_t max, void *user);
        /* The sandbox has more than it may. The exec of that first process is to be killed; 0: the processes that
         * belong to none of them were, and nothing is left to do. */
        void (*hit)(pid_t pid, void *user);
        void *user;
} MemoryWatchEvents;

/* The sandbox and @events outlive it. Before the keeper is confined. */
int memory_watch_new(uv_loop_t *loop, const KeptSandbox *sandbox, const MemoryWatchEvents *events,
                     MemoryWatch **ret_watch) __attribute__((nonnull));

/* Takes NULL. Returns NULL. */
MemoryWatch *memory_watch_free(MemoryWatch *watch);

/* Whether anything runs that may take memory. When nothing does, it is counted until no process is left: without
 * cgroups execs can leave some that nobody knows of. */
void memory_watch_set_active(MemoryWatch *watch, bool active) __attribute__((nonnull));

/* Counts now. */
void memory_watch_usage(MemoryWatch *watch, uint64_t *ret_bytes, uint64_t *ret_peak) __attribute__((nonnull));
