/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "host/cgroup-place.h"

/* Why there is no cgroup, or no controller, in words, and the command that helps. Used by host/cgroups.c alone, and by
 * tests. */

/* What is known of the host. */
typedef struct CgroupHost {
        CgroupSight sight;
        PlaceRules rules;
        char *v1_mounts;   /* of the hierarchies of version 1 with controllers, each after a space; NULL: none */
        char *user;        /* the name of the daemon's user, or its number */
        bool has_session;  /* of systemd's user manager */
        char *scope_error; /* why systemd gave no scope; NULL: it was not asked, or did */
} CgroupHost;

void cgroup_host_clear(CgroupHost *host) __attribute__((nonnull));

typedef struct CgroupReason {
        char *why, *fix; /* as in UnenforcedLimit */
} CgroupReason;

/* Nothing can be made in the tree, or hierarchy, at @path, which may be NULL: @r. */
CgroupReason cgroup_reason_no_place(const CgroupHost *host, const char *path, int r) __attribute__((nonnull(1)));

/* Somebody is in the way in @place. */
CgroupReason cgroup_reason_bystander(const char *place, const Bystander *bystander) __attribute__((nonnull));

/* @place does not have the controller. @known is /proc/cgroups, or NULL. */
CgroupReason cgroup_reason_not_given(const CgroupHost *host, const char *place, const char *controller,
                                     const char *v1_name, const char *known) __attribute__((nonnull(1, 2, 3, 4)));

/* It has, and cannot pass it on: @r. */
CgroupReason cgroup_reason_not_enabled(const CgroupHost *host, const char *place, const char *controller, int r)
        __attribute__((nonnull));
