/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: telling about files. What does not: finding them. */

#include "keeper/worker/file-info.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "keeper/worker/sha256.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The first and the last second that a Timestamp can say: of the years 1 and 9999. */
#define SECOND_FIRST INT64_C(-62135596800)
#define SECOND_LAST INT64_C(253402300799)

void file_version(const struct stat *stat, char ret_version[static FILE_VERSION_SIZE]) {
        const uint64_t facts[] = {
                stat->st_dev,
                stat->st_ino,
                (uint64_t) stat->st_size,
                (uint64_t) stat->st_mtim.tv_sec,
                (uint64_t) stat->st_mtim.tv_nsec,
                (uint64_t) stat->st_ctim.tv_sec,
                (uint64_t) stat->st_ctim.tv_nsec,
        };
        uint8_t digest[SHA256_SIZE];
        Sha256 hash;
        sha256_init(&hash);
        sha256_add(&hash, facts, sizeof(facts));
        sha256_finish(&hash, digest);
        for (size_t i = 0; i < FILE_VERSION_SIZE / 2; i++)
                (void) snprintf(ret_version + 2 * i, 3, "%02x", digest[i]);
}

Hutch__V1__FileType file_type(mode_t mode) {
        switch (mode & S_IFMT) {
        case S_IFREG:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_REGULAR;
        case S_IFDIR:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_DIRECTORY;
        case S_IFLNK:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_SYMLINK;
        case S_IFIFO:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_FIFO;
        case S_IFSOCK:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_SOCKET;
        case S_IFCHR:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_CHARACTER_DEVICE;
        case S_IFBLK:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_BLOCK_DEVICE;
        default:
                return HUTCH__V1__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
        }
}

char *file_text(const char *bytes, size_t len) {
        char *text = malloc(len * strlen(REPLACEMENT) + 1), *end = text;
        if (!text)
                return NULL;
        for (size_t at = 0; at < len;) {
                uint32_t ignored;
                size_t n = utf8_next(bytes + at, len - at, &ignored);
                if (n > 0)
                        end = mempcpy(end, bytes + at, n);
                else
                        end = mempcpy(end, REPLACEMENT, strlen(REPLACEMENT));
                at += n > 0 ? n : 1;
        }
        *end = '\0';
        return text;
}

/* Sets the texts, whatever bytes they are. */
static int set_texts(FileInfo *info, const char *path, const char *link) {
        const char *name = strrchr(path, '/') + 1;
        size_t name_len = strlen(name);
        info->path = file_text(path, strlen(path));
        info->name = file_text(name, name_len);
        if (!info->path || !info->name)
                return -ENOMEM;
        info->message.path = info->path;
        info->message.name = info->name;
        if (!utf8_valid(name, name_len)) {
                info->name_bytes = strdup(name);
                if (!info->name_bytes)
                        return -ENOMEM;
                info->message.name_bytes =
                        (ProtobufCBinaryData){ .data = (uint8_t *) info->name_bytes, .len = name_len };
        }
        if (link) {
                info->symlink_target = file_text(link, strlen(link));
                if (!info->symlink_target)
                        return -ENOMEM;
                info->message.symlink_target = info->symlink_target;
        }
        return 0;
}

/* The time as told, or the nearest that can be: files may have any. */
static void set_time(Google__Protobuf__Timestamp *timestamp, struct timespec time) {
        if (time.tv_sec < SECOND_FIRST)
                time = (struct timespec){ .tv_sec = SECOND_FIRST };
        if (time.tv_sec > SECOND_LAST)
                time = (struct timespec){ .tv_sec = SECOND_LAST, .tv_nsec = NSEC_PER_SEC - 1 };
        timestamp->seconds = time.tv_sec;
        timestamp->nanos = (int32_t) time.tv_nsec;
}

int file_info_init(FileInfo *info, const char *path, const struct stat *stat, const char *link) {
        *info = (FileInfo){ .message = HUTCH__V1__FILE_INFO__INIT, .modify_time = GOOGLE__PROTOBUF__TIMESTAMP__INIT };
        int r = set_texts(info, path, link);
        if (r < 0) {
                file_info_clear(info);
                return r;
        }
        file_version(stat, info->version);
        set_time(&info->modify_time, stat->st_mtim);
        info->message.type = file_type(stat->st_mode);
        info->message.size_bytes = S_ISREG(stat->st_mode) || S_ISLNK(stat->st_mode) ? (uint64_t) stat->st_size : 0;
        info->message.mode = stat->st_mode & 07777;
        info->message.uid = stat->st_uid;
        info->message.gid = stat->st_gid;
        info->message.modify_time = &info->modify_time;
        info->message.version = info->version;
        info->message.links = stat->st_nlink;
        info->message.disk_bytes = (uint64_t) stat->st_blocks * 512;
        return 0;
}

void file_info_clear(FileInfo *info) {
        free(info->path);
        free(info->name);
        free(info->name_bytes);
        free(info->symlink_target);
        *info = (FileInfo){};
}

int file_info_init_at(FileInfo *info, const char *path, int folder, const char *name, struct stat *ret_stat) {
        struct stat st;
        char target[PATH_MAX];
        ssize_t len = 0;
        if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (S_ISLNK(st.st_mode)) {
                /* It may be something else by now: what is told is about one thing. */
                _cleanup_close_ int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &st) < 0)
                        return -errno;
                len = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, sizeof(target) - 1) : 0;
                if (len < 0)
                        return -errno;
        }
        target[len] = '\0';
        if (ret_stat)
                *ret_stat = st;
        return file_info_init(info, path, &st, len > 0 ? target : NULL);
}
