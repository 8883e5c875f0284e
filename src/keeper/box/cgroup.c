/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: making, reading, waiting for and removing folders of cgroup trees. What does not: which there are,
 * and what is put into them. */

#include "keeper/box/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"

#define DEPTH_MAX 16 /* of the folders that are removed and counted: hutch makes three */
#define REMOVE_TIMEOUT (5 * NSEC_PER_SEC)
#define FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

int cgroup_add(int parent, const char *name, int *ret_cgroup) {
        if (mkdirat(parent, name, 0755) < 0)
                return -errno;
        int fd = openat(parent, name, FOLDER);
        if (fd < 0) {
                int r = -errno;
                (void) unlinkat(parent, name, AT_REMOVEDIR);
                return r;
        }
        *ret_cgroup = fd;
        return 0;
}

int cgroup_make(const char *path, int *ret_cgroup) {
        int r = cgroup_add(AT_FDCWD, path, ret_cgroup);
        if (r == -ENOENT) {
                _cleanup_free_ char *above = xstrndup(path, (size_t) (strrchr(path, '/') - path));
                if (mkdir(above, 0755) < 0 && errno != EEXIST)
                        return -errno;
                return cgroup_add(AT_FDCWD, path, ret_cgroup);
        }
        if (r == -EEXIST) {
                r = cgroup_remove(AT_FDCWD, path, REMOVE_TIMEOUT);
                return r < 0 ? r : cgroup_add(AT_FDCWD, path, ret_cgroup);
        }
        return r;
}

int cgroup_delegate(int cgroup, uid_t id) {
        /* Hierarchies of version 1 have but the first of the files. */
        static const char *const names[] = { ".", "cgroup.procs", "cgroup.freeze", "cgroup.kill" };
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (fchownat(cgroup, names[i], id, id, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
                        return -errno;
        return 0;
}

int cgroup_write(int cgroup, const char *file, const char *text) {
        _cleanup_close_ int fd = openat(cgroup, file, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return fd_write_all(fd, text, strlen(text));
}

int cgroup_read(int cgroup, const char *file, const char *key, uint64_t *ret_value) {
        _cleanup_close_ int fd = openat(cgroup, file, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        char text[4096];
        ssize_t n = read(fd, text, sizeof(text) - 1);
        if (n < 0)
                return -errno;
        text[n] = '\0';

        const char *value = text;
        if (key) {
                size_t key_len = strlen(key);
                while (strncmp(value, key, key_len) != 0 || value[key_len] != ' ') {
                        value = strchr(value, '\n');
                        if (!value)
                                return -ENOENT;
                        value++;
                }
                value += key_len + 1;
        }
        if (!ascii_is_digit(value[0]))
                return -ENOENT;
        *ret_value = strtoull(value, NULL, 10);
        return 0;
}

int cgroup_wait(int cgroup, const char *key, uint64_t value, uint64_t timeout) {
        _cleanup_close_ int fd = openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;

        uint64_t end = clock_monotonic_ns() + timeout;
        for (;;) {
                /* The poll tells of changes since this descriptor was read. */
                char unused[256];
                (void) !pread(fd, unused, sizeof(unused), 0);
                uint64_t now_value = !value;
                int r = cgroup_read(cgroup, "cgroup.events", key, &now_value);
                if (r < 0)
                        return r;
                if (now_value == value)
                        return 0;

                uint64_t now = clock_monotonic_ns();
                if (now >= end)
                        return -ETIMEDOUT;
                struct pollfd poll_fd = { .fd = fd, .events = POLLPRI };
                if (poll(&poll_fd, 1, (int) ((end - now) / NSEC_PER_MSEC) + 1) < 0 && errno != EINTR)
                        return -errno;
        }
}

/* Opens @name in @parent and calls @callback with each folder in it. */
static int for_each_folder(int parent, const char *name, int (*callback)(int parent, const char *name, int depth),
                           int depth) {
        int fd = openat(parent, name, FOLDER);
        if (fd < 0)
                return -errno;
        _cleanup_(closedirp) DIR *dir = fdopendir(fd);
        if (!dir) {
                int r = -errno;
                fd_close(fd);
                return r;
        }

        int result = 0;
        for (const struct dirent *entry; (entry = readdir(dir));)
                if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
                        int r = callback(fd, entry->d_name, depth);
                        if (r < 0)
                                return r;
                        result += r;
                }
        return result;
}

static int remove_empty(int parent, const char *name, int depth) { /* NOLINT(misc-no-recursion): bounded */
        if (depth >= DEPTH_MAX)
                return -ELOOP;
        int r = for_each_folder(parent, name, remove_empty, depth + 1);
        if (r < 0 && r != -ENOENT)
                return r;
        if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return -errno;
        return 0;
}

int cgroup_remove(int parent, const char *name, uint64_t timeout) {
        _cleanup_close_ int cgroup = openat(parent, name, FOLDER);
        if (cgroup < 0)
                return errno == ENOENT ? 0 : -errno;
        uint64_t populated = 1;
        int r = cgroup_read(cgroup, "cgroup.events", "populated", &populated);
        if (r == -ENOENT) /* of a v1 hierarchy */
                return remove_empty(parent, name, 0);
        if (r >= 0 && populated > 0) {
                r = cgroup_write(cgroup, "cgroup.kill", "1");
                if (r >= 0)
                        r = cgroup_wait(cgroup, "populated", 0, timeout);
        }
        if (r < 0)
                return r;
        return remove_empty(parent, name, 0);
}

static int count_threads(int parent, const char *name, int depth) { /* NOLINT(misc-no-recursion): bounded */
        if (depth >= DEPTH_MAX)
                return 0;
        char path[NAME_MAX + sizeof("/cgroup.threads")];
        (void) snprintf(path, sizeof(path), "%s/cgroup.threads", name);
        _cleanup_close_ int fd = openat(parent, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 0;

        int count = 0;
        char text[4096];
        for (ssize_t n; (n = read(fd, text, sizeof(text))) > 0;)
                for (ssize_t i = 0; i < n; i++)
                        count += text[i] == '\n';

        int below = for_each_folder(parent, name, count_threads, depth + 1);
        return count + (below > 0 ? below : 0);
}

uint32_t cgroup_count_threads(int cgroup) {
        return (uint32_t) count_threads(cgroup, ".", 0);
}
