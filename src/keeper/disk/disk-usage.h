/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/statfs.h>

/* What a folder that hostile code fills takes on disk.
 *
 * What is counted are blocks, not sizes: holes cost nothing. Extended attributes are added where the blocks do not
 * include them, as on btrfs and tmpfs. A file with several names is counted once: each name counts for its part, so
 * nothing has to be remembered; all names of a sandbox's files are in its folder. Links are not followed. Mounts are
 * not entered, subvolumes of btrfs are: they are on the same mount. Trees may be deeper than paths can name: memory is
 * a few bytes for each level, and few folders are open at a time. Somebody who moves folders about meanwhile can have
 * some missed.
 *
 * It takes as long as it takes, up to a deadline: it is run in a process of its own, whose working directory it
 * changes. */

typedef struct DiskUsage {
        uint64_t bytes;
        uint64_t inodes;
} DiskUsage;

typedef struct DiskCount {
        double bytes, inodes; /* with the parts of files that have several names */
        bool is_whole;        /* nothing was left out */
        uint64_t deadline;    /* of the monotonic clock, in nanoseconds */
        DiskUsage enough;     /* @reached is called once when it is more than that */
        void (*reached)(const struct DiskCount *count, void *user); /* may be NULL */
        void *user;
} DiskCount;

/* Adds what is in @folder, and @folder itself, which is open for reading. */
void disk_count_folder(DiskCount *count, int folder) __attribute__((nonnull));

/* Adds files that have no name any more, but are open in one of the processes in @proc, where the kernel's file system
 * of them is mounted. */
void disk_count_unnamed(DiskCount *count, const char *proc) __attribute__((nonnull));

/* Whether the file system that @info describes tells at once how full it is, of all that is counted here. btrfs tells
 * when data reaches the disk, and has no number of inodes; tmpfs does not tell of extended attributes. */
bool disk_tells_growth(const struct statfs *info) __attribute__((nonnull));

/* The sum so far. */
DiskUsage disk_count_sum(const DiskCount *count) __attribute__((nonnull));
