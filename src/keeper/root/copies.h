/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "keeper/root/rootfs-parts.h"

/* Copies of the host's files, made once: in PID 1, as the sandbox's root, before anybody is inside. They are the
 * agent's, with their modes but for setuid and setgid, their times, their symlinks and the hard links among them. What
 * is neither file, folder nor symlink is left out.
 *
 * Who owns the source may change it meanwhile: it is walked by descriptors, each opened in the one before, without
 * following links, so that nothing but what is or was in it is ever read. */

/* Copies what is to be copied into @root, writing over what is there, and marks that in rootfs->folder. On failure
 * rootfs->what says what is wrong and rootfs->reason is set. */
int copies_make(Rootfs *rootfs, int root) __attribute__((nonnull));
