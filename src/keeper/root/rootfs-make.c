/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what the keeper does for a sandbox's root from outside: the folders in which files are kept, and
 * handing over the image. What does not: what is mounted from them (rootfs-enter.c), what the image has
 * (host-image.c). */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd-pass.h"
#include "base/fd.h"
#include "host/project-quota.h"
#include "keeper/box/rootless.h"
#include "keeper/root/host-image.h"
#include "keeper/root/mounts.h"
#include "keeper/root/remove.h"
#include "keeper/root/rootfs-parts.h"
#include "keeper/root/shared-sys.h"

#define OWN_IMAGE "image" /* in the state folder of a sandbox that has one */

int rootfs_new(const KeeperConfig *config, Rootfs **ret_rootfs, HutchError *err) {
        _cleanup_(rootfs_freep) Rootfs *rootfs = new0(Rootfs, 1);
        rootfs->config = config;
        rootfs->image = rootfs->image_clone = rootfs->folder = rootfs->upper = -1;
        rootfs->shares_sys = shared_sys_clone();
        rootfs->host_files = host_files_find();
        rootfs->trees = new0(int, config->n_sources + 1);
        int r = mounts_open_trees(config, rootfs->trees, err);
        if (r >= 0)
                r = host_image_find(config->image_folder, rootfs->host_files, &rootfs->image_path, err);
        if (r < 0)
                return r;
        *ret_rootfs = TAKE_PTR(rootfs);
        return 0;
}

Rootfs *rootfs_free(Rootfs *rootfs) {
        if (!rootfs)
                return NULL;
        host_files_free(rootfs->host_files);
        free(rootfs->image_path);
        fd_close(rootfs->image);
        fd_close(rootfs->image_clone);
        fd_close(rootfs->folder);
        fd_close(rootfs->upper);
        for (size_t i = 0; i < rootfs->config->n_sources; i++)
                fd_close(rootfs->trees[i]);
        free(rootfs->trees);
        free(rootfs);
        return NULL;
}

/* ---- What is kept ---- */

static const struct {
        const char *path;
        mode_t mode;
        uid_t owner; /* inside */
} folders[] = {
        { "upper", 0755, 0 }, /* this is the root itself */
        { "upper/etc", 0755, 0 }, { "work", 0700, 0 }, { "home", 0700, AGENT_UID }, { "workspace", 0755, AGENT_UID },
};

static int give_to(const KeeperConfig *config, int root, const char *path, uid_t owner) {
        uid_t id = config->uid_base + owner;
        return !keeper_config_is_rootless(config) && fchownat(root, path, id, id, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int make_folder(const KeeperConfig *config, int root, const char *path, mode_t mode, uid_t owner) {
        return mkdirat(root, path, mode) < 0 ? -errno : give_to(config, root, path, owner);
}

static int make_file(const KeeperConfig *config, int root, const char *path, const char *text) {
        _cleanup_close_ int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
        return r < 0 ? r : give_to(config, root, path, 0);
}

/* What differs from one sandbox to the next. */
static int make_host_name_files(const KeeperConfig *config, int root) {
        char text[256];
        (void) snprintf(text, sizeof(text), "%.63s\n", config->sandbox_id);
        int r = make_file(config, root, "upper/etc/hostname", text);
        if (r < 0)
                return r;
        (void) snprintf(text, sizeof(text), "127.0.0.1 localhost %.63s\n::1 localhost\n", config->sandbox_id);
        return make_file(config, root, "upper/etc/hosts", text);
}

/* As long as its files are there the sandbox is the same machine. */
static int make_machine_id(const KeeperConfig *config, int root) {
        uint64_t id[2];
        char text[34];
        if (getrandom(id, sizeof(id), 0) != (ssize_t) sizeof(id))
                return -EIO;
        (void) snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64 "\n", id[0], id[1]);
        return make_file(config, root, "upper/etc/machine-id", text);
}

static int make_all(const KeeperConfig *config, int state) {
        int r = make_folder(config, state, "fs.new", 0755, 0);
        if (r < 0)
                return r;
        _cleanup_close_ int root = openat(state, "fs.new", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (root < 0)
                return -errno;
        /* Where this fails the sandbox is measured instead. */
        if (config->disk_project > 0)
                (void) project_quota_assign(root, config->disk_project);
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && r >= 0; i++)
                r = make_folder(config, root, folders[i].path, folders[i].mode, folders[i].owner);
        if (r >= 0)
                r = make_host_name_files(config, root);
        if (r >= 0)
                r = make_machine_id(config, root);
        if (r >= 0)
                r = rootless_mark(config, root);
        if (r < 0)
                return r;
        return renameat(state, "fs.new", state, "fs") < 0 ? -errno : 0;
}

/* Makes fs, whole or not at all. */
static int make_anew(const KeeperConfig *config, int state) {
        _cleanup_free_ char *unfinished = NULL;
        if (asprintf(&unfinished, "%s/fs.new", config->state_folder) < 0)
                return -ENOMEM;
        mode_t mask = umask(0);
        int r = make_all(config, state);
        /* One that was begun when the keeper or the machine went down is begun anew. */
        if (r == -EEXIST) {
                r = folder_remove(unfinished, NULL);
                if (r >= 0)
                        r = make_all(config, state);
        }
        (void) umask(mask);
        if (r < 0)
                (void) folder_remove(unfinished, NULL);
        return r;
}

/* Makes fs fit for another start. What the kernel had in fs/work has in it that the overlay was volatile, so that some
 * of what was written to it may be missing after a power cut. It would refuse to mount it; what there is is taken as it
 * is. */
static int make_again(int state) {
        _cleanup_close_ int root = openat(state, "fs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (root < 0)
                return -errno;
        _cleanup_close_ int work = openat(root, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (work < 0)
                return -errno;
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d/work", work);
        return folder_remove(path, NULL);
}

/* Where the state folder is on an overlay the image cannot be a mount in which its files have other owners. */
static bool has_own_image(const KeeperConfig *config) {
        return config->root_in_memory && !keeper_config_is_rootless(config);
}

static int make_own_image(const Rootfs *rootfs) {
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%s/" OWN_IMAGE, rootfs->config->state_folder) < 0)
                return -ENOMEM;
        return host_image_make_own(path, rootfs->host_files, rootfs->config->uid_base);
}

int rootfs_make(const Rootfs *rootfs, HutchError *err) {
        const KeeperConfig *config = rootfs->config;
        _cleanup_close_ int state = open(config->state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (state < 0)
                return error_set(err, -errno, "INTERNAL", "cannot open the sandbox's state folder: %s",
                                 strerror(errno));
        struct stat st;
        bool is_there = fstatat(state, "fs", &st, AT_SYMLINK_NOFOLLOW) == 0;
        int r = is_there ? make_again(state) : make_anew(config, state);
        if (r >= 0 && has_own_image(config))
                r = make_own_image(rootfs);
        if (r >= 0)
                return 0;
        return error_set(err, r, r == -ENOSPC || r == -EDQUOT ? "DISK_FULL" : "IO_ERROR",
                         "cannot make the sandbox's folders: %s", strerror(-r));
}

/* ---- The image ---- */

/* The image as a mount in which root's files are those of the root inside. */
static int map_image(const char *path, pid_t init, int *ret_tree) {
        char name[64];
        (void) snprintf(name, sizeof(name), "/proc/%d/ns/user", (int) init);
        _cleanup_close_ int users = open(name, O_RDONLY | O_CLOEXEC);
        if (users < 0)
                return -errno;
        _cleanup_close_ int tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (tree < 0)
                return -errno;
        struct mount_attr attr = {
                .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY,
                .propagation = MS_PRIVATE,
                .userns_fd = (uint64_t) users,
        };
        if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return -errno;
        *ret_tree = TAKE_FD(tree);
        return 0;
}

/* The folder @name as a mount, to which PID 1 would find no way: the folders that lead to it are root's alone. */
static int clone_folder(const KeeperConfig *config, const char *name, uint64_t attributes, int *ret_tree) {
        _cleanup_close_ int state = open(config->state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (state < 0)
                return -errno;
        _cleanup_close_ int tree = open_tree(state, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
        if (tree < 0)
                return -errno;
        struct mount_attr attr = { .attr_set = attributes, .propagation = MS_PRIVATE };
        if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return -errno;
        *ret_tree = TAKE_FD(tree);
        return 0;
}

int rootfs_open_kept(const Rootfs *rootfs, int *ret_kept) {
        _cleanup_close_ int state = open(rootfs->config->state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (state < 0)
                return -errno;
        int kept = openat(state, "fs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (kept < 0)
                return -errno;
        *ret_kept = kept;
        return 0;
}

int rootfs_hand_over(const Rootfs *rootfs, pid_t init, int socket) {
        /* Without root the user owns all of it, and is root or the only one inside. */
        if (keeper_config_is_rootless(rootfs->config))
                return fds_send(socket, "", 1, NULL, 0);
        _cleanup_close_ int image = -1, kept = -1;
        int r = has_own_image(rootfs->config) ? clone_folder(rootfs->config, OWN_IMAGE, MOUNT_ATTR_RDONLY, &image)
                                              : map_image(rootfs->image_path, init, &image);
        if (r >= 0)
                r = clone_folder(rootfs->config, "fs", 0, &kept);
        return r < 0 ? r : fds_send(socket, "", 1, (const int[]){ image, kept }, 2);
}
