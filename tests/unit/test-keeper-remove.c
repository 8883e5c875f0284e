/* SPDX-License-Identifier: Apache-2.0 */

/* Folders that are hard to remove, as root and as their plain owner. */

#include "keeper/root/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "test.h"

#define NOBODY 65534

static char base[64]; /* of the test that runs */
static char top[80];  /* what is to be removed, in @base */

static int set_up(void **state) {
        strcpy(base, "/tmp/hutch-remove-XXXXXX");
        assert_non_null(mkdtemp(base));
        (void) snprintf(top, sizeof(top), "%s/top", base);
        return mkdir(top, 0755);
}

static int tear_down(void **state) {
        assert_int_equal(chdir("/"), 0);
        (void) rmdir(top);
        return rmdir(base); /* nothing else was left in it, either */
}

static void make_file(const char *path) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
}

static void assert_removed(void) {
        _cleanup_(error_clear) HutchError err = {};
        if (folder_remove(top, &err) < 0)
                fail_msg("%s", error_message(&err));
        assert_int_equal(access(top, F_OK), -1);
        assert_int_equal(errno, ENOENT);
}

static void what_is_not_there_is_removed(void **state) {
        assert_removed();
        assert_removed();
}

static void what_is_no_folder_is_refused(void **state) {
        assert_int_equal(chdir(base), 0);
        assert_int_equal(rmdir(top), 0);
        make_file("file");
        assert_int_equal(symlink("file", "top"), 0);
        assert_int_equal(folder_remove("file", NULL), -ENOTDIR);
        assert_true(folder_remove(top, NULL) < 0);
        assert_int_equal(unlink("top"), 0);
        assert_int_equal(unlink("file"), 0);
}

static void every_kind_of_file_is_removed(void **state) {
        assert_int_equal(chdir(top), 0);
        make_file("file");
        make_file("name with\nnewline and \xff");
        assert_int_equal(link("file", "hard"), 0);
        assert_int_equal(symlink("nowhere", "dangling"), 0);
        assert_int_equal(symlink(".", "self"), 0);
        assert_int_equal(mkfifo("fifo", 0600), 0);
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(mkdir("empty", 0755), 0);
        assert_removed();
}

static void links_are_not_followed(void **state) {
        assert_int_equal(chdir(base), 0);
        assert_int_equal(mkdir("outside", 0755), 0);
        make_file("outside/file");
        assert_int_equal(symlink("../outside", "top/folder"), 0);
        assert_int_equal(symlink("../outside/file", "top/file"), 0);
        assert_removed();
        assert_int_equal(unlink("outside/file"), 0);
        assert_int_equal(rmdir("outside"), 0);
}

/* Deeper than any path, and than the stack of the remover many times over. */
static void deep_trees_are_removed(void **state) {
        assert_int_equal(chdir(top), 0);
        for (int i = 0; i < 3000; i++) {
                assert_int_equal(mkdir("a-folder-with-a-name", 0755), 0);
                if (i % 100 == 0)
                        make_file("file");
                if (i % 10 == 0)
                        assert_int_equal(mkdir("beside", 0755), 0);
                assert_int_equal(chdir("a-folder-with-a-name"), 0);
        }
        assert_int_equal(chdir("/"), 0);
        /* With few descriptors. */
        struct rlimit before, few;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        few = before;
        few.rlim_cur = 64;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        assert_removed();
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void names_of_the_remover_may_be_taken(void **state) {
        assert_int_equal(chdir(top), 0);
        for (int i = 0; i < 20; i++) {
                char name[64];
                (void) snprintf(name, sizeof(name), ".hutch-remove-%d", i);
                assert_int_equal(mkdir(name, 0755), 0);
                (void) snprintf(name, sizeof(name), ".hutch-remove-%d/file", i);
                make_file(name);
        }
        for (int i = 0; i < 100; i++) {
                assert_int_equal(mkdir("d", 0755), 0);
                assert_int_equal(chdir("d"), 0);
        }
        assert_removed();
}

static void wide_folders_are_removed(void **state) {
        assert_int_equal(chdir(top), 0);
        for (int i = 0; i < 20000; i++) {
                char name[32];
                (void) snprintf(name, sizeof(name), "%d", i);
                make_file(name);
        }
        assert_removed();
}

static void permissions_do_not_matter(void **state) {
        assert_int_equal(chdir(top), 0);
        assert_int_equal(mkdir("a", 0755), 0);
        assert_int_equal(mkdir("a/b", 0755), 0);
        make_file("a/b/file");
        assert_int_equal(chmod("a/b/file", 0), 0);
        assert_int_equal(chmod("a/b", 0), 0);
        assert_int_equal(chmod("a", 0555), 0);
        /* Deep ones as well, which are moved. */
        assert_int_equal(mkdir("d", 0755), 0);
        assert_int_equal(chdir("d"), 0);
        int folders[40];
        for (int i = 0; i < 40; i++) {
                assert_int_equal(mkdir("d", 0755), 0);
                folders[i] = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_int_equal(chdir("d"), 0);
        }
        for (int i = 39; i >= 0; i--) {
                assert_int_equal(fchmod(folders[i], i % 2 ? 0 : 0500), 0);
                close(folders[i]);
        }
        assert_int_equal(chmod(top, 0), 0);
        assert_removed();
}

static void flags_do_not_matter(void **state) {
        if (geteuid() != 0)
                skip();
        assert_int_equal(chdir(top), 0);
        assert_int_equal(mkdir("folder", 0755), 0);
        make_file("folder/file");
        const char *const paths[] = { "folder/file", "folder", "." };
        for (int i = 0; i < 3; i++) {
                _cleanup_close_ int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
                int flags = i == 1 ? FS_APPEND_FL : FS_IMMUTABLE_FL;
                if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
                        break; /* not on this file system */
        }
        assert_removed();
}

/* In a mount namespace of its own, so that no mount is left when this fails. */
static int remove_over_mount(void) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || chdir(top) < 0 ||
            mkdir("mount", 0755) < 0 || mkdir("other", 0755) < 0 || mount("none", "mount", "tmpfs", 0, NULL) < 0 ||
            mkdir("mount/folder", 0755) < 0)
                return 1;
        if (folder_remove(top, NULL) != -EXDEV || access("mount/folder", F_OK) < 0)
                return 2;
        return access("other", F_OK) == 0 ? 3 : 0;
}

static void mounts_are_not_crossed(void **state) {
        if (geteuid() != 0)
                skip();
        pid_t pid = fork();
        if (pid == 0)
                _exit(remove_over_mount());
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_removed();
}

#define unit(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static int run(const char *name) {
        const struct CMUnitTest tests[] = {
                unit(what_is_not_there_is_removed),  unit(what_is_no_folder_is_refused),
                unit(every_kind_of_file_is_removed), unit(links_are_not_followed),
                unit(deep_trees_are_removed),        unit(names_of_the_remover_may_be_taken),
                unit(wide_folders_are_removed),      unit(permissions_do_not_matter),
                unit(flags_do_not_matter),           unit(mounts_are_not_crossed),
        };
        return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void) {
        if (geteuid() != 0)
                return run("as the owner");

        pid_t pid = fork();
        if (pid == 0)
                exit(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0
                             ? run("as the owner")
                             : 1);
        int status = 1;
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
                return 1;
        return run("as root") > 0 || status != 0;
}
