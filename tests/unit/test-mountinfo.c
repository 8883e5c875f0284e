/* SPDX-License-Identifier: Apache-2.0 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "host/mountinfo.h"

static void lines_are_read(void **state) {
        static const struct {
                const char *line, *root, *path, *type, *options;
        } cases[] = {
                { "23 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n", "/", "/proc", "proc", "rw" },
                { "1 0 8:1 / / rw - ext4 /dev/sda1 rw,quota", "/", "/", "ext4", "rw,quota" },
                { "9 1 8:1 /a\\040b /mnt/c\\134\\011d ro shared:1 master:2 - fuse.x y ro\n", "/a b", "/mnt/c\\\td",
                  "fuse.x", "ro" },
                { "9 1 8:1 / /\\0 rw - ext4", "/", "/\\0", "ext4", "" },
                { "9 1 8:1 / /\\400\\08x rw - ext4 - -", "/", "/\\400\\08x", "ext4", "-" },
        };
        char line[256];
        MountInfo mount;

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                (void) snprintf(line, sizeof(line), "%s", cases[i].line);
                assert_true(mountinfo_parse(line, &mount));
                assert_string_equal(mount.root, cases[i].root);
                assert_string_equal(mount.path, cases[i].path);
                assert_string_equal(mount.type, cases[i].type);
                assert_string_equal(mount.options, cases[i].options);
        }
}

static void others_are_not(void **state) {
        static const char *const cases[] = { "",
                                             "\n",
                                             "23 28 0:21 / /proc",
                                             "23 28 0:21 / /proc rw",
                                             "23 28 0:21 / /proc rw proc proc rw",
                                             "23 28 0:21 / /proc rw -",
                                             "23 28 0:21 / /proc rw - \n" };
        char line[256];
        MountInfo mount;

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                (void) snprintf(line, sizeof(line), "%s", cases[i]);
                assert_false(mountinfo_parse(line, &mount));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lines_are_read),
                cmocka_unit_test(others_are_not),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
