/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "daemon/instance-lock.h"

static void the_second_is_told_of_the_first(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        char folder[] = "/tmp/hutch-lock-XXXXXX", path[64], expected[128];
        int first, second;

        (void) state;
        assert_non_null(mkdtemp(folder));
        first = instance_lock(folder, &err);
        assert_true(first >= 0);

        assert_int_equal(instance_lock(folder, &err), -EBUSY);
        (void) snprintf(expected, sizeof(expected), "another hutchd (pid %d) uses %s", (int) getpid(), folder);
        assert_string_equal(error_message(&err), expected);

        (void) fd_close(first);
        second = instance_lock(folder, &err);
        assert_true(second >= 0);
        (void) fd_close(second);
        (void) snprintf(path, sizeof(path), "%s/lock", folder);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
}

static void a_missing_folder_is_told(void **state) {
        _cleanup_(error_clear) HutchError err = {};

        (void) state;
        assert_int_equal(instance_lock("/nonexistent", &err), -ENOENT);
        assert_non_null(strstr(error_message(&err), "/nonexistent/lock"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_second_is_told_of_the_first),
                cmocka_unit_test(a_missing_folder_is_told),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
