/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct HutchError HutchError;

/* Path rules: what a path inside a sandbox may look like, and which absolute path it stands for.
 *
 * A path is absolute, or stands below the working directory. The result begins with one '/', has no empty and no "."
 * components and no trailing slash; everything else is kept byte by byte. ".." is refused, never resolved. No file
 * system is looked at, so a client gets the same answer as the daemon:
 *
 *         _cleanup_free_ char *path = NULL;
 *         bool directory;
 *         int r = path_resolve(text, len, &(PathContext){ .working_directory = cwd }, &path, &directory, err);
 *
 *         "src//./main.c"   /workspace/src/main.c
 *         "."               /workspace, which must be a directory
 *         "/../etc"         PATH_DOTDOT
 */

#define PATH_BYTES_MAX 4096
#define PATH_COMPONENT_BYTES_MAX 255
#define PATH_WORKSPACE "/workspace" /* the workspace and the working directory where nothing else is said */

typedef enum PathUse {
        PATH_USE_ANY,
        PATH_USE_ABSOLUTE, /* a relative path is refused: working directories, targets of mounts and copies */
        PATH_USE_REMOVE,   /* to remove it or move it away: the root, the workspace and what contains it are refused */
} PathUse;

typedef struct PathContext {
        const char *working_directory; /* NULL or empty: PATH_WORKSPACE */
        const char *workspace;         /* absolute; NULL or empty: PATH_WORKSPACE */
        PathUse use;
} PathContext;

/* Resolves the @len bytes at @text, which may contain anything. Sets @ret_path to the absolute path, which the caller
 * frees, and @ret_directory, which may be NULL, to whether the path was written as one of a directory ("src/",
 * "src/.", ".").
 *
 * Fails with -EINVAL and, of all rules that are violated, the reason of the first in this order:
 *
 *   PATH_EMPTY, PATH_TOO_LONG (as given), PATH_NOT_UTF8, PATH_CONTROL_CHARACTER, PATH_NOT_ABSOLUTE,
 *   PATH_TILDE, PATH_DOTDOT, PATH_COMPONENT_TOO_LONG, PATH_TOO_LONG (as resolved), PATH_PROTECTED
 *
 * A relative path below a working directory that is itself not acceptable as PATH_USE_ABSOLUTE fails with the working
 * directory's reason. Fails with -ENOMEM when memory is out. */
int path_resolve(const char *text, size_t len, const PathContext *context, char **ret_path, bool *ret_directory,
                 HutchError *err) __attribute__((nonnull(3, 4)));
