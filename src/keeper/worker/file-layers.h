/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a sandbox's root is made of, for the one method of file workers that looks behind it (file-diff.c). Only
 * workers for that method have these descriptors: by them what is outside of the sandbox's root can be had, as far as
 * Landlock and users let it. */

typedef struct FileLayers {
        int kept;  /* the sandbox's own files: upper, home, workspace (rootfs.h); with O_PATH */
        int image; /* what lies under upper; with O_PATH */
        int upper; /* in the place of the upper of @kept, where that is in memory; or -1 */
} FileLayers;

/* They stay the caller's and stay open. Until then there are none, and the method is refused. */
void file_layers_set(FileLayers layers);
