/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"

/* Paths inside a sandbox, for file workers. They are absolute and in the form of the path rules; a '/' at the end says
 * that a folder is meant. Every path is resolved from the root by openat2(), which goes through links and never leaves
 * the root nor uses the magic links of /proc, whatever is swapped meanwhile. What comes of a last component is done in
 * its folder, which is held by a descriptor, and never through a link:
 *
 *         _cleanup_(file_place_clear) FilePlace place = {};
 *         r = file_place_open(path, false, &place, err);
 *         if (r >= 0 && unlinkat(place.folder, place.name, 0) < 0)
 *                 r = file_fail(err, -errno, "remove", place.path);
 *
 * Nothing is opened in a way that waits or has an effect on somebody else: FIFOs, devices and sockets are refused
 * before. Descriptors are close-on-exec. */

/* Has paths begin at @root, a folder, which stays the caller's and stays open; and protects @workspace. Until then they
 * begin at no place. */
void file_root_set(int root, const char *workspace) __attribute__((nonnull));

/* Sets @err to the reason of the negative errno @r and a sentence: "cannot @verb @path: …". Returns @r, also for
 * -ECANCELED, which sets nothing. */
int file_fail(HutchError *err, int r, const char *verb, const char *path) __attribute__((nonnull(3, 4)));

/* The workspace's path. */
const char *file_workspace(void) __attribute__((returns_nonnull));

/* The path that @text stands for, without '/' at its end, for the caller to free. It was checked before; by whom need
 * not be relied on. */
int file_path_check(const char *text, char **ret_path, HutchError *err) __attribute__((nonnull(1, 2)));

/* A path's last component, in its folder. */
typedef struct FilePlace {
        int folder;          /* with O_PATH */
        char *path;          /* as it was given, but without '/' at its end */
        const char *name;    /* the end of @path; "." for the root */
        bool must_be_folder; /* there was a '/' at its end */
} FilePlace;

/* Opens the folder that @path lies in, which a cleared @ret_place then has. Missing ones are made, with mode 0755, when
 * @make_parents. */
int file_place_open(const char *path, bool make_parents, FilePlace *ret_place, HutchError *err)
        __attribute__((nonnull(1, 3)));
void file_place_clear(FilePlace *place) __attribute__((nonnull));

/* Tells about what stands there, not through a link. -ENOTDIR: it is no folder, and must be. */
int file_place_stat(const FilePlace *place, struct stat *ret_stat) __attribute__((nonnull));

/* PATH_PROTECTED when it is the root, the workspace, or a folder above that, under whatever name. */
int file_place_check_protected(const FilePlace *place, HutchError *err) __attribute__((nonnull(1)));

/* Opens @path, through links: as what it is, with O_PATH; as a folder to be read; or as a regular file to be read,
 * which says NOT_A_REGULAR_FILE or IS_A_DIRECTORY else. */
int file_open_path(const char *path, int *ret_fd, HutchError *err) __attribute__((nonnull(1, 2)));
int file_open_folder(const char *path, int *ret_fd, HutchError *err) __attribute__((nonnull(1, 2)));
int file_open_regular(const char *path, int *ret_fd, struct stat *ret_stat, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Makes the folder @path and those above it that are missing, with mode 0755, and opens it as file_open_folder(). */
int file_make_folders(const char *path, int *ret_fd, HutchError *err) __attribute__((nonnull(1, 2)));

/* Opens @name, one or more components, below @folder: through no link at all, and by nothing that climbs. With
 * FILE_SAME_MOUNT not into another mount either: -EXDEV. @flags and @mode are those of open().
 * Returns the descriptor. */
#define FILE_SAME_MOUNT (1u << 0)
int file_open_below(int folder, const char *name, int flags, mode_t mode, unsigned options) __attribute__((nonnull));

/* Opens a regular file below @folder to be read, through no link. -EISDIR, -ENXIO: it is none.
 * Returns the descriptor. */
int file_open_regular_below(int folder, const char *name, struct stat *ret_stat) __attribute__((nonnull));
