/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "keeper/config.h"

/* What is different in a sandbox whose keeper is an ordinary user: which ids it has.
 *
 *   one            the user is `agent` inside, and there is nobody else
 *   subordinate    the user is root inside, and what /etc/subuid and /etc/subgid give it are the others
 *
 * Files belong to ids, so a sandbox keeps for its life those it was made with: the link state_folder/fs/ids says
 * which, where nobody inside sees it. */

/* Has @config say what the sandbox was made with, if it has files. */
void rootless_settle(KeeperConfig *config) __attribute__((nonnull));

/* Makes the link in @folder, the new state_folder/fs. */
int rootless_mark(const KeeperConfig *config, int folder) __attribute__((nonnull));

/* Maps the subordinate ids for @pid, the sandbox's PID 1, which is dumpable still. */
int rootless_map_ids(const KeeperConfig *config, pid_t pid, HutchError *err) __attribute__((nonnull(1)));

/* In PID 1, which has become root: makes the folders that are agent's its own. @folder is state_folder/fs. */
int rootless_give_folders(int folder);
