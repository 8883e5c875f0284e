/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "keeper/host-files.h"
#include "keeper/rootfs.h"

/* What a Rootfs is, for the files that make it up. */

struct Rootfs {
        const KeeperConfig *config;
        HostFile *host_files;
        char *image_path;
        int image;                 /* in PID 1: the image's folder, as the sandbox is to see it */
        int image_clone;           /* in PID 1: the same, read-only and mounted nowhere */
        int folder;                /* in PID 1: state_folder/fs */
        bool shares_sys;           /* its /sys is SHARED_SYS_FD */
        int *trees;                /* what is mounted of the host (mounts.h) */
        char what[INIT_WHAT_SIZE]; /* in PID 1: what it is at, where that is not always the same */
        const char *reason;        /* in PID 1: NULL, or @what is a sentence, and this is its reason */
};

/* Opens what @path names below @folder, without following links anywhere on the way. */
int open_below(int folder, const char *path, int *ret_fd) __attribute__((nonnull));
