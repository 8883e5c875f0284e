/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: removing cgroups of sandboxes. What does not: making them, which keepers do, and finding the tree
 * (host/cgroups.c). */

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

#define STEPS_MAX 512 /* cgroups that are looked at before the loop gets to its other work */

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
