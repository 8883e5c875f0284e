/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <stdbool.h>

#include "base/memory.h"
#include "cli/place.h"
#include "cli/progress.h"

/* What the two halves of `hutch cp` share: copy.c has files, copy-folder.c has folders. */

DEFINE_CLEANUP(HutchFile *, hutch_file_free);
DEFINE_CLEANUP(HutchDownload *, hutch_download_free);
DEFINE_CLEANUP(HutchUpload *, hutch_upload_free);

typedef struct Copy {
        HutchClient *client;
        bool quiet;
        bool parents;    /* make those that are missing */
        bool no_clobber; /* what is there stays */
        bool resume;
} Copy;

/* Sends what @fd has, to its end. */
int copy_send(HutchUpload *upload, int fd, Progress *progress, HutchError **ret_error) __attribute__((nonnull));

/* Copies the folder @folder, called @name, or NULL, into a sandbox: into @target when that is a folder, else as it.
 * -ECHILD, without an error: what went wrong was said. */
int copy_folder_in(const Copy *copy, const char *folder, const char *name, const Place *target, HutchError **ret_error)
        __attribute__((nonnull(1, 2, 4, 5)));

/* The same out of one; @target may be in another. */
int copy_folder_out(const Copy *copy, const Place *source, const char *name, const Place *target,
                    HutchError **ret_error) __attribute__((nonnull(1, 2, 4, 5)));
