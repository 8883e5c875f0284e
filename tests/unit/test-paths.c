/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/paths.h"

static void clear_environment(void) {
        static const char *const names[] = { "HUTCH_SOCKET",    "HUTCH_STATE",    "HUTCH_CONFIG", "XDG_RUNTIME_DIR",
                                             "XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME" };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                assert_int_equal(unsetenv(names[i]), 0);
}

static void check_path(char *path, const char *expected) {
        _cleanup_free_ char *owned = path;

        assert_non_null(owned);
        assert_string_equal(owned, expected);
}

static void a_flag_comes_before_the_environment_before_the_configuration(void **state) {
        bool named;

        (void) state;
        clear_environment();
        check_path(path_of_socket(NULL, "/c/sock", NULL), "/c/sock");
        check_path(path_of_state(NULL, "/c/state", NULL), "/c/state");
        assert_int_equal(setenv("HUTCH_SOCKET", "/e/sock", 1), 0);
        assert_int_equal(setenv("HUTCH_STATE", "/e/state", 1), 0);
        assert_int_equal(setenv("HUTCH_CONFIG", "/e/config", 1), 0);
        check_path(path_of_socket(NULL, "/c/sock", NULL), "/e/sock");
        check_path(path_of_socket("/f/sock", "/c/sock", NULL), "/f/sock");
        check_path(path_of_state("/f/state", "/c/state", NULL), "/f/state");
        check_path(path_of_state(NULL, "/c/state", NULL), "/e/state");
        check_path(path_of_configuration(NULL, &named, NULL), "/e/config");
        assert_true(named);
        check_path(path_of_configuration("/f/config", &named, NULL), "/f/config");
        assert_true(named);
}

static void a_relative_path_stands_below_the_current_folder(void **state) {
        (void) state;
        clear_environment();
        assert_int_equal(chdir("/usr"), 0);
        check_path(path_of_state("lib", NULL, NULL), "/usr/lib");
}

static void defaults_are_those_of_the_user(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        bool named;

        (void) state;
        clear_environment();
        if (geteuid() == 0) {
                check_path(path_of_socket(NULL, NULL, NULL), "/run/hutch/hutchd.sock");
                check_path(path_of_state(NULL, NULL, NULL), "/var/lib/hutch");
                check_path(path_of_configuration(NULL, &named, NULL), "/etc/hutch/hutchd.yaml");
                assert_false(named);
                assert_int_equal(seteuid(12345), 0);
        }

        assert_null(path_of_socket(NULL, NULL, &err));
        assert_string_equal(error_message(&err),
                            "XDG_RUNTIME_DIR is not set to an absolute path: set it, or HUTCH_SOCKET");
        error_clear(&err);
        assert_null(path_of_contexts(&err));
        assert_string_equal(error_message(&err), "XDG_CONFIG_HOME or HOME is not set to an absolute path: set it");
        assert_int_equal(setenv("XDG_RUNTIME_DIR", "/run/user/12345", 1), 0);
        assert_int_equal(setenv("HOME", "/home/somebody", 1), 0);
        check_path(path_of_socket(NULL, NULL, NULL), "/run/user/12345/hutch/hutchd.sock");
        check_path(path_of_state(NULL, NULL, NULL), "/home/somebody/.local/state/hutch");
        check_path(path_of_configuration(NULL, &named, NULL), "/home/somebody/.config/hutch/hutchd.yaml");
        assert_int_equal(setenv("XDG_STATE_HOME", "/s", 1), 0);
        assert_int_equal(setenv("XDG_CONFIG_HOME", "relative", 1), 0);
        check_path(path_of_state(NULL, NULL, NULL), "/s/hutch");
        check_path(path_of_configuration(NULL, &named, NULL), "/home/somebody/.config/hutch/hutchd.yaml");
        if (getuid() == 0)
                assert_int_equal(seteuid(0), 0);
}

static void a_private_folder_is_nobody_elses(void **state) {
        char folder[] = "/tmp/hutch-paths-XXXXXX", deep[64], file[64];
        struct stat info;
        FILE *made;

        (void) state;
        assert_non_null(mkdtemp(folder));
        (void) snprintf(deep, sizeof(deep), "%s/a/b", folder);
        (void) snprintf(file, sizeof(file), "%s/file", folder);
        assert_int_equal(make_private_folder(deep, NULL), 0);
        assert_int_equal(make_private_folder(deep, NULL), 0);
        assert_int_equal(stat(deep, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0700);

        assert_int_equal(chmod(deep, 0770), 0);
        assert_int_equal(make_private_folder(deep, NULL), -EPERM);
        made = fopen(file, "w");
        assert_non_null(made);
        assert_int_equal(fclose(made), 0);
        assert_int_equal(make_private_folder(file, NULL), -ENOTDIR);

        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(deep), 0);
        *strrchr(deep, '/') = '\0';
        assert_int_equal(rmdir(deep), 0);
        assert_int_equal(rmdir(folder), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_flag_comes_before_the_environment_before_the_configuration),
                cmocka_unit_test(a_relative_path_stands_below_the_current_folder),
                cmocka_unit_test(defaults_are_those_of_the_user),
                cmocka_unit_test(a_private_folder_is_nobody_elses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
