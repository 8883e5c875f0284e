/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* The cgroups of sandboxes, from the daemon's side: where they are, and ending what is in them. Keepers make them. The
 * tree of version 2 is used for all of it, but for limits whose controllers are in hierarchies of version 1. */

/* The folder of the daemon's own cgroup, which the caller frees: in the hierarchy of version 1 that has @controller,
 * or, with NULL, in the tree of version 2. -ENOENT: there is no such thing here. */
int cgroup_find_own(const char *controller, char **ret_path, HutchError *err) __attribute__((nonnull(2)));

/* The same of given contents of /proc/self/mountinfo and /proc/self/cgroup, which are changed. */
int cgroup_parse_own(char *mounts, char *cgroups, const char *controller, char **ret_path)
        __attribute__((nonnull(1, 2, 4)));

/* Has processes move between cgroups within tenths of milliseconds instead of ten, everywhere on the host, as long as
 * the descriptor that is returned is open. The kernel does so while a hierarchy is mounted that favours it: this one is
 * empty, has no controllers, and is mounted nowhere that could be seen. */
int cgroup_favor_moves(void);

/* Kills all that is in the cgroup @name below @parent, and removes it with all below it. -EBUSY: not everything is gone
 * yet; try again soon. 0 also when it is not there. */
int cgroup_remove(int parent, const char *name) __attribute__((nonnull));
