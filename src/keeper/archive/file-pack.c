/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method DownloadArchive: going through a folder, and what of it is packed. What does not: how an
 * entry is laid out (tar-head.c), and compressed (archive-output.c).
 *
 * A tree is gone through with a stack of its folders, of which only the lowest are open: those above are found again by
 * "..", and must be who they were. Names are in byte order within each folder. What lies in another mount is left out,
 * and so are FIFOs, sockets and devices. A file that grows is cut to the size that it began with; one that shrinks ends
 * the call, since its entry promised more. Holes of sparse files are packed as zeros. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "keeper/archive/archive-output.h"
#include "keeper/archive/file-archive.h"
#include "keeper/archive/tar-head.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-names.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"
#include "policy/path-patterns.h"
#include "rpc/core/protobuf.h"

#define OPEN_MAX 32                              /* folders at a time */
#define NAMES_MAX (4 * FILE_NAMES_MAX)           /* in memory, of all folders on the stack */
#define PATH_LEN_MAX (TAR_EXTENDED_MAX / 2)      /* bytes of a path in the archive */
#define IGNORED_MAX (4 * PATTERN_LIST_BYTES_MAX) /* bytes of ignore files, of all folders on the stack */
#define LINKED_MAX                                                                                                     \
        (16 << 20) /* bytes that are remembered of files with several names; those beyond it are packed anew */
#define ATTRIBUTES_MAX (256 * 1024) /* bytes of one thing's */
#define MODE_MASK 01777             /* setuid and setgid do not come out of a sandbox */
#define ASK_EVERY 64                /* names, whether anybody still waits */

typedef struct Level {
        int fd; /* -1: closed for now */
        dev_t device;
        ino_t inode;
        struct stat st;
        size_t path_len; /* of its path in the archive */
        bool is_written; /* its own entry was */
        bool is_wanted;  /* all below it is */
        FileNames names;
        PatternList *ignored; /* by its ignore file; NULL: it has none */
        size_t ignored_len;
} Level;

typedef struct Packer {
        FileStream *stream;
        const Hutch__V1__DownloadArchiveRequest *request;
        ArchiveOutput *output;
        PatternList *include, *exclude;
        Level *levels;
        size_t depth, n_allocated; /* the current one is levels[depth - 1] */
        size_t n_names, ignored_len;
        uint64_t size, n_seen;
        char *path; /* of the current thing in the archive */
        size_t path_size;
        void *linked; /* tree of Linked */
        size_t linked_len;
        TarHead head;
        char *attributes;
        uint8_t *buffer; /* FILE_CHUNK bytes */
} Packer;

/* A file with several names, and the first that was packed. */
typedef struct Linked {
        dev_t device;
        ino_t inode;
        char path[];
} Linked;

static int compare_linked(const void *a, const void *b) {
        const Linked *x = a, *y = b;
        if (x->device != y->device)
                return x->device < y->device ? -1 : 1;
        return x->inode == y->inode ? 0 : x->inode < y->inode ? -1 : 1;
}

static void level_clear(Level *level) {
        fd_close(level->fd);
        file_names_clear(&level->names);
        pattern_list_free(level->ignored);
}

static void packer_clear(Packer *packer) {
        for (size_t i = 0; i < packer->depth; i++)
                level_clear(&packer->levels[i]);
        free(packer->levels);
        archive_output_free(packer->output);
        pattern_list_free(packer->include);
        pattern_list_free(packer->exclude);
        tdestroy(packer->linked, free);
        tar_head_clear(&packer->head);
        free(packer->path);
        free(packer->attributes);
        free(packer->buffer);
}

/* ---- What is told when it fails ---- */

/* Sets @err to say so of the current thing. */
static int fail_with(const Packer *packer, int r, Reason reason, const char *why, HutchError *err) {
        if (r == -ECANCELED)
                return r;
        const char *top = packer->request->path;
        size_t len = strlen(top);
        _cleanup_free_ char *text = file_text(packer->path, strlen(packer->path));
        bool is_top = !text || !*text;
        reason_set(err, r, reason, "cannot pack %.*s%s%s: %s", (int) (len > 0 && top[len - 1] == '/' ? len - 1 : len),
                   top, is_top ? "" : "/", is_top ? "" : text, why);
        if (!is_top)
                file_archive_add_entry(err, text);
        return r;
}

static int fail(const Packer *packer, int r, HutchError *err) {
        return fail_with(packer, r, reason_from_errno(r), strerror(-r), err);
}

static int set_path(Packer *packer, size_t folder_len, const char *name) {
        size_t len = strlen(name), wanted = folder_len + 1 + len + 1;
        if (wanted > packer->path_size) {
                packer->path = xreallocarray(packer->path, wanted, 2);
                packer->path_size = 2 * wanted;
        }
        if (folder_len > 0)
                packer->path[folder_len++] = '/';
        memcpy(packer->path + folder_len, name, len + 1);
        return folder_len + len > PATH_LEN_MAX ? -ENAMETOOLONG : 0;
}

/* ---- Writing entries ---- */

/* Reads the attributes of the user's namespace, in the form that TarEntry has them. What cannot be read or is too much
 * is an error; a file system that has none is not. */
static int read_attributes(Packer *packer, int fd, size_t *ret_len) {
        char names[ATTRIBUTES_MAX / 4];
        ssize_t n = flistxattr(fd, names, sizeof(names));
        *ret_len = 0;
        if (n < 0)
                return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
        size_t len = 0;
        for (const char *name = names; name < names + n; name += strlen(name) + 1) {
                if (!str_has_prefix(name, "user."))
                        continue;
                if (!packer->attributes)
                        packer->attributes = malloc(ATTRIBUTES_MAX);
                if (!packer->attributes)
                        return -ENOMEM;
                size_t head = strlen(name) + 1 + sizeof(uint32_t);
                if (head > ATTRIBUTES_MAX - len)
                        return -E2BIG;
                ssize_t value_len = fgetxattr(fd, name, packer->attributes + len + head, ATTRIBUTES_MAX - len - head);
                if (value_len < 0 && errno == ENODATA)
                        continue;
                if (value_len < 0)
                        return errno == ERANGE ? -E2BIG : -errno;
                memcpy(packer->attributes + len, name, strlen(name) + 1);
                memcpy(packer->attributes + len + strlen(name) + 1, &(uint32_t){ (uint32_t) value_len },
                       sizeof(uint32_t));
                len += head + (size_t) value_len;
        }
        *ret_len = len;
        return 0;
}

/* Writes the head of an entry. @fd is the file or folder to take attributes from; -1: there are none. */
static int write_head(Packer *packer, TarType type, const struct stat *st, const char *link, int fd) {
        TarEntry entry = {
                .type = type,
                .path = packer->path,
                .link = link,
                .mode = st->st_mode & MODE_MASK,
                .uid = st->st_uid,
                .gid = st->st_gid,
                .size = type == TAR_REGULAR ? (uint64_t) st->st_size : 0,
                .mtime = st->st_mtim,
        };
        int r = fd >= 0 ? read_attributes(packer, fd, &entry.attributes_len) : 0;
        entry.attributes = packer->attributes;
        if (r >= 0)
                r = tar_head_make(&packer->head, &entry);
        return r < 0 ? r : archive_output_write(packer->output, packer->head.bytes, packer->head.len);
}

/* Writes the entries of the folders on the stack that have none yet, and has the path be the current thing's again. */
static int write_folders(Packer *packer) {
        for (size_t i = 1; i < packer->depth; i++) {
                Level *level = &packer->levels[i];
                if (level->is_written)
                        continue;
                char after = packer->path[level->path_len];
                packer->path[level->path_len] = '\0';
                int r = write_head(packer, TAR_FOLDER, &level->st, NULL, level->fd);
                packer->path[level->path_len] = after;
                if (r < 0)
                        return r;
                level->is_written = true;
        }
        return 0;
}

static int write_bytes(Packer *packer, int fd, uint64_t size) {
        for (uint64_t left = size; left > 0;) {
                ssize_t n = read(fd, packer->buffer, left < FILE_CHUNK ? left : FILE_CHUNK);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -ESTALE;
                int r = archive_output_write(packer->output, packer->buffer, (size_t) n);
                if (r < 0)
                        return r;
                left -= (uint64_t) n;
        }
        memset(packer->buffer, 0, TAR_BLOCK);
        return archive_output_write(packer->output, packer->buffer, tar_padding(size));
}

/* Remembers that a file with several names was packed under this one. */
static int remember(Packer *packer, const struct stat *st) {
        size_t size = sizeof(Linked) + strlen(packer->path) + 1;
        if (st->st_nlink < 2 || size > LINKED_MAX - packer->linked_len)
                return 0;
        Linked *linked = malloc(size);
        if (!linked)
                return -ENOMEM;
        *linked = (Linked){ .device = st->st_dev, .inode = st->st_ino };
        memcpy(linked->path, packer->path, size - sizeof(Linked));
        if (!tsearch(linked, &packer->linked, compare_linked)) {
                free(linked);
                return -ENOMEM;
        }
        packer->linked_len += size;
        return 0;
}

/* @fd is a regular file, made with O_PATH. */
static int write_regular(Packer *packer, int fd, HutchError *err) {
        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        _cleanup_close_ int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        if (file < 0 || fstat(file, &st) < 0)
                return fail(packer, -errno, err);

        Linked wanted = { .device = st.st_dev, .inode = st.st_ino };
        Linked **known = st.st_nlink > 1 ? tfind(&wanted, &packer->linked, compare_linked) : NULL;
        if (known) {
                int r = write_head(packer, TAR_HARD_LINK, &st, (*known)->path, -1);
                return r < 0 ? fail(packer, r, err) : 0;
        }
        if ((uint64_t) st.st_size > packer->request->max_size_bytes - packer->size) {
                reason_set(err, -EFBIG, REASON_FILE_TOO_LARGE, "the files below %s have more than %" PRIu64 " bytes",
                           packer->request->path, packer->request->max_size_bytes);
                return reason_add_limit(err, "max_size_bytes", packer->request->max_size_bytes, -EFBIG);
        }
        packer->size += (uint64_t) st.st_size;
        int r = write_head(packer, TAR_REGULAR, &st, NULL, file);
        if (r >= 0)
                r = write_bytes(packer, file, (uint64_t) st.st_size);
        if (r == -ESTALE)
                return fail_with(packer, r, REASON_FILE_CHANGED, "it became shorter meanwhile", err);
        if (r >= 0)
                r = remember(packer, &st);
        return r < 0 ? fail(packer, r, err) : 0;
}

static int write_symlink(Packer *packer, int fd, const struct stat *st, HutchError *err) {
        char target[PATH_MAX];
        ssize_t len = readlinkat(fd, "", target, sizeof(target) - 1);
        if (len < 0)
                return fail(packer, -errno, err);
        target[len] = '\0';
        int r = write_head(packer, TAR_SYMLINK, st, target, -1);
        return r < 0 ? fail(packer, r, err) : 0;
}

/* ---- Going through folders ---- */

/* Whether the current thing is left out: the request's own patterns first, then ignore files from the nearest on. */
static bool is_excluded(const Packer *packer, bool is_folder) {
        size_t len = strlen(packer->path);
        PatternVerdict verdict = pattern_list_match(packer->exclude, packer->path, len, is_folder);
        for (size_t i = packer->depth; i-- > 0 && verdict == PATTERN_NONE;) {
                const Level *level = &packer->levels[i];
                size_t below = level->path_len > 0 ? level->path_len + 1 : 0;
                if (level->ignored)
                        verdict = pattern_list_match(level->ignored, packer->path + below, len - below, is_folder);
        }
        return verdict == PATTERN_MATCHED;
}

/* Reads the ignore file of a folder. One that is no regular file is none. */
static int read_ignored(Packer *packer, Level *level) {
        struct stat st;
        if (!*packer->request->ignore_file)
                return 0;
        _cleanup_close_ int fd = file_open_regular_below(level->fd, packer->request->ignore_file, &st);
        if (fd == -ENOENT || fd == -EISDIR || fd == -ENXIO || fd == -ELOOP)
                return 0;
        if (fd < 0)
                return fd;
        size_t len = 0;
        static char text[PATTERN_LIST_BYTES_MAX + 1];
        level->ignored = pattern_list_new();
        if (!level->ignored)
                return -ENOMEM;
        for (ssize_t n = 1; n > 0 && len < sizeof(text); len += (size_t) n) {
                n = read(fd, text + len, sizeof(text) - len);
                if (n < 0)
                        return -errno;
        }
        if (len == sizeof(text) || len > IGNORED_MAX - packer->ignored_len)
                return -EFBIG;
        level->ignored_len = len;
        packer->ignored_len += len;
        return pattern_list_add_lines(level->ignored, text, len);
}

/* Has no more folders be open, and no more names in memory, than there should. */
static int bound_stack(Packer *packer) {
        if (packer->n_names > NAMES_MAX) {
                for (size_t i = 0; i < packer->depth; i++)
                        file_names_forget(&packer->levels[i].names);
                packer->n_names = 0;
        }
        if (packer->depth <= OPEN_MAX)
                return 0;

        /* Its entry needs it open. */
        Level *level = &packer->levels[packer->depth - 1 - OPEN_MAX];
        int r = level->is_written ? 0 : write_folders(packer);
        level->fd = fd_close(level->fd);
        return r;
}

/* Goes down into the folder that @fd, which it takes, is open for reading; its path is the current one. */
static int push(Packer *packer, int fd, const struct stat *st, bool is_wanted, HutchError *err) {
        Level level = { .fd = fd, .st = *st, .is_wanted = is_wanted, .path_len = strlen(packer->path) };
        level.device = st->st_dev;
        level.inode = st->st_ino;
        if (packer->depth == packer->n_allocated) {
                size_t n = packer->n_allocated > 0 ? 2 * packer->n_allocated : OPEN_MAX;
                Level *levels = reallocarray(packer->levels, n, sizeof(*levels));
                if (!levels) {
                        level_clear(&level);
                        return fail(packer, -ENOMEM, err);
                }
                packer->levels = levels;
                packer->n_allocated = n;
        }
        packer->levels[packer->depth++] = level;
        int r = bound_stack(packer);
        if (r >= 0 && is_wanted)
                r = write_folders(packer);
        if (r < 0)
                return fail(packer, r, err);
        r = read_ignored(packer, &packer->levels[packer->depth - 1]);
        if (r < 0) {
                (void) set_path(packer, level.path_len, packer->request->ignore_file);
                return fail(packer, r, err);
        }
        return 0;
}

/* Leaves the current folder for the one above. */
static int pop(Packer *packer, HutchError *err) {
        _cleanup_(level_clear) Level level = packer->levels[--packer->depth];
        packer->ignored_len -= level.ignored_len;
        if (packer->depth == 0)
                return 0;
        Level *above = &packer->levels[packer->depth - 1];
        if (above->fd >= 0)
                return 0;
        struct stat st;
        above->fd = openat(level.fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (above->fd < 0 || fstat(above->fd, &st) < 0)
                return fail(packer, -errno, err);
        if (st.st_dev != above->device || st.st_ino != above->inode)
                return fail_with(packer, -ESTALE, REASON_FILE_CHANGED, "its folder was moved meanwhile", err);
        return 0;
}

static int pack_folder(Packer *packer, int fd, const struct stat *st, bool is_wanted, HutchError *err) {
        int folder = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return folder < 0 ? fail(packer, -errno, err) : push(packer, folder, st, is_wanted, err);
}

/* What another mount lies on: of a folder the entry, and nothing of what is in it. */
static int pack_mount_point(Packer *packer, int folder, const char *name, bool is_wanted, HutchError *err) {
        struct stat st;
        if (!is_wanted || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
                return 0;
        int r = is_excluded(packer, true) ? 0 : write_folders(packer);
        if (r >= 0 && !is_excluded(packer, true))
                r = write_head(packer, TAR_FOLDER, &st, NULL, -1);
        return r < 0 ? fail(packer, r, err) : 0;
}

/* Packs @name of the current folder, or goes down into it. What is gone by now was never there. */
static int pack_name(Packer *packer, const char *name, HutchError *err) {
        const Level *level = &packer->levels[packer->depth - 1];
        int r = set_path(packer, level->path_len, name);
        if (r < 0)
                return fail(packer, r, err);
        struct stat st;
        _cleanup_close_ int fd = file_open_below(level->fd, name, O_PATH | O_NOFOLLOW, 0, FILE_SAME_MOUNT);
        bool is_wanted = level->is_wanted;
        if (fd == -ENOENT)
                return 0;
        if (fd < 0 && fd != -EXDEV)
                return fail(packer, fd, err);
        if (fd >= 0 && fstat(fd, &st) < 0)
                return fail(packer, -errno, err);
        bool is_folder = fd < 0 || S_ISDIR(st.st_mode);
        if (!is_wanted)
                is_wanted = pattern_list_match(packer->include, packer->path, strlen(packer->path), is_folder) ==
                            PATTERN_MATCHED;
        if (fd < 0)
                return pack_mount_point(packer, level->fd, name, is_wanted, err);
        if (is_excluded(packer, is_folder))
                return 0;
        if (is_folder)
                return pack_folder(packer, fd, &st, is_wanted, err);
        if (!is_wanted || (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)))
                return 0;
        r = write_folders(packer);
        if (r < 0)
                return fail(packer, r, err);
        return S_ISREG(st.st_mode) ? write_regular(packer, fd, err) : write_symlink(packer, fd, &st, err);
}

static int pack_tree(Packer *packer, HutchError *err) {
        while (packer->depth > 0) {
                Level *level = &packer->levels[packer->depth - 1];
                const char *name;
                if (++packer->n_seen % ASK_EVERY == 0 && file_stream_is_cancelled(packer->stream))
                        return -ECANCELED;
                size_t held = file_names_held(&level->names);
                int r = file_names_next(&level->names, level->fd, &name);
                if (r < 0) {
                        packer->path[level->path_len] = '\0';
                        return fail(packer, r, err);
                }
                packer->n_names += file_names_held(&level->names) - held;
                r = r == 0 ? pop(packer, err) : pack_name(packer, name, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- The method ---- */

static int add_patterns(PatternList **list, char *const *patterns, size_t n, HutchError *err) {
        *list = pattern_list_new();
        int r = *list ? 0 : -ENOMEM;
        for (size_t i = 0; i < n && r >= 0; i++)
                r = pattern_list_add(*list, patterns[i], strlen(patterns[i]));
        if (r == -E2BIG)
                return reason_set(err, r, REASON_FIELD_TOO_LONG, "the patterns are too long");
        return r < 0 ? reason_set(err, r, REASON_HOST_EXHAUSTED, "no memory for the patterns") : 0;
}

static int check_ignore_file(const char *name, HutchError *err) {
        if (strchr(name, '/') || str_equal(name, ".") || str_equal(name, "..") || strlen(name) > NAME_MAX)
                return reason_set(err, -EINVAL, REASON_FIELD_INVALID, "the name of ignore files is no file's name");
        return 0;
}

static int packer_init(Packer *packer, HutchError *err) {
        const Hutch__V1__DownloadArchiveRequest *request = packer->request;
        int r = check_ignore_file(request->ignore_file, err);
        if (r >= 0)
                r = add_patterns(&packer->include, request->include, request->n_include, err);
        if (r >= 0)
                r = add_patterns(&packer->exclude, request->exclude, request->n_exclude, err);
        if (r < 0)
                return r;
        packer->output = archive_output_new(packer->stream, request->compression);
        packer->buffer = new0(uint8_t, FILE_CHUNK);
        (void) set_path(packer, 0, "");
        if (!packer->output)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory to pack %s", request->path);
        return 0;
}

/* Packs the file at the request's path, under its name. */
static int pack_file(Packer *packer, int fd, const struct stat *st, HutchError *err) {
        const char *slash = strrchr(packer->request->path, '/');
        int r = set_path(packer, 0, slash ? slash + 1 : packer->request->path);
        if (r >= 0 && !S_ISREG(st->st_mode))
                r = -ENXIO;
        return r < 0 ? fail(packer, r, err) : write_regular(packer, fd, err);
}

static int pack_end(Packer *packer) {
        memset(packer->buffer, 0, 2 * TAR_BLOCK);
        int r = archive_output_write(packer->output, packer->buffer, 2 * TAR_BLOCK);
        return r < 0 ? r : archive_output_finish(packer->output);
}

int file_method_download_archive(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__download_archive_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        _cleanup_(packer_clear) Packer packer = {
                .stream = stream,
                .request = (const Hutch__V1__DownloadArchiveRequest *) unpacked,
        };
        r = packer_init(&packer, err);
        if (r < 0)
                return r;

        _cleanup_close_ int fd = -1;
        struct stat st;
        r = file_open_path(packer.request->path, &fd, err);
        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0)
                return fail(&packer, -errno, err);
        if (!S_ISDIR(st.st_mode))
                r = pack_file(&packer, fd, &st, err);
        else {
                r = pack_folder(&packer, fd, &st, pattern_list_is_empty(packer.include), err);
                if (r >= 0)
                        r = pack_tree(&packer, err);
        }
        if (r < 0)
                return r;
        r = pack_end(&packer);
        return r < 0 ? fail(&packer, r, err) : 0;
}
