/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how the sandbox's PID 1 mounts its root and what belongs into it, and how that becomes its root.
 * What does not: the folders that are mounted (rootfs-make.c, host-image.c).
 *
 * All of this happens in a mount namespace that a user namespace owns: what is mounted here is seen nowhere else, and
 * what the host mounts later does not come in, because everything in it is made private first. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/strings.h"
#include "keeper/box/rootless.h"
#include "keeper/root/copies.h"
#include "keeper/root/mounts.h"
#include "keeper/root/rootfs-parts.h"
#include "keeper/root/shared-sys.h"

#define SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define BYTES_PER_INODE 4096 /* in memory: files without bytes take some, too */
#define INODES_MIN UINT64_C(1024)
#define MEMORY_SIZE_DEFAULT (UINT64_C(1) << 30) /* of the file system in memory, where memory has no limit */
#define TERMINALS_MAX "64" /* of the host's, which all sandboxes have together: 4096, less 1024 for itself */
#define WATCHERS_SHARE 8   /* of which a sandbox has one, without root */
#define INSTANCES_LEAST 16
#define WATCHES_LEAST 8192 /* what the kernel gives the users of the smallest hosts */

int open_below(int folder, const char *path, int *ret_fd) {
        struct open_how how = {
                .flags = O_PATH | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        int fd = (int) syscall(SYS_openat2, folder, path, &how, sizeof(how));
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

/* The same for a folder, which is made, with those that lead to it, when it is not there. */
static int open_or_make_below(int folder, const char *path, int *ret_fd) {
        int r = open_below(folder, path, ret_fd);
        if (r != -ENOENT)
                return r;

        _cleanup_close_ int at = -1;
        for (const char *end = path; *end; path = end + 1) {
                char name[NAME_MAX + 1];
                end = strchrnul(path, '/');
                (void) snprintf(name, sizeof(name), "%.*s", (int) (end - path), path);
                _cleanup_close_ int parent = TAKE_FD(at);
                if (parent < 0 && (parent = fcntl(folder, F_DUPFD_CLOEXEC, 0)) < 0)
                        return -errno;
                if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
                        return -errno;
                r = open_below(parent, name, &at);
                if (r < 0)
                        return r;
        }
        *ret_fd = TAKE_FD(at);
        return 0;
}

int mount_again(int folder, const char *path, uint64_t attributes, int place) {
        unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
        _cleanup_close_ int tree = open_tree(folder, path, *path ? flags : flags | AT_EMPTY_PATH);
        if (tree < 0)
                return -errno;
        struct mount_attr attr = { .attr_set = attributes };
        if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
                return -errno;
        return move_mount(tree, "", place, "", EMPTY_PATHS) < 0 ? -errno : 0;
}

int file_system_make(const char *type, const FileSystemOption *options, unsigned attributes, int *ret_tree) {
        _cleanup_close_ int context = fsopen(type, FSOPEN_CLOEXEC);
        if (context < 0)
                return -errno;
        for (; options && options->name; options++)
                if (fsconfig(context, options->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, options->name,
                             options->value, 0) < 0)
                        return -errno;
        if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        int tree = fsmount(context, FSMOUNT_CLOEXEC, attributes);
        if (tree < 0)
                return -errno;
        *ret_tree = tree;
        return 0;
}

/* Attaches @tree at @path below @root. */
static int attach(int tree, int root, const char *path) {
        _cleanup_close_ int place = -1;
        int r = open_below(root, path, &place);
        if (r < 0)
                return r;
        return move_mount(tree, "", place, "", EMPTY_PATHS) < 0 ? -errno : 0;
}

/* Makes a new file system at @path below @root. */
static int mount_new(int root, const char *path, const char *type, const FileSystemOption *options,
                     unsigned attributes) {
        _cleanup_close_ int tree = -1;
        int r = file_system_make(type, options, attributes, &tree);
        return r < 0 ? r : attach(tree, root, path);
}

/* ---- In memory ---- */

#define MEMORY_DEV "dev"
#define MEMORY_SHM "shm"
#define MEMORY_BOOT_ID "boot-id"

/* Makes a file system in memory with room for @size bytes and as many files as fit into them. */
static int make_in_memory(uint64_t size, const char *mode, unsigned attributes, int *ret_tree) {
        uint64_t inodes = size / BYTES_PER_INODE;
        char size_text[32], inodes_text[32];
        (void) snprintf(size_text, sizeof(size_text), "%" PRIu64, size);
        (void) snprintf(inodes_text, sizeof(inodes_text), "%" PRIu64, inodes > INODES_MIN ? inodes : INODES_MIN);
        const FileSystemOption options[] = {
                { "mode", mode }, { "size", size_text }, { "nr_inodes", inodes_text }, {}
        };
        return file_system_make("tmpfs", options, attributes, ret_tree);
}

/* Half of the memory that the sandbox may have, as the kernel's own default is half of the machine's: what fills it up
 * meets ENOSPC, and is not killed. */
static uint64_t memory_size(const KeeperConfig *config) {
        uint64_t size = config->memory_bytes > 0 ? config->memory_bytes / 2 : MEMORY_SIZE_DEFAULT;
        struct sysinfo info;
        if (sysinfo(&info) < 0)
                return size;
        uint64_t half = (uint64_t) info.totalram * info.mem_unit / 2;
        return size < half ? size : half;
}

/* Makes the one file system in memory for all that the sandbox has there, but for a /tmp with a limit of its own: the
 * kernel keeps a place for every file system in every cgroup that counts memory. Parts of it are mounted again where
 * they belong; as a whole it is on the image, where nobody looks, and is left with all that was before the root. */
static int mount_memory(const Rootfs *rootfs, int *ret_memory) {
        _cleanup_close_ int memory = -1;
        int r = make_in_memory(memory_size(rootfs->config), "0755", MOUNT_ATTR_NOSUID, &memory);
        if (r < 0)
                return r;
        if (mkdirat(memory, MEMORY_DEV, 0755) < 0 || mkdirat(memory, MEMORY_SHM, 01777) < 0 ||
            mkdirat(memory, MEMORY_EMPTY, 0555) < 0 || move_mount(memory, "", rootfs->image, "", EMPTY_PATHS) < 0)
                return -errno;
        *ret_memory = TAKE_FD(memory);
        return 0;
}

/* Mounts a part of it at @path below @root. */
static int mount_part(int memory, const char *name, uint64_t attributes, int root, const char *path) {
        _cleanup_close_ int place = -1;
        int r = open_below(root, path, &place);
        return r < 0 ? r : mount_again(memory, name, attributes, place);
}

/* ---- The root ---- */

/* Makes the overlay of @lower, the layers to be read, and of the folders @upper and @work in @above. */
static int make_overlay(const char *lower, int above, int *ret_upper, int *ret_tree) {
        _cleanup_close_ int upper = -1, work = -1;
        int r = open_below(above, "upper", &upper);
        if (r >= 0)
                r = open_below(above, "work", &work);
        if (r < 0)
                return r;
        char upper_path[32], work_path[32];
        (void) snprintf(upper_path, sizeof(upper_path), "/proc/self/fd/%d", upper);
        (void) snprintf(work_path, sizeof(work_path), "/proc/self/fd/%d", work);
        const FileSystemOption options[] = {
                { "lowerdir", lower }, { "upperdir", upper_path }, { "workdir", work_path },
                { "userxattr", NULL }, { "volatile", NULL },       {},
        };
        r = file_system_make("overlay", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, ret_tree);
        if (r >= 0)
                *ret_upper = TAKE_FD(upper);
        return r;
}

/* Makes the root: what is kept over the image. */
static int make_root(const Rootfs *rootfs, int *ret_tree) {
        _cleanup_close_ int upper = -1;
        char lower[32];
        (void) snprintf(lower, sizeof(lower), "/proc/self/fd/%d", rootfs->image);
        return make_overlay(lower, rootfs->folder, &upper, ret_tree);
}

/* Makes the root where what is kept cannot be written to as a layer: it is read, and changes are in memory. */
static int make_root_in_memory(Rootfs *rootfs, int memory, int *ret_tree) {
        _cleanup_close_ int kept = -1;
        int r = open_below(rootfs->folder, "upper", &kept);
        if (r < 0)
                return r;
        if (mkdirat(memory, "upper", 0755) < 0 || mkdirat(memory, "work", 0700) < 0)
                return -errno;
        char lower[64];
        (void) snprintf(lower, sizeof(lower), "/proc/self/fd/%d:/proc/self/fd/%d", kept, rootfs->image);
        return make_overlay(lower, memory, &rootfs->upper, ret_tree);
}

/* The last folder on the way to @path that this process gets to: what is below is of no use to it. */
static int open_last_reachable(const char *path, int *ret_fd) {
        _cleanup_close_ int at = -1;
        for (const char *end = path; *end; path = end) {
                char name[NAME_MAX + 2];
                end = strchrnul(path + 1, '/');
                /* The first with its slash: a mount on the root itself would be in the way of the root to be. */
                (void) snprintf(name, sizeof(name), "%.*s", (int) (end - path), path);
                int next = openat(at, at < 0 ? name : name + 1, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (next < 0 && at < 0)
                        return -errno;
                if (next < 0)
                        break;
                (void) fd_close(at);
                at = next;
        }
        *ret_fd = TAKE_FD(at);
        return 0;
}

/* What was handed over must be somewhere in this namespace to be a layer, and so must a root to be. There they are in
 * nobody's way. */
static int attach_layers(const Rootfs *rootfs) {
        _cleanup_close_ int place = -1;
        int r = open_last_reachable(rootfs->config->state_folder, &place);
        if (r < 0)
                return r;
        if (move_mount(rootfs->folder, "", place, "", EMPTY_PATHS) < 0 ||
            move_mount(rootfs->image, "", rootfs->folder, "", EMPTY_PATHS) < 0)
                return -errno;
        return 0;
}

/* Those who look at what has changed get the image as a mount that is nowhere, and that cannot be written through. */
static int clone_image(Rootfs *rootfs) {
        rootfs->image_clone = open_tree(rootfs->image, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (rootfs->image_clone < 0)
                return -errno;
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
        return mount_setattr(rootfs->image_clone, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static int mount_root(Rootfs *rootfs, int *ret_root, int *ret_memory) {
        int r = keeper_config_is_rootless(rootfs->config) ? 0 : attach_layers(rootfs);
        if (r >= 0)
                r = clone_image(rootfs);
        if (r < 0)
                return r;
        _cleanup_close_ int root = -1, memory = -1;
        r = mount_memory(rootfs, &memory);
        if (r >= 0)
                r = rootfs->config->root_in_memory ? make_root_in_memory(rootfs, memory, &root)
                                                   : make_root(rootfs, &root);
        if (r < 0)
                return r;
        if (move_mount(root, "", rootfs->folder, "", EMPTY_PATHS) < 0)
                return -errno;
        *ret_root = TAKE_FD(root);
        *ret_memory = TAKE_FD(memory);
        return 0;
}

/* Mounts the folder @name of those that are kept. */
static int mount_kept(int folder, const char *name, uint64_t attributes, int root, const char *path) {
        _cleanup_close_ int kept = -1, place = -1;
        int r = open_below(folder, name, &kept);
        if (r >= 0)
                r = open_or_make_below(root, path, &place);
        return r < 0 ? r : mount_again(kept, "", attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, place);
}

/* ---- /dev ---- */

/* Mounts the host's device on a place in @dev, which nobody but this process has seen yet. */
static int mount_device(int dev, const char *host_name, const char *name) {
        char host_path[64];
        (void) snprintf(host_path, sizeof(host_path), "/dev/%s", host_name);
        _cleanup_close_ int tree = open_tree(AT_FDCWD, host_path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (tree < 0 || mknodat(dev, name, S_IFREG | 0644, 0) < 0)
                return -errno;
        return move_mount(tree, "", dev, name, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int mount_pts(int dev, bool has_groups) {
        /* The owner is said so that a terminal that the keeper opens belongs to somebody inside. */
        char owner[16];
        (void) snprintf(owner, sizeof(owner), "%u", (unsigned) getuid());
        const FileSystemOption options[] = {
                { "ptmxmode", "0666" },
                { "mode", "0620" },
                { "max", TERMINALS_MAX },
                { "uid", owner },
                { has_groups ? "gid" : NULL, "5" },
                {},
        };
        return mount_new(dev, "pts", "devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

static int mount_dev(const KeeperConfig *config, int memory, int root, bool has_groups) {
        static const char *const devices[] = { "null", "zero", "full", "urandom", "tty" };
        static const char *const links[][2] = {
                { "pts/ptmx", "ptmx" },         { "urandom", "random" },         { "/proc/self/fd", "fd" },
                { "/proc/self/fd/0", "stdin" }, { "/proc/self/fd/1", "stdout" }, { "/proc/self/fd/2", "stderr" },
        };

        _cleanup_close_ int dev = -1;
        int r = mount_part(memory, MEMORY_DEV, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, root, "dev");
        if (r >= 0)
                r = open_below(root, "dev", &dev);
        for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]) && r >= 0; i++) {
                /* See memory-filter.h. */
                bool is_hiding = keeper_config_limits_memory(config) && str_equal(devices[i], "zero");
                r = mount_device(dev, is_hiding ? "full" : devices[i], devices[i]);
        }
        if (r < 0)
                return r;
        for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
                if (symlinkat(links[i][0], dev, links[i][1]) < 0)
                        return -errno;
        if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 01777) < 0)
                return -errno;
        r = mount_pts(dev, has_groups);
        if (r < 0)
                return r;
        return mount_part(memory, MEMORY_SHM, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, dev, "shm");
}

/* ---- What of /proc and /sys is not for the inside ---- */

/* The kernel's own folders and files, which every mount of them shows. Those that this kernel does not have are left
 * out. */
static const char *const read_only[] = { "proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger" };
static const char *const masked[] = {
        "proc/acpi",
        "proc/asound",
        "proc/interrupts",
        "proc/kcore",
        "proc/key-users",
        "proc/keys",
        "proc/latency_stats",
        "proc/sched_debug",
        "proc/scsi",
        "proc/timer_list",
        "proc/timer_stats",
        "sys/firmware",
        "sys/devices/virtual/powercap",
};

static int make_read_only_below(int root, const char *path) {
        _cleanup_close_ int place = -1;
        int r = open_below(root, path, &place);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        return mount_again(place, "", MOUNT_ATTR_RDONLY, place);
}

/* Mounts nothing over what is at @path: of files the null device, of folders an empty one. */
static int mask(int memory, int root, const char *path) {
        _cleanup_close_ int place = -1;
        struct stat st;
        int r = open_below(root, path, &place);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        if (fstat(place, &st) < 0)
                return -errno;
        /* Nobody inside is the host's root. */
        if (S_ISREG(st.st_mode) && (st.st_mode & 0077) == 0)
                return 0;
        if (!S_ISDIR(st.st_mode))
                return mount_again(root, "dev/null", MOUNT_ATTR_RDONLY, place);
        return mount_again(memory, MEMORY_EMPTY, SAFE | MOUNT_ATTR_RDONLY, place);
}

/* Bounds a number of the user namespace's by what the host's users have each: what is inside is counted as the user's
 * who made the namespace, too. */
static int limit_number(int proc, const char *of_users, const char *of_namespace, long share, long least) {
        _cleanup_close_ int all = openat(proc, of_users, O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int own = openat(proc, of_namespace, O_WRONLY | O_CLOEXEC);
        char text[32] = "";
        if (all < 0 || own < 0)
                return errno == ENOENT ? 0 : -errno;
        if (read(all, text, sizeof(text) - 1) <= 0)
                return -EIO;
        long number = strtol(text, NULL, 10), half = number - number / 2;
        long bound = number / share > least ? number / share : least;
        (void) snprintf(text, sizeof(text), "%ld", bound < half ? bound : half);
        return fd_write_all(own, text, strlen(text));
}

/* Inotify. With root the namespace is made by a user of its own, who keeps half for the keeper. Without, by the
 * daemon's user: an eighth is for each sandbox, so that a few leave enough for the user's editor, unless that is too
 * little for a program that watches a tree of sources. */
static int limit_watchers(const KeeperConfig *config, int root) {
        _cleanup_close_ int proc = -1;
        long share = keeper_config_is_rootless(config) ? WATCHERS_SHARE : 2;
        int r = open_below(root, "proc/sys", &proc);
        if (r >= 0)
                r = limit_number(proc, "fs/inotify/max_user_instances", "user/max_inotify_instances", share,
                                 INSTANCES_LEAST);
        return r < 0 ? r
                     : limit_number(proc, "fs/inotify/max_user_watches", "user/max_inotify_watches", share,
                                    WATCHES_LEAST);
}

/* Gives the sandbox a boot id of its own: a random UUID in a file that is nowhere but there. */
static int mount_boot_id(int memory, int root) {
        uint8_t b[16];
        char text[38];
        if (getrandom(b, sizeof(b), 0) != (ssize_t) sizeof(b))
                return -EIO;
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        (void) snprintf(text, sizeof(text), "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n",
                        b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
                        b[15]);

        _cleanup_close_ int file = openat(memory, MEMORY_BOOT_ID, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        int r = file < 0 ? -errno : fd_write_all(file, text, strlen(text));
        return r < 0 ? r
                     : mount_part(memory, MEMORY_BOOT_ID, SAFE | MOUNT_ATTR_RDONLY, root,
                                  "proc/sys/kernel/random/boot_id");
}

static int restrict_kernel_files(const KeeperConfig *config, int memory, int root) {
        int r = limit_watchers(config, root);
        for (size_t i = 0; i < sizeof(read_only) / sizeof(read_only[0]) && r >= 0; i++)
                r = make_read_only_below(root, read_only[i]);
        for (size_t i = 0; i < sizeof(masked) / sizeof(masked[0]) && r >= 0; i++)
                r = mask(memory, root, masked[i]);
        return r < 0 ? r : mount_boot_id(memory, root);
}

/* ---- The rest ---- */

/* Mounts @path onto itself, so that it can have other attributes than the root. */
static int mount_on_itself(int root, const char *path, uint64_t attributes) {
        _cleanup_close_ int place = -1;
        int r = open_below(root, path, &place);
        return r < 0 ? r : mount_again(place, "", attributes, place);
}

static int mount_tmp(const KeeperConfig *config, int root) {
        unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (config->tmp_noexec ? MOUNT_ATTR_NOEXEC : 0);
        if (config->tmp_bytes > 0) {
                _cleanup_close_ int tree = -1;
                int r = make_in_memory(config->tmp_bytes, "1777", attributes, &tree);
                return r < 0 ? r : attach(tree, root, "tmp");
        }
        if (!config->tmp_noexec && !config->read_only_root)
                return 0;
        return mount_on_itself(root, "tmp", attributes);
}

static int make_read_only(int root, int home) {
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
        if (mount_setattr(root, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
            mount_setattr(home, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return -errno;
        return 0;
}

static int become_root(int root) {
        if (fchdir(root) < 0)
                return -errno;
        /* The old root comes to lie on the new one, and is taken away from there. */
        if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
                return -errno;
        return chdir("/") < 0 ? -errno : 0;
}

/* ---- The order of things ---- */

int rootfs_receive(Rootfs *rootfs, int socket) {
        const KeeperConfig *config = rootfs->config;
        char byte;
        int fds[2];
        int r = fds_receive(socket, &byte, 1, fds, 2);
        if (r < 0)
                return r;
        if (!keeper_config_is_rootless(config)) {
                if (r != 2)
                        return -EBADMSG;
                rootfs->image = fds[0];
                rootfs->folder = fds[1];
                return 0;
        }
        rootfs->image = open(rootfs->image_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (rootfs->image < 0)
                return -errno;
        _cleanup_close_ int state = open(config->state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (state < 0)
                return -errno;
        rootfs->folder = openat(state, "fs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return rootfs->folder < 0 ? -errno : mounts_find(config, rootfs->trees);
}

int rootfs_open_sys(int *ret_tree) {
        return file_system_make("sysfs", NULL, SAFE | MOUNT_ATTR_RDONLY, ret_tree);
}

static int mount_sys(const Rootfs *rootfs, int root) {
        _cleanup_close_ int own = -1;
        int r = rootfs->shares_sys ? 0 : rootfs_open_sys(&own);
        return r < 0 ? r : attach(rootfs->shares_sys ? SHARED_SYS_FD : own, root, "sys");
}

int rootfs_open_message_queues(int *ret_tree) {
        int r = file_system_make("mqueue", NULL, SAFE, ret_tree);
        if (r != -ENODEV)
                return r;
        /* There are kernels without them. */
        *ret_tree = open("/", O_PATH | O_CLOEXEC);
        return *ret_tree < 0 ? -errno : 0;
}

int rootfs_enter(Rootfs *rootfs, const char **ret_what) {
        const KeeperConfig *config = rootfs->config;
        _cleanup_close_ int root = -1, home = -1, memory = -1;

        *ret_what = "the folders of its user";
        int r = config->subordinate_ids.uids.n > 0 ? rootless_give_folders(rootfs->folder) : 0;
        if (r < 0)
                return r;

        *ret_what = "a mount namespace";
        struct mount_attr attr = { .propagation = MS_PRIVATE };
        if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)) < 0)
                return -errno;
        *ret_what = "the overlay in the state folder";
        r = mount_root(rootfs, &root, &memory);
        if (r < 0)
                return r;
        *ret_what = "the host's files";
        r = host_files_mount(rootfs, memory, root);
        if (r < 0) {
                *ret_what = rootfs->reason ? rootfs->what : *ret_what;
                return r;
        }
        *ret_what = "/dev";
        r = mount_dev(config, memory, root, config->uid_count > 1);
        if (r < 0)
                return r;
        *ret_what = "/proc";
        r = mount_new(root, "proc", "proc", NULL, SAFE);
        if (r < 0)
                return r;
        /* Where something is mounted over the host's own, as in containers, there is none. */
        *ret_what = "/sys";
        r = mount_sys(rootfs, root);
        if (r < 0 && r != -EPERM)
                return r;
        *ret_what = "what is masked of /proc and /sys";
        r = restrict_kernel_files(config, memory, root);
        if (r < 0)
                return r;
        *ret_what = "/tmp";
        r = mount_tmp(config, root);
        if (r < 0)
                return r;
        *ret_what = "/home/agent";
        r = mount_kept(rootfs->folder, "home", 0, root, "home/agent");
        if (r >= 0)
                r = open_below(root, "home/agent", &home);
        if (r < 0)
                return r;
        *ret_what = "the workspace";
        r = mount_kept(rootfs->folder, "workspace", 0, root, config->workspace + 1);
        if (r < 0)
                return r;
        *ret_what = "/var/tmp";
        r = config->read_only_root ? mount_on_itself(root, "var/tmp", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) : 0;
        if (r < 0)
                return r;
        *ret_what = rootfs->what;
        r = copies_make(rootfs, root);
        if (r < 0)
                return r;
        r = mounts_attach(config, rootfs->trees, root, rootfs->what, sizeof(rootfs->what));
        if (r < 0)
                return r;
        *ret_what = "the read-only root";
        r = config->read_only_root ? make_read_only(root, home) : 0;
        if (r < 0)
                return r;
        *ret_what = "the root";
        return become_root(root);
}
