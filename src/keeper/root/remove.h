/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* Removes the folder @path with all that is in it, as `hutch-keeper remove FOLDER` does.
 *
 * What is in it may have been made by hostile code to make this hard: trees deeper than a path can name, folders of
 * millions, symlinks, folders without permissions, flags that forbid it, read-only snapshots of btrfs. Links are
 * removed, never followed; mounts are not crossed (-EXDEV); memory and descriptors are bounded, whatever the tree looks
 * like. Safe also while its owner is at work in it, but then it may not end or end with -ENOTEMPTY. A folder that is
 * not there is removed. @path itself is trusted. Takes as long as it takes: it is run in a process of its own. */
int folder_remove(const char *path, HutchError *err) __attribute__((nonnull(1)));
