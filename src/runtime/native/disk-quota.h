/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Quotas for what sandboxes have on disk, where the state folder's file system has them: host/project-quota.h. Each
 * sandbox's files are a project, numbered by its range of uids. Keepers assign and limit; the daemon finds out whether
 * that can be done, and takes limits away when a sandbox goes. */

/* The first of this daemon's projects; those of another daemon on the same file system are most likely others. */
uint32_t disk_projects_of(const char *instance_id) __attribute__((nonnull));

/* Tries in @folder whether limits of projects are enforced. */
int disk_quota_try(int folder, uint32_t projects);

/* Takes away the limits of the project that the files of the sandbox in @folder/@id are to be. Which that is tells the
 * folder's owner, whom its keeper cannot change; what the files themselves say, it can. */
void disk_quota_forget(int folder, const char *id, uint32_t projects) __attribute__((nonnull));
