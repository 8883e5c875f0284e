/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which projects sandboxes' files are. What does not: how the kernel is asked (host/project-quota.c),
 * limits themselves, which keepers set. */

#include "runtime/native/disk-quota.h"

#include <string.h>

#include "base/log.h"
#include "host/project-quota.h"
#include "runtime/native/uid-range.h"

#define PROJECTS_FIRST 0x40000000u /* far from what people number by hand */
#define PROJECTS_PER_DAEMON 65536u
#define DAEMONS 16384u

uint32_t disk_projects_of(const char *instance_id) {
        uint32_t hash = 2166136261u; /* FNV-1a */

        for (; *instance_id; instance_id++)
                hash = (hash ^ (uint8_t) *instance_id) * 16777619u;
        return PROJECTS_FIRST + hash % DAEMONS * PROJECTS_PER_DAEMON;
}

int disk_quota_try(int folder, uint32_t projects) {
        return project_quota_try(folder, projects + PROJECTS_PER_DAEMON - 1);
}

void disk_quota_forget(int folder, const char *id, uint32_t projects) {
        int64_t slot = uid_range_slot(folder, id);
        int r;

        if (slot < 0)
                return;

        r = project_quota_clear(folder, projects + (uint32_t) slot);
        if (r < 0)
                log_warning("a quota stays", LOG_STR("sandbox", id), LOG_STR("error", strerror(-r)));
}
