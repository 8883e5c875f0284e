/* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/memory.h"
#include "keeper/root/remove.h"
#include "keeper/root/source-sockets.h"

static char top[] = "/tmp/test-source-sockets-XXXXXX";

static const char *path_of(const char *name) {
        static char path[128];

        (void) snprintf(path, sizeof(path), "%s/%s", top, name);
        return path;
}

static int set_up(void **state) {
        (void) state;
        assert_non_null(mkdtemp(top));
        assert_int_equal(mkdir(path_of("a"), 0755), 0);
        assert_int_equal(mkdir(path_of("a/b"), 0755), 0);
        assert_int_equal(mkdir(path_of("away"), 0755), 0);
        assert_int_equal(mknod(path_of("a/file"), S_IFREG | 0644, 0), 0);
        assert_int_equal(mkfifo(path_of("a/pipe"), 0644), 0);
        assert_int_equal(symlink("../away", path_of("a/link")), 0);
        return 0;
}

static int tear_down(void **state) {
        (void) state;
        return folder_remove(top, NULL);
}

static void make_socket(const char *name) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", top, name);
        assert_int_equal(bind(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
}

/* The first socket that is found; "": none. */
static const char *found_in(const char *name) {
        _cleanup_close_ int fd = open(path_of(name), O_PATH | O_CLOEXEC);
        static char path[64];

        assert_true(fd >= 0);
        return source_find_socket(fd, path, sizeof(path)) == 1 ? path : "";
}

static void sockets_are_found_at_any_depth_and_behind_no_link(void **state) {
        (void) state;
        make_socket("away/s");
        assert_string_equal(found_in("a"), "");
        assert_string_equal(found_in("a/file"), "");
        make_socket("a/b/deep");
        assert_string_equal(found_in("a"), "b/deep");
        make_socket("a/less-deep");
        assert_string_equal(found_in("a"), "less-deep");
}

static void the_search_ends(void **state) {
        char name[32];

        (void) state;
        assert_int_equal(mkdir(path_of("many"), 0755), 0);
        for (int i = 0; i < SOURCE_ENTRIES_MAX; i++) {
                (void) snprintf(name, sizeof(name), "many/%d", i);
                assert_int_equal(mknod(path_of(name), S_IFREG | 0644, 0), 0);
        }
        assert_string_equal(found_in("many"), "");
        assert_int_equal(mkdir(path_of("many/sub"), 0755), 0);
        make_socket("many/sub/s");
        assert_string_equal(found_in("many"), "");
        assert_int_equal(unlink(path_of("many/0")), 0);
        assert_int_equal(unlink(path_of("many/1")), 0);
        assert_string_equal(found_in("many"), "sub/s");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sockets_are_found_at_any_depth_and_behind_no_link),
                cmocka_unit_test(the_search_ends),
        };

        return cmocka_run_group_tests(tests, set_up, tear_down);
}
