/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: files that nobody but their owner may read. What does not: what is in them. */

#include "local/private-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

int private_file_read(const char *path, size_t max, char **ret_text, size_t *ret_len, HutchError *err) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        _cleanup_free_ char *text = NULL;
        struct stat info;
        size_t len = 0;
        ssize_t n = 1;

        if (fd < 0 || fstat(fd, &info) < 0)
                return error_set(err, -errno, "FILE_NOT_FOUND", "cannot read %s: %s", path, strerror(errno));
        if (!S_ISREG(info.st_mode))
                return error_set(err, -EINVAL, "NOT_A_REGULAR_FILE", "%s is no regular file", path);
        if ((info.st_mode & 077) != 0 || (info.st_uid != geteuid() && info.st_uid != 0))
                return error_set(err, -EPERM, "FILE_PERMISSION",
                                 "%s must be for its owner only (chmod 600), who is this user or root", path);

        text = try_new0(char, max + 2);
        if (!text)
                return -ENOMEM;
        while (n > 0 && len <= max) {
                n = read(fd, text + len, max + 1 - len);
                if (n < 0)
                        return error_set(err, -errno, "IO_ERROR", "cannot read %s: %s", path, strerror(errno));
                len += (size_t) n;
        }
        if (len > max)
                return error_set(err, -EFBIG, "FILE_TOO_LARGE", "%s has more than %zu bytes", path, max);

        *ret_text = TAKE_PTR(text);
        *ret_len = len;
        return 0;
}

/* The folder that @path is in, which the caller frees. */
static char *folder_of(const char *path) {
        const char *slash = strrchr(path, '/');

        if (!slash)
                return xstrdup(".");
        return slash == path ? xstrdup("/") : xstrndup(path, (size_t) (slash - path));
}

/* The folder is what is locked: each change puts another file in the place of the one before. */
int private_file_lock(const char *path, HutchError *err) {
        _cleanup_free_ char *folder = folder_of(path);
        _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        while (fd >= 0 && flock(fd, LOCK_EX) < 0)
                if (errno != EINTR)
                        fd = fd_close(fd);
        if (fd < 0)
                return error_set(err, -errno, "FILE_PERMISSION", "cannot lock %s: %s", folder, strerror(errno));
        return TAKE_FD(fd);
}

/* Writes the file under a temporary name, which mkostemp() makes 0600, and moves it into its place. */
static int write_and_move(const char *path, char *draft, const char *text, size_t len) {
        _cleanup_close_ int fd = mkostemp(draft, O_CLOEXEC);
        int r;

        if (fd < 0)
                return -errno;
        r = fd_write_all(fd, text, len);
        if (r == 0 && (fsync(fd) < 0 || rename(draft, path) < 0))
                r = -errno;
        if (r < 0)
                (void) unlink(draft);
        return r;
}

int private_file_write(const char *path, const char *text, size_t len, HutchError *err) {
        _cleanup_free_ char *folder = folder_of(path), *draft = NULL;
        _cleanup_close_ int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = folder_fd < 0 ? -errno : 0;

        if (r == 0 && asprintf(&draft, "%s.XXXXXX", path) < 0)
                r = -ENOMEM;
        if (r == 0)
                r = write_and_move(path, draft, text, len);
        if (r == 0 && fsync(folder_fd) < 0)
                r = -errno;
        return r < 0 ? error_set(err, r, "FILE_PERMISSION", "cannot write %s: %s", path, strerror(-r)) : 0;
}
