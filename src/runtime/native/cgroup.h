/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* The cgroups of sandboxes, from the daemon's side: where they are, and ending what is in them. Keepers make them. Only
 * the tree of version 2 is used, also where others stand beside it. */

/* The folder of the daemon's own cgroup, which the caller frees. -ENOENT: there is no such tree here. */
int cgroup_find_own(char **ret_path, HutchError *err) __attribute__((nonnull(1)));

/* The same of given contents of /proc/self/mountinfo and /proc/self/cgroup, which are changed. */
int cgroup_parse_own(char *mounts, char *cgroups, char **ret_path) __attribute__((nonnull));

/* Kills all that is in the cgroup @name below @parent, and removes it with all below it. -EBUSY: not everything is gone
 * yet; try again soon. 0 also when it is not there. */
int cgroup_remove(int parent, const char *name) __attribute__((nonnull));
