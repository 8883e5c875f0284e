/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "keeper/host-files.h"
#include "keeper/rootfs.h"

/* What a Rootfs is, for the files that make it up. */

struct Rootfs {
        const KeeperConfig *config;
        HostFile *host_files;
        char *image_path;
        int image;  /* in PID 1: the image's folder, as the sandbox is to see it */
        int folder; /* in PID 1: state_folder/fs */
};
