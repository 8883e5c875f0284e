/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Whether this host lets the calling user have user namespaces, and how to make it do so. For hutchd, keepers and
 * `hutch doctor`, which all say the same. */

/* Makes a sandbox's namespaces in a process of its own, that of the network only @with_network because it takes longer,
 * and uses a right that comes with them: where AppArmor restricts them they can be made, but give no rights. Returns 0
 * or a negative errno. */
int user_namespaces_try(bool with_network);

/* A setting of the host that keeps user namespaces from ordinary users, and the command for root that changes it. All
 * texts are constants. */
typedef struct NamespaceObstacle {
        const char *setting; /* as sysctl calls it */
        const char *value;   /* that it has */
        const char *command;
} NamespaceObstacle;

/* Finds the setting that explains @error, a negative errno. @root is "", or what tests have instead of the host's root.
 * Returns whether there is one. */
bool user_namespaces_find_obstacle(const char *root, int error, NamespaceObstacle *ret_obstacle)
        __attribute__((nonnull));
