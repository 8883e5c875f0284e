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
#include "local/paths.h"

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

        assert_null(path_of_contexts(&err));
        assert_string_equal(error_message(&err), "XDG_CONFIG_HOME or HOME is not set to an absolute path: set it");
        assert_int_equal(setenv("XDG_RUNTIME_DIR", "/nonexistent/12345", 1), 0);
        assert_int_equal(setenv("HOME", "/home/somebody", 1), 0);
        check_path(path_of_socket(NULL, NULL, NULL), "/nonexistent/12345/hutch/hutchd.sock");
        check_path(path_of_state(NULL, NULL, NULL), "/home/somebody/.local/state/hutch");
        check_path(path_of_configuration(NULL, &named, NULL), "/home/somebody/.config/hutch/hutchd.yaml");
        assert_int_equal(setenv("XDG_STATE_HOME", "/s", 1), 0);
        assert_int_equal(setenv("XDG_CONFIG_HOME", "relative", 1), 0);
        check_path(path_of_state(NULL, NULL, NULL), "/s/hutch");
        check_path(path_of_configuration(NULL, &named, NULL), "/home/somebody/.config/hutch/hutchd.yaml");
        if (getuid() == 0)
                assert_int_equal(seteuid(0), 0);
}

/* ---- The socket of a user who has no XDG_RUNTIME_DIR ---- */

/* Folders in the place of /run/user and /tmp, and in them those of a user other than root. */
typedef struct Places {
        char root[32], sessions[64], shared[64], session[96], own[96];
        char session_socket[128], own_socket[128];
} Places;

static int make_places(void **state) {
        static Places places;
        uid_t uid = geteuid() == 0 ? 12345 : geteuid();

        clear_environment();
        snprintf(places.root, sizeof(places.root), "/tmp/hutch-paths-XXXXXX");
        assert_non_null(mkdtemp(places.root));
        assert_int_equal(chmod(places.root, 0755), 0);
        snprintf(places.sessions, sizeof(places.sessions), "%s/sessions", places.root);
        snprintf(places.shared, sizeof(places.shared), "%s/shared", places.root);
        snprintf(places.session, sizeof(places.session), "%s/%u", places.sessions, uid);
        snprintf(places.own, sizeof(places.own), "%s/hutch-%u", places.shared, uid);
        snprintf(places.session_socket, sizeof(places.session_socket), "%s/hutch/hutchd.sock", places.session);
        snprintf(places.own_socket, sizeof(places.own_socket), "%s/hutchd.sock", places.own);
        assert_int_equal(mkdir(places.sessions, 0755), 0);
        assert_int_equal(mkdir(places.shared, 0755), 0);
        assert_int_equal(chmod(places.sessions, 01777), 0);
        assert_int_equal(chmod(places.shared, 01777), 0);
        if (geteuid() == 0)
                assert_int_equal(seteuid(uid), 0);
        *state = &places;
        return 0;
}

static int remove_places(void **state) {
        const Places *places = *state;

        if (getuid() == 0)
                assert_int_equal(seteuid(0), 0);
        (void) remove(places->session);
        (void) remove(places->own);
        assert_int_equal(rmdir(places->sessions), 0);
        assert_int_equal(rmdir(places->shared), 0);
        return rmdir(places->root);
}

static char *user_socket(const Places *places) {
        return path_of_user_socket(places->sessions, places->shared, NULL);
}

static void without_a_session_the_socket_is_in_a_folder_of_the_users_own(void **state) {
        const Places *places = *state;
        struct stat info;
        char named[128];

        check_path(user_socket(places), places->own_socket);
        assert_int_equal(lstat(places->own, &info), 0);
        assert_true(S_ISDIR(info.st_mode));
        assert_int_equal(info.st_mode & 07777, 0700);
        assert_int_equal(info.st_uid, geteuid());
        check_path(user_socket(places), places->own_socket);

        assert_int_equal(setenv("XDG_RUNTIME_DIR", "", 1), 0);
        check_path(user_socket(places), places->own_socket);
        assert_int_equal(setenv("XDG_RUNTIME_DIR", "relative", 1), 0);
        check_path(user_socket(places), places->own_socket);
        assert_int_equal(setenv("XDG_RUNTIME_DIR", "/", 1), 0); /* somebody else's, as after su */
        check_path(user_socket(places), places->own_socket);

        snprintf(named, sizeof(named), "%s/hutch/hutchd.sock", places->own);
        assert_int_equal(setenv("XDG_RUNTIME_DIR", places->own, 1), 0);
        check_path(user_socket(places), named);
}

static void a_session_folder_comes_before_it(void **state) {
        const Places *places = *state;

        assert_int_equal(mkdir(places->session, 0700), 0);
        check_path(user_socket(places), places->session_socket);
        assert_int_equal(access(places->own, F_OK), -1);

        /* One that others may write to is none. */
        assert_int_equal(chmod(places->session, 0722), 0);
        check_path(user_socket(places), places->own_socket);
        assert_int_equal(rmdir(places->session), 0);
        assert_int_equal(symlink(places->own, places->session), 0);
        check_path(user_socket(places), places->own_socket);
}

static void check_refused(const Places *places, const char *expected) {
        _cleanup_(error_clear) HutchError err = {};

        assert_null(path_of_user_socket(places->sessions, places->shared, &err));
        assert_string_equal(err.reason, "FILE_PERMISSION");
        if (!strstr(error_message(&err), expected) || !strstr(error_message(&err), "set XDG_RUNTIME_DIR"))
                fail_msg("it says %s", error_message(&err));
}

static void a_shared_folder_that_is_not_the_users_alone_is_refused(void **state) {
        static const mode_t modes[] = { 0710, 0701, 0720, 0702, 0755 };
        const Places *places = *state;

        assert_int_equal(mkdir(places->own, 0700), 0);
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
                assert_int_equal(chmod(places->own, modes[i]), 0);
                check_refused(places, "have it removed");
        }
        assert_int_equal(rmdir(places->own), 0);

        /* A link, be it to a folder. */
        assert_int_equal(symlink(places->sessions, places->own), 0);
        check_refused(places, "have it removed");
        assert_int_equal(unlink(places->own), 0);

        assert_int_equal(mknod(places->own, S_IFREG | 0600, 0), 0);
        check_refused(places, "have it removed");
        assert_int_equal(unlink(places->own), 0);

        if (getuid() == 0) {
                assert_int_equal(seteuid(0), 0);
                assert_int_equal(mkdir(places->own, 0700), 0);
                assert_int_equal(seteuid(12345), 0);
                check_refused(places, "owner 0, mode 0700");
        }
        assert_null(path_of_user_socket(places->sessions, "/nonexistent", NULL));
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
                cmocka_unit_test_setup_teardown(without_a_session_the_socket_is_in_a_folder_of_the_users_own,
                                                make_places, remove_places),
                cmocka_unit_test_setup_teardown(a_session_folder_comes_before_it, make_places, remove_places),
                cmocka_unit_test_setup_teardown(a_shared_folder_that_is_not_the_users_alone_is_refused, make_places,
                                                remove_places),
                cmocka_unit_test(a_private_folder_is_nobody_elses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
