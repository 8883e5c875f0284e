/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "host/sources.h"
#include "model/reason.h"

#define OWNER 54321 /* of what may be written, where the test is root */

/* A folder with open/{folder,file,link,pipe} and closed/. */
static char folder[] = "/tmp/test-sources-XXXXXX";

static const char *path_of(const char *name) {
        static char paths[64][256];
        static unsigned next;
        char *path = paths[next++ % 64];

        (void) snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
        return path;
}

static int set_up(void **state) {
        (void) state;
        assert_non_null(mkdtemp(folder));
        assert_int_equal(mkdir(path_of("open"), 0755), 0);
        assert_int_equal(mkdir(path_of("open/folder"), 0755), 0);
        assert_int_equal(mkdir(path_of("closed"), 0755), 0);
        assert_int_equal(mknod(path_of("open/file"), S_IFREG | 0600, 0), 0);
        assert_int_equal(mkfifo(path_of("open/pipe"), 0600), 0);
        assert_int_equal(symlink("folder", path_of("open/link")), 0);
        assert_int_equal(symlink("../closed", path_of("open/away")), 0);
        if (geteuid() == 0)
                assert_int_equal(chown(path_of("open/folder"), OWNER, OWNER), 0);
        return 0;
}

static int tear_down(void **state) {
        static const char *const files[] = { "open/file", "open/pipe", "open/link", "open/away" };
        static const char *const folders[] = { "open/folder", "open", "closed", "" };

        (void) state;
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                (void) unlink(path_of(files[i]));
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
                (void) rmdir(path_of(folders[i]));
        return 0;
}

static const char *reason_of(const SourceRules *rules, const char *source, const char *home, SourceUse use) {
        static HutchError err;
        Source opened;

        error_clear(&err);
        if (source_open(rules, source, home, use, &opened, &err) < 0)
                return err.reason;
        source_close(&opened);
        return "";
}

static void sources_are_what_they_may_be(void **state) {
        char *open_folder[] = { (char *) path_of("open"), NULL };
        const SourceRules rules = { .read = open_folder };
        static const struct {
                const char *name, *reason;
        } cases[] = {
                { "open", "" },
                { "open/", "" },
                { "open/./folder//", "" },
                { "open/file", "" },
                { "open/link", "SOURCE_INVALID" },
                { "open/link/.", "SOURCE_INVALID" },
                { "open/away", "SOURCE_INVALID" },
                { "open/away/x", "SOURCE_INVALID" },
                { "open/pipe", "SOURCE_INVALID" },
                { "open/none", "SOURCE_INVALID" },
                { "open/file/x", "SOURCE_INVALID" },
                { "open/../open", "SOURCE_INVALID" },
                { "closed", "SOURCE_NOT_ALLOWED" },
                { "none", "SOURCE_NOT_ALLOWED" },
                { "openness", "SOURCE_NOT_ALLOWED" },
                { "", "SOURCE_NOT_ALLOWED" },
        };

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
                assert_string_equal(reason_of(&rules, path_of(cases[i].name), NULL, SOURCE_READ), cases[i].reason);
        assert_string_equal(reason_of(&rules, "open", NULL, SOURCE_READ), "SOURCE_INVALID");
        assert_string_equal(reason_of(&(SourceRules){}, path_of("open"), NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
        assert_string_equal(reason_of(&rules, path_of("open"), NULL, SOURCE_WRITE), "SOURCE_NOT_ALLOWED");
}

static void a_tilde_is_the_callers_home(void **state) {
        char *open_folder[] = { (char *) path_of("open"), NULL };
        const SourceRules rules = { .read = open_folder };

        (void) state;
        assert_string_equal(reason_of(&rules, "~/folder", path_of("open"), SOURCE_READ), "");
        assert_string_equal(reason_of(&rules, "~", path_of("open"), SOURCE_READ), "");
        assert_string_equal(reason_of(&rules, "~/x", path_of("closed"), SOURCE_READ), "SOURCE_NOT_ALLOWED");
        assert_string_equal(reason_of(&rules, "~/../x", path_of("open"), SOURCE_READ), "SOURCE_INVALID");
        assert_string_equal(reason_of(&rules, "~root/x", path_of("open"), SOURCE_READ), "SOURCE_INVALID");
        assert_string_equal(reason_of(&rules, "~/folder", NULL, SOURCE_READ), "SOURCE_INVALID");
}

static void the_daemons_own_folders_are_nobodys(void **state) {
        char *everything[] = { (char *) "/", NULL }, *own[] = { (char *) path_of("open/folder"), NULL };
        const SourceRules rules = { .read = everything, .own = own };

        (void) state;
        assert_string_equal(reason_of(&rules, path_of("open/folder"), NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
        assert_string_equal(reason_of(&rules, path_of("open/folder/x"), NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
        assert_string_equal(reason_of(&rules, path_of("open"), NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
        assert_string_equal(reason_of(&rules, "/", NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
        assert_string_equal(reason_of(&rules, path_of("open/file"), NULL, SOURCE_READ), "");
        assert_string_equal(reason_of(&rules, "/proc", NULL, SOURCE_READ), "SOURCE_INVALID");
        assert_string_equal(reason_of(&rules, "/proc/self", NULL, SOURCE_READ), "SOURCE_INVALID");
}

static void what_is_roots_is_not_written(void **state) {
        char *everything[] = { (char *) "/", NULL };
        const SourceRules rules = { .write = everything };
        Source opened;

        (void) state;
        assert_int_equal(source_open(&rules, path_of("open/folder"), NULL, SOURCE_WRITE, &opened, NULL), 0);
        assert_int_equal(opened.group, geteuid() == 0 ? OWNER : getegid());
        assert_true(fcntl(opened.fd, F_GETFL) & O_PATH);
        assert_string_equal(opened.path, path_of("open/folder"));
        source_close(&opened);
        if (geteuid() == 0)
                assert_string_equal(reason_of(&rules, path_of("open/file"), NULL, SOURCE_WRITE), "SOURCE_NOT_ALLOWED");
}

static void homes_are_those_of_users(void **state) {
        _cleanup_free_ char *home = source_home("uid:0");

        (void) state;
        assert_string_equal(home, "/root");
        assert_null(source_home("uid:"));
        assert_null(source_home("uid:0x"));
        assert_null(source_home("uid:4294000000"));
        assert_null(source_home("oidc:0"));
}

static void what_is_not_said_is_for_the_daemons_user_only(void **state) {
        char *open_folder[] = { (char *) path_of("open"), NULL }, own[32];
        const SourceRules said = { .read = open_folder }, unsaid = {};

        (void) state;
        (void) snprintf(own, sizeof(own), "uid:%u", geteuid());
        for (int i = 0; i < 2; i++) {
                const SourceRules theirs = source_rules_for(&unsaid, i ? own : "uid:0");

                assert_string_equal(reason_of(&theirs, path_of("closed"), NULL, SOURCE_READ), "");
                assert_string_equal(reason_of(&theirs, path_of("open/folder"), NULL, SOURCE_WRITE), "");
                assert_string_equal(reason_of(&theirs, path_of("none"), NULL, SOURCE_READ), "SOURCE_INVALID");
        }
        for (int i = 0; i < 4; i++) {
                static const char *const others[] = { "uid:54321", "token:0", "uid:00", NULL };
                const SourceRules theirs = source_rules_for(&unsaid, others[i]);

                assert_string_equal(reason_of(&theirs, path_of("closed"), NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
        }
        /* Whoever may read little does not get to write everything. */
        for (int i = 0; i < 2; i++) {
                const SourceRules theirs = source_rules_for(&said, i ? own : "uid:0");

                assert_string_equal(reason_of(&theirs, path_of("open"), NULL, SOURCE_READ), "");
                assert_string_equal(reason_of(&theirs, path_of("closed"), NULL, SOURCE_READ), "SOURCE_NOT_ALLOWED");
                assert_string_equal(reason_of(&theirs, path_of("open/folder"), NULL, SOURCE_WRITE),
                                    "SOURCE_NOT_ALLOWED");
        }
}

static void refusals_say_what_is_to_be_done(void **state) {
        char *open_folder[] = { (char *) path_of("open"), NULL };
        const SourceRules rules = { .read = open_folder, .file = (char *) "/etc/x.yaml" };
        HutchError err = {};
        Source opened;

        (void) state;
        assert_int_equal(source_open(&rules, path_of("open/none"), NULL, SOURCE_READ, &opened, &err), -EINVAL);
        assert_non_null(strstr(error_message(&err), "does not exist"));
        error_clear(&err);
        assert_int_equal(source_open(&rules, path_of("none"), NULL, SOURCE_READ, &opened, &err), -EACCES);
        assert_non_null(strstr(error_message(&err), "sources.read in /etc/x.yaml"));
        error_clear(&err);
        assert_int_equal(source_open(&rules, path_of("open"), NULL, SOURCE_WRITE, &opened, &err), -EACCES);
        assert_non_null(strstr(error_message(&err), "sources.write in /etc/x.yaml"));
        error_clear(&err);
        assert_string_equal(source_rules_for(&rules, "uid:54321").file, "/etc/x.yaml");
        assert_null(source_rules_for(&rules, "token:x").file);
        assert_null(source_rules_for(&rules, NULL).file);
}

/* Mounts are made in a namespace of the test's own. */
static void file_systems_of_the_kernel_below_are_not_brought_in(void **state) {
        char *open_folder[] = { (char *) path_of("open"), NULL };
        const SourceRules rules = { .read = open_folder };
        HutchError err = {};
        Source opened;

        (void) state;
        if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                skip();
        assert_int_equal(mkdir(path_of("open/folder/a b"), 0755), 0);
        assert_int_equal(mount("none", path_of("open/folder/a b"), "tmpfs", 0, NULL), 0);
        assert_string_equal(reason_of(&rules, path_of("open"), NULL, SOURCE_READ), "");
        assert_int_equal(umount(path_of("open/folder/a b")), 0);
        assert_int_equal(mount("none", path_of("open/folder/a b"), "proc", 0, NULL), 0);
        assert_int_equal(source_open(&rules, path_of("open/folder"), NULL, SOURCE_READ, &opened, &err), -EINVAL);
        assert_string_equal(err.reason, "SOURCE_INVALID");
        assert_non_null(strstr(error_message(&err), path_of("open/folder/a b")));
        error_clear(&err);
        assert_string_equal(reason_of(&rules, path_of("open"), NULL, SOURCE_READ), "SOURCE_INVALID");
        assert_string_equal(reason_of(&rules, path_of("open/folder/a b"), NULL, SOURCE_READ), "SOURCE_INVALID");
        assert_string_equal(reason_of(&rules, path_of("open/file"), NULL, SOURCE_READ), "");
        assert_int_equal(umount(path_of("open/folder/a b")), 0);
        assert_string_equal(reason_of(&rules, path_of("open"), NULL, SOURCE_READ), "");
        assert_int_equal(rmdir(path_of("open/folder/a b")), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sources_are_what_they_may_be),
                cmocka_unit_test(a_tilde_is_the_callers_home),
                cmocka_unit_test(the_daemons_own_folders_are_nobodys),
                cmocka_unit_test(what_is_roots_is_not_written),
                cmocka_unit_test(homes_are_those_of_users),
                cmocka_unit_test(what_is_not_said_is_for_the_daemons_user_only),
                cmocka_unit_test(refusals_say_what_is_to_be_done),
                cmocka_unit_test(file_systems_of_the_kernel_below_are_not_brought_in),
        };

        return cmocka_run_group_tests(tests, set_up, tear_down);
}
