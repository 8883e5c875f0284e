/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: walking a tree that is not to be trusted, counting it, and what file systems tell of what they hold.
 * What does not: when, in which process, and what follows from it (disk-watch.c). */

#include "keeper/disk/disk-usage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"

#define OPEN_MAX_LEVELS 32             /* folders that are open at a time, beside the top */
#define DEPTH_MAX ((size_t) 1 << 20)   /* of what is looked at */
#define UNNAMED_MAX ((size_t) 1 << 18) /* open files that are looked at */
#define BLOCK 512                      /* the unit of st_blocks */
#define ATTRIBUTE_NAME_MIN 7           /* "user.x" and its NUL */
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

typedef struct Level {
        DIR *dir; /* NULL: closed, to be opened again from below */
        long at;  /* where reading goes on then */
        dev_t device;
        ino_t inode;
} Level;

/* What is counted of a file. */
typedef struct File {
        dev_t device;
        ino_t inode;
        mode_t mode;
        uint32_t n_names;
        uint64_t mount; /* where it was found */
        uint64_t bytes;
} File;

typedef struct Walk {
        DiskCount *count;
        Level *levels;
        size_t size, depth; /* allocated; the current one */
        File top;
        bool counts_attributes;
        unsigned n_steps;
} Walk;

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

DiskUsage disk_count_sum(const DiskCount *count) {
        return (DiskUsage){ .bytes = (uint64_t) (count->bytes + 0.5), .inodes = (uint64_t) (count->inodes + 0.5) };
}

static int find_file(int folder, const char *name, int flags, File *ret_file) {
        struct statx stx;
        if (statx(folder, name, flags | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_MNT_ID, &stx) < 0)
                return -errno;
        *ret_file = (File){
                .device = makedev(stx.stx_dev_major, stx.stx_dev_minor),
                .inode = stx.stx_ino,
                .mode = stx.stx_mode,
                .n_names = stx.stx_nlink,
                .mount = stx.stx_mnt_id,
                .bytes = stx.stx_blocks * BLOCK,
        };
        return 0;
}

static void count_file(DiskCount *count, const File *file) {
        double names = S_ISDIR(file->mode) || file->n_names == 0 ? 1 : file->n_names;
        count->bytes += (double) file->bytes / names;
        count->inodes += 1 / names;
        DiskUsage sum = disk_count_sum(count);
        if (count->reached && (sum.bytes > count->enough.bytes || sum.inodes > count->enough.inodes)) {
                void (*reached)(const DiskCount *count, void *user) = count->reached;
                count->reached = NULL;
                reached(count, count->user);
        }
}

/* ---- File systems ---- */

bool disk_tells_growth(const struct statfs *info) {
        return info->f_type == EXT4_SUPER_MAGIC || info->f_type == XFS_SUPER_MAGIC;
}

/* Whether the blocks of a file include its extended attributes, as far as those are not in its inode. */
static bool blocks_have_attributes(const struct statfs *info) {
        return info->f_type == EXT4_SUPER_MAGIC || info->f_type == XFS_SUPER_MAGIC || info->f_type == F2FS_SUPER_MAGIC;
}

/* What the extended attributes of the file take: names and values, in whole blocks. Only paths lead to those of every
 * kind of file, so @folder becomes the working directory. */
static uint64_t attribute_bytes(int folder, const char *name, bool follow) {
        static char names[XATTR_LIST_MAX];
        ssize_t (*list)(const char *path, char *names, size_t size) = follow ? listxattr : llistxattr;
        ssize_t (*get)(const char *path, const char *name, void *value, size_t size) = follow ? getxattr : lgetxattr;
        ssize_t all = fchdir(folder) < 0 ? -1 : list(name, NULL, 0);
        if (all <= 0)
                return 0;

        ssize_t n = list(name, names, sizeof(names));
        /* There are more names than the kernel lists: all values may be as large as values can be. */
        if (n < 0 && errno == E2BIG)
                return (uint64_t) all / ATTRIBUTE_NAME_MIN * XATTR_SIZE_MAX;

        uint64_t sum = 0;
        for (const char *one = names; n > 0 && one < names + n; one += strlen(one) + 1) {
                ssize_t size = get(name, one, NULL, 0);
                sum += strlen(one) + (size > 0 ? (uint64_t) size : 0);
        }
        return (sum + BLOCK - 1) / BLOCK * BLOCK;
}

static bool is_late(const DiskCount *count) {
        return clock_monotonic_ns() >= count->deadline;
}

/* ---- The tree ---- */

/* Opens a level that becomes the current one. */
static int push(Walk *walk, int fd, const File *file) {
        DIR *dir = fdopendir(fd);
        if (!dir) {
                int r = -errno;
                fd_close(fd);
                return r;
        }
        if (++walk->depth == walk->size) {
                walk->size *= 2;
                walk->levels = xreallocarray(walk->levels, walk->size, sizeof(Level));
        }
        walk->levels[walk->depth] = (Level){ .dir = dir, .device = file->device, .inode = file->inode };
        Level *above = walk->depth > OPEN_MAX_LEVELS ? &walk->levels[walk->depth - OPEN_MAX_LEVELS] : NULL;
        if (above && above->dir) {
                above->at = telldir(above->dir);
                (void) closedir(above->dir);
                above->dir = NULL;
        }
        return 0;
}

/* Opens the level above the current one again, if it is still there. */
static int reopen_above(Walk *walk) {
        Level *above = &walk->levels[walk->depth - 1];
        _cleanup_close_ int fd = openat(dirfd(walk->levels[walk->depth].dir), "..", FOLDER);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (st.st_ino != above->inode || st.st_dev != above->device)
                return -ESTALE;
        DIR *dir = fdopendir(fd);
        if (!dir)
                return -errno;
        (void) TAKE_FD(fd);
        above->dir = dir;
        seekdir(dir, above->at);
        return 0;
}

/* Leaves the current level. When what is above it has been moved away it goes on at the top. */
static void pop(Walk *walk) {
        Level *level = &walk->levels[walk->depth];
        bool is_lost = !walk->levels[walk->depth - 1].dir && reopen_above(walk) < 0;
        (void) closedir(level->dir);
        walk->depth = is_lost ? 0 : walk->depth - 1;
        walk->count->is_whole &= !is_lost;
}

/* Goes down into a folder, unless another mount has covered it meanwhile. */
static int descend(Walk *walk, int parent, const char *name, const File *file) {
        struct open_how how = { .flags = FOLDER, .resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS };
        if (walk->depth == DEPTH_MAX)
                return -ELOOP;
        int fd = (int) syscall(SYS_openat2, parent, name, &how, sizeof(how));
        return fd < 0 ? -errno : push(walk, fd, file);
}

/* A subvolume is a device of its own, and no mount. */
static bool is_of_other_mount(const Walk *walk, const File *file) {
        return file->mount != walk->top.mount;
}

static void visit(Walk *walk, const char *name) {
        int parent = dirfd(walk->levels[walk->depth].dir);
        File file = {};
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            find_file(parent, name, AT_SYMLINK_NOFOLLOW, &file) < 0 || is_of_other_mount(walk, &file))
                return;
        if (walk->counts_attributes)
                file.bytes += attribute_bytes(parent, name, false);
        count_file(walk->count, &file);
        if (!S_ISDIR(file.mode))
                return;
        int r = descend(walk, parent, name, &file);
        walk->count->is_whole &= r >= 0 || r == -ENOENT;
}

void disk_count_folder(DiskCount *count, int folder) {
        Walk walk = { .count = count, .size = 2 * OPEN_MAX_LEVELS };
        struct statfs info;
        int fd = openat(folder, ".", FOLDER);
        bool is_found = fd >= 0 && fstatfs(fd, &info) == 0 && find_file(fd, "", AT_EMPTY_PATH, &walk.top) == 0;
        DIR *top = is_found ? fdopendir(fd) : NULL;
        if (!top) {
                fd_close(fd);
                count->is_whole = false;
                return;
        }
        walk.counts_attributes = !blocks_have_attributes(&info);
        if (walk.counts_attributes)
                walk.top.bytes += attribute_bytes(fd, ".", false);
        count_file(count, &walk.top);
        walk.levels = new0(Level, walk.size);
        walk.levels[0] = (Level){ .dir = top, .device = walk.top.device, .inode = walk.top.inode };
        for (;;) {
                if (++walk.n_steps % 64 == 0 && is_late(count)) {
                        count->is_whole = false;
                        break;
                }
                const struct dirent *entry = readdir(walk.levels[walk.depth].dir);
                if (entry)
                        visit(&walk, entry->d_name);
                else if (walk.depth > 0)
                        pop(&walk);
                else
                        break;
        }
        for (size_t i = 0; i <= walk.depth; i++)
                if (walk.levels[i].dir)
                        (void) closedir(walk.levels[i].dir);
        free(walk.levels);
}

/* ---- What has no name ---- */

typedef struct Unnamed {
        File *files;
        size_t n, size;
} Unnamed;

static int compare_files(const void *a, const void *b) {
        const File *one = a, *other = b;
        if (one->device != other->device)
                return one->device < other->device ? -1 : 1;
        return (one->inode > other->inode) - (one->inode < other->inode);
}

/* Looks at what a process has open as @name in @fds. What is in memory only is no matter of disks. */
static void find_unnamed(Unnamed *unnamed, int fds, const char *name) {
        struct statfs info;
        File file = {};
        if (unnamed->n == UNNAMED_MAX || find_file(fds, name, 0, &file) < 0 || !S_ISREG(file.mode) || file.n_names > 0)
                return;
        _cleanup_close_ int fd = openat(fds, name, O_PATH | O_CLOEXEC);
        if (fd < 0 || fstatfs(fd, &info) < 0 || info.f_type == TMPFS_MAGIC || info.f_type == HUGETLBFS_MAGIC)
                return;
        if (!blocks_have_attributes(&info))
                file.bytes += attribute_bytes(fds, name, true);
        if (unnamed->n == unnamed->size) {
                unnamed->size = unnamed->size > 0 ? 2 * unnamed->size : 64;
                unnamed->files = xreallocarray(unnamed->files, unnamed->size, sizeof(*unnamed->files));
        }
        unnamed->files[unnamed->n++] = file;
}

static void find_unnamed_of(Unnamed *unnamed, const DiskCount *count, int proc, const char *process) {
        char path[64];
        (void) snprintf(path, sizeof(path), "%.20s/fd", process);
        int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(closedirp) DIR *fds = fd < 0 ? NULL : fdopendir(fd);
        if (!fds) {
                fd_close(fd);
                return;
        }
        for (const struct dirent *entry; (entry = readdir(fds)) && !is_late(count);)
                if (entry->d_name[0] != '.')
                        find_unnamed(unnamed, dirfd(fds), entry->d_name);
}

void disk_count_unnamed(DiskCount *count, const char *proc) {
        Unnamed unnamed = {};
        _cleanup_(closedirp) DIR *processes = opendir(proc);
        if (!processes) {
                count->is_whole = false;
                return;
        }
        for (const struct dirent *entry; (entry = readdir(processes)) && !is_late(count);)
                if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
                        find_unnamed_of(&unnamed, count, dirfd(processes), entry->d_name);
        /* One that several have open is one. */
        if (unnamed.n > 0)
                qsort(unnamed.files, unnamed.n, sizeof(*unnamed.files), compare_files);
        for (size_t i = 0; i < unnamed.n; i++)
                if (i == 0 || compare_files(&unnamed.files[i - 1], &unnamed.files[i]) != 0)
                        count_file(count, &unnamed.files[i]);
        free(unnamed.files);
}
