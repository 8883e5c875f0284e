/* SPDX-License-Identifier: Apache-2.0 */

/* What is written where the v2 tree has the controllers, in folders that look like it: the hosts of tests may have them
 * in v1 hierarchies, and those are tested by the limits themselves. */

#include "keeper/box/limit-groups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "test.h"

static const char *const files[] = { "cgroup.subtree_control", "cpu.max",     "cpu.weight",    "memory.max",
                                     "memory.swap.max",        "memory.peak", "memory.events", "memory.current",
                                     "memory.oom.group",       "pids.max",    "pids.events",   "io.weight",
                                     "io.bfq.weight" };

static char base[64];

static void put(const char *name, const char *text) {
        char path[128];
        (void) snprintf(path, sizeof(path), "%s/%s", base, name);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void assert_has(const char *name, const char *expected) {
        char path[128], text[128];
        (void) snprintf(path, sizeof(path), "%s/%s", base, name);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, text, sizeof(text) - 1);
        assert_true(n >= 0);
        text[n] = '\0';
        assert_string_equal(text, expected);
}

static int set_up(void **state) {
        strcpy(base, "/tmp/hutch-limits-XXXXXX");
        assert_non_null(mkdtemp(base));
        for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
                put(files[i], "");
        return 0;
}

static int tear_down(void **state) {
        for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
                char path[128];
                (void) snprintf(path, sizeof(path), "%s/%s", base, files[i]);
                (void) unlink(path);
        }
        return rmdir(base);
}

static KeeperConfig config_with_limits(void) {
        return (KeeperConfig){
                .cgroup = base,
                .controllers = { [CONTROLLER_CPU] = base,
                                 [CONTROLLER_MEMORY] = base,
                                 [CONTROLLER_PIDS] = base,
                                 [CONTROLLER_IO] = base },
                .memory_bytes = 67108864,
                .cpu_millis = 250,
                .cpu_weight = 300,
                .max_processes = 20,
                .io_weight = 5000,
        };
}

static void limits_are_written_as_v2_has_them(void **state) {
        KeeperConfig config = config_with_limits();
        int cgroup = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        KeptSandbox sandbox = { .config = &config, .cgroup = cgroup, .cgroup_above = cgroup };
        put("pids.events", "max 7\n");
        put("memory.events", "low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 1\n");
        put("memory.peak", "4096\n");
        put("memory.current", "2048\n");

        limit_groups_init(&sandbox);
        assert_int_equal(limit_groups_make(&sandbox), 0);
        assert_has("cpu.max", "25000 100000");
        assert_has("cpu.weight", "300");
        assert_has("memory.max", "67108864");
        assert_has("memory.swap.max", "0");
        assert_has("pids.max", "21");
        assert_has("io.weight", "5000");
        assert_has("io.bfq.weight", "1000");
        assert_has("cgroup.subtree_control", "+memory");
        assert_int_equal(sandbox_process_limit_hits(&sandbox), 7);
        assert_int_equal(limit_group_memory(&sandbox.limits[CONTROLLER_MEMORY]), 2048);

        /* An exec's group is its cgroup; that it is the sandbox's here is of no account. */
        ExecGroup exec = { .sandbox = &sandbox, .name = (char *) "exec-1", .cgroup = sandbox.cgroup };
        limit_group_init(&exec.memory);
        assert_int_equal(limit_group_add_exec(&exec), 0);
        assert_has("memory.oom.group", "1");
        assert_int_equal(limit_group_memory_peak(&exec.memory), 4096);
        assert_int_equal(limit_group_memory_kills(&exec.memory), 1);
        put("memory.events", "oom 3\noom_kill 2\n"); /* before Linux 5.17 */
        assert_int_equal(limit_group_memory_kills(&exec.memory), 2);
        assert_int_equal(limit_groups_enter(&sandbox, &exec), 0); /* nothing is to be moved */
        limit_group_remove_exec(&exec);

        limit_groups_remove(&sandbox);
        assert_int_equal(sandbox.process_events, -1);
        assert_int_equal(access(base, F_OK), 0); /* it goes as the sandbox's cgroup */
        fd_close(sandbox.cgroup);
}

static void what_has_no_limit_is_not_written(void **state) {
        KeeperConfig config = config_with_limits();
        config.memory_bytes = config.cpu_millis = config.cpu_weight = config.max_processes = config.io_weight = 0;
        int cgroup = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        KeptSandbox sandbox = { .config = &config, .cgroup = cgroup, .cgroup_above = cgroup };

        limit_groups_init(&sandbox);
        assert_int_equal(limit_groups_make(&sandbox), 0);
        for (size_t i = 1; i < sizeof(files) / sizeof(*files); i++)
                assert_has(files[i], "");
        limit_groups_remove(&sandbox);
        fd_close(sandbox.cgroup);
}

static void one_of_the_weights_of_disks_is_enough(void **state) {
        KeeperConfig config = { .cgroup = base, .controllers = { [CONTROLLER_IO] = base }, .io_weight = 300 };
        int cgroup = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        KeptSandbox sandbox = { .config = &config, .cgroup = cgroup, .cgroup_above = cgroup };
        char path[128];
        (void) snprintf(path, sizeof(path), "%s/io.weight", base);
        assert_int_equal(unlink(path), 0);

        limit_groups_init(&sandbox);
        assert_int_equal(limit_groups_make(&sandbox), 0);
        assert_has("io.bfq.weight", "300");
        limit_groups_remove(&sandbox);

        (void) snprintf(path, sizeof(path), "%s/io.bfq.weight", base);
        assert_int_equal(unlink(path), 0);
        limit_groups_init(&sandbox);
        assert_int_equal(limit_groups_make(&sandbox), -ENOENT);
        limit_groups_remove(&sandbox);
        fd_close(sandbox.cgroup);
}

static void a_limit_that_cannot_be_set_is_an_error(void **state) {
        KeeperConfig config = config_with_limits();
        int cgroup = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        KeptSandbox sandbox = { .config = &config, .cgroup = cgroup, .cgroup_above = cgroup };
        char path[128];
        (void) snprintf(path, sizeof(path), "%s/pids.max", base);
        assert_int_equal(unlink(path), 0);

        limit_groups_init(&sandbox);
        assert_int_equal(limit_groups_make(&sandbox), -ENOENT);
        limit_groups_remove(&sandbox);
        fd_close(sandbox.cgroup);
}

static void without_controllers_there_is_nothing(void **state) {
        KeeperConfig config = {};
        KeptSandbox sandbox = { .config = &config, .cgroup = -1 };

        limit_groups_init(&sandbox);
        assert_int_equal(limit_groups_make(&sandbox), 0);
        assert_int_equal(limit_groups_move(&sandbox, getpid()), 0);
        assert_int_equal(sandbox_process_limit_hits(&sandbox), 0);
        assert_int_equal(sandbox_process_limit_fd(&sandbox), -1);
        assert_int_equal(limit_group_memory_kills(&sandbox.limits[CONTROLLER_MEMORY]), 0);
        limit_groups_remove(&sandbox);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(limits_are_written_as_v2_has_them, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_has_no_limit_is_not_written, set_up, tear_down),
                cmocka_unit_test_setup_teardown(one_of_the_weights_of_disks_is_enough, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_limit_that_cannot_be_set_is_an_error, set_up, tear_down),
                cmocka_unit_test(without_controllers_there_is_nothing),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
