/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

#include "contract/hutch/v1/file.pb-c.h"

/* hutch.v1.FileInfo: what is told about a thing inside a sandbox. */

#define FILE_VERSION_SIZE 33

/* The version of what @stat tells about: another one after every change. */
void file_version(const struct stat *stat, char ret_version[static FILE_VERSION_SIZE]) __attribute__((nonnull));

Hutch__V1__FileType file_type(mode_t mode);

/* @len bytes as text: what is not UTF-8 becomes U+FFFD. NULL when memory is out. */
char *file_text(const char *bytes, size_t len) __attribute__((nonnull));

/* A message with all that it points to. */
typedef struct FileInfo {
        Hutch__V1__FileInfo message;
        Google__Protobuf__Timestamp modify_time;
        char version[FILE_VERSION_SIZE];
        char *path, *name, *name_bytes, *symlink_target;
} FileInfo;

/* Fills @info, which must then stay where it is. @path is absolute, its last component the thing's name; @link is where
 * it points, or NULL. -ENOMEM. */
int file_info_init(FileInfo *info, const char *path, const struct stat *stat, const char *link)
        __attribute__((nonnull(1, 2, 3)));
void file_info_clear(FileInfo *info) __attribute__((nonnull));

/* The same for what stands at @name in @folder, not through a link, and where a link points. @ret_stat may be NULL.
 * -ENOENT and others. */
int file_info_init_at(FileInfo *info, const char *path, int folder, const char *name, struct stat *ret_stat)
        __attribute__((nonnull(1, 2, 4)));
