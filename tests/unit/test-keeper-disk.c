/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox has on disk: counting it, and the rule by which its limits are kept without quotas. */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "keeper/disk/disk-rule.h"
#include "keeper/disk/disk-usage.h"
#include "keeper/root/remove.h"
#include "test.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

/* ---- Counting ---- */

static char folder[] = "/tmp/hutch-test-disk-XXXXXX";

static int make_folder(void **state) {
        (void) state;
        memset(folder + strlen(folder) - 6, 'X', 6);
        return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
        (void) state;
        return chdir("/") < 0 ? -1 : folder_remove(folder, NULL);
}

static DiskCount new_count(void) {
        return (DiskCount){ .is_whole = true, .deadline = clock_monotonic_ns() + 60 * NSEC_PER_SEC };
}

static DiskUsage count_folder(void) {
        _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DiskCount count = new_count();

        disk_count_folder(&count, fd);
        assert_true(count.is_whole);
        assert_int_equal(chdir(folder), 0);
        return disk_count_sum(&count);
}

/* A file of @size bytes, which stays open. */
static int write_file(const char *name, size_t size) {
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        char *bytes = calloc(1, size + 1);

        assert_true(fd >= 0 && bytes);
        memset(bytes, 'x', size);
        assert_int_equal(fd_write_all(fd, bytes, size), 0);
        free(bytes);
        return fd;
}

static void blocks_are_counted_and_holes_are_not(void **state) {
        DiskUsage before = count_folder(), after;
        struct stat st;

        (void) state;
        assert_int_equal(before.inodes, 1);
        fd_close(write_file("full", MIB));
        assert_int_equal(mkdir("below", 0000), 0);
        assert_int_equal(stat("below", &st), 0);
        assert_int_equal(symlink("/", "link"), 0);
        after = count_folder();
        assert_in_range(after.bytes, before.bytes + MIB, before.bytes + MIB + (uint64_t) st.st_blocks * 512 + 64 * KIB);
        assert_int_equal(after.inodes, 4);

        _cleanup_close_ int sparse = write_file("sparse", 1);
        assert_int_equal(ftruncate(sparse, (off_t) 1 << 40), 0);
        assert_in_range(count_folder().bytes, after.bytes, after.bytes + 64 * KIB);
}

static void a_file_with_many_names_is_counted_once(void **state) {
        DiskUsage before = count_folder(), after;
        char name[32];

        (void) state;
        fd_close(write_file("one", MIB));
        for (int i = 0; i < 1000; i++) {
                (void) snprintf(name, sizeof(name), "name-%d", i);
                assert_int_equal(link("one", name), 0);
        }
        after = count_folder();
        assert_int_equal(after.inodes, before.inodes + 1);
        /* The folder itself grows with its names. */
        assert_in_range(after.bytes, before.bytes + MIB, before.bytes + MIB + 256 * KIB);
}

/* Makes @depth folders in each other and stays in the lowest; beside each there is one more. */
static void make_deep(int depth) {
        for (int i = 0; i < depth; i++) {
                assert_int_equal(mkdir("a", 0700), 0);
                assert_int_equal(mkdir("d", 0700), 0);
                assert_int_equal(mkdir("z", 0700), 0);
                assert_int_equal(chdir("d"), 0);
        }
}

static void trees_deeper_than_paths_are_counted_whole(void **state) {
        (void) state;
        make_deep(5000);
        fd_close(write_file("bottom", 0));
        assert_int_equal(count_folder().inodes, 1 + 3 * 5000 + 1);
}

static void a_deadline_ends_it(void **state) {
        _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DiskCount count = { .is_whole = true, .deadline = 0 };

        (void) state;
        make_deep(200);
        disk_count_folder(&count, fd);
        assert_false(count.is_whole);
        assert_in_range(disk_count_sum(&count).inodes, 1, 100);
}

static void note(const DiskCount *count, void *user) {
        uint64_t *at = user;

        assert_int_equal(*at, 0);
        *at = disk_count_sum(count).inodes;
}

static void that_it_is_enough_is_told_once(void **state) {
        _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DiskCount count = new_count();
        uint64_t at = 0;

        (void) state;
        make_deep(20);
        count.enough = (DiskUsage){ .bytes = UINT64_MAX, .inodes = 10 };
        count.reached = note;
        count.user = &at;
        disk_count_folder(&count, fd);
        assert_int_equal(at, 11);
        assert_int_equal(disk_count_sum(&count).inodes, 61);
}

static void files_without_a_name_are_found_where_they_are_open(void **state) {
        DiskCount count = new_count();
        int deleted = write_file("deleted", MIB), again = dup(deleted), named = write_file("named", MIB);

        (void) state;
        assert_int_equal(unlink("deleted"), 0);
        /* Two processes that have the same open, and what is none. */
        assert_int_equal(mkdir("proc", 0700), 0);
        assert_int_equal(symlink("/proc/self", "proc/1"), 0);
        assert_int_equal(symlink("/proc/self", "proc/20"), 0);
        assert_int_equal(symlink("/proc/self", "proc/self"), 0);
        disk_count_unnamed(&count, "proc");
        assert_int_equal(chdir(folder), 0);
        assert_int_equal(disk_count_sum(&count).inodes, 1);
        assert_in_range(disk_count_sum(&count).bytes, MIB, MIB + 64 * KIB);
        fd_close(deleted);
        fd_close(again);
        fd_close(named);
        count = new_count();
        disk_count_unnamed(&count, "proc");
        assert_int_equal(disk_count_sum(&count).inodes, 0);
        assert_true(count.is_whole);
        disk_count_unnamed(&count, "no such folder");
        assert_false(count.is_whole);
}

/* ---- The rule ---- */

static DiskUsage usage(uint64_t bytes, uint64_t inodes) {
        return (DiskUsage){ .bytes = bytes, .inodes = inodes };
}

static DiskRule new_rule(uint64_t bytes, uint64_t inodes) {
        DiskRule rule;

        disk_rule_init(&rule, usage(bytes, inodes), usage(1000 * MIB, 1000), 0);
        return rule;
}

static bool take(DiskRule *rule, uint64_t bytes, uint64_t inodes, uint64_t host) {
        return disk_rule_take(rule, usage(bytes, inodes), usage(host, 1000), NSEC_PER_SEC, 2 * NSEC_PER_SEC);
}

static void it_is_measured_when_the_rest_may_be_used_up(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_true(disk_rule_is_due(&rule, usage(1000 * MIB, 1000), 0));
        assert_false(take(&rule, 24 * MIB, 10, 1000 * MIB));
        assert_false(disk_rule_is_due(&rule, usage(1039 * MIB, 1000), 3 * NSEC_PER_SEC));
        assert_true(disk_rule_is_due(&rule, usage(1040 * MIB, 1000), 3 * NSEC_PER_SEC));
        assert_true(disk_rule_is_due(&rule, usage(1000 * MIB, 1990), 3 * NSEC_PER_SEC));

        /* What others remove makes no room. */
        assert_false(disk_rule_is_due(&rule, usage(500 * MIB, 1000), 3 * NSEC_PER_SEC));
        assert_true(disk_rule_is_due(&rule, usage(540 * MIB, 1000), 3 * NSEC_PER_SEC));
}

static void near_the_limit_it_is_measured_by_steps(void **state) {
        DiskRule rule = new_rule(64 * MIB, 0);

        (void) state;
        assert_false(take(&rule, 64 * MIB, 5000, 1000 * MIB));
        assert_false(disk_rule_is_due(&rule, usage(1000 * MIB + 1023 * KIB, 9000), 3 * NSEC_PER_SEC));
        assert_true(disk_rule_is_due(&rule, usage(1001 * MIB, 1000), 3 * NSEC_PER_SEC));
}

static void it_is_measured_from_time_to_time_if_anything_changed(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_false(take(&rule, MIB, 10, 1000 * MIB));
        assert_false(disk_rule_is_due(&rule, usage(1000 * MIB, 1001), 101 * NSEC_PER_SEC));
        assert_true(disk_rule_is_due(&rule, usage(1000 * MIB, 1001), 102 * NSEC_PER_SEC));
        assert_false(disk_rule_is_due(&rule, usage(1000 * MIB, 1000), 102 * NSEC_PER_SEC));
}

static void it_is_measured_for_who_asks_when_that_is_cheap(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_true(disk_rule_is_worth_it(&rule, usage(1000 * MIB, 1000), 0));
        assert_false(take(&rule, MIB, 10, 1000 * MIB));
        assert_false(disk_rule_is_worth_it(&rule, usage(1001 * MIB, 1000), 11 * NSEC_PER_SEC));
        assert_true(disk_rule_is_worth_it(&rule, usage(1001 * MIB, 1000), 12 * NSEC_PER_SEC));
        assert_false(disk_rule_is_worth_it(&rule, usage(1000 * MIB, 1000), 12 * NSEC_PER_SEC));
}

static void it_is_measured_for_half_of_the_time_at_most(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_false(
                disk_rule_take(&rule, usage(60 * MIB, 10), usage(1000 * MIB, 1000), NSEC_PER_SEC, 11 * NSEC_PER_SEC));
        assert_false(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 11 * NSEC_PER_SEC));
        assert_false(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 21 * NSEC_PER_SEC - 1));
        assert_int_equal(disk_rule_wait(&rule, usage(1100 * MIB, 1000), 14 * NSEC_PER_SEC), 7 * NSEC_PER_SEC);
        assert_true(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 21 * NSEC_PER_SEC));

        /* Also after a hit, and where the file system tells late. */
        assert_true(disk_rule_take(&rule, usage(80 * MIB, 10), usage(1100 * MIB, 1000), 21 * NSEC_PER_SEC,
                                   22 * NSEC_PER_SEC));
        assert_false(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 23 * NSEC_PER_SEC - 1));
        assert_true(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 23 * NSEC_PER_SEC));
        rule.is_late = true;
        rule.is_settling = false;
        assert_false(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 23 * NSEC_PER_SEC - 1));
        assert_true(disk_rule_is_due(&rule, usage(1100 * MIB, 1000), 23 * NSEC_PER_SEC));
}

/* What somebody has written when a limit is hit, who writes @rate bytes in a second from the beginning, but first waits
 * for @pause; @took is what measuring takes, and the writer goes on meanwhile unless @freezes. */
static uint64_t simulate(DiskRule *rule, uint64_t rate, uint64_t pause, uint64_t took, bool freezes) {
        uint64_t now = 0, written = 0, moment = 0;

        for (int i = 0; i < 1000000; i++) {
                DiskUsage host = usage(1000 * MIB + (rule->is_late ? 0 : written), 1000);

                if (!disk_rule_is_due(rule, host, now))
                        now += disk_rule_wait(rule, host, now);
                else if (disk_rule_take(rule, usage(written, 10), host, now, now + took))
                        return written;
                else {
                        now += took;
                        moment += freezes ? took : 0;
                }
                written = now > moment + pause ? (uint64_t) ((double) rate * (double) (now - moment - pause) / 1e9) : 0;
        }
        fail_msg("no limit was hit");
        return 0;
}

static void who_writes_fast_is_looked_at_often(void **state) {
        const uint64_t rates[] = { MIB, 50 * MIB, 800 * MIB, 3000 * MIB, 8000 * MIB };
        const uint64_t limits[] = { 32 * MIB, 256 * MIB, 4096 * MIB, 100 * 1024 * MIB };
        const uint64_t pauses[] = { 0, 3 * NSEC_PER_SEC + NSEC_PER_SEC / 7 };

        (void) state;
        for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
                for (size_t j = 0; j < sizeof(limits) / sizeof(limits[0]); j++)
                        for (size_t k = 0; k < 2; k++) {
                                DiskRule rule = new_rule(limits[j], 0);
                                uint64_t step = limits[j] / 64 < 16 * MIB ? limits[j] / 64 : 16 * MIB;

                                rule.is_known = true;
                                /* No more than twice what is written in the 5 ms between two looks. */
                                assert_in_range(simulate(&rule, rates[i], pauses[k], 0, true), limits[j],
                                                limits[j] + step + rates[i] / 100);
                        }
}

static void where_the_file_system_tells_late_it_is_measured_instead(void **state) {
        DiskRule rule = new_rule(4096 * MIB, 0);

        (void) state;
        rule.is_known = rule.is_late = true;
        /* What is written in 4 times 10 ms, which is what measuring takes; and while it is measured. */
        assert_in_range(simulate(&rule, 800 * MIB, 0, 10 * NSEC_PER_MSEC, false), 4096 * MIB, (4096 + 50) * MIB);
}

static void who_writes_nothing_is_looked_at_once_a_second(void **state) {
        DiskRule rule = new_rule(64 * 1024 * MIB, 0);

        (void) state;
        rule.is_known = true;
        assert_int_equal(disk_rule_wait(&rule, usage(1000 * MIB, 1000), NSEC_PER_SEC), NSEC_PER_SEC);
        rule = new_rule(0, 1000000);
        assert_int_equal(disk_rule_wait(&rule, usage(1000 * MIB, 1000), NSEC_PER_SEC), NSEC_PER_SEC);
        rule = new_rule(0, 10000);
        assert_int_equal(disk_rule_wait(&rule, usage(1000 * MIB, 1000), NSEC_PER_SEC), 25 * NSEC_PER_MSEC);
        rule = new_rule(1024 * MIB, 0);
        assert_int_equal(disk_rule_wait(&rule, usage(1000 * MIB, 1000), NSEC_PER_SEC), 125 * NSEC_PER_MSEC - 1);
}

static void a_sandbox_over_its_limit_may_shrink_and_not_grow(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_true(take(&rule, 80 * MIB, 10, 1000 * MIB));
        assert_true(rule.is_over);
        assert_string_equal(disk_rule_find_limit(&rule, rule.measured), "disk_bytes");

        /* It had grown while it was measured: that is seen only now, and no hit. */
        assert_true(disk_rule_is_due(&rule, usage(1000 * MIB, 1000), 3 * NSEC_PER_SEC));
        assert_int_equal(disk_rule_enough(&rule).bytes, UINT64_MAX);
        assert_false(take(&rule, 100 * MIB, 10, 1000 * MIB));
        assert_false(disk_rule_is_due(&rule, usage(1000 * MIB, 1000), 3 * NSEC_PER_SEC));
        assert_false(disk_rule_is_due(&rule, usage(999 * MIB, 1000), 11 * NSEC_PER_SEC));
        assert_true(disk_rule_is_due(&rule, usage(999 * MIB, 1000), 12 * NSEC_PER_SEC));

        assert_false(take(&rule, 101 * MIB, 10, 1001 * MIB)); /* no more than a step */
        assert_false(take(&rule, 90 * MIB, 10, 990 * MIB));
        assert_true(take(&rule, 92 * MIB, 10, 992 * MIB));
        assert_true(rule.is_over);

        assert_false(take(&rule, 64 * MIB, 10, 950 * MIB));
        assert_false(rule.is_over);
        assert_null(disk_rule_find_limit(&rule, rule.measured));
        assert_true(take(&rule, 64 * MIB + 1, 10, 951 * MIB));
}

static void room_that_was_made_is_taken_for_the_sandbox_s(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_null(disk_rule_limit_exceeded(&rule, usage(2000 * MIB, 9000)));
        assert_true(take(&rule, 100 * MIB, 10, 1000 * MIB));
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(1000 * MIB, 1000)), "disk_bytes");
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(1100 * MIB, 1000)), "disk_bytes");
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(965 * MIB, 1000)), "disk_bytes");
        assert_null(disk_rule_limit_exceeded(&rule, usage(964 * MIB, 1000)));
        assert_true(take(&rule, 10 * MIB, 1500, 1000 * MIB) || rule.is_over);
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(0, 501)), "disk_inodes");
        assert_null(disk_rule_limit_exceeded(&rule, usage(0, 500)));
}

static void a_sandbox_is_over_before_all_of_it_was_counted(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        disk_rule_take_hit(&rule, usage(65 * MIB, 10));
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(500 * MIB, 1000)), "disk_bytes");
        assert_true(take(&rule, 100 * MIB, 10, 1000 * MIB)); /* the same hit */
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(1000 * MIB, 1000)), "disk_bytes");
        assert_null(disk_rule_limit_exceeded(&rule, usage(500 * MIB, 1000)));

        /* Who counts may not come to an end. */
        rule = new_rule(64 * MIB, 1000);
        disk_rule_take_hit(&rule, usage(MIB, 1001));
        assert_string_equal(disk_rule_limit_exceeded(&rule, usage(1000 * MIB, 1000)), "disk_inodes");
        disk_rule_forget_hit(&rule);
        assert_null(disk_rule_limit_exceeded(&rule, usage(1000 * MIB, 1000)));
}

static void who_writes_into_room_that_was_made_hits_the_limit_again(void **state) {
        DiskRule rule = new_rule(64 * MIB, 1000);

        (void) state;
        assert_true(take(&rule, 500 * MIB, 10, 1000 * MIB));
        assert_false(take(&rule, 500 * MIB, 10, 1000 * MIB));
        assert_null(disk_rule_limit_exceeded(&rule, usage(510 * MIB, 1000)));

        /* What is being measured meanwhile is of before, and is nobody's fault who writes now. */
        disk_rule_let_write(&rule, 2 * NSEC_PER_SEC);
        assert_true(disk_rule_is_stale(&rule, NSEC_PER_SEC));
        assert_false(take(&rule, 500 * MIB, 10, 1000 * MIB));
        assert_true(rule.is_over);
        assert_false(disk_rule_is_stale(&rule, 3 * NSEC_PER_SEC));
        assert_true(
                disk_rule_take(&rule, usage(80 * MIB, 10), usage(600 * MIB, 1000), 3 * NSEC_PER_SEC, 4 * NSEC_PER_SEC));

        /* Also when the first hit is not settled. */
        rule = new_rule(64 * MIB, 1000);
        assert_true(take(&rule, 500 * MIB, 10, 1000 * MIB));
        disk_rule_let_write(&rule, 2 * NSEC_PER_SEC);
        assert_true(
                disk_rule_take(&rule, usage(80 * MIB, 10), usage(600 * MIB, 1000), 3 * NSEC_PER_SEC, 4 * NSEC_PER_SEC));

        /* One that is not over is as it was. */
        rule = new_rule(64 * MIB, 1000);
        assert_false(take(&rule, 10 * MIB, 10, 1000 * MIB));
        disk_rule_let_write(&rule, 9 * NSEC_PER_SEC);
        assert_false(disk_rule_is_stale(&rule, NSEC_PER_SEC));
}

static void inodes_are_a_limit_like_bytes(void **state) {
        DiskRule rule = new_rule(0, 1000);

        (void) state;
        assert_false(take(&rule, 1000 * MIB, 1000, 1000 * MIB));
        assert_true(take(&rule, 0, 1001, 1000 * MIB));
        assert_string_equal(disk_rule_find_limit(&rule, rule.measured), "disk_inodes");
        assert_false(take(&rule, 0, 1001, 1000 * MIB));
        assert_int_equal(disk_rule_enough(&rule).bytes, UINT64_MAX);
        assert_int_equal(disk_rule_enough(&rule).inodes, 1017);
}

static void without_limits_nothing_is_over(void **state) {
        DiskRule rule = new_rule(0, 0);

        (void) state;
        assert_false(take(&rule, UINT64_MAX, UINT64_MAX, 1000 * MIB));
        assert_false(rule.is_over);
        assert_false(disk_rule_is_due(&rule, usage(UINT64_MAX, UINT64_MAX), 3 * NSEC_PER_SEC));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(blocks_are_counted_and_holes_are_not, make_folder, remove_folder),
                cmocka_unit_test_setup_teardown(a_file_with_many_names_is_counted_once, make_folder, remove_folder),
                cmocka_unit_test_setup_teardown(trees_deeper_than_paths_are_counted_whole, make_folder, remove_folder),
                cmocka_unit_test_setup_teardown(a_deadline_ends_it, make_folder, remove_folder),
                cmocka_unit_test_setup_teardown(that_it_is_enough_is_told_once, make_folder, remove_folder),
                cmocka_unit_test_setup_teardown(files_without_a_name_are_found_where_they_are_open, make_folder,
                                                remove_folder),
                cmocka_unit_test(it_is_measured_when_the_rest_may_be_used_up),
                cmocka_unit_test(near_the_limit_it_is_measured_by_steps),
                cmocka_unit_test(it_is_measured_from_time_to_time_if_anything_changed),
                cmocka_unit_test(it_is_measured_for_who_asks_when_that_is_cheap),
                cmocka_unit_test(it_is_measured_for_half_of_the_time_at_most),
                cmocka_unit_test(who_writes_fast_is_looked_at_often),
                cmocka_unit_test(where_the_file_system_tells_late_it_is_measured_instead),
                cmocka_unit_test(who_writes_nothing_is_looked_at_once_a_second),
                cmocka_unit_test(a_sandbox_over_its_limit_may_shrink_and_not_grow),
                cmocka_unit_test(room_that_was_made_is_taken_for_the_sandbox_s),
                cmocka_unit_test(a_sandbox_is_over_before_all_of_it_was_counted),
                cmocka_unit_test(who_writes_into_room_that_was_made_hits_the_limit_again),
                cmocka_unit_test(inodes_are_a_limit_like_bytes),
                cmocka_unit_test(without_limits_nothing_is_over),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
