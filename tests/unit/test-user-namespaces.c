/* SPDX-License-Identifier: Apache-2.0 */

/* What hosts have against user namespaces, in folders that look like such hosts. */

#include "host/user-namespaces.h"

#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "test.h"

#define CLONE "proc/sys/kernel/unprivileged_userns_clone"
#define APPARMOR "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#define MAX "proc/sys/user/max_user_namespaces"
#define PROFILE "etc/apparmor.d/hutch"

static char root[64];

static const char *const folders[] = {
        "proc", "proc/sys", "proc/sys/kernel", "proc/sys/user", "etc", "etc/apparmor.d"
};
static const char *const files[] = { CLONE, APPARMOR, MAX, PROFILE };

static const char *path_of(const char *name) {
        static char path[PATH_MAX];

        (void) snprintf(path, sizeof(path), "%s/%s", root, name);
        return path;
}

static void set_file(const char *name, const char *text) {
        FILE *file = fopen(path_of(name), "we");

        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
        (void) state;
        (void) snprintf(root, sizeof(root), "/tmp/hutch-test-userns-XXXXXX");
        if (!mkdtemp(root))
                return -1;
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
                if (mkdir(path_of(folders[i]), 0700) < 0)
                        return -1;
        return 0;
}

static int tear_down(void **state) {
        (void) state;
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                (void) unlink(path_of(files[i]));
        for (size_t i = sizeof(folders) / sizeof(folders[0]); i-- > 0;)
                (void) rmdir(path_of(folders[i]));
        return rmdir(root);
}

static void check(int error, const char *setting, const char *command) {
        NamespaceObstacle obstacle = {};
        bool found = user_namespaces_find_obstacle(root, error, &obstacle);

        assert_int_equal(found, setting != NULL);
        if (!setting || !found)
                return;
        assert_string_equal(obstacle.setting, setting);
        assert_string_equal(obstacle.command, command);
}

static void a_host_without_such_settings_has_no_obstacle(void **state) {
        (void) state;
        check(-EPERM, NULL, NULL);
        check(-ENOSPC, NULL, NULL);
        set_file(CLONE, "1\n");
        set_file(APPARMOR, "0\n");
        set_file(MAX, "31337\n");
        check(-EPERM, NULL, NULL);
        check(-ENOSPC, NULL, NULL);
}

static void apparmor_is_named_with_the_command_that_helps(void **state) {
        (void) state;
        set_file(CLONE, "1\n");
        set_file(APPARMOR, "1\n");
        check(-EPERM, "kernel.apparmor_restrict_unprivileged_userns",
              "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
        check(-EACCES, "kernel.apparmor_restrict_unprivileged_userns",
              "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
        check(-ENOMEM, NULL, NULL);
        set_file(PROFILE, "");
        check(-EPERM, "kernel.apparmor_restrict_unprivileged_userns", "apparmor_parser -r /etc/apparmor.d/hutch");
        /* The profile helps against nothing else. */
        set_file(CLONE, "0\n");
        check(-EPERM, "kernel.unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1");
}

static void a_number_of_none_is_named(void **state) {
        (void) state;
        set_file(MAX, "0\n");
        set_file(APPARMOR, "1\n");
        check(-ENOSPC, "user.max_user_namespaces", "sysctl -w user.max_user_namespaces=65536");
}

/* Has sethostname() fail, as everything that takes a capability does where AppArmor restricts user namespaces. */
static int forbid_rights(void) {
        struct sock_filter instructions[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sethostname, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = { .len = 4, .filter = instructions };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                return -errno;
        return 0;
}

static void namespaces_without_rights_are_none(void **state) {
        int status = -1, r = user_namespaces_try(false);
        pid_t pid;

        (void) state;
        if (r < 0)
                skip();
        assert_int_equal(user_namespaces_try(true), 0);
        pid = fork();
        if (pid == 0)
                _exit(forbid_rights() == 0 && user_namespaces_try(false) == -EPERM ? 0 : 1);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_host_without_such_settings_has_no_obstacle, set_up, tear_down),
                cmocka_unit_test_setup_teardown(apparmor_is_named_with_the_command_that_helps, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_number_of_none_is_named, set_up, tear_down),
                cmocka_unit_test(namespaces_without_rights_are_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
