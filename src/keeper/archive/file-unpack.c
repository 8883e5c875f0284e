/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method UploadArchive: what of an archive is accepted, and how it comes into the folder. What
 * does not: reading tar and its compressions, which libarchive does.
 *
 * Every entry is opened from the folder that is unpacked into, by components that are checked here, and through no
 * link: neither one that was there nor one that the archive brought. Files are drafts until all their bytes came.
 * Modes and times of folders are set in the end, when nothing changes them any more. Nothing is synced to disk: an
 * archive may have a hundred thousand files. The folder itself keeps its mode and time, whatever the archive says of
 * ".". */

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "keeper/archive/file-archive.h"
#include "keeper/worker/file-draft.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define DATA_FIELD 2              /* of UploadArchiveRequest */
#define ENTRIES_MAX 1000000       /* of one archive */
#define RATIO_MAX 1000            /* bytes of files per byte of archive, beyond RATIO_FREE */
#define RATIO_FREE (10 << 20)     /* bytes of files */
#define FOLDERS_LEN_MAX (8 << 20) /* bytes that are remembered of folders before their modes and times are set */
#define PATH_LEN_MAX (64 * 1024)  /* bytes of a name in an archive */
#define PIECE_MAX 2048            /* bytes of a path that is opened at once */
#define MEMORY_MAX (256 << 20)    /* bytes that reading an archive may take: zstd's largest window, and as much again */
#define FILE_MODE_MASK 0777
#define FOLDER_MODE_MASK 01777
#define FOLDER_MODE 0755 /* of those that the archive has no entry for */
#define ASK_EVERY 64     /* blocks and entries, whether anybody still waits */
#define LEFT_OUT_NAMED 8 /* links */

/* What is to be set of a folder in the end. */
typedef struct Folder {
        struct Folder *next; /* unpacked before this one */
        mode_t mode;
        struct timespec mtime;
        char path[];
} Folder;

typedef struct Unpacker {
        FileStream *stream;
        const Hutch__V1__UploadArchiveHeader *header;
        struct archive *archive;
        int top;
        int read_error; /* why the stream could not be read on */
        uint64_t packed, unpacked, size, n_entries, n_steps;
        uint64_t n_left_out;
        StringBuilder left_out; /* their names */
        char *path;             /* of the current entry: plain components with single slashes between */
        int folder;             /* the one that it lies in, with O_PATH */
        char *folder_path;
        const char *name; /* the end of @path */
        Folder *folders;
        size_t folders_len;
} Unpacker;

static void unpacker_clear(Unpacker *unpacker) {
        (void) archive_read_free(unpacker->archive);
        fd_close(unpacker->folder);
        fd_close(unpacker->top);
        free(unpacker->path);
        free(unpacker->folder_path);
        string_builder_clear(&unpacker->left_out);
        for (Folder *folder = unpacker->folders, *next; folder; folder = next) {
                next = folder->next;
                free(folder);
        }
}

/* ---- What is told when it fails ---- */

static int fail_entry(int r, Reason reason, const char *entry, const char *why, HutchError *err) {
        if (r == -ECANCELED)
                return r;
        _cleanup_free_ char *text = file_text(entry, strlen(entry));
        reason_set(err, r, reason, "the archive's entry '%s' cannot be unpacked: %s", text ? text : "", why);
        if (text)
                file_archive_add_entry(err, text);
        return r;
}

static int refuse(const char *entry, const char *why, HutchError *err) {
        return fail_entry(-EBADMSG, REASON_ARCHIVE_REFUSED, entry, why, err);
}

static int fail(const Unpacker *unpacker, int r, HutchError *err) {
        return fail_entry(r, reason_from_errno(r), unpacker->path, strerror(-r), err);
}

/* What libarchive failed of: the stream was not read on, memory is out, or the bytes are no archive. */
static int fail_archive(const Unpacker *unpacker, HutchError *err) {
        if (unpacker->read_error == -ECANCELED)
                return -ECANCELED;
        if (unpacker->read_error < 0)
                return reason_set(err, unpacker->read_error, REASON_STREAM_ORDER,
                                  "after the header only data may come");
        const char *why = archive_error_string(unpacker->archive);
        if (archive_errno(unpacker->archive) == ENOMEM)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory to read the archive");
        _cleanup_free_ char *text = why ? file_text(why, strlen(why)) : NULL;
        _cleanup_free_ char *entry = unpacker->path ? file_text(unpacker->path, strlen(unpacker->path)) : NULL;
        reason_set(err, -EBADMSG, REASON_ARCHIVE_REFUSED, "the archive cannot be read: %s", text ? text : "");
        if (entry)
                file_archive_add_entry(err, entry);
        return -EBADMSG;
}

/* ---- Reading ---- */

static la_ssize_t read_stream(struct archive *archive, void *user, const void **ret_bytes) {
        Unpacker *unpacker = user;
        const uint8_t *message, *data;
        size_t len, data_len = 0;
        /* Nothing at all would be the end. */
        while (data_len == 0) {
                int r = file_stream_receive(unpacker->stream, &message, &len);
                if (r == 0)
                        return 0;
                if (r > 0 && !protobuf_find_bytes(message, len, DATA_FIELD, &data, &data_len))
                        r = -EBADMSG;
                if (r < 0) {
                        unpacker->read_error = r;
                        archive_set_error(archive, -r, "the stream ended");
                        return -1;
                }
        }
        unpacker->packed += data_len;
        *ret_bytes = data;
        return (la_ssize_t) data_len;
}

static int open_archive(Unpacker *unpacker, HutchError *err) {
        Hutch__V1__ArchiveCompression compression = unpacker->header->compression;
        bool is_any = compression == HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_UNSPECIFIED;
        struct archive *archive = unpacker->archive = archive_read_new();
        if (!archive)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory to read the archive");
        int r = archive_read_support_format_tar(archive);
        if (r == ARCHIVE_OK && (is_any || compression == HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_GZIP))
                r = archive_read_support_filter_gzip(archive);
        if (r == ARCHIVE_OK && (is_any || compression == HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_ZSTD))
                r = archive_read_support_filter_zstd(archive);
        if (r == ARCHIVE_OK)
                r = archive_read_open(archive, unpacker, NULL, read_stream, NULL);
        return r == ARCHIVE_OK ? 0 : fail_archive(unpacker, err);
}

/* Lets the process take so much memory, beside what it has, and no more: libarchive keeps maps of sparse files in
 * memory that may be as long as the archive likes. It mostly ends the process when there is no more. */
static int limit_memory(struct rlimit *ret_before) {
        unsigned long pages = 0;
        FILE *file = fopen("/proc/self/statm", "re");
        int n = file ? fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) : 0;
        if (file)
                (void) fclose(file);
        if (n != 1 || getrlimit(RLIMIT_DATA, ret_before) < 0)
                return -EIO;
        rlim_t wanted = pages * (rlim_t) sysconf(_SC_PAGESIZE) + MEMORY_MAX;
        struct rlimit limit = { .rlim_cur = wanted, .rlim_max = ret_before->rlim_max };
        if (wanted < ret_before->rlim_cur && setrlimit(RLIMIT_DATA, &limit) < 0)
                return -errno;
        return 0;
}

static int check_cancelled(Unpacker *unpacker) {
        return ++unpacker->n_steps % ASK_EVERY == 0 && file_stream_is_cancelled(unpacker->stream) ? -ECANCELED : 0;
}

/* ---- Names ---- */

/* Copies a name of the archive with its plain components only. NULL: why it is refused is at @ret_why. */
static char *plain_path(const char *name, const char **ret_why) {
        *ret_why = *name == '/' ? "its name is absolute" : strlen(name) > PATH_LEN_MAX ? "its name is too long" : NULL;
        if (*ret_why)
                return NULL;
        char *path = xcalloc(strlen(name) + 1, 1), *to = path;
        for (size_t len; *name; name += len) {
                name += strspn(name, "/");
                len = strcspn(name, "/");
                if (len == 0 || (len == 1 && *name == '.'))
                        continue;
                if (len == 2 && memcmp(name, "..", 2) == 0)
                        *ret_why = "its name climbs";
                else if (len > NAME_MAX)
                        *ret_why = "a part of its name is too long";
                if (*ret_why) {
                        free(path);
                        return NULL;
                }
                if (to > path)
                        *to++ = '/';
                to = mempcpy(to, name, len);
        }
        return path;
}

static const char *last_component(const char *path) {
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
}

/* Whether a link at @path to @target stays within the folder @top, as far as names tell. ".." counts from the link's
 * own folder, which is a real one. Behind a name it is refused: that name may be a link, and lead to a folder that is
 * less deep than it looks. An absolute target is read from the sandbox's root, out of which it cannot lead. */
static bool link_stays(const char *path, const char *target, const char *top) {
        size_t depth = 0, top_len = strlen(top);
        bool named = false;
        while (top_len > 0 && top[top_len - 1] == '/')
                top_len--;
        if (*target == '/' && !file_archive_leaves_out_links())
                return true;
        if (*target == '/') {
                if (strncmp(target, top, top_len) != 0 || (target[top_len] != '/' && target[top_len] != '\0'))
                        return false;
                target += top_len;
        } else
                for (const char *at = path; (at = strchr(at, '/')); at++)
                        depth++;
        for (size_t len; *target; target += len) {
                target += strspn(target, "/");
                len = strcspn(target, "/");
                if (len == 2 && memcmp(target, "..", 2) == 0) {
                        if (depth == 0 || named)
                                return false;
                        depth--;
                } else if (len > 0 && !(len == 1 && *target == '.'))
                        named = true;
        }
        return true;
}

/* ---- Folders ---- */

/* Opens the folder of the @len bytes at @path below @folder: one or more components, missing ones made when @make. */
static int open_piece(int folder, const char *path, size_t len, bool make) {
        char piece[PIECE_MAX + NAME_MAX + 1];
        memcpy(piece, path, len);
        piece[len] = '\0';
        int fd = file_open_below(folder, piece, O_PATH | O_DIRECTORY, 0, 0);
        if (fd != -ENOENT || !make)
                return fd;

        _cleanup_close_ int above = fcntl(folder, F_DUPFD_CLOEXEC, 0);
        if (above < 0)
                return -errno;
        for (char *name = piece, *end; name; name = end) {
                end = strchr(name, '/');
                if (end)
                        *end++ = '\0';
                if (mkdirat(above, name, FOLDER_MODE) < 0 && errno != EEXIST)
                        return -errno;
                fd = file_open_below(above, name, O_PATH | O_DIRECTORY, 0, 0);
                if (fd < 0)
                        return fd;
                fd_close(above);
                above = fd;
        }
        return TAKE_FD(above);
}

/* Opens the folder of the @len bytes at @path below @top; none is the top itself. However long it is. */
static int open_folder(int top, const char *path, size_t len, bool make) {
        _cleanup_close_ int fd = fcntl(top, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        for (size_t at = 0, end; at < len; at = end + 1) {
                end = len;
                if (len - at > PIECE_MAX) {
                        end = at + PIECE_MAX;
                        end += strcspn(path + end, "/");
                }
                int next = open_piece(fd, path + at, end - at, make);
                if (next < 0)
                        return next;
                fd_close(fd);
                fd = next;
        }
        return TAKE_FD(fd);
}

/* Has @folder be the one that the current entry lies in. Entries of one folder mostly come one after the other. */
static int enter_folder(Unpacker *unpacker, HutchError *err) {
        unpacker->name = last_component(unpacker->path);
        size_t len = unpacker->name > unpacker->path ? (size_t) (unpacker->name - unpacker->path) - 1 : 0;
        size_t known = unpacker->folder_path ? strlen(unpacker->folder_path) : 0;
        bool is_below = known > 0 && known <= len && memcmp(unpacker->folder_path, unpacker->path, known) == 0 &&
                        (known == len || unpacker->path[known] == '/');
        if (unpacker->folder >= 0 && known == len && (len == 0 || is_below))
                return 0;

        size_t begin = is_below ? known + 1 : 0;
        int fd = open_folder(is_below ? unpacker->folder : unpacker->top, unpacker->path + begin, len - begin, true);
        free(unpacker->folder_path);
        unpacker->folder_path = NULL;
        unpacker->folder = fd_close(unpacker->folder);
        if (fd == -ELOOP || fd == -EXDEV)
                return refuse(unpacker->path, "its name goes through a link", err);
        if (fd < 0)
                return fail(unpacker, fd, err);
        unpacker->folder = fd;
        unpacker->folder_path = xstrndup(unpacker->path, len);
        return 0;
}

/* Sets what was remembered of folders, from the last on: those within others come first. What is no longer there, or a
 * link by now, is left alone. */
static void settle_folders(Unpacker *unpacker) {
        for (Folder *folder = unpacker->folders, *next; folder; folder = next) {
                next = folder->next;
                _cleanup_close_ int path = open_folder(unpacker->top, folder->path, strlen(folder->path), false);
                _cleanup_close_ int fd = path < 0 ? -1 : openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0) {
                        (void) futimens(fd, (struct timespec[]){ { .tv_nsec = UTIME_OMIT }, folder->mtime });
                        (void) fchmod(fd, folder->mode);
                }
                free(folder);
        }
        unpacker->folders = NULL;
        unpacker->folders_len = 0;
}

static struct timespec entry_mtime(struct archive_entry *entry) {
        if (!archive_entry_mtime_is_set(entry))
                return (struct timespec){ .tv_nsec = UTIME_NOW };
        return (struct timespec){ .tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry) };
}

static int remember_folder(Unpacker *unpacker, struct archive_entry *entry) {
        size_t size = sizeof(Folder) + strlen(unpacker->path) + 1;
        if (size > FOLDERS_LEN_MAX - unpacker->folders_len)
                settle_folders(unpacker);
        Folder *folder = malloc(size);
        if (!folder)
                return -ENOMEM;
        *folder = (Folder){
                .next = unpacker->folders,
                .mode = archive_entry_perm(entry) & FOLDER_MODE_MASK & ~file_archive_mode_mask(),
                .mtime = entry_mtime(entry),
        };
        memcpy(folder->path, unpacker->path, size - sizeof(Folder));
        unpacker->folders = folder;
        unpacker->folders_len += size;
        return 0;
}

/* ---- Entries ---- */

/* Sets the attributes of the user's namespace. A file system that has none loses them. */
static int set_attributes(struct archive_entry *entry, int fd) {
        const char *name;
        const void *value;
        size_t len;
        (void) archive_entry_xattr_reset(entry);
        while (archive_entry_xattr_next(entry, &name, &value, &len) == ARCHIVE_OK)
                if (name && str_has_prefix(name, "user.") && fsetxattr(fd, name, value, len, 0) < 0 &&
                    errno != EOPNOTSUPP)
                        return -errno;
        return 0;
}

static int unpack_folder(Unpacker *unpacker, struct archive_entry *entry, HutchError *err) {
        mode_t mode = (archive_entry_perm(entry) & FOLDER_MODE_MASK) | S_IRWXU;
        bool is_new = mkdirat(unpacker->folder, unpacker->name, mode) == 0;
        if (!is_new && errno != EEXIST)
                return fail(unpacker, -errno, err);
        _cleanup_close_ int fd = file_open_below(unpacker->folder, unpacker->name, O_RDONLY | O_DIRECTORY, 0, 0);
        if (fd == -ELOOP)
                return refuse(unpacker->path, "a link is there, where it has a folder", err);
        if (fd < 0)
                return fail(unpacker, fd, err);
        if (!is_new && !unpacker->header->overwrite)
                return 0;
        int r = set_attributes(entry, fd);
        if (r >= 0)
                r = remember_folder(unpacker, entry);
        return r < 0 ? fail(unpacker, r, err) : 0;
}

static int make_temporary_name(char name[static FILE_DRAFT_NAME_SIZE]) {
        uint64_t random;
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        (void) snprintf(name, FILE_DRAFT_NAME_SIZE, FILE_DRAFT_PREFIX "%016" PRIx64, random);
        return 0;
}

/* Moves what is named @temporary to the current entry's place, in which something may be already. */
static int replace(const Unpacker *unpacker, const char *temporary) {
        int r = renameat(unpacker->folder, temporary, unpacker->folder, unpacker->name) < 0 ? -errno : 0;
        /* Two names of one file are both left. */
        (void) unlinkat(unpacker->folder, temporary, 0);
        return r;
}

/* What gives the current entry's thing a name, which must not be taken. */
typedef int (*NameThing)(const Unpacker *unpacker, const void *thing, const char *name);

/* Has a thing stand at the current entry's place: at once, or in the place of what is there. */
static int put(const Unpacker *unpacker, NameThing name_thing, const void *thing) {
        int r = name_thing(unpacker, thing, unpacker->name);
        if (r != -EEXIST || !unpacker->header->overwrite)
                return r;
        struct stat st;
        if (fstatat(unpacker->folder, unpacker->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                return -EISDIR;
        char temporary[FILE_DRAFT_NAME_SIZE];
        r = make_temporary_name(temporary);
        if (r >= 0)
                r = name_thing(unpacker, thing, temporary);
        return r < 0 ? r : replace(unpacker, temporary);
}

static int name_symlink(const Unpacker *unpacker, const void *thing, const char *name) {
        return symlinkat(thing, unpacker->folder, name) < 0 ? -errno : 0;
}

static int leave_out(Unpacker *unpacker, HutchError *err) {
        if (!file_archive_leaves_out_links())
                return refuse(unpacker->path, "it is a link that leaves the folder", err);
        if (unpacker->n_left_out < LEFT_OUT_NAMED) {
                _cleanup_free_ char *text = file_text(unpacker->path, strlen(unpacker->path));
                string_builder_appendf(&unpacker->left_out, " '%s'", text ? text : "");
        } else if (unpacker->n_left_out == LEFT_OUT_NAMED)
                string_builder_append(&unpacker->left_out, " …");
        unpacker->n_left_out++;
        return 0;
}

static int unpack_symlink(Unpacker *unpacker, struct archive_entry *entry, HutchError *err) {
        const char *target = archive_entry_symlink(entry);
        if (!target || !*target)
                return refuse(unpacker->path, "it is a link to nothing", err);
        if (!link_stays(unpacker->path, target, unpacker->header->path))
                return leave_out(unpacker, err);
        int r = put(unpacker, name_symlink, target);
        if (r < 0)
                return fail(unpacker, r, err);
        struct timespec times[] = { { .tv_nsec = UTIME_OMIT }, entry_mtime(entry) };
        (void) utimensat(unpacker->folder, unpacker->name, times, AT_SYMLINK_NOFOLLOW);
        return 0;
}

typedef struct LinkTarget {
        int folder;
        const char *name;
} LinkTarget;

static int name_hard_link(const Unpacker *unpacker, const void *thing, const char *name) {
        const LinkTarget *target = thing;
        return linkat(target->folder, target->name, unpacker->folder, name, 0) < 0 ? -errno : 0;
}

static int unpack_hard_link(Unpacker *unpacker, const char *text, HutchError *err) {
        const char *why;
        _cleanup_free_ char *path = plain_path(text, &why);
        if (!path || !*path)
                return refuse(unpacker->path, "it is a link that leaves the folder", err);
        LinkTarget target = { .name = last_component(path) };
        size_t len = target.name > path ? (size_t) (target.name - path) - 1 : 0;
        _cleanup_close_ int folder = open_folder(unpacker->top, path, len, false);
        struct stat st;
        target.folder = folder;
        if (folder < 0 || fstatat(folder, target.name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                return refuse(unpacker->path, "it is a link to what is no file in the folder", err);
        int r = put(unpacker, name_hard_link, &target);
        return r < 0 ? fail(unpacker, r, err) : 0;
}

/* A draft with or without a name. */
static int name_draft(const Unpacker *unpacker, const void *thing, const char *name) {
        const FileDraft *draft = thing;
        char path[32];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", draft->fd);
        int r = *draft->name ? linkat(unpacker->folder, draft->name, unpacker->folder, name, 0)
                             : linkat(AT_FDCWD, path, unpacker->folder, name, AT_SYMLINK_FOLLOW);
        return r < 0 ? -errno : 0;
}

/* Counts @size more bytes of files that the archive says it has. */
static int check_size(Unpacker *unpacker, uint64_t size, HutchError *err) {
        uint64_t max = unpacker->header->max_size_bytes;
        if (size > max - unpacker->size) {
                char why[96];
                (void) snprintf(why, sizeof(why), "the archive's files have more than %" PRIu64 " bytes", max);
                return refuse(unpacker->path, why, err);
        }
        unpacker->size += size;
        return 0;
}

static int write_block(int fd, const uint8_t *bytes, size_t len, int64_t offset) {
        while (len > 0) {
                ssize_t n = pwrite(fd, bytes, len, offset);
                if (n < 0)
                        return -errno;
                bytes += n;
                len -= (size_t) n;
                offset += n;
        }
        return 0;
}

/* Writes what libarchive gives; where it gives nothing a hole is left. */
static int write_blocks(Unpacker *unpacker, int fd, uint64_t size, HutchError *err) {
        for (;;) {
                const void *bytes;
                size_t len;
                la_int64_t offset;
                int r = archive_read_data_block(unpacker->archive, &bytes, &len, &offset);
                if (r == ARCHIVE_EOF)
                        break;
                if (r < ARCHIVE_WARN)
                        return fail_archive(unpacker, err);
                if (offset < 0 || len > size || (uint64_t) offset > size - len)
                        return refuse(unpacker->path, "it has more bytes than it says", err);
                unpacker->unpacked += len;
                if (unpacker->unpacked > RATIO_FREE && unpacker->unpacked / RATIO_MAX > unpacker->packed)
                        return refuse(unpacker->path, "the archive unpacks to far more than it is", err);
                r = check_cancelled(unpacker);
                if (r >= 0)
                        r = write_block(fd, bytes, len, offset);
                if (r < 0)
                        return fail(unpacker, r, err);
        }
        return ftruncate(fd, (off_t) size) < 0 ? fail(unpacker, -errno, err) : 0;
}

/* Asked before its bytes are written; put() is asked again. */
static int check_place(const Unpacker *unpacker) {
        struct stat st;
        if (fstatat(unpacker->folder, unpacker->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;
        return unpacker->header->overwrite ? 0 : -EEXIST;
}

static int unpack_regular(Unpacker *unpacker, struct archive_entry *entry, HutchError *err) {
        uint64_t size = archive_entry_size_is_set(entry) ? (uint64_t) archive_entry_size(entry) : 0;
        _cleanup_(file_draft_clear) FileDraft draft = FILE_DRAFT_NONE;
        int r = check_size(unpacker, size, err);
        if (r < 0)
                return r;
        r = check_place(unpacker);
        if (r >= 0)
                r = file_draft_open(&draft, unpacker->folder);
        if (r < 0)
                return fail(unpacker, r, err);
        r = write_blocks(unpacker, draft.fd, size, err);
        if (r < 0)
                return r;
        r = set_attributes(entry, draft.fd);
        if (r >= 0 && fchmod(draft.fd, archive_entry_perm(entry) & FILE_MODE_MASK & ~file_archive_mode_mask()) < 0)
                r = -errno;
        if (r >= 0 && futimens(draft.fd, (struct timespec[]){ { .tv_nsec = UTIME_OMIT }, entry_mtime(entry) }) < 0)
                r = -errno;
        if (r >= 0)
                r = put(unpacker, name_draft, &draft);
        return r < 0 ? fail(unpacker, r, err) : 0;
}

/* Has the current entry's path be @unpacker's. Returns 0 when the entry is the top itself. */
static int take_path(Unpacker *unpacker, const char *name, HutchError *err) {
        const char *why = "it has no name";
        free(unpacker->path);
        unpacker->path = name && *name ? plain_path(name, &why) : NULL;
        if (!unpacker->path)
                return refuse(name ? name : "", why, err);
        return *unpacker->path ? 1 : 0;
}

static int unpack_entry(Unpacker *unpacker, struct archive_entry *entry, HutchError *err) {
        const char *name = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);
        if (++unpacker->n_entries > ENTRIES_MAX)
                return refuse(name ? name : "", "the archive has too many entries", err);
        int r = check_cancelled(unpacker);
        if (r >= 0)
                r = take_path(unpacker, name, err);
        if (r < 0)
                return r;
        unsigned type = archive_entry_filetype(entry);
        if (r == 0)
                return type == AE_IFDIR ? 0 : refuse(name, "it has the folder's own name", err);
        if (!link && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
                return refuse(unpacker->path, "it is neither a file nor a folder nor a link", err);
        r = enter_folder(unpacker, err);
        if (r < 0)
                return r;
        if (link)
                return unpack_hard_link(unpacker, link, err);
        if (type == AE_IFDIR)
                return unpack_folder(unpacker, entry, err);
        return type == AE_IFLNK ? unpack_symlink(unpacker, entry, err) : unpack_regular(unpacker, entry, err);
}

static int unpack_entries(Unpacker *unpacker, HutchError *err) {
        for (;;) {
                struct archive_entry *entry;
                int r = archive_read_next_header(unpacker->archive, &entry);
                if (r == ARCHIVE_EOF)
                        return 0;
                if (r < ARCHIVE_WARN)
                        return fail_archive(unpacker, err);
                r = unpack_entry(unpacker, entry, err);
                if (r < 0)
                        return r;
        }
}

/* Takes what follows the archive: padding, mostly. */
static int skip_rest(Unpacker *unpacker) {
        const uint8_t *message;
        size_t len;
        int r;
        while ((r = file_stream_receive(unpacker->stream, &message, &len)) > 0)
                ;
        return r;
}

static int tell_left_out(Unpacker *unpacker, HutchError *err) {
        _cleanup_free_ char *names = string_builder_take(&unpacker->left_out);
        return reason_set(err, -EBADMSG, REASON_ARCHIVE_REFUSED,
                          "%" PRIu64 " of the archive's links leave the folder, and were left out:%s",
                          unpacker->n_left_out, names);
}

static int tell_unpacked(const Unpacker *unpacker) {
        Hutch__V1__UploadArchiveResponse response = HUTCH__V1__UPLOAD_ARCHIVE_RESPONSE__INIT;
        response.entries = unpacker->n_entries;
        response.size_bytes = unpacker->size;
        return file_stream_send(unpacker->stream, &response.base);
}

int file_method_upload_archive(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__upload_archive_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__UploadArchiveRequest *request = (const Hutch__V1__UploadArchiveRequest *) unpacked;
        if (request->item_case != HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_HEADER)
                return reason_set(err, -EBADMSG, REASON_STREAM_ORDER, "the first request must be the header");

        _cleanup_(unpacker_clear) Unpacker unpacker = {
                .stream = stream,
                .header = request->header,
                .top = -1,
                .folder = -1,
        };
        if (request->header->create_parents)
                r = file_make_folders(request->header->path, &unpacker.top, err);
        else
                r = file_open_folder(request->header->path, &unpacker.top, err);
        if (r < 0)
                return r;
        struct rlimit before;
        r = limit_memory(&before);
        if (r < 0)
                return reason_set(err, r, REASON_INTERNAL, "cannot limit memory: %s", strerror(-r));
        r = open_archive(&unpacker, err);
        if (r >= 0)
                r = unpack_entries(&unpacker, err);
        (void) setrlimit(RLIMIT_DATA, &before);
        /* What came stays, and looks as it should. */
        settle_folders(&unpacker);
        if (r >= 0)
                r = skip_rest(&unpacker);
        if (r < 0)
                return r;
        return unpacker.n_left_out > 0 ? tell_left_out(&unpacker, err) : tell_unpacked(&unpacker);
}
