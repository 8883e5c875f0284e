/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/memory/memory-rule.h"

#include "base/clock.h"
#include "test.h"

#define MIB ((uint64_t) 1 << 20)

static void far_from_the_limit_it_is_counted_seldom(void **state) {
        MemoryRule rule = { .limit = 8192 * MIB };

        (void) state;
        assert_int_equal(memory_rule_take(&rule, 0, 0), 100 * NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 4096 * MIB, 0), 100 * NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 7168 * MIB, 0), 64 * NSEC_PER_MSEC);
        assert_int_equal(rule.peak, 7168 * MIB);
}

static void what_is_left_cannot_be_gone_before_the_next_count(void **state) {
        MemoryRule rule = { .limit = 512 * MIB };

        (void) state;
        assert_int_equal(memory_rule_take(&rule, 100 * MIB, 0), 25 * NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 400 * MIB, 0), 7 * NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 511 * MIB, 0), NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 600 * MIB, 0), NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 600 * MIB, 0), NSEC_PER_MSEC);
        assert_int_equal(rule.peak, 600 * MIB);
}

static void one_that_does_not_grow_is_counted_less_often(void **state) {
        MemoryRule rule = { .limit = 512 * MIB };
        uint64_t last = memory_rule_take(&rule, 510 * MIB, 0);

        (void) state;
        assert_int_equal(last, NSEC_PER_MSEC);
        for (int i = 0; i < 20; i++) {
                uint64_t interval = memory_rule_take(&rule, 510 * MIB, 0);

                assert_true(interval >= last);
                last = interval;
        }
        assert_int_equal(last, 20 * NSEC_PER_MSEC);
        assert_int_equal(memory_rule_take(&rule, 511 * MIB, 0), NSEC_PER_MSEC);
}

static void counting_takes_half_of_the_time_at_most(void **state) {
        MemoryRule rule = { .limit = 512 * MIB };

        (void) state;
        assert_int_equal(memory_rule_take(&rule, 511 * MIB, 300 * NSEC_PER_MSEC), 300 * NSEC_PER_MSEC);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(far_from_the_limit_it_is_counted_seldom),
                cmocka_unit_test(what_is_left_cannot_be_gone_before_the_next_count),
                cmocka_unit_test(one_that_does_not_grow_is_counted_less_often),
                cmocka_unit_test(counting_takes_half_of_the_time_at_most),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
