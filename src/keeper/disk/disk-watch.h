/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "keeper/box/sandbox.h"
#include "keeper/disk/disk-usage.h"

/* Keeps a sandbox within what it may have on disk, in its folder fs/ with all that is in it.
 *
 * Where the folder belongs to a project with a quota (host/project-quota.h), the file system does: writing fails. What
 * is left to do is to look how much it has, once a second while processes run, and to tell when that is all it may.
 *
 * Otherwise the sandbox is measured when that may be worth it (disk-rule.h), by a process of its own that is privileged
 * in the sandbox only, and that nobody in it can signal. Where there are cgroups, the time that this takes is the
 * sandbox's, within its limit; and what runs in the sandbox is frozen, for up to 10 seconds, while it is measured
 * because it may have hit a limit. Whatever runs in a sandbox that has grown beyond its limit is to be killed. What is
 * started while it is over can remove files, but not write to them.
 *
 * Nothing is done while no process runs, but for what is asked for. */

typedef struct DiskWatch DiskWatch;

typedef struct DiskWatchEvents {
        /* The sandbox has all that it may have of @limit, a field of KeeperLimits; or, with @kill, more than that. */
        void (*hit)(const char *limit, bool kill, void *user);
        void *user;
} DiskWatchEvents;

/* While the keeper still has its rights: quotas are set here. @is_new: nothing was in the folder before the sandbox was
 * built. What is given is borrowed and outlives it. -errno: there is no such folder. */
int disk_watch_new(uv_loop_t *loop, const KeptSandbox *sandbox, bool is_new, const DiskWatchEvents *events,
                   DiskWatch **ret_watch) __attribute__((nonnull));

/* Before the sandbox is destroyed. Takes NULL. Returns NULL. */
DiskWatch *disk_watch_free(DiskWatch *watch);

/* Whether processes run. */
void disk_watch_set_active(DiskWatch *watch, bool active) __attribute__((nonnull));

/* Looks at once, as when an exec has ended. Returns the limit that the sandbox is now known to be at or over; or
 * NULL. */
const char *disk_watch_check(DiskWatch *watch) __attribute__((nonnull));

/* Something is started. The limit that the sandbox is over, so that it must not write; or NULL. */
const char *disk_watch_begin_writing(DiskWatch *watch) __attribute__((nonnull));

/* What the sandbox has, as far as it is known. Without quotas it may be measured for the next who asks. */
DiskUsage disk_watch_usage(DiskWatch *watch) __attribute__((nonnull));
