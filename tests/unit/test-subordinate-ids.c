/* SPDX-License-Identifier: Apache-2.0 */

#include "host/subordinate-ids.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "test.h"

#define UID 1000u

static IdRanges parse(const char *text) {
        IdRanges ranges;
        subordinate_ids_parse(text, "ann", UID, UID, &ranges);
        return ranges;
}

static void assert_ranges(const char *text, const char *expected) {
        IdRanges ranges = parse(text);
        _cleanup_free_ char *found = id_ranges_format(&ranges);
        assert_string_equal(found, expected);
}

static void ranges_are_found_by_name_and_by_uid(void **state) {
        assert_ranges("ann:100000:65536\n", "100000:65536");
        assert_ranges("1000:100000:65536", "100000:65536");
        assert_ranges("bob:100000:65536\nann:200000:65536\n\n# x\n1000:300000:5\n", "200000:65536,300000:5");
        assert_ranges("", "");
        assert_ranges("anna:100000:65536\nan:100000:65536\n10001:1:5\n100:1:5\n:1:5\n", "");
}

static void lines_that_are_none_are_left_out(void **state) {
        static const char *const lines[] = {
                "ann",      "ann:",     "ann:5",    "ann:5:",           "ann:5:5:",
                "ann:5:5x", "ann:-5:5", "ann:5: 5", "ann:4294967296:1", "ann:5:4294967296",
                "ann::5",   "ann:5:0",  "ann 5 5",  "ann:0x5:5",        "ann:5:5\r",
        };
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
                assert_ranges(lines[i], "");
}

static void ranges_that_cannot_be_mapped_are_left_out(void **state) {
        assert_ranges("ann:0:65536\n", "");
        assert_ranges("ann:999:2\n", "");
        assert_ranges("ann:1000:1\n", "");
        assert_ranges("ann:1001:5\nann:900:100\n", "1001:5,900:100");
        assert_ranges("ann:4294967290:5\nann:4294967200:96\n", "4294967290:5");
        assert_ranges("ann:2000:100\nann:2099:1\nann:2100:1\nann:1500:600\nann:2000:100\n", "2000:100,2100:1");
}

static void there_are_not_too_many(void **state) {
        char text[4096] = "";
        for (size_t i = 0, len = 0; i < ID_RANGES_MAX + 5; i++)
                len += (size_t) snprintf(text + len, sizeof(text) - len, "ann:%zu:10\n", 100000 + i * 10);
        assert_int_equal(parse(text).n, ID_RANGES_MAX);
}

static void slots_are_cut_from_ranges_in_their_order(void **state) {
        IdMap map = { .uids = parse("ann:100000:131071\nann:300000:65534\nann:500000:65535\n"),
                      .gids = parse("ann:700000:65536\n") };
        static const uint32_t firsts[] = { 100000, 165535, 500000, 100000 };
        assert_int_equal(subordinate_ids_count_slots(&map.uids), 3);
        assert_int_equal(subordinate_ids_count_slots(&map.gids), 1);
        for (uint32_t i = 0; i < 4; i++) {
                IdMap one = subordinate_ids_of_slot(&map, i);
                assert_int_equal(one.uids.n, 1);
                assert_int_equal(one.uids.list[0].first, firsts[i]);
                assert_int_equal(one.uids.list[0].count, SUBORDINATE_IDS_SIZE);
                assert_int_equal(one.gids.list[0].first, 700000);
        }
}

static void a_text_of_ranges_is_read_again(void **state) {
        IdRanges ranges;
        assert_int_equal(id_ranges_parse("5:6,70000:65535", &ranges), 0);
        _cleanup_free_ char *text = id_ranges_format(&ranges);
        assert_string_equal(text, "5:6,70000:65535");
        static const char *const bad[] = { "", "5", "5:", "5:6,", "5:6;7:8", ",", "5:6,7" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(id_ranges_parse(bad[i], &ranges), -EINVAL);
}

static void a_map_without_programs_is_refused(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        assert_int_equal(id_map_try(&(IdMap){}, &err), -ENOENT);
        assert_non_null(strstr(error_message(&err), "newuidmap"));
}

static void what_a_program_says_is_told(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        IdMap map = { .newuidmap = (char *) "/bin/ls", .newgidmap = (char *) "/bin/true" };
        assert_int_equal(id_map_apply(&map, 1, &err), -EPERM);
        assert_non_null(strstr(error_message(&err), "/bin/ls: "));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ranges_are_found_by_name_and_by_uid),
                cmocka_unit_test(lines_that_are_none_are_left_out),
                cmocka_unit_test(ranges_that_cannot_be_mapped_are_left_out),
                cmocka_unit_test(there_are_not_too_many),
                cmocka_unit_test(slots_are_cut_from_ranges_in_their_order),
                cmocka_unit_test(a_text_of_ranges_is_read_again),
                cmocka_unit_test(a_map_without_programs_is_refused),
                cmocka_unit_test(what_a_program_says_is_told),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
