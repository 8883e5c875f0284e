/* SPDX-License-Identifier: Apache-2.0 */

#include "base/table.h"

#include <stdio.h>

#include "test.h"

#define N 500

static void what_was_added_is_found_until_it_is_removed(void **state) {
        static char keys[N][8];
        Table table = {};

        assert_null(table_get(&table, "none"));
        table_remove(&table, "none");
        for (int i = 0; i < N; i++) {
                (void) snprintf(keys[i], sizeof keys[i], "%d", i);
                table_add(&table, keys[i], keys[i]);
        }

        /* In another order than they were added, so that there are holes in all places. */
        for (int i = 0; i < N; i++) {
                int gone = i * 7 % N;

                table_remove(&table, keys[gone]);
                table_remove(&table, "none");
                assert_null(table_get(&table, keys[gone]));
                for (int j = i + 1; j < N; j++)
                        assert_ptr_equal(table_get(&table, keys[j * 7 % N]), keys[j * 7 % N]);
        }
        assert_int_equal(table.n, 0);
        assert_null(table.entries);
}

int main(void) {
        const struct CMUnitTest tests[] = { cmocka_unit_test(what_was_added_is_found_until_it_is_removed) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
