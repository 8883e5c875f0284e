/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* What packing and unpacking share: see UploadArchive and DownloadArchive of file-methods.h. */

/* Adds the pair "entry" to an error that is set, if there is room: the beginning of @text, which is UTF-8. */
void file_archive_add_entry(HutchError *err, const char *text) __attribute__((nonnull(2)));
