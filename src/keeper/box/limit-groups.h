/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "keeper/box/kept-sandbox.h"

/* What limits a sandbox's memory, CPU, processes and share of the disk: its cgroup, where the v2 tree has the
 * controllers, and folders in v1 hierarchies otherwise. The limits are the sandbox's. Only memory is told apart by
 * execs: for each there is a group below the sandbox's, so that it is known who ran out of it. In v1 execs of a sandbox
 * that is full share its own.
 *
 * Execs are born into v2 cgroups. Into those of v1 they move themselves, as the first thing they do, through
 * descriptors that the keeper has opened: so what they may is what the keeper may. */

/* Sets all to none. */
void limit_group_init(LimitGroup *group) __attribute__((nonnull));
void limit_groups_init(KeptSandbox *sandbox) __attribute__((nonnull));

/* Has a cgroup that is made below @cgroup_above get the controllers that limit the sandbox in the v2 tree. */
int limit_groups_enable(const KeeperConfig *config, int cgroup_above) __attribute__((nonnull));

/* Tells whether the v2 tree has controllers that limit the sandbox: where it has, cgroups that have others below them
 * can have no processes. */
bool limit_groups_are_v2(const KeeperConfig *config) __attribute__((nonnull));

/* Makes the sandbox's groups, when its cgroup is there, and sets its limits. */
int limit_groups_make(KeptSandbox *sandbox) __attribute__((nonnull));

/* Gives them to @id, as cgroup_delegate() does. */
int limit_groups_delegate(const KeptSandbox *sandbox, uid_t id) __attribute__((nonnull));

/* Gives those that were killed all the time of the CPU that there is, for dying takes some. */
void limit_groups_let_end(const KeptSandbox *sandbox) __attribute__((nonnull));

/* Removes them, when no process is left, and closes everything. */
void limit_groups_remove(KeptSandbox *sandbox) __attribute__((nonnull));

/* Moves PID 1 into them. */
int limit_groups_move(const KeptSandbox *sandbox, pid_t init) __attribute__((nonnull));

/* Moves the calling process into them, for an exec. */
int limit_groups_enter(const KeptSandbox *sandbox, const ExecGroup *exec) __attribute__((nonnull));

/* Has an exec's group, which is empty, count the most memory anew. Tells whether it can be used for another. */
bool limit_group_reset_exec(const ExecGroup *exec) __attribute__((nonnull));

/* Makes an exec's group, and removes it, when it is empty. */
int limit_group_add_exec(ExecGroup *exec) __attribute__((nonnull));
void limit_group_remove_exec(ExecGroup *exec) __attribute__((nonnull));

/* Of a group that limits memory: bytes now, bytes at most so far, processes killed for want of it. 0: not known. */
uint64_t limit_group_memory(const LimitGroup *group) __attribute__((nonnull));
uint64_t limit_group_memory_peak(const LimitGroup *group) __attribute__((nonnull));
uint64_t limit_group_memory_kills(const LimitGroup *group) __attribute__((nonnull));
