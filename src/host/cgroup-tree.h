/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Which cgroup trees this process sees, and files in them. Used by host/cgroups.c alone, and by tests. */

/* What a process sees of the tree of version 2. */
typedef struct CgroupSight {
        char *mount; /* where the tree is mounted; NULL: nowhere, or a part that the process is not in */
        char *own;   /* the folder of the process's cgroup, at or below @mount */
        bool has_v1; /* there are mounted hierarchies of version 1 */
} CgroupSight;

/* Reads /proc/self/mountinfo and /proc/PID/cgroup; @pid is "self", or a number. */
int cgroup_sight_read(const char *pid, CgroupSight *ret_sight) __attribute__((nonnull));

/* The same of the given contents of these files, which are changed. */
void cgroup_sight_parse(char *mounts, char *cgroups, CgroupSight *ret_sight) __attribute__((nonnull));

void cgroup_sight_clear(CgroupSight *sight) __attribute__((nonnull));

/* The folder of this process's own cgroup, which the caller frees, in the hierarchy of version 1 that has @controller.
 * -ENOENT: there is none. */
int cgroup_find_v1(const char *controller, char **ret_path) __attribute__((nonnull));

/* The same of the given contents of /proc/self/mountinfo and /proc/self/cgroup, which are changed; NULL: in the tree of
 * version 2. @ret_mount, which may be NULL, is where that is mounted. */
int cgroup_parse_own(char *mounts, char *cgroups, const char *controller, char **ret_mount, char **ret_path)
        __attribute__((nonnull(1, 2, 5)));

/* The whole of a file, which the caller frees, in @folder, or AT_FDCWD. NULL, with errno, when it cannot be read. */
char *cgroup_read_file(int folder, const char *path) __attribute__((nonnull));

/* Writes @text to a file that is there. */
int cgroup_write_file(int folder, const char *path, const char *text) __attribute__((nonnull));

/* Tells whether the words in the file @name of the cgroup @folder, a list of controllers, have @controller. */
bool cgroup_lists(int folder, const char *name, const char *controller) __attribute__((nonnull));
