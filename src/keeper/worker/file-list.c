/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method ListFiles. What does not: patterns (policy/path-patterns.h), tokens (page-token.c).
 *
 * Entries come in byte order of their paths below the folder. In each folder there are names, and what is below a
 * folder "a" begins with "a/": so names and such beginnings are put in order together, "a" before "a-b" before "a/". A
 * folder is read for as many of them as the page has room for, beginning after where the last page ended, and read
 * again when that was not enough: so memory does not depend on what is in it. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strings.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "keeper/worker/name-heap.h"
#include "keeper/worker/page-token.h"
#include "keeper/worker/sha256.h"
#include "model/reason.h"
#include "policy/path-patterns.h"
#include "rpc/core/protobuf.h"

#define PAGE_MAX 1000
#define DEPTH_MAX 64
#define BYTES_MAX (3 << 20)           /* of a page's entries: an answer is no larger than any message */
#define BELOW_MAX PAGE_TOKEN_LAST_MAX /* bytes of a path below the folder: DEPTH_MAX names and slashes */
#define ASK_EVERY 256                 /* names, whether anybody still waits */

_Static_assert(BELOW_MAX >= DEPTH_MAX * (NAME_MAX + 1), "there is room for the longest path");

typedef struct Listing {
        FileStream *stream;
        const Hutch__V1__ListFilesRequest *request;
        char *folder; /* its path, and a '/' */
        size_t page_size;
        unsigned depth_max;
        uint64_t began;
        bool is_changed;

        FileInfo *infos; /* @page_size of them */
        Hutch__V1__FileInfo **files;
        size_t n_infos, n_bytes;
        bool has_more;
        char last[BELOW_MAX + 1];  /* the path of the last one, below the folder */
        char below[BELOW_MAX + 1]; /* of the folder that is read now, below the folder, with a '/' at its end, or "" */
        uint64_t n_names;
} Listing;

static void listing_clear(Listing *listing) {
        for (size_t i = 0; i < listing->n_infos; i++)
                file_info_clear(&listing->infos[i]);
        free(listing->infos);
        free(listing->files);
        free(listing->folder);
}

/* ---- One folder ---- */

static bool matches(Listing *listing, const char *name) {
        const char *glob = listing->request->glob;
        if (!*glob)
                return true;
        char path[BELOW_MAX + NAME_MAX + 1];
        int len = snprintf(path, sizeof(path), "%s%s", listing->below, name);
        return glob_match(glob, strlen(glob), path, (size_t) len);
}

static bool is_folder(int folder, const struct dirent *entry) {
        struct stat st;
        if (entry->d_type != DT_UNKNOWN)
                return entry->d_type == DT_DIR;
        return fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Adds the name, and the beginning of what is below it, as far as they come after @after. */
static int add_names(Listing *listing, NameHeap *heap, DIR *dir, const struct dirent *entry, unsigned depth,
                     const char *after) {
        if (strcmp(entry->d_name, after) > 0 && matches(listing, entry->d_name)) {
                int r = name_heap_add(heap, entry->d_name);
                if (r < 0)
                        return r;
        }
        if (depth >= listing->depth_max || !is_folder(dirfd(dir), entry))
                return 0;
        char beginning[NAME_MAX + 2];
        int len = snprintf(beginning, sizeof(beginning), "%s/", entry->d_name);
        /* The last page may have ended below it. */
        bool is_begun = str_has_prefix(after, beginning) && after[len];
        return is_begun || strcmp(beginning, after) > 0 ? name_heap_add(heap, beginning) : 0;
}

static int read_names(Listing *listing, NameHeap *heap, DIR *dir, unsigned depth, const char *after) {
        rewinddir(dir);
        for (;;) {
                errno = 0;
                const struct dirent *entry = readdir(dir);
                if (!entry)
                        return -errno;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (listing->n_names++ % ASK_EVERY == 0 && file_stream_is_cancelled(listing->stream))
                        return -ECANCELED;
                int r = add_names(listing, heap, dir, entry, depth, after);
                if (r < 0)
                        return r;
        }
}

/* ---- The page ---- */

/* Adds an entry, unless it is gone, or the page is full. */
static int add_entry(Listing *listing, int folder, const char *name) {
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%s%s%s", listing->folder, listing->below, name) < 0)
                return -ENOMEM;
        FileInfo info;
        int r = file_info_init_at(&info, path, folder, name, NULL);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        size_t len = protobuf_c_message_get_packed_size(&info.message.base) + 8;
        if (listing->n_infos == listing->page_size || (listing->n_infos > 0 && listing->n_bytes + len > BYTES_MAX)) {
                file_info_clear(&info);
                listing->has_more = true;
                return 0;
        }
        /* It points to parts of itself. */
        FileInfo *kept = &listing->infos[listing->n_infos++];
        *kept = info;
        kept->message.modify_time = &kept->modify_time;
        kept->message.version = kept->version;
        listing->n_bytes += len;
        (void) snprintf(listing->last, sizeof(listing->last), "%s%s", listing->below, name);
        return 0;
}

static int list_folder(Listing *listing, int fd, unsigned depth, const char *after);

/* Goes down into @beginning, a name and a '/'. A folder that cannot be read is an entry and nothing more. */
static int list_below(Listing *listing, int folder, const char *beginning, unsigned depth, const char *after) {
        char name[NAME_MAX + 2];
        size_t len = strlen(beginning), below_len = strlen(listing->below);
        (void) snprintf(name, sizeof(name), "%.*s", (int) len - 1, beginning);
        int fd = file_open_below(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
                return fd;
        if (fd < 0)
                return 0;
        (void) snprintf(listing->below + below_len, sizeof(listing->below) - below_len, "%s", beginning);
        int r = list_folder(listing, fd, depth + 1, str_has_prefix(after, beginning) ? after + len : "");
        listing->below[below_len] = '\0';
        return r;
}

static int list_names(Listing *listing, const NameHeap *heap, int folder, unsigned depth, const char *after) {
        for (size_t i = 0; i < heap->n_names && !listing->has_more; i++) {
                const char *name = heap->names[i];
                int r = str_has_suffix(name, "/") ? list_below(listing, folder, name, depth, after)
                                                  : add_entry(listing, folder, name);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int list_dir(Listing *listing, DIR *dir, unsigned depth, const char *after) {
        char from[BELOW_MAX + 1];
        (void) snprintf(from, sizeof(from), "%s", after);
        for (bool is_incomplete = true; is_incomplete && !listing->has_more;) {
                /* One more than there is room for, so that it is known whether there is one. */
                NameHeap heap = { .max = listing->page_size - listing->n_infos + 1 };
                int r = read_names(listing, &heap, dir, depth, from);
                if (r >= 0) {
                        name_heap_sort(&heap);
                        r = list_names(listing, &heap, dirfd(dir), depth, from);
                }
                is_incomplete = heap.is_incomplete;
                if (heap.n_names > 0)
                        (void) snprintf(from, sizeof(from), "%s", heap.names[heap.n_names - 1]);
                name_heap_clear(&heap);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Lists what is in the folder @fd, which is taken over, after @after. At most DEPTH_MAX calls within each other. */
static int list_folder(Listing *listing, int fd, unsigned depth, const char *after) {
        struct stat st;
        DIR *dir = fdopendir(fd);
        if (!dir) {
                int r = -errno;
                fd_close(fd);
                return r;
        }
        if (fstat(fd, &st) == 0)
                listing->is_changed |=
                        (uint64_t) st.st_ctim.tv_sec * NSEC_PER_SEC + (uint64_t) st.st_ctim.tv_nsec > listing->began;
        int r = list_dir(listing, dir, depth, after);
        (void) closedir(dir);
        return r;
}

/* ---- The method ---- */

/* A number for what was asked, but for the page. */
static uint64_t question_of(const Hutch__V1__ListFilesRequest *request) {
        uint8_t digest[SHA256_SIZE];
        uint64_t number;
        Sha256 hash;
        sha256_init(&hash);
        sha256_add(&hash, request->path, strlen(request->path) + 1);
        sha256_add(&hash, request->glob, strlen(request->glob) + 1);
        sha256_add(&hash, &request->depth, sizeof(request->depth));
        sha256_finish(&hash, digest);
        memcpy(&number, digest, sizeof(number));
        return number;
}

/* Reads where to go on, and compares with how it was then. */
static int take_token(Listing *listing, PageToken *token, HutchError *err) {
        const char *text = listing->request->page_token;
        if (!*text)
                return 0;
        PageToken given;
        int r = page_token_read(text, &given);
        if (r == -ENOMEM)
                return file_fail(err, r, "list", listing->request->path);
        if (r >= 0 && given.question == token->question) {
                listing->is_changed = memcmp(given.version, token->version, sizeof(token->version)) != 0;
                listing->began = given.began;
                *token = given;
                return 0;
        }
        if (r >= 0)
                free(given.last);
        return reason_set(err, -EINVAL, REASON_PAGE_TOKEN_INVALID, "the page token is not one of this listing");
}

static int send_page(Listing *listing, PageToken *token, HutchError *err) {
        Hutch__V1__ListFilesResponse response = HUTCH__V1__LIST_FILES_RESPONSE__INIT;
        _cleanup_free_ char *next = NULL;
        for (size_t i = 0; i < listing->n_infos; i++)
                listing->files[i] = &listing->infos[i].message;
        response.files = listing->files;
        response.n_files = listing->n_infos;
        response.changed = listing->is_changed;
        if (listing->has_more) {
                PageToken following = *token;
                following.last = listing->last;
                next = page_token_write(&following);
                if (!next)
                        return file_fail(err, -ENOMEM, "list", listing->request->path);
                response.next_page_token = next;
        }
        return file_stream_send(listing->stream, &response.base);
}

static int listing_init(Listing *listing, FileStream *stream, const Hutch__V1__ListFilesRequest *request) {
        size_t len = strlen(request->path);
        listing->stream = stream;
        listing->request = request;
        listing->page_size = request->page_size == 0         ? 100
                             : request->page_size < PAGE_MAX ? request->page_size
                                                             : PAGE_MAX;
        listing->depth_max = request->depth == 0 ? 1 : request->depth < DEPTH_MAX ? request->depth : DEPTH_MAX;
        listing->began = clock_realtime_ns();
        listing->infos = try_new0(FileInfo, listing->page_size);
        listing->files = try_new0(Hutch__V1__FileInfo *, listing->page_size);
        if (asprintf(&listing->folder, "%s%s", request->path, len > 0 && request->path[len - 1] == '/' ? "" : "/") < 0)
                listing->folder = NULL;
        return listing->infos && listing->files && listing->folder ? 0 : -ENOMEM;
}

int file_method_list(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__list_files_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__ListFilesRequest *request = (const Hutch__V1__ListFilesRequest *) unpacked;

        _cleanup_close_ int fd = -1;
        _cleanup_(listing_clear) Listing listing = {};
        struct stat st;
        r = file_open_folder(request->path, &fd, err);
        if (r < 0)
                return r;
        r = listing_init(&listing, stream, request);
        if (r >= 0 && fstat(fd, &st) < 0)
                r = -errno;
        if (r < 0)
                return file_fail(err, r, "list", request->path);

        char version[FILE_VERSION_SIZE];
        file_version(&st, version);
        PageToken token = { .question = question_of(request), .began = listing.began };
        memcpy(token.version, version, sizeof(token.version));
        r = take_token(&listing, &token, err);
        if (r < 0)
                return r;
        _cleanup_free_ char *after = token.last;
        r = list_folder(&listing, TAKE_FD(fd), 1, after ? after : "");
        return r < 0 ? file_fail(err, r, "list", request->path) : send_page(&listing, &token, err);
}
