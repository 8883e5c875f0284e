/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "keeper/root/host-files.h"
#include "keeper/root/rootfs.h"

/* What a Rootfs is, for the files that make it up. */

struct Rootfs {
        const KeeperConfig *config;
        HostFile *host_files;
        char *image_path;
        int image;                 /* in PID 1: the image's folder, as the sandbox is to see it */
        int image_clone;           /* in PID 1: the same, read-only and mounted nowhere */
        int folder;                /* in PID 1: state_folder/fs */
        int upper;                 /* in PID 1: where changes to the root are, if that is in memory; or -1 */
        bool shares_sys;           /* its /sys is SHARED_SYS_FD */
        int *trees;                /* what is mounted of the host (mounts.h) */
        char what[INIT_WHAT_SIZE]; /* in PID 1: what it is at, where that is not always the same */
        const char *reason;        /* in PID 1: NULL, or @what is a sentence, and this is its reason */
};

#define EMPTY_PATHS (MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
#define MEMORY_EMPTY "empty" /* in the file system in memory: a folder with nothing in it */

/* Opens what @path names below @folder, without following links anywhere on the way. */
int open_below(int folder, const char *path, int *ret_fd) __attribute__((nonnull));

/* Attaches what is at @path, which may be relative to @folder, to @place as well, with what is mounted below it. */
int mount_again(int folder, const char *path, uint64_t attributes, int place) __attribute__((nonnull));

typedef struct FileSystemOption {
        const char *name, *value; /* the last one has no name; a flag has no value */
} FileSystemOption;

/* Makes a new file system, which is mounted nowhere. @options may be NULL. */
int file_system_make(const char *type, const FileSystemOption *options, unsigned attributes, int *ret_tree)
        __attribute__((nonnull(1, 4)));

/* Mounts the folders of the host in @root. @memory is the file system in memory, mounted where nobody looks. */
int host_files_mount(Rootfs *rootfs, int memory, int root) __attribute__((nonnull));
