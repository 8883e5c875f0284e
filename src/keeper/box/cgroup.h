/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Folders of a cgroup v2 tree, or of a v1 hierarchy, which cannot end and does not tell of its processes. A cgroup is
 * known by the descriptor of its folder. */

/* Makes the cgroup at @path, a path on the host, and the one above it when that is missing. What was there before, with
 * all processes in it, is ended and removed first. */
int cgroup_make(const char *path, int *ret_cgroup) __attribute__((nonnull));

/* Makes the cgroup @name in @parent. -EEXIST. */
int cgroup_add(int parent, const char *name, int *ret_cgroup) __attribute__((nonnull));

/* Kills everything in the cgroup at @path or in @name below @parent, waits until it is empty, at most @timeout
 * nanoseconds, and removes it with all below it. One that is not there is removed. -ETIMEDOUT. In a v1 hierarchy it
 * must be empty: -EBUSY. */
int cgroup_remove(int parent, const char *name, uint64_t timeout) __attribute__((nonnull));

/* Gives the cgroup to @id, who may then make others in it, move processes between those, freeze and kill; and nothing
 * else: its limits stay as they are. */
int cgroup_delegate(int cgroup, uid_t id);

/* Writes one of its files. */
int cgroup_write(int cgroup, const char *file, const char *text) __attribute__((nonnull));

/* The number in one of its files: the file's only one, or that behind @key. -ENOENT: there is none. */
int cgroup_read(int cgroup, const char *file, const char *key, uint64_t *ret_value) __attribute__((nonnull(2, 4)));

/* Waits until @key in cgroup.events is @value, at most @timeout nanoseconds. -ETIMEDOUT. */
int cgroup_wait(int cgroup, const char *key, uint64_t value, uint64_t timeout) __attribute__((nonnull));

/* How many threads there are in it and below it, by counting. */
uint32_t cgroup_count_threads(int cgroup);
