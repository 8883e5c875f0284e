/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how files of the host come into a sandbox's root. What does not: which (hutchd decides), the rest of
 * the root (rootfs-enter.c). */

#include "keeper/root/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/landlock.h"
#include "keeper/root/rootfs-parts.h"
#include "keeper/root/source-sockets.h"

#define TREE (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)

/* ---- With root ---- */

static int write_map(pid_t pid, const char *name, uint32_t host_id, uint32_t id) {
        char path[64], text[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
        (void) snprintf(text, sizeof(text), "%u %u 1\n", host_id, id);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static int open_mapped(pid_t pid, uid_t uid, gid_t gid, uint32_t agent, int *ret_users) {
        char path[64];
        int r = write_map(pid, "uid_map", uid, agent);
        if (r >= 0)
                r = write_map(pid, "gid_map", gid, agent);
        if (r < 0)
                return r;
        (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
        *ret_users = open(path, O_RDONLY | O_CLOEXEC);
        return *ret_users < 0 ? -errno : 0;
}

/* A user namespace in which @uid and @gid stand for the host's user and group @agent, and nobody for anybody else.
 * Somebody must be in it until it is opened. */
static int make_users(uid_t uid, gid_t gid, uint32_t agent, int *ret_users) {
        pid_t pid = process_clone(CLONE_NEWUSER, -1, NULL);
        if (pid < 0)
                return pid;
        if (pid == 0) {
                if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0)
                        for (;;)
                                (void) pause();
                _exit(1);
        }
        int r = open_mapped(pid, uid, gid, agent, ret_users);
        (void) kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return r;
}

static uint64_t attributes_of(const KeptSource *mount) {
        return MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (mount->writable ? 0 : MOUNT_ATTR_RDONLY);
}

static int set_attributes(const KeptSource *mount, int tree, int users) {
        struct mount_attr attr = { .attr_set = attributes_of(mount), .propagation = MS_PRIVATE };
        if (users >= 0) {
                attr.attr_set |= MOUNT_ATTR_IDMAP;
                attr.userns_fd = (uint64_t) users;
        }
        return mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static int open_mount(const KeeperConfig *config, const KeptSource *mount, int *ret_tree) {
        struct stat st;
        if (fstat(mount->fd, &st) < 0)
                return -errno;
        _cleanup_close_ int users = -1, tree = open_tree(mount->fd, "", TREE | AT_EMPTY_PATH);
        if (tree < 0)
                return -errno;
        int r = make_users(st.st_uid, mount->group, config->uid_base + AGENT_UID, &users);
        if (r < 0)
                return r;
        r = set_attributes(mount, tree, users);
        if (r == -EINVAL && !mount->writable)
                r = set_attributes(mount, tree, -1);
        if (r < 0)
                return r == -EINVAL ? -EOPNOTSUPP : r;
        *ret_tree = TAKE_FD(tree);
        return 0;
}

static bool has_sockets(const KeptSource *mount) {
        return !mount->is_copied && (mount->writable || mount->sockets);
}

bool mounts_have_sockets(const KeeperConfig *config) {
        for (size_t i = 0; i < config->n_sources; i++)
                if (has_sockets(&config->sources[i]))
                        return true;
        return false;
}

static int refuse_sockets(const KeeperConfig *config, HutchError *err) {
        bool are_kept = landlock_knows_sockets() && !mounts_have_sockets(config);
        char path[128];
        for (size_t i = 0; i < config->n_sources && !are_kept; i++) {
                const KeptSource *mount = &config->sources[i];
                if (mount->is_copied || has_sockets(mount) || source_find_socket(mount->fd, path, sizeof(path)) == 0)
                        continue;
                str_make_printable(path);
                return error_set(err, -EINVAL, "SOURCE_INVALID",
                                 "the source of the read-only mount at %s has a Unix socket in it, '%s', to which "
                                 "what runs inside could connect; allow it by the mount's 'sockets', or leave it out",
                                 mount->target, path);
        }
        return 0;
}

int mounts_open_trees(const KeeperConfig *config, int *ret_trees, HutchError *err) {
        for (size_t i = 0; i < config->n_sources; i++)
                ret_trees[i] = -1;
        int refused = refuse_sockets(config, err);
        if (refused < 0)
                return refused;
        if (keeper_config_is_rootless(config))
                return 0;
        for (size_t i = 0; i < config->n_sources; i++) {
                const KeptSource *mount = &config->sources[i];
                int r = open_mount(config, mount, &ret_trees[i]);
                if (r == -EOPNOTSUPP)
                        return error_set(err, r, "FEATURE_UNSUPPORTED",
                                         "the mount at %s: the file system of its source can only be mounted read-only",
                                         mount->target);
                if (r < 0)
                        return error_set(err, r, "INTERNAL", "what is for %s cannot be had: %s", mount->target,
                                         strerror(-r));
        }
        return 0;
}

/* ---- Without root ---- */

int mounts_find(const KeeperConfig *config, int *ret_trees) {
        for (size_t i = 0; i < config->n_sources; i++) {
                const KeptSource *mount = &config->sources[i];
                struct open_how how = { .flags = O_PATH | O_CLOEXEC,
                                        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
                struct stat found, meant;
                ret_trees[i] = (int) syscall(SYS_openat2, AT_FDCWD, mount->source, &how, sizeof(how));
                if (ret_trees[i] < 0 || fstat(ret_trees[i], &found) < 0 || fstat(mount->fd, &meant) < 0)
                        return -errno;
                if (found.st_dev != meant.st_dev || found.st_ino != meant.st_ino)
                        return -ESTALE;
        }
        return 0;
}

/* ---- Their places ---- */

/* Makes a folder, or an empty file, in @parent. In the agent's folders it is the agent's. */
static int make_place(int parent, const char *name, bool is_folder) {
        struct stat st;
        if (fstat(parent, &st) < 0)
                return -errno;
        int r = is_folder ? mkdirat(parent, name, 0755) : mknodat(parent, name, S_IFREG | 0644, 0);
        if (r < 0)
                return -errno;
        if (st.st_uid != AGENT_UID)
                return 0;
        return fchownat(parent, name, AGENT_UID, AGENT_UID, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int mounts_open_place(int root, const char *path, bool is_folder, int *ret_fd) {
        _cleanup_close_ int at = fcntl(root, F_DUPFD_CLOEXEC, 0);
        if (at < 0)
                return -errno;
        for (const char *end = path; *end; path = end + 1) {
                char name[NAME_MAX + 1];
                end = strchrnul(path, '/');
                (void) snprintf(name, sizeof(name), "%.*s", (int) (end - path), path);
                _cleanup_close_ int parent = TAKE_FD(at);
                int r = open_below(parent, name, &at);
                if (r == -ENOENT) {
                        r = make_place(parent, name, *end || is_folder);
                        if (r >= 0)
                                r = open_below(parent, name, &at);
                }
                if (r < 0)
                        return r;
        }
        *ret_fd = TAKE_FD(at);
        return 0;
}

static int attach(const KeeperConfig *config, const KeptSource *mount, int source, int root) {
        struct stat st;
        if (fstat(source, &st) < 0)
                return -errno;
        _cleanup_close_ int place = -1, clone = -1;
        int r = mounts_open_place(root, mount->target + 1, S_ISDIR(st.st_mode), &place), tree = source;
        if (r < 0)
                return r;
        if (keeper_config_is_rootless(config)) {
                tree = clone = open_tree(source, "", TREE | AT_EMPTY_PATH);
                r = clone < 0 ? -errno : set_attributes(mount, clone, -1);
                if (r < 0)
                        return r;
        }
        return move_mount(tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno : 0;
}

int mounts_attach(const KeeperConfig *config, const int *trees, int root, char *what, size_t what_size) {
        for (size_t i = 0; i < config->n_sources; i++) {
                if (config->sources[i].is_copied)
                        continue;
                (void) snprintf(what, what_size, "the mount at %s", config->sources[i].target);
                int r = attach(config, &config->sources[i], trees[i], root);
                if (r < 0)
                        return r;
        }
        return 0;
}
