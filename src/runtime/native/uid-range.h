/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

/* The ranges of uids that sandboxes of root's daemon have, by their slots. The last of a range is the keeper's own, and
 * the owner of the sandbox's folder. */
#define UID_RANGE_FIRST 0x70000000u
#define UID_RANGE_SIZE 65536u

/* The slot of the sandbox whose folder @id in @parent is; -1: it has none, or has no folder (yet). */
static inline int64_t uid_range_slot(int parent, const char *id) {
        struct stat st;

        if (fstatat(parent, id, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid < UID_RANGE_FIRST)
                return -1;
        return (st.st_uid - UID_RANGE_FIRST) / UID_RANGE_SIZE;
}
