/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how the host's own folders come into a sandbox's root. What does not: which (host-files.c), and what
 * only stands for some (host-image.c).
 *
 * Each comes as a read-only overlay of it, which has inodes of its own: whoever watches or locks one inside neither
 * sees nor stops the host and other sandboxes, which a mount of the folder itself would let them. What is in files is
 * still in memory once: an overlay maps and reads the host's file.
 *
 * An overlay shows nothing of what is mounted below its folder, and the kernel refuses to make one there, as it does
 * where the folder is on an overlay on an overlay. Then the folder itself is mounted, unless the sandbox must have
 * inodes of its own. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "keeper/root/rootfs-parts.h"

#define ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define ETC "etc/"
#define MEMORY_ETC "etc"

/* Makes an overlay of the host's folder @path. @empty is a folder: without a layer to write to it takes two. */
static int make_overlay(const char *path, int empty, int *ret_tree) {
        _cleanup_close_ int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
                return -errno;
        char layers[64];
        (void) snprintf(layers, sizeof(layers), "/proc/self/fd/%d:/proc/self/fd/%d", folder, empty);
        const FileSystemOption options[] = { { "lowerdir", layers }, { "userxattr", NULL }, {} };
        return file_system_make("overlay", options, ATTRIBUTES, ret_tree);
}

/* Makes one of the host's /etc: a file system for each of the folders in it would take memory for nothing. It is
 * mounted where nobody looks, so that parts of it can be mounted where they belong. */
static int make_etc(int memory, int empty, int *ret_tree) {
        _cleanup_close_ int tree = -1;
        int r = make_overlay("/etc", empty, &tree);
        if (r < 0)
                return r;
        if (mkdirat(memory, MEMORY_ETC, 0555) < 0 ||
            move_mount(tree, "", memory, MEMORY_ETC, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return -errno;
        *ret_tree = TAKE_FD(tree);
        return 0;
}

static int mount_privately(const char *path, int etc, int empty, int place) {
        _cleanup_close_ int part = -1, tree = -1;
        /* A link on the way may lead out of it. */
        if (etc >= 0 && strncmp(path, ETC, strlen(ETC)) == 0 && open_below(etc, path + strlen(ETC), &part) >= 0)
                return mount_again(part, "", ATTRIBUTES, place);
        char host_path[PATH_MAX];
        (void) snprintf(host_path, sizeof(host_path), "/%s", path);
        int r = make_overlay(host_path, empty, &tree);
        if (r < 0)
                return r;
        return move_mount(tree, "", place, "", EMPTY_PATHS) < 0 ? -errno : 0;
}

static int mount_shared(const char *path, int place) {
        char host_path[PATH_MAX];
        (void) snprintf(host_path, sizeof(host_path), "/%s", path);
        return mount_again(AT_FDCWD, host_path, ATTRIBUTES, place);
}

static int refuse(Rootfs *rootfs, const char *path, int r) {
        rootfs->reason = "RUNTIME_UNAVAILABLE";
        (void) snprintf(rootfs->what, sizeof(rootfs->what),
                        "the profile 'strict' needs files of the host with inodes of the sandbox's own, and there can "
                        "be no overlay of /%s: %s; 'hutch doctor' tells more",
                        path, strerror(-r));
        return r;
}

static int mount_one(Rootfs *rootfs, const char *path, int etc, int empty, int place) {
        int r = mount_privately(path, etc, empty, place);
        if (r >= 0)
                return 0;
        if (rootfs->config->private_files)
                return refuse(rootfs, path, r);
        log_warning("files of the host are shared: no overlay can be made", LOG_STR("path", path),
                    LOG_STR("error", strerror(-r)));
        return mount_shared(path, place);
}

int host_files_mount(Rootfs *rootfs, int memory, int root) {
        _cleanup_close_ int etc = -1, empty = openat(memory, MEMORY_EMPTY, O_PATH | O_CLOEXEC);
        if (empty < 0)
                return -errno;
        (void) make_etc(memory, empty, &etc);
        for (const HostFile *file = rootfs->host_files; file->path; file++) {
                if (file->kind != HOST_FILE_FOLDER)
                        continue;
                _cleanup_close_ int place = -1;
                int r = open_below(root, file->path, &place);
                /* What runs inside may have changed /etc to its liking. */
                if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
                        continue;
                if (r >= 0)
                        r = mount_one(rootfs, file->path, etc, empty, place);
                if (r < 0)
                        return r;
        }
        return 0;
}
