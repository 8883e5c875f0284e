/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how a file comes to its place. What does not: what is in it, and whether it may. */

#include "keeper/worker/file-draft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strings.h"

#define DRAFT_MODE 0600
#define NAMES_MAX 16 /* tries */
#define COLLECT_INTERVAL (60 * NSEC_PER_SEC)

static int make_name(char name[static FILE_DRAFT_NAME_SIZE]) {
        uint64_t random[2];
        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        (void) snprintf(name, FILE_DRAFT_NAME_SIZE, FILE_DRAFT_PREFIX "%016" PRIx64 "%016" PRIx64, random[0],
                        random[1]);
        return 0;
}

static int make_file(int folder, const char *name) {
        int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, DRAFT_MODE);
        return fd < 0 ? -errno : fd;
}

/* Whether nobody else can have put it there, nor sees it under another name. */
static int check_own(int fd) {
        struct stat st;
        if (fstat(fd, &st) < 0)
                return -errno;
        bool is_own = S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == (uid_t) setfsuid((uid_t) -1) &&
                      (st.st_mode & 07777) == DRAFT_MODE;
        return is_own ? 0 : -EPERM;
}

static void collect_one(int folder, const char *name) {
        _cleanup_close_ int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0 && check_own(fd) >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
                (void) unlinkat(folder, name, 0);
}

void file_draft_collect(int folder) {
        int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (!dir) {
                fd_close(fd);
                return;
        }
        for (const struct dirent *entry; (entry = readdir(dir));)
                if (str_has_prefix(entry->d_name, FILE_DRAFT_PREFIX))
                        collect_one(folder, entry->d_name);
        (void) closedir(dir);
}

/* Collects now and then: a folder may be large. */
static void collect_sometimes(int folder) {
        static uint64_t next;
        uint64_t now = clock_monotonic_ns();
        if (now < next)
                return;
        next = now + COLLECT_INTERVAL;
        file_draft_collect(folder);
}

/* Makes a draft with a random name, which is locked: -EEXIST: somebody else has it. */
static int make_locked(int folder, const char *name) {
        struct stat st;
        _cleanup_close_ int fd = make_file(folder, name);
        if (fd < 0)
                return fd;
        /* Where nothing can be locked nothing is collected. */
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
                return -EEXIST;
        if (fstat(fd, &st) < 0)
                return -errno;
        return st.st_nlink > 0 ? TAKE_FD(fd) : -EEXIST;
}

int file_draft_open(FileDraft *draft, int folder) {
        FileDraft new = { .folder = folder };
        new.fd = openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, DRAFT_MODE);
        if (new.fd < 0 && errno != EOPNOTSUPP && errno != EISDIR)
                return -errno;
        if (new.fd < 0)
                collect_sometimes(folder);
        for (int i = 0; i < NAMES_MAX && new.fd < 0; i++) {
                int r = make_name(new.name);
                if (r < 0)
                        return r;
                new.fd = make_locked(folder, new.name);
                if (new.fd < 0 && new.fd != -EEXIST)
                        return new.fd;
        }
        if (new.fd < 0)
                return new.fd;
        *draft = new;
        return 0;
}

int file_draft_open_named(FileDraft *draft, int folder, const char *name, bool is_new) {
        FileDraft new = { .folder = folder };
        (void) snprintf(new.name, sizeof(new.name), "%s", name);
        if (is_new) {
                if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
                        return -errno;
                new.fd = make_file(folder, name);
                if (new.fd < 0)
                        return new.fd;
        } else {
                new.fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
                int r = new.fd < 0 ? -errno : check_own(new.fd);
                if (r < 0) {
                        fd_close(new.fd);
                        return r == -ELOOP || r == -ENXIO ? -EPERM : r;
                }
        }
        *draft = new;
        return 0;
}

/* Gives a draft without a name one, @name. */
static int link_draft(const FileDraft *draft, const char *name) {
        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", draft->fd);
        return linkat(AT_FDCWD, path, draft->folder, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int place(FileDraft *draft, const char *name, bool replace) {
        if (!*draft->name && !replace)
                return link_draft(draft, name);
        if (!*draft->name) {
                char temporary[FILE_DRAFT_NAME_SIZE];
                int r = make_name(temporary);
                (void) flock(draft->fd, LOCK_EX | LOCK_NB);
                if (r >= 0)
                        r = link_draft(draft, temporary);
                if (r < 0)
                        return r;
                /* From here on it has a name to be removed. */
                (void) snprintf(draft->name, sizeof(draft->name), "%s", temporary);
        }
        if (renameat2(draft->folder, draft->name, draft->folder, name, replace ? 0 : RENAME_NOREPLACE) < 0)
                return -errno;
        *draft->name = '\0';
        return 0;
}

int file_draft_commit(FileDraft *draft, const char *name, mode_t mode, bool replace) {
        if (fchmod(draft->fd, mode) < 0)
                return -errno;
        /* EINVAL: this file system keeps nothing on a disk. */
        if (fsync(draft->fd) < 0 && errno != EINVAL)
                return -errno;
        int r = place(draft, name, replace);
        if (r < 0)
                return r;
        _cleanup_close_ int folder = openat(draft->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* It stands there, and what a crash of the machine takes back is not told as a failure of this. */
        if (folder >= 0)
                (void) fsync(folder);
        return 0;
}

void file_draft_keep(FileDraft *draft) {
        *draft->name = '\0';
        file_draft_clear(draft);
}

void file_draft_clear(FileDraft *draft) {
        if (draft->fd < 0)
                return;
        if (*draft->name)
                (void) unlinkat(draft->folder, draft->name, 0);
        fd_close(draft->fd);
        *draft = FILE_DRAFT_NONE;
}
