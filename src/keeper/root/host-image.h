/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "keeper/root/host-files.h"

/* The image "host", as far as it is not the host's own: folders, a few files of /etc, copies, links, and places for
 * what is mounted. It is made once, in @images, and then used by all sandboxes: nothing ever changes it. A keeper of
 * another version, or a host on which @host_files have changed, has another one; the old one stays, for there may be
 * sandboxes on it: some forty small files. */

/* Finds it, or makes it, never half; several may do so at once. */
int host_image_find(const char *images, const HostFile *host_files, char **ret_path, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Makes one at @path for a single sandbox, in the place of what is there, all of which belongs to @owner. */
int host_image_make_own(const char *path, const HostFile *host_files, uid_t owner) __attribute__((nonnull));
