/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "keeper/disk/disk-usage.h"

/* When to measure what a sandbox has on disk, and what follows from it, where its file system has no quotas.
 *
 * Measuring takes time, asking how full the whole file system is does not. So a sandbox is measured when the file
 * system has grown, since it was least full, by what the sandbox may still have, or by a step where that is less: the
 * step is a 64th of the limit, from 256 KiB to 16 MiB (of inodes: from 16 to 4096). Others who remove files at the same
 * time can hide that, so it is also measured once a minute if anything changed; less often when it takes longer than a
 * hundredth of that. It is never measured for more than half of the time.
 *
 * How often the file system is asked depends on the room that is left and on how fast it fills: before anybody can have
 * used up the room, at 8 GiB and 400,000 files in a second or at twice the speed that was seen, but no sooner than 5 ms
 * after the last time, and once a second at least. Some file systems tell late how full they are. There, the sandbox is
 * measured as often as others are asked, for up to a fifth of the time; while it is over, for up to half of it.
 *
 * A sandbox with more than its limit is over, until it is measured with no more than that. It hits the limit when it
 * comes to be over, and each time it has grown by a step since then. Since when is found by measuring again after the
 * hit: what was made while it was counted may have been missed, and is no fault of who comes next. While it is over it
 * is also measured when anything changed; until then, it is taken for granted that it is within its limit again when
 * the file system has become less full by what the sandbox had too much. Who writes then hits the limit as anybody
 * does, whatever was there before. Everything here is arithmetic. Times are nanoseconds. */

typedef struct DiskRule {
        DiskUsage limit;       /* 0: none */
        DiskUsage measured;    /* the sandbox, last */
        DiskUsage host, least; /* the whole file system when that was; and the least since */
        DiskUsage bar;         /* while it is over: the least it had; a step more than this is a hit */
        bool is_known;         /* it was measured, or is new */
        bool is_over;
        bool is_settling;  /* it was hit, and is measured next to know what from */
        const char *found; /* the limit that it is above by what was counted so far; NULL: not known yet */
        uint64_t measured_at, took;
        DiskUsage looked; /* the whole file system when it was last asked */
        uint64_t looked_at;
        bool is_late;    /* the file system tells late what it holds */
        uint64_t let_at; /* when something was last let write although it was over; 0: never */
} DiskRule;

/* @host is how much is used of the file system now. */
void disk_rule_init(DiskRule *rule, DiskUsage limit, DiskUsage host, uint64_t now) __attribute__((nonnull));

/* Whether the sandbox is to be measured now. */
bool disk_rule_is_due(DiskRule *rule, DiskUsage host, uint64_t now) __attribute__((nonnull));

/* Whether the file system has grown by so much that the sandbox may have hit a limit. */
bool disk_rule_may_be_over(const DiskRule *rule, DiskUsage host) __attribute__((nonnull));

/* How long it takes until the file system is worth asking again, which now has @host. */
uint64_t disk_rule_wait(DiskRule *rule, DiskUsage host, uint64_t now) __attribute__((nonnull));

/* Whether it may be measured now because somebody wants to know: it makes a difference, and costs little. */
bool disk_rule_is_worth_it(const DiskRule *rule, DiskUsage host, uint64_t now) __attribute__((nonnull));

/* What a sandbox can have without a hit. */
DiskUsage disk_rule_enough(const DiskRule *rule) __attribute__((nonnull));

/* Takes what was counted so far, and is enough for a hit: the rest may take a while. */
void disk_rule_take_hit(DiskRule *rule, DiskUsage counted) __attribute__((nonnull));

/* Nothing more comes of what is measured. */
void disk_rule_forget_hit(DiskRule *rule) __attribute__((nonnull));

/* The limit that it is over, as the contract calls it; NULL: none, as far as @host tells. */
const char *disk_rule_limit_exceeded(const DiskRule *rule, DiskUsage host) __attribute__((nonnull));

/* Something is let write, as that said that the sandbox is over no limit. */
void disk_rule_let_write(DiskRule *rule, uint64_t now) __attribute__((nonnull));

/* Whether what is measured since @begin tells of what was there before somebody was let write. */
bool disk_rule_is_stale(const DiskRule *rule, uint64_t begin) __attribute__((nonnull));

/* The limit that @usage is above; NULL: none. */
const char *disk_rule_find_limit(const DiskRule *rule, DiskUsage usage) __attribute__((nonnull));

/* Takes what was measured between @begin and @end; @host is of @begin. Returns whether a limit was hit. */
bool disk_rule_take(DiskRule *rule, DiskUsage measured, DiskUsage host, uint64_t begin, uint64_t end)
        __attribute__((nonnull));
