/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how file workers get from paths to descriptors. What does not: what is done with them. */

#include "keeper/worker/file-path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "model/reason.h"
#include "policy/path-rules.h"

#define FOLDER_MODE 0755
#define TRIES_MAX 256 /* for what the kernel refuses because something was renamed meanwhile */

static int root_fd = -1;
static const char *workspace_path = PATH_WORKSPACE;

void file_root_set(int root, const char *workspace) {
        root_fd = root;
        workspace_path = workspace;
}

const char *file_workspace(void) {
        return workspace_path;
}

int file_fail(HutchError *err, int r, const char *verb, const char *path) {
        if (r == -ECANCELED)
                return r;
        return reason_set(err, r, reason_from_errno(r), "cannot %s %s: %s", verb, path, strerror(-r));
}

/* ---- Opening ---- */

static int open_scoped(int folder, const char *path, int flags, mode_t mode, uint64_t resolve) {
        struct open_how how = {
                .flags = (unsigned) flags | O_CLOEXEC,
                .mode = mode,
                .resolve = resolve | RESOLVE_NO_MAGICLINKS,
        };
        int fd = -1;
        /* EAGAIN: something on the way was renamed, or a lease would have to be waited for. */
        for (int i = 0; i < TRIES_MAX; i++) {
                fd = (int) syscall(SYS_openat2, folder, path, &how, sizeof(how));
                if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
                        break;
        }
        if (fd >= 0)
                return fd;
        return errno == EAGAIN ? -EBUSY : -errno;
}

static int open_in_root(const char *path, int flags) {
        return open_scoped(root_fd, path, flags, 0, RESOLVE_IN_ROOT);
}

int file_open_below(int folder, const char *name, int flags, mode_t mode, unsigned options) {
        uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
        if (options & FILE_SAME_MOUNT)
                resolve |= RESOLVE_NO_XDEV;
        return open_scoped(folder, name, flags, mode, resolve);
}

/* Opens what @fd, made with O_PATH, is, if that is a regular file. Nothing is waited for, and nothing else is opened
 * than what was looked at. */
static int open_again(int fd, struct stat *ret_stat) {
        if (fstat(fd, ret_stat) < 0)
                return -errno;
        if (S_ISDIR(ret_stat->st_mode))
                return -EISDIR;
        if (S_ISLNK(ret_stat->st_mode))
                return -ELOOP;
        if (!S_ISREG(ret_stat->st_mode))
                return -ENXIO;

        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (file >= 0)
                return file;
        return errno == EAGAIN ? -EBUSY : -errno;
}

int file_open_regular_below(int folder, const char *name, struct stat *ret_stat) {
        _cleanup_close_ int fd = file_open_below(folder, name, O_PATH | O_NOFOLLOW, 0, 0);
        return fd < 0 ? fd : open_again(fd, ret_stat);
}

/* ---- Paths ---- */

static int check_path(const char *text, char **ret_path, bool *ret_directory, HutchError *err) {
        PathContext context = { .working_directory = "/", .use = PATH_USE_ABSOLUTE };
        return path_resolve(text, strlen(text), &context, ret_path, ret_directory, err);
}

int file_path_check(const char *text, char **ret_path, HutchError *err) {
        return check_path(text, ret_path, NULL, err);
}

static int open_checked(const char *text, int flags, HutchError *err) {
        _cleanup_free_ char *path = NULL;
        bool directory;
        int r = check_path(text, &path, &directory, err);
        if (r < 0)
                return r;
        int fd = open_in_root(path, flags | (directory ? O_DIRECTORY : 0));
        return fd < 0 ? file_fail(err, fd, "open", path) : fd;
}

int file_open_path(const char *path, int *ret_fd, HutchError *err) {
        int fd = open_checked(path, O_PATH, err);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        return 0;
}

int file_open_folder(const char *path, int *ret_fd, HutchError *err) {
        int fd = open_checked(path, O_RDONLY | O_DIRECTORY, err);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        return 0;
}

int file_open_regular(const char *path, int *ret_fd, struct stat *ret_stat, HutchError *err) {
        _cleanup_close_ int fd = open_checked(path, O_PATH, err);
        if (fd < 0)
                return fd;
        int file = open_again(fd, ret_stat);
        if (file < 0)
                return file_fail(err, file, "read", path);
        *ret_fd = file;
        return 0;
}

/* Opens the folder @path, the first @len bytes of it, with O_PATH. */
static int open_prefix(const char *path, size_t len) {
        char prefix[PATH_MAX];
        if (len >= sizeof(prefix))
                return -ENAMETOOLONG;
        memcpy(prefix, path, len);
        prefix[len] = '\0';
        return open_in_root(len > 0 ? prefix : "/", O_PATH | O_DIRECTORY);
}

/* Opens the folder @path, the first @len bytes of it, after all folders on the way were made that are missing. Each is
 * looked for from the root: what a link says is read from there. */
static int make_prefix(const char *path, size_t len) {
        int fd = open_prefix(path, len);
        if (fd != -ENOENT)
                return fd;

        _cleanup_close_ int above = open_prefix(path, 0);
        for (size_t begin = 1, end; above >= 0; begin = end + 1) {
                char name[NAME_MAX + 1];
                end = begin + strcspn(path + begin, "/");
                if (end > len)
                        end = len;
                if (end - begin > NAME_MAX)
                        return -ENAMETOOLONG;
                memcpy(name, path + begin, end - begin);
                name[end - begin] = '\0';

                fd = open_prefix(path, end);
                if (fd == -ENOENT) {
                        if (mkdirat(above, name, FOLDER_MODE) < 0 && errno != EEXIST)
                                return -errno;
                        fd = open_prefix(path, end);
                }
                if (fd < 0 || end == len)
                        return fd;
                fd_close(above);
                above = fd;
        }
        return above;
}

int file_make_folders(const char *path, int *ret_fd, HutchError *err) {
        _cleanup_free_ char *checked = NULL;
        int r = check_path(path, &checked, NULL, err);
        if (r < 0)
                return r;
        size_t len = strlen(checked);
        _cleanup_close_ int fd = make_prefix(checked, len > 1 ? len : 0);
        if (fd < 0)
                return file_fail(err, fd, "make the folder", checked);
        return file_open_folder(checked, ret_fd, err);
}

int file_place_open(const char *path, bool make_parents, FilePlace *ret_place, HutchError *err) {
        _cleanup_(file_place_clear) FilePlace place = { .folder = -1 };
        int r = check_path(path, &place.path, &place.must_be_folder, err);
        if (r < 0)
                return r;

        const char *slash = strrchr(place.path, '/');
        size_t len = (size_t) (slash - place.path);
        place.name = slash[1] ? slash + 1 : ".";
        place.folder = make_parents ? make_prefix(place.path, len) : open_prefix(place.path, len);
        if (place.folder < 0)
                return file_fail(err, place.folder, "open the folder of", place.path);
        *ret_place = place;
        place.path = NULL;
        return 0;
}

void file_place_clear(FilePlace *place) {
        if (!place->path)
                return;
        fd_close(place->folder);
        free(place->path);
        *place = (FilePlace){ .folder = -1 };
}

int file_place_stat(const FilePlace *place, struct stat *ret_stat) {
        if (fstatat(place->folder, place->name, ret_stat, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        return place->must_be_folder && !S_ISDIR(ret_stat->st_mode) ? -ENOTDIR : 0;
}

int file_place_check_protected(const FilePlace *place, HutchError *err) {
        struct stat st, protected;
        if (file_place_stat(place, &st) < 0 || !S_ISDIR(st.st_mode))
                return 0;

        for (size_t len = strlen(workspace_path);;) {
                _cleanup_close_ int fd = open_prefix(workspace_path, len);
                if (fd >= 0 && fstat(fd, &protected) == 0 && protected.st_dev == st.st_dev &&
                    protected.st_ino == st.st_ino)
                        return reason_set(err, -EINVAL, REASON_PATH_PROTECTED,
                                          "%s is the root, the workspace or a folder above it", place->path);
                if (len == 0)
                        return 0;
                while (len > 0 && workspace_path[--len] != '/')
                        ;
        }
}
