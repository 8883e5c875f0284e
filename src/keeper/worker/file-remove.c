/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method RemoveFile. What does not: removing a whole sandbox (remove.c), which may change modes
 * and move things about on its way.
 *
 * A tree is gone through with a stack of its folders, of which only the lowest are open: those above are found again by
 * "..", and must be who they were. So no path is ever put together, neither depth nor width is limited, and what is
 * moved about meanwhile is not followed out of the tree. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define OPEN_MAX 32     /* folders at a time */
#define REFILLS_MAX 100 /* times that a folder may be filled again while it is emptied */
#define ASK_EVERY 64    /* removals, whether anybody still waits */

typedef struct Level {
        DIR *dir;   /* NULL: closed for now */
        char *name; /* in the level above; NULL for the top */
        dev_t device;
        ino_t inode;
        unsigned refills;
} Level;

typedef struct Remover {
        FileStream *stream;
        Level *levels;
        size_t depth, n_allocated; /* the current one is levels[depth - 1] */
        uint64_t n_removed;
} Remover;

static void level_clear(Level *level) {
        if (level->dir)
                (void) closedir(level->dir);
        free(level->name);
}

static void remover_clear(Remover *remover) {
        for (size_t i = 0; i < remover->depth; i++)
                level_clear(&remover->levels[i]);
        free(remover->levels);
}

static int level_open(Level *level, int fd) {
        struct stat st;
        if (fd < 0)
                return fd;
        int r = fstat(fd, &st) < 0 ? -errno : 0;
        if (r >= 0) {
                level->dir = fdopendir(fd);
                r = level->dir ? 0 : -errno;
        }
        if (r < 0) {
                fd_close(fd);
                return r;
        }
        level->device = st.st_dev;
        level->inode = st.st_ino;
        return 0;
}

/* Goes down into the folder @name of @folder. */
static int push(Remover *remover, int folder, const char *name) {
        if (remover->depth == remover->n_allocated) {
                size_t n = remover->n_allocated > 0 ? 2 * remover->n_allocated : OPEN_MAX;
                Level *levels = reallocarray(remover->levels, n, sizeof(*levels));
                if (!levels)
                        return -ENOMEM;
                remover->levels = levels;
                remover->n_allocated = n;
        }
        Level level = { .name = strdup(name) };
        if (!level.name)
                return -ENOMEM;
        int r = level_open(&level,
                           file_open_below(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, FILE_SAME_MOUNT));
        if (r < 0) {
                level_clear(&level);
                return r;
        }
        remover->levels[remover->depth++] = level;
        if (remover->depth > OPEN_MAX) {
                Level *above = &remover->levels[remover->depth - 1 - OPEN_MAX];
                (void) closedir(above->dir);
                above->dir = NULL;
        }
        return 0;
}

/* Opens the level above the current one again, if it was closed. */
static int open_above(Remover *remover) {
        Level *current = &remover->levels[remover->depth - 1], *above = current - 1;
        if (above->dir)
                return 0;
        Level found = {};
        int fd = openat(dirfd(current->dir), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = level_open(&found, fd < 0 ? -errno : fd);
        if (r < 0)
                return r;
        if (found.device != above->device || found.inode != above->inode) {
                level_clear(&found);
                return -ESTALE;
        }
        above->dir = found.dir;
        return 0;
}

/* Leaves the current level, which was read to its end, for the one above. */
static int pop(Remover *remover) {
        int r = open_above(remover);
        if (r < 0)
                return r;
        Level *current = &remover->levels[remover->depth - 1], *above = current - 1;
        if (unlinkat(dirfd(above->dir), current->name, AT_REMOVEDIR) == 0)
                remover->n_removed++;
        else if ((errno == ENOTEMPTY || errno == EEXIST) && current->refills++ < REFILLS_MAX) {
                rewinddir(current->dir);
                return 0;
        } else if (errno != ENOENT)
                return -errno;
        level_clear(current);
        remover->depth--;
        return 0;
}

static int remove_entry(Remover *remover, const struct dirent *entry) {
        int folder = dirfd(remover->levels[remover->depth - 1].dir);
        int flags = entry->d_type == DT_DIR ? AT_REMOVEDIR : 0;
        if (unlinkat(folder, entry->d_name, flags) == 0) {
                remover->n_removed++;
                return 0;
        }
        switch (errno) {
        case ENOENT:
                return 0;
        case EISDIR:
        case ENOTEMPTY:
        case EEXIST:
                return push(remover, folder, entry->d_name);
        case ENOTDIR: /* it was a folder when its name was read */
                rewinddir(remover->levels[remover->depth - 1].dir);
                return 0;
        default:
                return -errno;
        }
}

/* Removes all that is in the first level. */
static int remove_contents(Remover *remover) {
        for (uint64_t steps = 0;; steps++) {
                Level *level = &remover->levels[remover->depth - 1];
                if (steps % ASK_EVERY == 0 && file_stream_is_cancelled(remover->stream))
                        return -ECANCELED;

                errno = 0;
                const struct dirent *entry = readdir(level->dir);
                int r = 0;
                if (!entry && errno != 0)
                        r = -errno;
                else if (entry)
                        r = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
                                    ? 0
                                    : remove_entry(remover, entry);
                else if (remover->depth > 1)
                        r = pop(remover);
                else
                        return 0;
                if (r < 0)
                        return r;
        }
}

static int fail(const Remover *remover, const FilePlace *place, int r, HutchError *err) {
        if (r == -ECANCELED)
                return r;
        if (r == -ESTALE)
                return reason_set(err, r, REASON_FILE_CHANGED, "cannot remove %s: its folders were moved meanwhile",
                                  place->path);
        /* The folder that it is about, for who looks for why. */
        if (remover->depth > 1)
                return reason_set(err, r, reason_from_errno(r), "cannot remove %s: %s, in a folder “%.255s” in it",
                                  place->path, strerror(-r), remover->levels[remover->depth - 1].name);
        return file_fail(err, r, "remove", place->path);
}

static int remove_tree(Remover *remover, const FilePlace *place) {
        int r = push(remover, place->folder, place->name);
        for (unsigned refills = 0; r >= 0; refills++) {
                r = remove_contents(remover);
                if (r < 0)
                        break;
                if (unlinkat(place->folder, place->name, AT_REMOVEDIR) == 0) {
                        remover->n_removed++;
                        return 0;
                }
                if (errno != ENOTEMPTY && errno != EEXIST)
                        return errno == ENOENT ? 0 : -errno;
                if (refills == REFILLS_MAX)
                        return -errno;
                rewinddir(remover->levels[0].dir);
        }
        return r;
}

static int remove_place(Remover *remover, const FilePlace *place, bool recursive) {
        struct stat st;
        int r = file_place_stat(place, &st);
        if (r < 0)
                return r;
        if (unlinkat(place->folder, place->name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0) {
                remover->n_removed++;
                return 0;
        }
        r = errno == EEXIST ? -ENOTEMPTY : -errno;
        return r == -ENOTEMPTY && recursive ? remove_tree(remover, place) : r;
}

int file_method_remove(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__remove_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__RemoveFileRequest *request = (const Hutch__V1__RemoveFileRequest *) unpacked;

        _cleanup_(file_place_clear) FilePlace place = {};
        _cleanup_(remover_clear) Remover remover = { .stream = stream };
        r = file_place_open(request->path, false, &place, err);
        if (r >= 0) {
                r = file_place_check_protected(&place, err);
                if (r < 0)
                        return r;
                r = remove_place(&remover, &place, request->recursive);
                if (r < 0)
                        r = fail(&remover, &place, r, err);
        }
        if (r == -ENOENT && request->ignore_missing)
                r = 0;
        if (r < 0)
                return r;

        Hutch__V1__RemoveFileResponse response = HUTCH__V1__REMOVE_FILE_RESPONSE__INIT;
        response.removed = remover.n_removed;
        return file_stream_send(stream, &response.base);
}
