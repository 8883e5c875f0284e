/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: removing a folder that hostile code filled. What does not: when, and in which process.
 *
 * It goes down into folders with a stack of open ones, so that no path is ever longer than a name. The stack is short:
 * a folder that lies deeper is moved up to the top first, where it is found later. Subvolumes of btrfs are moved up
 * wherever they are, because what is in them can be moved no further than to their own top. */

#include "keeper/root/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define DEPTH_MAX 32

typedef struct Level {
        DIR *dir;
        dev_t device;            /* a subvolume has its own */
        char name[NAME_MAX + 1]; /* in the level above */
} Level;

typedef struct Remover {
        Level levels[DEPTH_MAX];
        int depth;       /* of the current level */
        bool is_changed; /* since the top was last read from its beginning */
        int error;       /* the first one that could not be helped */
        uint64_t n_moved;
} Remover;

static void note_error(Remover *remover, int r) {
        if (remover->error == 0 && r != -ENOENT)
                remover->error = r;
}

/* Takes away the flags that forbid changes. */
static void clear_flags(int fd) {
        int flags;
        if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
                return;
        int fewer = flags & ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
        if (fewer != flags)
                (void) ioctl(fd, FS_IOC_SETFLAGS, &fewer);
}

/* The same for a subvolume. Its owner may; anybody may try: folders of other kinds say that they are none. */
static void clear_subvolume_flags(int fd) {
        uint64_t flags;
        if (ioctl(fd, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) < 0 || !(flags & BTRFS_SUBVOL_RDONLY))
                return;
        flags &= ~BTRFS_SUBVOL_RDONLY;
        (void) ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
}

/* Opens the folder @name in @parent, not through a link and not into another mount. */
static int open_folder(int parent, const char *name, uint64_t flags) {
        struct open_how how = {
                .flags = flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS,
        };
        int fd = (int) syscall(SYS_openat2, parent, name, &how, sizeof(how));
        return fd < 0 ? -errno : fd;
}

/* The same for reading; a folder that its owner may not read is made readable. */
static int open_folder_to_read(int parent, const char *name) {
        int fd = open_folder(parent, name, O_RDONLY);
        if (fd != -EACCES)
                return fd;
        _cleanup_close_ int path_fd = open_folder(parent, name, O_PATH);
        if (path_fd < 0)
                return path_fd;
        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
        if (chmod(path, 0700) < 0)
                return -errno;
        return open_folder(parent, name, O_RDONLY);
}

/* Makes it possible to change @folder, and to remove what @name in it is. */
static void allow(int folder, const char *name) {
        (void) fchmod(folder, 0700);
        clear_flags(folder);
        struct stat st;
        if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
                return;
        /* To be moved, a folder must be writable itself. */
        _cleanup_close_ int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return;
        clear_flags(fd);
        if (S_ISDIR(st.st_mode))
                (void) fchmod(fd, 0700);
}

static int unlink_entry(int folder, const char *name, int flags) {
        if (unlinkat(folder, name, flags) == 0)
                return 0;
        if (errno != EACCES && errno != EPERM)
                return -errno;
        allow(folder, name);
        return unlinkat(folder, name, flags) < 0 ? -errno : 0;
}

/* Moves the folder @name in @folder to the level @to, further up. */
static int move_up(Remover *remover, int folder, const char *name, int to) {
        bool is_allowed = false;
        if (to == remover->depth)
                return -EXDEV;
        for (;;) {
                char moved[64];
                (void) snprintf(moved, sizeof(moved), ".hutch-remove-%llu", (unsigned long long) remover->n_moved++);
                if (renameat2(folder, name, dirfd(remover->levels[to].dir), moved, RENAME_NOREPLACE) == 0) {
                        remover->is_changed = true;
                        return 0;
                }
                if ((errno == EACCES || errno == EPERM) && !is_allowed) {
                        allow(folder, name);
                        is_allowed = true;
                } else if (errno != EEXIST)
                        return -errno;
        }
}

/* The highest level that folders of the current one can be moved to: that of the same subvolume. */
static int find_top(const Remover *remover) {
        int i = 0;
        while (remover->levels[i].device != remover->levels[remover->depth].device)
                i++;
        return i;
}

static int push(Remover *remover, int fd, dev_t device, const char *name) {
        DIR *dir = fdopendir(fd);
        if (!dir) {
                int r = -errno;
                fd_close(fd);
                return r;
        }
        Level *level = &remover->levels[++remover->depth];
        level->dir = dir;
        level->device = device;
        (void) snprintf(level->name, sizeof(level->name), "%s", name);
        return 0;
}

/* Goes down into the folder @name, or has it come up. */
static int descend(Remover *remover, int folder, const char *name) {
        _cleanup_close_ int fd = open_folder_to_read(folder, name);
        struct stat st;
        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0)
                return -errno;
        bool is_subvolume = st.st_dev != remover->levels[remover->depth].device;
        if (is_subvolume)
                clear_subvolume_flags(fd);
        /* One that cannot be moved is entered where it is. */
        if (is_subvolume && remover->depth > 0 && move_up(remover, folder, name, 0) == 0)
                return 0;
        if (remover->depth + 1 == DEPTH_MAX)
                return move_up(remover, folder, name, find_top(remover));
        return push(remover, TAKE_FD(fd), st.st_dev, name);
}

static int remove_entry(Remover *remover, const struct dirent *entry) {
        int folder = dirfd(remover->levels[remover->depth].dir);
        if (entry->d_type != DT_DIR) {
                int r = unlink_entry(folder, entry->d_name, 0);
                remover->is_changed |= r == 0;
                if (r != -EISDIR)
                        return r;
        }
        /* Most folders that were moved up or left are empty or become so; those that are, need not be read. */
        if (unlinkat(folder, entry->d_name, AT_REMOVEDIR) == 0) {
                remover->is_changed = true;
                return 0;
        }
        return descend(remover, folder, entry->d_name);
}

/* Leaves the current level, which was read to its end. */
static void pop(Remover *remover) {
        Level *level = &remover->levels[remover->depth--];
        (void) closedir(level->dir);
        int r = unlink_entry(dirfd(remover->levels[remover->depth].dir), level->name, AT_REMOVEDIR);
        remover->is_changed |= r == 0;
        /* What is not empty yet is looked at again, as long as anything changes. */
        if (r != -ENOTEMPTY)
                note_error(remover, r);
}

static bool is_dots(const char *name) {
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Removes what is in the top, until a look at all of it changes nothing. */
static void remove_contents(Remover *remover) {
        for (;;) {
                Level *level = &remover->levels[remover->depth];
                const struct dirent *entry = readdir(level->dir);
                if (entry) {
                        int r = is_dots(entry->d_name) ? 0 : remove_entry(remover, entry);
                        if (r < 0)
                                note_error(remover, r);
                } else if (remover->depth > 0)
                        pop(remover);
                else if (remover->is_changed) {
                        remover->is_changed = false;
                        remover->error = 0;
                        rewinddir(level->dir);
                } else
                        return;
        }
}

int folder_remove(const char *path, HutchError *err) {
        if (rmdir(path) == 0 || errno == ENOENT)
                return 0;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == EACCES && chmod(path, 0700) == 0)
                fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return error_set(err, -errno, "IO_ERROR", "cannot remove %s: %s", path, strerror(errno));

        struct stat st;
        DIR *dir = fstat(fd, &st) < 0 ? NULL : fdopendir(fd);
        if (!dir) {
                int r = -errno;
                fd_close(fd);
                return error_set(err, r, "IO_ERROR", "cannot remove %s: %s", path, strerror(-r));
        }
        Remover remover = { .levels[0] = { .dir = dir, .device = st.st_dev } };
        clear_subvolume_flags(fd);
        remove_contents(&remover);
        clear_flags(fd);
        int r = rmdir(path) < 0 && errno != ENOENT ? -errno : 0;
        (void) closedir(dir);
        /* Why something stayed says more than that something did. */
        if (r == -ENOTEMPTY && remover.error != 0)
                r = remover.error;
        return r < 0 ? error_set(err, r, "IO_ERROR", "cannot remove %s: %s", path, strerror(-r)) : 0;
}
