/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: copying trees of the host into a sandbox's root. What does not: opening their sources (mounts.c). */

#include "keeper/root/copies.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "keeper/root/mounts.h"

#define COPY_SIZE (1024 * 1024) /* at once */
#define DEPTH_MAX 128           /* each level has its descriptors */
#define LINKS_MAX 65536         /* files with further names; those beyond are copied for each name */
#define MODES 01777             /* what is kept of them */

/* A file that was copied and has other names. */
typedef struct Link {
        dev_t device;
        ino_t inode;
        char *path; /* below the target */
} Link;

/* What all copies of a sandbox take on disk. */
typedef struct Spent {
        uint64_t bytes, inodes;
} Spent;

typedef struct Copying {
        Rootfs *rootfs;
        const KeptSource *source;
        Spent *spent;
        bool gives;          /* files can be given to others than the process's own user */
        int from;            /* the source's root */
        int to;              /* the target's */
        char path[PATH_MAX]; /* of what it is at, below both */
        size_t path_len;
        unsigned depth;
        Link *links;
        size_t n_links;
} Copying;

static int fail_with(const Copying *copying, int r, const char *reason, const char *what) {
        Rootfs *rootfs = copying->rootfs;
        rootfs->reason = reason;
        (void) snprintf(rootfs->what, sizeof(rootfs->what), "cannot copy to %.80s: '%.120s' %s",
                        copying->source->target, copying->path_len > 0 ? copying->path : ".", what);
        return r;
}

static int fail(const Copying *copying, int r) {
        const char *reason = r == -ENOSPC || r == -EDQUOT ? "DISK_FULL"
                             : r == -EACCES               ? "FILE_PERMISSION"
                             : r == -ELOOP                ? "SYMLINK_LOOP"
                                                          : "IO_ERROR";
        char what[128];
        (void) snprintf(what, sizeof(what), "cannot be copied: %s", strerror(-r));
        return copying->rootfs->reason ? r : fail_with(copying, r, reason, what);
}

/* Keeps copies within the sandbox's limits of its disk: until they are made nobody measures it. */
static int spend(const Copying *copying, uint64_t bytes, uint64_t inodes) {
        const KeeperConfig *config = copying->rootfs->config;
        Spent *spent = copying->spent;
        spent->bytes += bytes;
        spent->inodes += inodes;
        if ((config->disk_bytes == 0 || spent->bytes <= config->disk_bytes) &&
            (config->disk_inodes == 0 || spent->inodes <= config->disk_inodes))
                return 0;
        return fail_with(copying, -EDQUOT, "DISK_FULL", "and what was copied before is more than it may have on disk");
}

/* Makes it the agent's, with the modes and times of @st. */
static int dress(const Copying *copying, int folder, const char *name, const struct stat *st) {
        const struct timespec times[] = { st->st_atim, st->st_mtim };
        if (copying->gives && fchownat(folder, name, AGENT_UID, AGENT_UID, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISLNK(st->st_mode) && fchmodat(folder, name, st->st_mode & MODES, 0) < 0)
                return -errno;
        return utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* Takes what is in the way of a file or a symlink. */
static int clear_way(int folder, const char *name) {
        return unlinkat(folder, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* ---- Files ---- */

/* Copies what there was of the file when it was opened, and leaves holes out. */
static int copy_bytes(const Copying *copying, int from, int to, off_t size) {
        for (off_t at = 0; at < size;) {
                off_t end = size, data = lseek(from, at, SEEK_DATA);
                if (data < 0 && errno == ENXIO)
                        break;
                if (data >= 0) {
                        at = data;
                        end = lseek(from, at, SEEK_HOLE);
                        end = end < 0 || end > size ? size : end;
                }
                if (lseek(to, at, SEEK_SET) < 0)
                        return -errno;
                while (at < end) {
                        size_t n = end - at > COPY_SIZE ? COPY_SIZE : (size_t) (end - at);
                        ssize_t sent = sendfile(to, from, &at, n);
                        if (sent < 0 && errno != EINTR)
                                return -errno;
                        int r = sent > 0 ? spend(copying, (uint64_t) sent, 0) : 0;
                        if (r < 0)
                                return r;
                        if (sent == 0)
                                return ftruncate(to, at) < 0 ? -errno : 0; /* it has shrunk */
                }
        }
        return ftruncate(to, size) < 0 ? -errno : 0;
}

/* Gives the file that was copied before another name: 1; 0: it was not. */
static int link_again(const Copying *copying, const struct stat *st, int to, const char *name) {
        for (size_t i = 0; i < copying->n_links; i++) {
                const Link *link = &copying->links[i];
                if (link->device == st->st_dev && link->inode == st->st_ino)
                        return linkat(copying->to, link->path, to, name, 0) < 0 ? -errno : 1;
        }
        return 0;
}

static void remember_link(Copying *copying, const struct stat *st) {
        if (st->st_nlink < 2 || copying->path_len == 0 || copying->n_links == LINKS_MAX)
                return;
        copying->links = xreallocarray(copying->links, copying->n_links + 1, sizeof(Link));
        copying->links[copying->n_links++] = (Link){ st->st_dev, st->st_ino, xstrdup(copying->path) };
}

static int copy_open_file(Copying *copying, int from, int to, const char *name) {
        struct stat st;
        if (fstat(from, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return 0; /* it was swapped */
        int r = clear_way(to, name);
        if (r >= 0 && st.st_nlink > 1)
                r = link_again(copying, &st, to, name);
        if (r != 0)
                return r < 0 ? r : 0;
        _cleanup_close_ int copy = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (copy < 0)
                return -errno;
        r = copy_bytes(copying, from, copy, st.st_size);
        if (r >= 0)
                r = dress(copying, to, name, &st);
        if (r >= 0)
                remember_link(copying, &st);
        return r;
}

static int copy_file(Copying *copying, int from, const char *from_name, int to, const char *name) {
        _cleanup_close_ int fd = openat(from, from_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT || errno == ELOOP ? 0 : -errno; /* it is gone, or was swapped */
        return copy_open_file(copying, fd, to, name);
}

/* ---- Symlinks ---- */

/* Whether @target leads above the tree, as it is written, from a folder that is so deep. */
static bool climbs_out(const char *target, unsigned depth) {
        if (*target == '/')
                return true;
        while (*target) {
                size_t len = strcspn(target, "/");
                if (len == 2 && target[0] == '.' && target[1] == '.') {
                        if (depth-- == 0)
                                return true;
                } else if (len > 0 && !(len == 1 && target[0] == '.'))
                        depth++;
                target += len + (target[len] == '/');
        }
        return false;
}

/* The kernel knows where symlinks on the way lead. Where nothing is at the end of it, what is written counts. */
static bool leaves(const Copying *copying, const char *target) {
        struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
        if (climbs_out(target, copying->depth))
                return true;
        _cleanup_close_ int fd = (int) syscall(SYS_openat2, copying->from, copying->path, &how, sizeof(how));
        return fd < 0 && errno == EXDEV;
}

static int copy_symlink(const Copying *copying, int from, int to, const char *name, const struct stat *st) {
        char target[PATH_MAX];
        ssize_t len = readlinkat(from, name, target, sizeof(target) - 1);
        if (len < 0)
                return errno == EINVAL || errno == ENOENT ? 0 : -errno; /* it was swapped, or is gone */
        target[len] = '\0';
        if (leaves(copying, target))
                return fail_with(copying, -EXDEV, "SYMLINK_LEAVES_TREE",
                                 "is a symlink that leads out of the tree: exclude it, or remove it");
        int r = clear_way(to, name);
        if (r < 0)
                return r;
        if (symlinkat(target, to, name) < 0)
                return -errno;
        return dress(copying, to, name, st);
}

/* ---- Folders ---- */

static int copy_folder(Copying *copying, int from, int to);

static int copy_into_folder(Copying *copying, int from, int to, const char *name, const struct stat *st) {
        _cleanup_close_ int from_folder = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (from_folder < 0)
                return errno == ENOENT || errno == ELOOP || errno == ENOTDIR ? 0 : -errno;
        bool is_new = mkdirat(to, name, 0700) == 0;
        if (!is_new && errno != EEXIST)
                return -errno;
        _cleanup_close_ int to_folder = -1;
        int r = open_below(to, name, &to_folder);
        if (r >= 0)
                r = copying->depth + 1 > DEPTH_MAX ? -ENAMETOOLONG : 0;
        if (r < 0)
                return r;
        copying->depth++;
        r = copy_folder(copying, from_folder, to_folder);
        copying->depth--;
        return r >= 0 && is_new ? dress(copying, to, name, st) : r;
}

static int copy_entry(Copying *copying, int from, int to, const char *name) {
        struct stat st;
        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (copying->source->exclude && pattern_list_match(copying->source->exclude, copying->path, copying->path_len,
                                                           S_ISDIR(st.st_mode)) == PATTERN_MATCHED)
                return 0;
        int r = spend(copying, 0, 1);
        if (r < 0)
                return r;
        switch (st.st_mode & S_IFMT) {
        case S_IFDIR:
                return copy_into_folder(copying, from, to, name, &st);
        case S_IFREG:
                return copy_file(copying, from, name, to, name);
        case S_IFLNK:
                return copy_symlink(copying, from, to, name, &st);
        default:
                log_info("not copied: neither file, folder nor symlink", LOG_STR("target", copying->source->target),
                         LOG_STR("path", copying->path));
                return 0;
        }
}

static void close_folder(DIR **folder) {
        if (*folder)
                (void) closedir(*folder);
}

/* Copies what is in @from, which the caller closes. */
static int copy_folder(Copying *copying, int from, int to) {
        size_t len = copying->path_len;
        int own = fcntl(from, F_DUPFD_CLOEXEC, 0);
        _cleanup_(close_folder) DIR *folder = own < 0 ? NULL : fdopendir(own);
        if (!folder)
                return -errno;
        const struct dirent *entry;
        while ((errno = 0, entry = readdir(folder))) { /* NOLINT(concurrency-mt-unsafe) */
                if (str_equal(entry->d_name, ".") || str_equal(entry->d_name, ".."))
                        continue;
                int n = snprintf(copying->path + len, sizeof(copying->path) - len, "%s%s", len > 0 ? "/" : "",
                                 entry->d_name);
                if (n < 0 || (size_t) n >= sizeof(copying->path) - len)
                        return -ENAMETOOLONG;
                copying->path_len = len + (size_t) n;
                int r = copy_entry(copying, from, to, entry->d_name);
                if (r < 0)
                        return fail(copying, r);
                copying->path_len = len;
                copying->path[len] = '\0';
        }
        return -errno;
}

/* ---- All of it ---- */

static int copy_file_source(Copying *copying, int root) {
        const char *target = copying->source->target + 1, *name = strrchr(target, '/');
        _cleanup_free_ char *above = name ? xstrndup(target, (size_t) (name - target)) : NULL;
        _cleanup_close_ int folder = -1;
        int r = above ? mounts_open_place(root, above, true, &folder) : 0;
        if (r < 0)
                return r;
        /* The one that the descriptor is. */
        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", copying->from);
        _cleanup_close_ int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        return file < 0 ? -errno : copy_open_file(copying, file, above ? folder : root, name ? name + 1 : target);
}

static int copy_folder_source(Copying *copying, int root, const struct stat *st) {
        const char *target = copying->source->target + 1;
        _cleanup_close_ int from = openat(copying->from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), to = -1;
        if (from < 0)
                return -errno;
        int r = open_below(root, target, &to);
        bool is_new = r == -ENOENT;
        if (is_new)
                r = mounts_open_place(root, target, true, &to);
        if (r < 0)
                return r;
        copying->to = to;
        r = copy_folder(copying, from, to);
        return r >= 0 && is_new ? dress(copying, root, target, st) : r;
}

static int copy_source(Rootfs *rootfs, const KeptSource *source, Spent *spent, int tree, int root) {
        Copying copying = {
                .rootfs = rootfs,
                .source = source,
                .spent = spent,
                .gives = rootfs->config->uid_count > 1,
                .from = tree,
                .to = -1,
        };
        struct stat st;
        int r = fstat(tree, &st) < 0  ? -errno
                : S_ISDIR(st.st_mode) ? copy_folder_source(&copying, root, &st)
                                      : copy_file_source(&copying, root);
        for (size_t i = 0; i < copying.n_links; i++)
                free(copying.links[i].path);
        free(copying.links);
        return r < 0 ? fail(&copying, r) : 0;
}

int copies_make(Rootfs *rootfs, int root) {
        const KeeperConfig *config = rootfs->config;
        Spent spent = {};
        bool any = false;
        for (size_t i = 0; i < config->n_sources; i++) {
                if (!config->sources[i].is_copied)
                        continue;
                any = true;
                int r = copy_source(rootfs, &config->sources[i], &spent, rootfs->trees[i], root);
                if (r < 0)
                        return r;
        }
        if (!any)
                return 0;
        _cleanup_close_ int mark =
                openat(rootfs->folder, COPIES_MARK, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        return mark < 0 ? -errno : 0;
}
