/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cgroups of sandboxes, from the daemon's side: ending what is in them. Keepers make them, in the places that
 * host/cgroups.h finds. */

/* Has processes move between cgroups within tenths of milliseconds instead of ten, everywhere on the host, as long as
 * the descriptor that is returned is open. The kernel does so while a hierarchy is mounted that favours it: this one is
 * empty, has no controllers, and is mounted in no folder. It is a line in everybody's /proc/self/cgroup: name=hutch. */
int cgroup_favor_moves(void);

/* Kills all that is in the cgroup @name below @parent, and removes it with all below it. -EBUSY: not everything is gone
 * yet; try again soon. 0 also when it is not there. */
int cgroup_remove(int parent, const char *name) __attribute__((nonnull));
