/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rule by which disk limits are kept without quotas. What does not: measuring (disk-usage.c), and
 * doing what follows (disk-watch.c). */

#include "keeper/disk/disk-rule.h"

#include <stddef.h>

#include "base/clock.h"

#define STEP_PART 64
#define STEP_BYTES_MIN ((uint64_t) 256 << 10)
#define STEP_BYTES_MAX ((uint64_t) 16 << 20)
#define STEP_INODES_MIN 16
#define STEP_INODES_MAX 4096
#define PERIOD (60 * NSEC_PER_SEC)
#define PERIOD_TIMES 100 /* of what measuring takes */
#define ASKED_TIMES 10   /* the same when somebody asks */
#define LATE_TIMES 4     /* the same where the file system tells late */

#define BYTES_PER_SEC ((uint64_t) 8 << 30) /* nobody is taken to be slower */
#define INODES_PER_SEC 400000
#define WAIT_MIN (5 * NSEC_PER_MSEC)
#define WAIT_MAX NSEC_PER_SEC
#define WAIT_MAX_OVER (100 * NSEC_PER_MSEC)

static uint64_t least_of(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

static uint64_t most_of(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b) {
        return a > b ? a - b : 0;
}

static uint64_t plus(uint64_t a, uint64_t b) {
        return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

static bool is_same(DiskUsage a, DiskUsage b) {
        return a.bytes == b.bytes && a.inodes == b.inodes;
}

/* ---- One of the two limits ---- */

static uint64_t step_of(uint64_t limit, uint64_t min, uint64_t max) {
        return least_of(most_of(limit / STEP_PART, min), max);
}

static bool has_grown(uint64_t limit, uint64_t step, uint64_t measured, uint64_t grown) {
        return limit > 0 && grown >= most_of(minus(limit, measured), step);
}

/* How long it takes to grow by @room, at @fast in a second or at twice what has grown in @time. */
static uint64_t time_to_grow(uint64_t room, uint64_t fast, uint64_t grown, uint64_t time) {
        double seen = time > 0 ? 2.0 * (double) grown / (double) time : 0, least = (double) fast / NSEC_PER_SEC;
        double wait = (double) room / (seen > least ? seen : least);
        return wait < WAIT_MAX ? (uint64_t) wait : WAIT_MAX;
}

static bool is_above(uint64_t limit, uint64_t value) {
        return limit > 0 && value > limit;
}

static uint64_t enough_of(uint64_t limit, bool is_over, uint64_t bar, uint64_t step) {
        if (limit == 0)
                return UINT64_MAX;
        return is_over ? most_of(limit, plus(bar, step)) : limit;
}

/* ---- Both ---- */

static DiskUsage steps(const DiskRule *rule) {
        return (DiskUsage){
                .bytes = step_of(rule->limit.bytes, STEP_BYTES_MIN, STEP_BYTES_MAX),
                .inodes = step_of(rule->limit.inodes, STEP_INODES_MIN, STEP_INODES_MAX),
        };
}

void disk_rule_init(DiskRule *rule, DiskUsage limit, DiskUsage host, uint64_t now) {
        *rule = (DiskRule){
                .limit = limit,
                .host = host,
                .least = host,
                .measured_at = now,
                .looked = host,
                .looked_at = now,
        };
}

/* How long it takes at least to use up the room that is left since @least. */
static uint64_t time_left(const DiskRule *rule, DiskUsage least, DiskUsage host, uint64_t now) {
        DiskUsage step = steps(rule);
        DiskUsage room = {
                .bytes = minus(most_of(minus(rule->limit.bytes, rule->measured.bytes), step.bytes),
                               minus(host.bytes, least.bytes)),
                .inodes = minus(most_of(minus(rule->limit.inodes, rule->measured.inodes), step.inodes),
                                minus(host.inodes, least.inodes)),
        };
        uint64_t time = now - rule->looked_at, left = rule->is_over ? WAIT_MAX_OVER : WAIT_MAX;
        if (rule->limit.bytes > 0)
                left = least_of(left,
                                time_to_grow(room.bytes, BYTES_PER_SEC, minus(host.bytes, rule->looked.bytes), time));
        if (rule->limit.inodes > 0)
                left = least_of(
                        left, time_to_grow(room.inodes, INODES_PER_SEC, minus(host.inodes, rule->looked.inodes), time));
        return most_of(left, WAIT_MIN);
}

/* Where it is late, what the file system tells is of no use here. */
static uint64_t late_period(const DiskRule *rule) {
        return most_of(time_left(rule, rule->looked, rule->looked, rule->looked_at), LATE_TIMES * rule->took);
}

uint64_t disk_rule_wait(DiskRule *rule, DiskUsage host, uint64_t now) {
        uint64_t rest = minus(rule->measured_at + rule->took, now);
        uint64_t wait = rule->is_late ? minus(rule->measured_at + late_period(rule), now)
                                      : time_left(rule, rule->least, host, now);
        rule->looked = host;
        rule->looked_at = now;
        return most_of(most_of(wait, rest), WAIT_MIN);
}

bool disk_rule_may_be_over(const DiskRule *rule, DiskUsage host) {
        DiskUsage step = steps(rule), grown = {
                .bytes = minus(host.bytes, rule->least.bytes),
                .inodes = minus(host.inodes, rule->least.inodes),
        };

        return has_grown(rule->limit.bytes, step.bytes, rule->measured.bytes, grown.bytes) ||
               has_grown(rule->limit.inodes, step.inodes, rule->measured.inodes, grown.inodes);
}

bool disk_rule_is_due(DiskRule *rule, DiskUsage host, uint64_t now) {
        if (!rule->is_known)
                return true;
        rule->least.bytes = least_of(rule->least.bytes, host.bytes);
        rule->least.inodes = least_of(rule->least.inodes, host.inodes);
        if (now - rule->measured_at < rule->took)
                return false;
        if (rule->is_settling || (rule->is_late && (rule->is_over || now - rule->measured_at >= late_period(rule))))
                return true;
        if (disk_rule_may_be_over(rule, host))
                return true;
        if (rule->is_over && disk_rule_is_worth_it(rule, host, now))
                return true;
        return now - rule->measured_at >= most_of(PERIOD, PERIOD_TIMES * rule->took) && !is_same(host, rule->host);
}

bool disk_rule_is_worth_it(const DiskRule *rule, DiskUsage host, uint64_t now) {
        return rule->took == 0 || (now - rule->measured_at >= ASKED_TIMES * rule->took && !is_same(host, rule->host));
}

DiskUsage disk_rule_enough(const DiskRule *rule) {
        DiskUsage step = steps(rule);

        if (rule->is_settling)
                return (DiskUsage){ .bytes = UINT64_MAX, .inodes = UINT64_MAX };
        return (DiskUsage){
                .bytes = enough_of(rule->limit.bytes, rule->is_over, rule->bar.bytes, step.bytes),
                .inodes = enough_of(rule->limit.inodes, rule->is_over, rule->bar.inodes, step.inodes),
        };
}

const char *disk_rule_find_limit(const DiskRule *rule, DiskUsage usage) {
        if (is_above(rule->limit.bytes, usage.bytes))
                return "disk_bytes";
        return is_above(rule->limit.inodes, usage.inodes) ? "disk_inodes" : NULL;
}

void disk_rule_take_hit(DiskRule *rule, DiskUsage counted) {
        rule->found = disk_rule_find_limit(rule, counted);
}

void disk_rule_forget_hit(DiskRule *rule) {
        rule->found = NULL;
}

const char *disk_rule_limit_exceeded(const DiskRule *rule, DiskUsage host) {
        DiskUsage left = {
                .bytes = minus(rule->measured.bytes, minus(rule->host.bytes, host.bytes)),
                .inodes = minus(rule->measured.inodes, minus(rule->host.inodes, host.inodes)),
        };

        if (rule->found)
                return rule->found;
        return rule->is_over ? disk_rule_find_limit(rule, left) : NULL;
}

void disk_rule_let_write(DiskRule *rule, uint64_t now) {
        if (!rule->is_over)
                return;
        rule->bar.bytes = least_of(rule->bar.bytes, rule->limit.bytes);
        rule->bar.inodes = least_of(rule->bar.inodes, rule->limit.inodes);
        rule->is_settling = false;
        rule->let_at = now;
}

bool disk_rule_is_stale(const DiskRule *rule, uint64_t begin) {
        return begin <= rule->let_at;
}

bool disk_rule_take(DiskRule *rule, DiskUsage measured, DiskUsage host, uint64_t begin, uint64_t end) {
        DiskUsage enough = disk_rule_enough(rule);
        bool is_over = disk_rule_find_limit(rule, measured) != NULL;
        bool is_hit =
                !disk_rule_is_stale(rule, begin) && (measured.bytes > enough.bytes || measured.inodes > enough.inodes);

        if (rule->is_settling || !rule->is_over)
                rule->bar = measured;
        rule->bar.bytes = least_of(rule->bar.bytes, measured.bytes);
        rule->bar.inodes = least_of(rule->bar.inodes, measured.inodes);
        rule->is_over = is_over;
        rule->is_settling = is_hit;
        rule->is_known = true;
        rule->found = NULL;
        rule->measured = measured;
        rule->host = rule->least = host;
        rule->measured_at = end;
        rule->took = end - begin;
        return is_hit;
}
