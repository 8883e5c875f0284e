/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: walking a tree that is not to be trusted, and counting it. What does not: when, in which process,
 * and what follows from it (disk-watch.c). */

#include "keeper/disk-usage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"

#define OPEN_MAX_LEVELS 32             /* folders that are open at a time, beside the top */
#define DEPTH_MAX ((size_t) 1 << 20)   /* of what is looked at */
#define UNNAMED_MAX ((size_t) 1 << 18) /* open files that are looked at */
#define BLOCK 512                      /* the unit of st_blocks */
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

typedef struct Level {
        DIR *dir; /* NULL: closed, to be opened again from below */
        long at;  /* where reading goes on then */
        ino_t inode;
} Level;

typedef struct Walk {
        DiskCount *count;
        Level *levels;
        size_t size, depth; /* allocated; the current one */
        dev_t device;
        unsigned n_steps;
} Walk;

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

DiskUsage disk_count_sum(const DiskCount *count) {
        return (DiskUsage){ .bytes = (uint64_t) (count->bytes + 0.5), .inodes = (uint64_t) (count->inodes + 0.5) };
}

static void count_file(DiskCount *count, const struct stat *st) {
        double names = S_ISDIR(st->st_mode) || st->st_nlink == 0 ? 1 : (double) st->st_nlink;
        count->bytes += (double) st->st_blocks * BLOCK / names;
        count->inodes += 1 / names;
        DiskUsage sum = disk_count_sum(count);
        if (count->reached && (sum.bytes > count->enough.bytes || sum.inodes > count->enough.inodes)) {
                void (*reached)(const DiskCount *count, void *user) = count->reached;
                count->reached = NULL;
                reached(count, count->user);
        }
}

static bool is_late(const DiskCount *count) {
        return clock_monotonic_ns() >= count->deadline;
}

/* ---- The tree ---- */

/* Opens a level that becomes the current one. */
static int push(Walk *walk, int fd, ino_t inode) {
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
        walk->levels[walk->depth] = (Level){ .dir = dir, .inode = inode };
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
        if (st.st_ino != above->inode || st.st_dev != walk->device)
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

static int descend(Walk *walk, int parent, const char *name, ino_t inode) {
        if (walk->depth == DEPTH_MAX)
                return -ELOOP;
        int fd = openat(parent, name, FOLDER);
        return fd < 0 ? -errno : push(walk, fd, inode);
}

static void visit(Walk *walk, const char *name) {
        int parent = dirfd(walk->levels[walk->depth].dir);
        struct stat st;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 || st.st_dev != walk->device)
                return;
        count_file(walk->count, &st);
        if (!S_ISDIR(st.st_mode))
                return;
        int r = descend(walk, parent, name, st.st_ino);
        walk->count->is_whole &= r >= 0 || r == -ENOENT;
}

void disk_count_folder(DiskCount *count, int folder) {
        struct stat st;
        int fd = openat(folder, ".", FOLDER);
        DIR *top = fd < 0 || fstat(fd, &st) < 0 ? NULL : fdopendir(fd);
        if (!top) {
                fd_close(fd);
                count->is_whole = false;
                return;
        }
        count_file(count, &st);
        Walk walk = { .count = count, .size = 2 * OPEN_MAX_LEVELS, .device = st.st_dev };
        walk.levels = new0(Level, walk.size);
        walk.levels[0] = (Level){ .dir = top, .inode = st.st_ino };
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
        struct stat *files;
        size_t n, size;
} Unnamed;

static int compare_files(const void *a, const void *b) {
        const struct stat *one = a, *other = b;
        if (one->st_dev != other->st_dev)
                return one->st_dev < other->st_dev ? -1 : 1;
        return (one->st_ino > other->st_ino) - (one->st_ino < other->st_ino);
}

/* Looks at what a process has open as @name in @fds. What is in memory only is no matter of disks. */
static void find_unnamed(Unnamed *unnamed, int fds, const char *name) {
        struct statfs info;
        struct stat st;
        if (unnamed->n == UNNAMED_MAX || fstatat(fds, name, &st, AT_NO_AUTOMOUNT) < 0 || !S_ISREG(st.st_mode) ||
            st.st_nlink > 0)
                return;
        _cleanup_close_ int fd = openat(fds, name, O_PATH | O_CLOEXEC);
        if (fd < 0 || fstatfs(fd, &info) < 0 || info.f_type == TMPFS_MAGIC || info.f_type == HUGETLBFS_MAGIC)
                return;
        if (unnamed->n == unnamed->size) {
                unnamed->size = unnamed->size > 0 ? 2 * unnamed->size : 64;
                unnamed->files = xreallocarray(unnamed->files, unnamed->size, sizeof(*unnamed->files));
        }
        unnamed->files[unnamed->n++] = st;
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
