/* SPDX-License-Identifier: Apache-2.0 */

/* Quotas of projects, as far as the file system of /tmp has them. The tests of whole sandboxes make one that does. */

#include "host/project-quota.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "test.h"

#define PROJECT 0x3ffffff0u

static char folder[] = "/tmp/hutch-test-quota-XXXXXX";

static int set_up(void **state) {
        (void) state;
        return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
        (void) state;
        return rmdir(folder);
}

static void trying_leaves_nothing_and_says_what_holds(void **state) {
        _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int tried = project_quota_try(fd, PROJECT), cleared = project_quota_clear(fd, PROJECT);
        ProjectUsage usage;
        uint32_t project = 1;

        (void) state;
        assert_int_equal(tried == 0, tried == 0 && cleared == 0);
        assert_int_equal(project_quota_read(fd, &usage), 0);
        if (project_quota_find(fd, &project) == 0)
                assert_int_equal(project, 0);
        /* tear_down() removes the folder, which must be empty. */
}

static void a_folder_that_is_none_is_told(void **state) {
        ProjectUsage usage;
        uint32_t project;

        (void) state;
        assert_int_equal(project_quota_try(-1, PROJECT), -EBADF);
        assert_int_equal(project_quota_assign(-1, PROJECT), -EBADF);
        assert_int_equal(project_quota_find(-1, &project), -EBADF);
        assert_true(project_quota_limit(-1, PROJECT, 0, 0) < 0);
        assert_true(project_quota_clear(-1, PROJECT) < 0);
        assert_int_equal(project_quota_read(-1, &usage), -EBADF);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(trying_leaves_nothing_and_says_what_holds, set_up, tear_down),
                cmocka_unit_test(a_folder_that_is_none_is_told),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
