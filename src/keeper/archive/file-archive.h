/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

/* What packing and unpacking share: see UploadArchive and DownloadArchive of file-methods.h. */

/* Where what is unpacked is not read from the root of a sandbox, links to absolute paths outside of the folder leave
 * it, too. There the rest is unpacked without the links that leave it, and then it fails with their names. */
void file_archive_leave_out_links(void);
bool file_archive_leaves_out_links(void);

/* The permissions that nothing unpacked has, whatever the archive says. Without it: none; in a sandbox there is nobody
 * else. */
void file_archive_set_mode_mask(mode_t mask);
mode_t file_archive_mode_mask(void);

/* Adds the pair "entry" to an error that is set, if there is room: the beginning of @text, which is UTF-8. */
void file_archive_add_entry(HutchError *err, const char *text) __attribute__((nonnull(2)));
