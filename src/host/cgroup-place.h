/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "host/cgroup-tree.h"

/* The cgroup of version 2 below which Hutch makes its own, "the place": which may be it, and getting processes out of
 * the way there. Used by host/cgroups.c alone, and by tests. */

/* Where processes of Hutch are moved to, in the place. */
#define CGROUP_LEAF "hutch-processes"

/* A leaf that an operator made for the daemon: the cgroup above it is meant to be the place. */
#define CGROUP_OLD_LEAF "hutchd"

typedef struct PlaceRules {
        bool is_root;
        bool has_systemd;     /* the cgroups of its units are its own */
        bool has_controllers; /* the tree has some that limit sandboxes */
} PlaceRules;

/* The folders that may be the place, the best first, all between the mount and the own cgroup of @sight: a list that
 * the caller frees with strv_free(). Scopes of systemd are not among them. */
char **cgroup_places(const CgroupSight *sight, const PlaceRules *rules) __attribute__((nonnull));

/* Tells whether somebody has made a leaf for the daemon, so that the cgroup above it is the place. */
bool cgroup_is_in_old_leaf(const CgroupSight *sight) __attribute__((nonnull));

/* Processes that stood in the way. */
typedef struct Bystander {
        pid_t pid; /* 0: it is in another pid namespace */
        char name[17];
} Bystander;

typedef struct MovedProcesses {
        pid_t *pids;
        size_t n;
} MovedProcesses;

/* Moves those processes of the cgroup @place that are Hutch's own into its leaf. -EBUSY: others are in it, the first of
 * whom is @ret_bystander. */
int cgroup_place_clear(int place, MovedProcesses *moved, Bystander *ret_bystander) __attribute__((nonnull));

/* Moves them back, and removes the leaf if nobody is left in it. */
void cgroup_place_restore(int place, MovedProcesses *moved) __attribute__((nonnull));
