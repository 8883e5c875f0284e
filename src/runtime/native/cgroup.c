/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: finding the cgroup tree and removing from it. What does not: making cgroups for processes, which
 * keepers do. */

#include "runtime/native/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "model/reason.h"

#define PROC_FILE_MAX ((size_t) 4 << 20)
#define STEPS_MAX 512 /* cgroups that are looked at before the loop gets to its other work */

/* Reads a file of /proc, which the caller frees. NULL, with errno, when it cannot be read. */
static char *read_file(const char *path) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
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
                if (size > PROC_FILE_MAX) {
                        errno = EFBIG;
                        return NULL;
                }
                text = xreallocarray(text, size, 1);
        }

        text[len] = '\0';
        return TAKE_PTR(text);
}

/* Undoes the octal escapes of mountinfo, in place. */
static void unescape(char *text) {
        char *to = text;

        for (const char *from = text; *from; from++) {
                if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
                    from[3] >= '0' && from[3] <= '7') {
                        *to++ = (char) ((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
                        from += 3;
                } else
                        *to++ = *from;
        }
        *to = '\0';
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

/* Whether @text, the part of a line of mountinfo behind the separator, is of the hierarchy with @controller, or of the
 * tree of version 2. */
static bool is_mount_of(const char *text, const char *controller) {
        const char *options = strrchr(text, ' ');

        if (!controller)
                return str_has_prefix(text, "cgroup2 ");
        return str_has_prefix(text, "cgroup ") && list_has(options + 1, controller);
}

/* Reads a line of mountinfo: which part of the tree is mounted where, when it is the one that is looked for. */
static bool parse_mount(char *line, const char *controller, char **ret_root, char **ret_target) {
        char *fields[5], *separator = strstr(line, " - "), *rest = line;

        if (!separator || !is_mount_of(separator + 3, controller))
                return false;

        *separator = '\0';
        for (int i = 0; i < 5; i++) {
                fields[i] = strsep(&rest, " ");
                if (!fields[i])
                        return false;
        }
        unescape(fields[3]);
        unescape(fields[4]);
        *ret_root = fields[3];
        *ret_target = fields[4];
        return true;
}

/* The part of @path below @root; NULL when it is not below. */
static const char *path_below(const char *path, const char *root) {
        size_t len = str_equal(root, "/") ? 0 : strlen(root);

        return strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

/* Finds the daemon's own cgroup in the hierarchy, as the kernel calls it: NUMBER:CONTROLLERS:PATH. */
static const char *find_path(char *cgroups, const char *controller) {
        char *line;

        while ((line = strsep(&cgroups, "\n"))) {
                const char *number = strsep(&line, ":"), *names = strsep(&line, ":");

                if (line && (controller ? list_has(names, controller) : str_equal(number, "0")))
                        return line;
        }
        return NULL;
}

int cgroup_parse_own(char *mounts, char *cgroups, const char *controller, char **ret_path) {
        const char *own = find_path(cgroups, controller);
        char *line;

        if (!own)
                return -ENOENT;

        while ((line = strsep(&mounts, "\n"))) {
                char *root, *target;
                const char *below;

                if (!parse_mount(line, controller, &root, &target))
                        continue;
                below = path_below(own, root);
                if (!below)
                        continue;
                if (asprintf(ret_path, "%s%s", target, str_equal(below, "/") ? "" : below) < 0)
                        return -ENOMEM;
                return 0;
        }

        return -ENOENT;
}

int cgroup_find_own(const char *controller, char **ret_path, HutchError *err) {
        _cleanup_free_ char *mounts = read_file("/proc/self/mountinfo");
        _cleanup_free_ char *cgroups = mounts ? read_file("/proc/self/cgroup") : NULL;
        int r = cgroups ? cgroup_parse_own(mounts, cgroups, controller, ret_path) : -errno;

        if (r < 0)
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE, "found no cgroup of %s: %s",
                                  controller ? controller : "version 2", strerror(-r));

        return 0;
}

int cgroup_favor_moves(void) {
        _cleanup_close_ int context = fsopen("cgroup", FSOPEN_CLOEXEC);
        int mount;

        if (context < 0 || fsconfig(context, FSCONFIG_SET_FLAG, "none", NULL, 0) < 0 ||
            fsconfig(context, FSCONFIG_SET_STRING, "name", "hutch", 0) < 0 ||
            fsconfig(context, FSCONFIG_SET_FLAG, "favordynmods", NULL, 0) < 0 ||
            fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;

        mount = fsmount(context, FSMOUNT_CLOEXEC, 0);
        return mount < 0 ? -errno : mount;
}

static bool is_group(const struct dirent *entry) {
        return entry->d_type == DT_DIR && !str_equal(entry->d_name, ".") && !str_equal(entry->d_name, "..");
}

/* Opens the cgroup @name and removes those in it that can be, up to the first that cannot, which is @ret_below; empty:
 * none is left. */
static int open_group(int parent, const char *name, unsigned *steps, char ret_below[static NAME_MAX + 1]) {
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *folder = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;

        if (!folder) {
                int r = -errno;

                fd_close(fd);
                return r;
        }

        while ((entry = readdir(folder))) {
                if (!is_group(entry))
                        continue;
                if (*steps == 0 || unlinkat(fd, entry->d_name, AT_REMOVEDIR) < 0)
                        break;
                (*steps)--;
        }
        (void) snprintf(ret_below, NAME_MAX + 1, "%s", entry ? entry->d_name : "");
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        (void) closedir(folder);
        return fd < 0 ? -errno : fd;
}

/* Goes down from @name to a cgroup that has none below it, and removes that. */
static int remove_lowest(int parent, const char *name, unsigned *steps) {
        _cleanup_close_ int above = -1;
        char at[NAME_MAX + 1], below[NAME_MAX + 1] = "";

        (void) snprintf(at, sizeof(at), "%s", name);
        while (*steps > 0) {
                int from = above < 0 ? parent : above, group = open_group(from, at, steps, below);

                if (group < 0)
                        return group;
                if (!*below) {
                        fd_close(group);
                        return unlinkat(from, at, AT_REMOVEDIR) < 0 ? -errno : 0;
                }
                fd_close(above);
                above = group;
                memcpy(at, below, sizeof(at));
                (*steps)--;
        }
        return -EBUSY;
}

/* Removes the cgroup @name and all below it, which the keeper's user may have made as deep and as many as the kernel
 * lets it: as much as can be done in little time. */
static int remove_tree(int parent, const char *name) {
        unsigned steps = STEPS_MAX;

        for (;;) {
                int r;

                if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                        return 0;
                if (errno != EBUSY)
                        return -errno;
                r = remove_lowest(parent, name, &steps);
                if (r < 0 && r != -ENOENT)
                        return r;
        }
}

/* Kills all that is in the cgroup, and all below it. */
static int kill_all(int parent, const char *name) {
        _cleanup_close_ int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_close_ int fd = -1;

        if (folder < 0)
                return errno == ENOENT ? 0 : -errno;

        fd = openat(folder, "cgroup.kill", O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, "1", 1);
}

int cgroup_remove(int parent, const char *name) {
        int killed, r = remove_tree(parent, name);

        if (r != -EBUSY)
                return r;

        killed = kill_all(parent, name);
        if (killed < 0 && killed != -ENOENT && killed != -ENODEV)
                return killed;

        /* What was killed is most often gone by now. */
        return remove_tree(parent, name);
}
