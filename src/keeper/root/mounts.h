/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "keeper/config.h"

/* Folders and files of the host in a sandbox's root. What they are, hutchd has decided: the keeper has a descriptor of
 * each and looks nothing up.
 *
 * With root each is cloned as a mount of its own in which who owns it on the host is the agent, and everybody else is
 * nobody: neither the sandbox's other users nor its root have any rights to it. File systems that cannot do that are
 * mounted as they are, and only to be read. Without root the agent is that owner already, and PID 1, which has the
 * right to mount in its own namespace only, finds them there by their paths. */

/* Whether what runs inside may connect to sockets of the host in some mount: that is so in those that can be written,
 * and where the caller has said so. Else Landlock forbids it altogether, where it can. */
bool mounts_have_sockets(const KeeperConfig *config) __attribute__((nonnull));

/* Refuses what is mounted read-only and has sockets of the host in it, as far as nothing else keeps those. With root:
 * opens the trees that are to be mounted, before PID 1 is cloned. @ret_trees has room for config->n_sources;
 * -1 where there is none yet. */
int mounts_open_trees(const KeeperConfig *config, int *ret_trees, HutchError *err) __attribute__((nonnull(1)));

/* Without root, in PID 1, while it is who started it: finds what is mounted in its own namespace. */
int mounts_find(const KeeperConfig *config, int *ret_trees) __attribute__((nonnull(1)));

/* Opens what is at @path below @root, which is made when it is not there, a folder or an empty file, as are the folders
 * on the way. In the agent's folders what is made is the agent's. No link is followed: what is there may have been made
 * by whoever was inside before. */
int mounts_open_place(int root, const char *path, bool is_folder, int *ret_fd) __attribute__((nonnull));

/* Mounts those that are mounted below @root, in their order; makes what is missing of the way there. @what: room for
 * what it is at, when it fails. */
int mounts_attach(const KeeperConfig *config, const int *trees, int root, char *what, size_t what_size)
        __attribute__((nonnull(1, 4)));
