/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "host/cgroup-place.h"
#include "host/systemd-scope.h"
#include "model/unenforced-limit.h"

/* Where the daemon has its cgroups, and which limits are enforced by them: docs/cgroups.md. One function finds out, by
 * doing it. The daemon calls it at its start; `hutch doctor` calls it in a process of its own, and undoes it.
 *
 *         host_cgroups_find(&(HostCgroupOptions){ .instance_id = "…", .state_folder = fd }, &cgroups);
 *         … cgroups.fd, cgroups.controllers[HOST_MEMORY].parent, cgroups.unenforced …
 *         host_cgroups_release(&cgroups);
 *
 * It may move the calling process, and other processes of Hutch, to another cgroup. */

enum { HOST_CPU, HOST_MEMORY, HOST_PIDS, HOST_IO, N_HOST_CONTROLLERS };

typedef struct HostController {
        char *parent;    /* the folder for cgroups of sandboxes that it limits; NULL: it limits none here */
        int parent_fd;   /* of a hierarchy of version 1, or -1 */
        char *why, *fix; /* as in UnenforcedLimit, when there is no @parent */
} HostController;

typedef struct HostCgroups {
        char *parent; /* the cgroup hutch-INSTANCE in the tree of version 2; NULL: there is none */
        int fd;       /* of @parent, or -1 */
        HostController controllers[N_HOST_CONTROLLERS];
        UnenforcedLimit unenforced[N_HOST_CONTROLLERS + 2]; /* ends with one without a limit */
        char *why, *fix;                                    /* as in UnenforcedLimit, when there is no @parent */
        bool has_v1;                                        /* there are hierarchies of version 1 */

        /* For host_cgroups_release(). */
        bool probes;
        char *place;
        char enabled[64];
        MovedProcesses moved;
        SystemdScope scope;
} HostCgroups;

typedef struct HostCgroupOptions {
        const char *instance_id; /* tells the daemons of one machine apart */
        int state_folder;        /* its disk is that which sandboxes use; -1: none yet */
        bool probes;             /* host_cgroups_release() undoes everything */
} HostCgroupOptions;

/* Finds a place for cgroups, makes one there, and tries each controller. Always fills @ret_cgroups, and says in it what
 * cannot be had, why, and what helps. Blocks, for some seconds at the worst. */
void host_cgroups_find(const HostCgroupOptions *options, HostCgroups *ret_cgroups) __attribute__((nonnull));

/* Removes what was made, but for cgroups that still have sandboxes, and frees it. */
void host_cgroups_release(HostCgroups *cgroups) __attribute__((nonnull));

/* The name of a controller in the tree of version 2. */
const char *host_controller_name(int controller);
