/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/memory.h"
#include "keeper/config.h"

/* The root of a sandbox: an overlay of what is kept over an image, and what is mounted into that.
 *
 *   the image    image_folder/host-…: folders and a small /etc, shared by all sandboxes (host-image.h)
 *   kept         in state_folder/fs:
 *                  upper, work   every change to the image, by overlayfs
 *                  home          /home/agent
 *                  workspace     the workspace
 *                  copied        a mark: what is copied from the host was
 *   the host's   /usr, /bin and its like, /opt, and of /etc what programs of /usr expect (host-files.h); read-only
 *                overlays, so that inodes are not shared (rootfs-host.c)
 *   new          /dev, /proc, /sys; /tmp when it is limited
 *
 * The overlay is volatile: otherwise its end would write out all that anybody has not yet written on that disk. So
 * fsync() does nothing in it, and a power cut may take the last changes to the root. home and workspace are not part of
 * it; for them everything is as the disk has it.
 *
 * The file system of the state folder must be able to carry an overlay and idmapped mounts: ext4, xfs, btrfs, tmpfs
 * since Linux 6.6; it takes Linux 5.19. Where it is another overlay, as in containers, the root is in memory
 * (root_in_memory): upper is a layer that is only read, changes are in a file system in memory and gone with the
 * sandbox's end, and root's daemon has an image for each sandbox in state_folder/image. Home and workspace are kept
 * there as well.
 *
 * What is kept may have been changed in any way by what ran inside: paths in it are never followed through links.
 *
 *         keeper                          PID 1, in its own namespaces
 *         rootfs_new()
 *         … clones PID 1, maps its uids
 *         rootfs_make()
 *         rootfs_hand_over()      →       rootfs_receive()        without root: while it still owns the state folder
 *         … makes its cgroups             … becomes the sandbox's root user
 *                                         rootfs_enter() */

typedef struct Rootfs Rootfs;

#define INIT_WHAT_SIZE 480   /* of what is said about a failure */
#define COPIES_MARK "copied" /* in fs: that everything to be copied was */

/* Finds the image, or makes it when it is the first time that this keeper meets this host. @config must stay. */
int rootfs_new(const KeeperConfig *config, Rootfs **ret_rootfs, HutchError *err) __attribute__((nonnull(1, 2)));

/* Takes NULL. Returns NULL. */
Rootfs *rootfs_free(Rootfs *rootfs);
DEFINE_CLEANUP(Rootfs *, rootfs_free);

/* Makes state_folder/fs, unless it is there; never half. */
int rootfs_make(const Rootfs *rootfs, HutchError *err) __attribute__((nonnull(1)));

/* Opens what is kept, with O_PATH. */
int rootfs_open_kept(const Rootfs *rootfs, int *ret_kept) __attribute__((nonnull));

/* Gives PID 1, whose uids are mapped by now, what it needs of the host, over a SOCK_SEQPACKET socket. */
int rootfs_hand_over(const Rootfs *rootfs, pid_t init, int socket) __attribute__((nonnull));

/* Waits for that. */
int rootfs_receive(Rootfs *rootfs, int socket) __attribute__((nonnull));

/* Mounts everything and makes it the root of the process; what was the root before is gone. On failure @ret_what is
 * what could not be mounted. */
int rootfs_enter(Rootfs *rootfs, const char **ret_what) __attribute__((nonnull));

/* Makes what a sandbox has at /sys, of this process's network namespace; it is mounted nowhere. */
int rootfs_open_sys(int *ret_tree) __attribute__((nonnull));

/* Opens the file system in which the message queues of this process's IPC namespace are; it is mounted nowhere. */
int rootfs_open_message_queues(int *ret_tree) __attribute__((nonnull));
