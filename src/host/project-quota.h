/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Quotas of projects: how file systems count and limit what is in a folder (ext4 with the features `quota` and
 * `project`, xfs; mounted with `prjquota`).
 *
 *         project_quota_assign(folder, 7);                 all that will be in the folder belongs to project 7
 *         project_quota_limit(folder, 7, 1 << 30, 1000);   beyond that, whoever writes gets EDQUOT
 *         project_quota_read(folder, &usage);
 *
 * All but reading takes root, and the initial user namespace: whoever is in another one, root there or not, cannot
 * change what project a file belongs to. Limits do not hold for processes with CAP_SYS_RESOURCE. Functions return 0 or
 * a negative errno; descriptors are of folders and open for reading. */

typedef struct ProjectUsage {
        uint64_t bytes;
        uint64_t inodes;
} ProjectUsage;

/* Tries all of this in @folder, with a project that is nobody's, and leaves nothing there. 0: limits are in force. */
int project_quota_try(int folder, uint32_t project);

/* Makes @folder, and all that is made in it from now on, part of @project. */
int project_quota_assign(int folder, uint32_t project);

/* Tells what project @folder is part of. 0: of none. */
int project_quota_find(int folder, uint32_t *ret_project) __attribute__((nonnull));

/* Limits @project on the file system of @folder, which is part of it. 0: to nearly all that the file system has. */
int project_quota_limit(int folder, uint32_t project, uint64_t bytes, uint64_t inodes);

/* Takes the limits of @project away. */
int project_quota_clear(int folder, uint32_t project);

/* What the project of @folder has, which must be limited: file systems tell it as how full they are, as long as they
 * have more than the limits. Anybody may ask. */
int project_quota_read(int folder, ProjectUsage *ret_usage) __attribute__((nonnull));
