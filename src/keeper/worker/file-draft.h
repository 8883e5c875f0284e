/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Drafts: files that are written beside the place where they are to stand, and come there whole or not at all.
 *
 *         _cleanup_(file_draft_clear) FileDraft draft = FILE_DRAFT_NONE;
 *         r = file_draft_open(&draft, folder);
 *         r = fd_write_all(draft.fd, bytes, len);
 *         r = file_draft_commit(&draft, "name", 0644, false);
 *
 * Where the file system can, a draft has no name, and nothing is left of it whatever happens. Else, and for a moment
 * while it replaces something, it has one that begins with FILE_DRAFT_PREFIX, and is locked. Where a draft has to have
 * a name, those in its folder that nobody works on any more are removed before: whoever made them was killed. */

#define FILE_DRAFT_PREFIX ".hutch-tmp-"
#define FILE_DRAFT_NAME_SIZE 80

typedef struct FileDraft {
        int folder; /* borrowed */
        int fd;     /* to be read and written */
        char name[FILE_DRAFT_NAME_SIZE];
} FileDraft;

#define FILE_DRAFT_NONE ((FileDraft){ .folder = -1, .fd = -1 })

/* A new one in @folder, which must stay open. */
int file_draft_open(FileDraft *draft, int folder) __attribute__((nonnull));

/* Removes drafts in @folder that nobody works on any more, if this user made them; not those with a name of their
 * own. */
void file_draft_collect(int folder);

/* One with a name of its own, which is removed with the draft: new when @is_new, whatever had that name before; else
 * what was kept of it. -ENOENT; -EPERM: what has that name was not made by this user as a draft. */
int file_draft_open_named(FileDraft *draft, int folder, const char *name, bool is_new) __attribute__((nonnull));

/* Has the file, with that mode, stand as @name in its folder, and on disk. -EEXIST: something is there, and is not to
 * be replaced; -EISDIR: a folder is there. */
int file_draft_commit(FileDraft *draft, const char *name, mode_t mode, bool replace) __attribute__((nonnull));

/* Closes it and leaves it where it is. */
void file_draft_keep(FileDraft *draft) __attribute__((nonnull));

/* Removes what was not committed or kept. */
void file_draft_clear(FileDraft *draft) __attribute__((nonnull));
