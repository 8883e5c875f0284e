/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading which trees are mounted, and small files in them. What does not: which cgroup is taken
 * (cgroups.c). */

#include "host/cgroup-tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "host/mountinfo.h"

#define FILE_MAX ((size_t) 4 << 20)

char *cgroup_read_file(int folder, const char *path) {
        _cleanup_close_ int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *text = NULL;
        size_t len = 0, size = 16384;

        if (fd < 0)
                return NULL;

        text = xcalloc(size, 1);
        for (;;) {
                ssize_t n = read(fd, text + len, size - len - 1);

                if (n < 0)
                        return NULL;
                if (n == 0)
                        break;
                len += (size_t) n;
                if (len + 1 < size)
                        continue;
                size *= 2;
                if (size > FILE_MAX) {
                        errno = EFBIG;
                        return NULL;
                }
                text = xreallocarray(text, size, 1);
        }

        text[len] = '\0';
        return TAKE_PTR(text);
}

int cgroup_write_file(int folder, const char *path, const char *text) {
        _cleanup_close_ int fd = openat(folder, path, O_WRONLY | O_CLOEXEC);

        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

bool cgroup_lists(int folder, const char *name, const char *controller) {
        _cleanup_free_ char *text = cgroup_read_file(folder, name);
        char *rest = text;
        const char *word;

        while (rest && (word = strsep(&rest, " \n")))
                if (str_equal(word, controller))
                        return true;
        return false;
}

/* Whether the list @names, with commas, has @name. */
static bool list_has(const char *names, const char *name) {
        size_t len = strlen(name);

        for (; names; names = strchr(names, ',')) {
                names += *names == ',';
                if (strncmp(names, name, len) == 0 && (names[len] == ',' || names[len] == '\0'))
                        return true;
        }
        return false;
}

/* Whether it is the hierarchy with @controller, or, with NULL, the tree of version 2. */
static bool is_mount_of(const MountInfo *mount, const char *controller) {
        if (!controller)
                return str_equal(mount->type, "cgroup2");
        return str_equal(mount->type, "cgroup") && list_has(mount->options, controller);
}

/* The part of @path below @root; NULL when it is not below. */
static const char *path_below(const char *path, const char *root) {
        size_t len = str_equal(root, "/") ? 0 : strlen(root);

        return strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

/* Finds the process's own cgroup in the hierarchy, as the kernel calls it: NUMBER:CONTROLLERS:PATH. One outside of the
 * process's cgroup namespace begins with "/..", and is in no folder that can be seen. */
static const char *find_path(char *cgroups, const char *controller) {
        char *line;

        while ((line = strsep(&cgroups, "\n"))) {
                const char *number = strsep(&line, ":"), *names = strsep(&line, ":");

                if (line && (controller ? list_has(names, controller) : str_equal(number, "0")))
                        return str_has_prefix(line, "/..") ? NULL : line;
        }
        return NULL;
}

int cgroup_parse_own(char *mounts, char *cgroups, const char *controller, char **ret_mount, char **ret_path) {
        const char *own = find_path(cgroups, controller);
        char *line;

        if (!own)
                return -ENOENT;

        while ((line = strsep(&mounts, "\n"))) {
                const char *below;
                MountInfo mount;

                if (!mountinfo_parse(line, &mount) || !is_mount_of(&mount, controller))
                        continue;
                below = path_below(own, mount.root);
                if (!below)
                        continue;
                if (asprintf(ret_path, "%s%s", mount.path, str_equal(below, "/") ? "" : below) < 0)
                        abort();
                if (ret_mount)
                        *ret_mount = xstrdup(mount.path);
                return 0;
        }

        return -ENOENT;
}

int cgroup_find_v1(const char *controller, char **ret_path) {
        _cleanup_free_ char *mounts = cgroup_read_file(AT_FDCWD, "/proc/self/mountinfo");
        _cleanup_free_ char *cgroups = mounts ? cgroup_read_file(AT_FDCWD, "/proc/self/cgroup") : NULL;

        return cgroups ? cgroup_parse_own(mounts, cgroups, controller, NULL, ret_path) : -errno;
}

void cgroup_sight_parse(char *mounts, char *cgroups, CgroupSight *ret_sight) {
        CgroupSight sight = { .has_v1 = strstr(mounts, " - cgroup ") };

        (void) cgroup_parse_own(mounts, cgroups, NULL, &sight.mount, &sight.own);
        *ret_sight = sight;
}

int cgroup_sight_read(const char *pid, CgroupSight *ret_sight) {
        char path[64];
        _cleanup_free_ char *mounts = cgroup_read_file(AT_FDCWD, "/proc/self/mountinfo"), *cgroups = NULL;

        (void) snprintf(path, sizeof(path), "/proc/%s/cgroup", pid);
        cgroups = mounts ? cgroup_read_file(AT_FDCWD, path) : NULL;
        if (!cgroups)
                return -errno;

        cgroup_sight_parse(mounts, cgroups, ret_sight);
        return 0;
}

void cgroup_sight_clear(CgroupSight *sight) {
        free(sight->mount);
        free(sight->own);
        *sight = (CgroupSight){};
}
