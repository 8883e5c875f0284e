/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: making the image "host": folders, files and links. What does not: what is mounted on them
 * (rootfs-enter.c). */

#include "keeper/root/host-image.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/root/remove.h"

#define COPY_SIZE (1024 * 1024) /* at once */

static const struct {
        const char *path;
        mode_t mode;
} folders[] = {
        { "dev", 0755 },  { "etc", 0755 },  { "home", 0755 },     { "home/agent", 0700 },
        { "proc", 0555 }, { "root", 0700 }, { "run", 0755 },      { "sys", 0555 },
        { "tmp", 01777 }, { "var", 0755 },  { "var/tmp", 01777 }, { "workspace", 0755 },
};

static const struct {
        const char *path, *text;
} files[] = {
        { "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                        "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
                        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
        { "etc/group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n" },
        { "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n" },
        { "etc/resolv.conf", "" },
        { "etc/profile", "PS1='\\u@\\h:\\w\\$ '\n" },
};

static const struct {
        const char *path, *target;
} links[] = {
        { "etc/mtab", "../proc/self/mounts" },
        { "var/run", "../run" },
};

/* One that is being made. */
typedef struct Image {
        int root;
        bool is_shared; /* by all sandboxes, for good. Its files are synced: nobody would see that they are empty */
        uid_t owner;    /* of one that is not */
} Image;

/* Makes what was made at @path the owner's. */
static int give(const Image *image, const char *path) {
        if (image->is_shared)
                return 0;
        return fchownat(image->root, path, image->owner, image->owner, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int finish_file(const Image *image, const char *path, int fd) {
        return image->is_shared && fsync(fd) < 0 ? -errno : give(image, path);
}

static int make_folder(const Image *image, const char *path, mode_t mode) {
        return mkdirat(image->root, path, mode) < 0 ? -errno : give(image, path);
}

static int make_file(const Image *image, const char *path, const char *text) {
        _cleanup_close_ int fd = openat(image->root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
        return r < 0 ? r : finish_file(image, path, fd);
}

static int make_link(const Image *image, const char *path, const char *target) {
        return symlinkat(target, image->root, path) < 0 ? -errno : give(image, path);
}

/* Makes the folders that lead to @path. */
static int make_parents(const Image *image, const char *path) {
        char part[PATH_MAX];
        for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/')) {
                (void) snprintf(part, sizeof(part), "%.*s", (int) (end - path), path);
                int r = make_folder(image, part, 0755);
                if (r < 0 && r != -EEXIST)
                        return r;
        }
        return 0;
}

static int copy_file(const Image *image, const char *path) {
        char host_path[PATH_MAX];
        (void) snprintf(host_path, sizeof(host_path), "/%s", path);
        _cleanup_close_ int from = open(host_path, O_RDONLY | O_CLOEXEC);
        if (from < 0)
                return -errno;
        _cleanup_close_ int to = openat(image->root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (to < 0)
                return -errno;
        ssize_t n;
        while ((n = sendfile(to, from, NULL, COPY_SIZE)) > 0)
                ;
        return n < 0 ? -errno : finish_file(image, path, to);
}

/* Makes what stands for a file or folder of the host, or is the same. */
static int make_host_file(const Image *image, const HostFile *file) {
        int r = make_parents(image, file->path);
        if (r < 0)
                return r;
        switch (file->kind) {
        case HOST_FILE_LINKED:
                return make_link(image, file->path, file->link_target);
        case HOST_FILE_COPIED:
                return copy_file(image, file->path);
        case HOST_FILE_FOLDER:
        default:
                return make_folder(image, file->path, 0755);
        }
}

static int fill(const Image *image, const HostFile *host_files) {
        int r = 0;
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && r >= 0; i++)
                r = make_folder(image, folders[i].path, folders[i].mode);
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && r >= 0; i++)
                r = make_file(image, files[i].path, files[i].text);
        for (size_t i = 0; i < sizeof(links) / sizeof(links[0]) && r >= 0; i++)
                r = make_link(image, links[i].path, links[i].target);
        for (const HostFile *file = host_files; file->path && r >= 0; file++)
                r = make_host_file(image, file);
        return r;
}

/* Makes one at @path, in the place of what is there. */
static int make_at(const char *path, const HostFile *host_files, Image image) {
        int r = folder_remove(path, NULL);
        if (r < 0)
                return r;
        if (mkdir(path, 0755) < 0)
                return -errno;
        _cleanup_close_ int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        image.root = root;
        r = give(&image, ".");
        return r < 0 ? r : fill(&image, host_files);
}

/* Makes the image at @unfinished, which is then moved to @path. */
static int make_image(const char *unfinished, const HostFile *host_files, const char *path) {
        int r = make_at(unfinished, host_files, (Image){ .is_shared = true });
        if (r >= 0 && rename(unfinished, path) < 0)
                r = -errno;
        if (r >= 0)
                return 0;
        (void) folder_remove(unfinished, NULL);
        /* Another keeper was faster. */
        return r == -ENOTEMPTY || r == -EEXIST ? 0 : r;
}

int host_image_make_own(const char *path, const HostFile *host_files, uid_t owner) {
        mode_t mask = umask(0);
        int r = make_at(path, host_files, (Image){ .owner = owner });
        (void) umask(mask);
        return r;
}

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len) {
        for (const uint8_t *at = bytes; len > 0; at++, len--)
                hash = (hash ^ *at) * UINT64_C(0x100000001b3);
        return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
        return hash_bytes(hash, text, strlen(text) + 1);
}

/* What tells images apart. */
static uint64_t hash_image(const HostFile *host_files) {
        uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), HUTCH_VERSION);
        for (const HostFile *file = host_files; file->path; file++) {
                hash = hash_text(hash, file->path);
                hash = hash_bytes(hash, &file->kind, sizeof(file->kind));
                hash = hash_text(hash, file->link_target ? file->link_target : "");
                hash = hash_bytes(hash, &file->changed, sizeof(file->changed));
        }
        return hash;
}

int host_image_find(const char *images, const HostFile *host_files, char **ret_path, HutchError *err) {
        _cleanup_free_ char *path = NULL, *unfinished = NULL;
        if (asprintf(&path, "%s/host-%016" PRIx64, images, hash_image(host_files)) < 0 ||
            asprintf(&unfinished, "%s/new-%d", images, (int) getpid()) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory");

        int r = 0;
        if (access(path, F_OK) < 0) {
                mode_t mask = umask(0);
                r = mkdir(images, 0700) < 0 && errno != EEXIST ? -errno : make_image(unfinished, host_files, path);
                (void) umask(mask);
        }
        if (r < 0)
                return error_set(err, r, r == -ENOSPC || r == -EDQUOT ? "DISK_FULL" : "IO_ERROR",
                                 "cannot make the image of this host: %s", strerror(-r));
        *ret_path = TAKE_PTR(path);
        return 0;
}
