/* SPDX-License-Identifier: Apache-2.0 */

#include "base/clock.h"

#include <time.h>

#include "test.h"

static void units_agree(void **state) {
        assert_int_equal(NSEC_PER_MSEC, 1000 * NSEC_PER_USEC);
        assert_int_equal(NSEC_PER_SEC, 1000 * NSEC_PER_MSEC);
}

static void monotonic_does_not_go_back(void **state) {
        uint64_t last = clock_monotonic_ns();

        for (int i = 0; i < 1000; i++) {
                uint64_t now = clock_monotonic_ns();

                assert_true(now >= last);
                last = now;
        }
}

static void monotonic_advances_over_a_sleep(void **state) {
        uint64_t start = clock_monotonic_ns();

        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        assert_true(clock_monotonic_ns() - start >= 2 * NSEC_PER_MSEC);
}

static void realtime_is_the_calendars(void **state) {
        uint64_t before = (uint64_t) time(NULL);
        uint64_t now = clock_realtime_ns() / NSEC_PER_SEC;

        /* time() may lag by a tick. */
        assert_in_range(now, before, before + 60);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(units_agree),
                cmocka_unit_test(monotonic_does_not_go_back),
                cmocka_unit_test(monotonic_advances_over_a_sleep),
                cmocka_unit_test(realtime_is_the_calendars),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
