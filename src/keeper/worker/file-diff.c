/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method ListChanges. What does not: how the layers come into the worker (file-worker.c).
 *
 * The sandbox's own files are in three parts: the upper layer of the root, over the image; the home; the workspace.
 * Each is gone through folder by folder, beside the same folder in the image and as the sandbox sees it. The names
 * that are looked at are those of the upper layer; what is told about them is what the sandbox sees there: so what is
 * mounted over one of them is left out, and what was swapped meanwhile is told as something that was there. All of it
 * is done as the sandbox's user, through no link, and by nothing that climbs: whoever is inside has made these names.
 *
 * In an upper layer a character device 0:0 stands for something that was deleted, and a folder with an attribute for
 * one that was made anew: of what the image has in it nothing is seen any more. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strings.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-layers.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-names.h"
#include "keeper/worker/file-path.h"
#include "keeper/worker/page-token.h"
#include "keeper/worker/sha256.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define DEPTH_MAX 60
#define BYTES_MAX (3 << 20)            /* of a page's entries: an answer is no larger than any message */
#define NAMES_MAX (4 * FILE_NAMES_MAX) /* in memory, of all folders on the way */
#define ASK_EVERY 256                  /* names, whether anybody still waits */
#define NOBODY 65534                   /* whom files belong to whose owner is unknown inside */
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

_Static_assert(PAGE_TOKEN_LAST_MAX >= (DEPTH_MAX + 1) * (NAME_MAX + 1) + 1, "there is room for the longest path");

#define HOME "/home/agent"
#define OPAQUE "user.overlay.opaque"

/* A folder, as three see it. */
typedef struct Level {
        int changed;    /* to be read: the upper layer's, or that of the home or workspace itself */
        int image;      /* the image's, with O_PATH; -1: it has none */
        int seen;       /* the sandbox's */
        bool is_opaque; /* nothing of the image's is seen in it */

        FileNames names, image_names;
        const char *name, *image_name; /* the next of them, or NULL */
} Level;

typedef struct Change {
        Hutch__V1__ImageChange message; /* first */
        FileInfo info;
        char *path;
} Change;

typedef struct Walk {
        FileStream *stream;
        size_t page_size;
        Hutch__V1__ImageChange **changes; /* each of a Change */
        size_t n_changes, n_bytes;
        bool has_more, is_incomplete;
        size_t n_asked, n_held;

        unsigned part;                      /* that is gone through */
        dev_t device;                       /* of its folders */
        bool is_upper;                      /* it is an upper layer */
        struct timespec began;              /* when the sandbox's files were made */
        const char *top;                    /* the part's path, without '/' at its end */
        char last[PAGE_TOKEN_LAST_MAX + 1]; /* the token's: the part, and the path of the last change in it */
        char below[DEPTH_MAX * (NAME_MAX + 1) +
                   1]; /* the path of the folder at hand, below the part: "", or with '/' */
} Walk;

static FileLayers layers = { -1, -1, -1 };

void file_layers_set(FileLayers given) {
        layers = given;
}

static Change *change_free(Change *change) {
        if (!change)
                return NULL;
        file_info_clear(&change->info);
        free(change->path);
        free(change);
        return NULL;
}
DEFINE_CLEANUP(Change *, change_free);

static void walk_clear(Walk *walk) {
        for (size_t i = 0; i < walk->n_changes; i++)
                change_free((Change *) walk->changes[i]);
        free(walk->changes);
}

static void level_clear(Level *level) {
        fd_close(level->changed);
        fd_close(level->image);
        fd_close(level->seen);
        file_names_clear(&level->names);
        file_names_clear(&level->image_names);
}

/* ---- The page ---- */

/* What is to be told about a change at @path. @seen is what is there now, or -1. */
static int change_new(Hutch__V1__ImageChangeType type, const char *path, int seen, const struct stat *st,
                      Change **ret_change) {
        _cleanup_(change_freep) Change *change = new0(Change, 1);
        char link[PATH_MAX] = "";
        ssize_t len = seen >= 0 && S_ISLNK(st->st_mode) ? readlinkat(seen, "", link, sizeof(link) - 1) : 0;
        if (len < 0)
                return -errno;
        change->message = (Hutch__V1__ImageChange) HUTCH__V1__IMAGE_CHANGE__INIT;
        change->path = file_text(path, strlen(path));
        if (!change->path || (seen >= 0 && file_info_init(&change->info, path, st, len > 0 ? link : NULL) < 0))
                return -ENOMEM;
        change->message.type = type;
        change->message.path = change->path;
        change->message.file = seen >= 0 ? &change->info.message : NULL;
        *ret_change = TAKE_PTR(change);
        return 0;
}

/* Adds a change at @name in the folder at hand, unless the page is full. */
static int add_change(Walk *walk, Hutch__V1__ImageChangeType type, const char *name, int seen, const struct stat *st) {
        _cleanup_(change_freep) Change *change = NULL;
        _cleanup_free_ char *path = NULL;
        if (walk->n_changes == walk->page_size || walk->n_bytes >= BYTES_MAX) {
                walk->has_more = true;
                return 0;
        }
        if (asprintf(&path, "%s/%s%s", walk->top, walk->below, name) < 0)
                return -ENOMEM;
        int r = change_new(type, path, seen, st, &change);
        if (r < 0)
                return r;
        Hutch__V1__ImageChange **changes =
                reallocarray(walk->changes, walk->n_changes + 1, sizeof(Hutch__V1__ImageChange *));
        if (!changes)
                return -ENOMEM;
        walk->n_bytes += protobuf_c_message_get_packed_size(&change->message.base);
        walk->changes = changes;
        walk->changes[walk->n_changes++] = &TAKE_PTR(change)->message;
        (void) snprintf(walk->last, sizeof(walk->last), "%u%s%.*s", walk->part, walk->below, NAME_MAX, name);
        return 0;
}

/* ---- One thing ---- */

/* What the image has there. */
static bool find_in_image(const Level *level, const char *name, struct stat *ret_stat) {
        return level->image >= 0 && fstatat(level->image, name, ret_stat, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Opens what the sandbox sees there, if it is of the part at hand, and not mounted over it. A folder of the root
 * may be mounted on itself. -ENOENT: it is not. */
static int open_seen(const Walk *walk, const Level *level, const char *name, struct stat *ret_stat) {
        _cleanup_close_ int fd = file_open_below(level->seen, name, O_PATH | O_NOFOLLOW, 0, FILE_SAME_MOUNT);
        bool is_mount = fd == -EXDEV;
        if (is_mount)
                fd = file_open_below(level->seen, name, O_PATH | O_NOFOLLOW, 0, 0);
        if (fd < 0)
                return fd;
        if (fstat(fd, ret_stat) < 0)
                return -errno;
        if (is_mount && (!walk->is_upper || !S_ISDIR(ret_stat->st_mode) || ret_stat->st_dev != walk->device))
                return -ENOENT;
        return TAKE_FD(fd);
}

static bool is_whiteout(const struct stat *st) {
        return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* What the keeper writes into every sandbox, and nobody has touched since. */
static bool is_made(const Walk *walk, const char *name, const struct stat *st) {
        static const char *const names[] = { "hostname", "hosts", "machine-id" };
        if (!walk->is_upper || !str_equal(walk->below, "etc/") || st->st_ctim.tv_sec > walk->began.tv_sec ||
            (st->st_ctim.tv_sec == walk->began.tv_sec && st->st_ctim.tv_nsec > walk->began.tv_nsec))
                return false;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (str_equal(name, names[i]))
                        return true;
        return false;
}

/* Whether a folder is as that of the image. Root's image is that of the root inside, whom it does not know. */
static bool is_same_folder(const struct stat *st, const struct stat *image) {
        uid_t uid = image->st_uid == NOBODY ? 0 : image->st_uid;
        gid_t gid = image->st_gid == NOBODY ? 0 : image->st_gid;
        return S_ISDIR(st->st_mode) && S_ISDIR(image->st_mode) && st->st_mode == image->st_mode && st->st_uid == uid &&
               st->st_gid == gid;
}

static bool is_opaque(int folder) {
        char value;
        return fgetxattr(folder, OPAQUE, &value, 1) == 1 && value == 'y';
}

/* Opens the folder @name as three see it. @seen is taken over. */
static int level_open(const Walk *walk, const Level *above, const char *name, int seen, Level *ret_level) {
        *ret_level = (Level){ .changed = -1, .image = -1, .seen = seen };
        ret_level->changed = file_open_below(above->changed, name, FOLDER, 0, walk->is_upper ? 0 : FILE_SAME_MOUNT);
        if (ret_level->changed < 0)
                return ret_level->changed;
        ret_level->is_opaque = walk->is_upper && is_opaque(ret_level->changed);
        if (above->image >= 0)
                ret_level->image = openat(above->image, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return 0;
}

static int walk_folder(Walk *walk, Level *level, unsigned depth, const char *only, const char *after);

/* Goes down into @name; not for want of rights, or when it is gone by now. */
static int walk_below(Walk *walk, Level *above, const char *name, Level *level, unsigned depth, const char *only,
                      const char *after) {
        size_t below_len = strlen(walk->below), held;
        if (depth == DEPTH_MAX) {
                walk->is_incomplete = true;
                return 0;
        }
        if (walk->n_held + file_names_held(&above->names) > NAMES_MAX)
                file_names_forget(&above->names);
        held = file_names_held(&above->names);
        walk->n_held += held;
        (void) snprintf(walk->below + below_len, sizeof(walk->below) - below_len, "%s/", name);
        int r = walk_folder(walk, level, depth + 1, only, after);
        walk->below[below_len] = '\0';
        walk->n_held -= held;
        return r;
}

/* What was deleted is told when the image has it, and nothing has been put there meanwhile. */
static int visit_deleted(Walk *walk, const Level *level, const char *name, bool is_told) {
        struct stat image, st;
        if (!is_told || !find_in_image(level, name, &image) ||
            fstatat(level->seen, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        return add_change(walk, HUTCH__V1__IMAGE_CHANGE_TYPE__IMAGE_CHANGE_TYPE_DELETED, name, -1, NULL);
}

/* Tells about @name, when @is_told, and goes down into it, after @after and only to @only. */
static int visit(Walk *walk, Level *level, const char *name, unsigned depth, bool is_told, const char *only,
                 const char *after) {
        struct stat st, seen_st, image;
        /* A token may have been made up. */
        if (!*name || str_equal(name, ".") || str_equal(name, ".."))
                return 0;
        if (fstatat(level->changed, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT && level->is_opaque ? visit_deleted(walk, level, name, is_told) : 0;
        if (walk->is_upper && is_whiteout(&st))
                return visit_deleted(walk, level, name, is_told);
        _cleanup_close_ int seen = open_seen(walk, level, name, &seen_st);
        if (seen == -EMFILE || seen == -ENFILE || seen == -ENOMEM)
                return seen;
        if (seen < 0) {
                walk->is_incomplete |= seen != -ENOENT;
                return 0;
        }

        _cleanup_(level_clear) Level below = { .changed = -1, .image = -1, .seen = -1 };
        bool is_folder = S_ISDIR(st.st_mode) && S_ISDIR(seen_st.st_mode);
        int r = is_folder ? level_open(walk, level, name, fcntl(seen, F_DUPFD_CLOEXEC, 0), &below) : 0;
        if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
                return r;
        bool is_open = is_folder && r >= 0 && below.seen >= 0;
        walk->is_incomplete |= is_folder && !is_open && r != -ENOENT;

        bool is_in_image = find_in_image(level, name, &image);
        is_told &= !is_made(walk, name, &st) && !(is_in_image && is_same_folder(&seen_st, &image) && !below.is_opaque);
        r = !is_told ? 0
                     : add_change(walk,
                                  is_in_image ? HUTCH__V1__IMAGE_CHANGE_TYPE__IMAGE_CHANGE_TYPE_MODIFIED
                                              : HUTCH__V1__IMAGE_CHANGE_TYPE__IMAGE_CHANGE_TYPE_ADDED,
                                  name, seen, &seen_st);
        if (r < 0 || !is_open || walk->has_more)
                return r;
        return walk_below(walk, level, name, &below, depth, only, after);
}

/* ---- One folder ---- */

/* The next name that is in the folder, or, when that is opaque, in the image's: 1; 0: there is none. Valid until the
 * next call. */
static int next_name(Level *level, const char **ret_name) {
        int r = level->name ? 1 : file_names_next(&level->names, level->changed, &level->name);
        if (r < 0)
                return r;
        if (level->is_opaque && level->image >= 0 && !level->image_name) {
                r = file_names_next(&level->image_names, level->image, &level->image_name);
                if (r < 0)
                        return r;
        }
        const char *name = level->name, *image_name = level->image_name;
        if (!name && !image_name)
                return 0;
        int order = !name ? 1 : !image_name ? -1 : strcmp(name, image_name);
        *ret_name = order <= 0 ? name : image_name;
        if (order <= 0)
                level->name = NULL;
        if (order >= 0)
                level->image_name = NULL;
        return 1;
}

/* The first component of @path; returns what follows it. */
static const char *split(const char *path, char ret_name[static NAME_MAX + 1]) {
        size_t len = strcspn(path, "/");
        (void) snprintf(ret_name, NAME_MAX + 1, "%.*s", (int) len, path);
        return path[len] ? path + len + 1 : path + len;
}

/* Goes through what is in the folder: only to @only and below, when that is not empty; and after @after, which is a
 * path in it, when that is not empty. */
static int walk_folder(Walk *walk, Level *level, unsigned depth, const char *only, const char *after) {
        char first[NAME_MAX + 1];
        const char *name, *after_below = "", *only_below = "";
        if (*after)
                after_below = split(after, first);
        if (*only)
                only_below = split(only, first);
        if (*after || *only) {
                int r = visit(walk, level, first, depth, !*after && !*only_below, only_below, after_below);
                if (r < 0 || *only || walk->has_more)
                        return r;
                level->names.last = strdup(first);
                level->image_names.last = strdup(first);
                if (!level->names.last || !level->image_names.last)
                        return -ENOMEM;
        }
        for (;;) {
                if (walk->n_asked++ % ASK_EVERY == 0 && file_stream_is_cancelled(walk->stream))
                        return -ECANCELED;
                int r = next_name(level, &name);
                walk->is_incomplete |= r == -EACCES;
                if (r <= 0)
                        return r == -EACCES ? 0 : r;
                r = visit(walk, level, name, depth, true, "", "");
                if (r < 0 || walk->has_more)
                        return r;
        }
}

/* ---- The parts ---- */

/* Opens the upper layer, and what the sandbox sees of it. */
static int open_root(Walk *walk, Level *ret_level) {
        struct stat st;
        *ret_level = (Level){ .changed = -1, .image = -1, .seen = -1 };
        ret_level->changed = layers.upper >= 0 ? file_open_below(layers.upper, ".", FOLDER, 0, 0)
                                               : file_open_below(layers.kept, "upper", FOLDER, 0, 0);
        int r = ret_level->changed < 0 ? ret_level->changed : file_open_path("/", &ret_level->seen, NULL);
        if (r < 0)
                return r;
        ret_level->image = fcntl(layers.image, F_DUPFD_CLOEXEC, 0);
        if (ret_level->image < 0 || fstat(ret_level->seen, &st) < 0)
                return -errno;
        walk->device = st.st_dev;
        if (fstat(layers.kept, &st) < 0)
                return -errno;
        walk->began = st.st_ctim;
        return 0;
}

/* Opens the folder @name of those that are kept, as it is seen at @path. -ENOENT: something else is there. */
static int open_kept(const char *name, const char *path, Level *ret_level) {
        struct stat kept, st;
        *ret_level = (Level){ .changed = -1, .image = -1, .seen = -1 };
        int r = file_open_folder(path, &ret_level->changed, NULL);
        if (r < 0)
                return r;
        if (fstatat(layers.kept, name, &kept, AT_SYMLINK_NOFOLLOW) < 0 || fstat(ret_level->changed, &st) < 0)
                return -errno;
        if (kept.st_dev != st.st_dev || kept.st_ino != st.st_ino)
                return -ENOENT;
        ret_level->seen = fcntl(ret_level->changed, F_DUPFD_CLOEXEC, 0);
        return ret_level->seen < 0 ? -errno : 0;
}

/* What of the part at @top is asked for: the path below it; "": all; NULL: nothing. */
static const char *only_of(const char *top, const char *path) {
        size_t top_len = strlen(top), len = strlen(path);
        if (strncmp(path, top, top_len) == 0 && (path[top_len] == '/' || path[top_len] == '\0'))
                return path[top_len] ? path + top_len + 1 : path + top_len;
        return strncmp(top, path, len) == 0 && top[len] == '/' ? "" : NULL;
}

/* Goes through all parts, after @after, which is a token's. @path has no '/' at its end. */
static int walk_parts(Walk *walk, const char *path, const char *after) {
        const char *const tops[] = { "", HOME, file_workspace() };
        unsigned first = *after ? (unsigned) (*after - '0') : 0;
        for (walk->part = first; walk->part < sizeof(tops) / sizeof(tops[0]) && !walk->has_more; walk->part++) {
                _cleanup_(level_clear) Level level = { .changed = -1, .image = -1, .seen = -1 };
                walk->top = tops[walk->part];
                walk->is_upper = walk->part == 0;
                const char *only = only_of(walk->top, path);
                if (!only)
                        continue;
                int r = walk->is_upper ? open_root(walk, &level)
                                       : open_kept(walk->part == 1 ? "home" : "workspace", walk->top, &level);
                if (r >= 0)
                        r = walk_folder(walk, &level, 0, only, walk->part == first && *after ? after + 1 : "");
                else if (r == -EACCES)
                        walk->is_incomplete = true;
                if (r < 0 && r != -EACCES && r != -ENOENT)
                        return r;
        }
        return 0;
}

/* ---- The method ---- */

/* A number for what was asked, but for the page. */
static uint64_t question_of(const char *path) {
        uint8_t digest[SHA256_SIZE];
        uint64_t number;
        Sha256 hash;
        sha256_init(&hash);
        sha256_add(&hash, "changes", sizeof("changes"));
        sha256_add(&hash, path, strlen(path));
        sha256_finish(&hash, digest);
        memcpy(&number, digest, sizeof(number));
        return number;
}

/* Where to go on; "": from the beginning. */
static int read_token(const char *text, const char *path, char **ret_after, HutchError *err) {
        PageToken token = {};
        int r = *text ? page_token_read(text, &token) : 0;
        if (r == -ENOMEM)
                return file_fail(err, r, "list changes of", path);
        if (*text && (r < 0 || token.question != question_of(path) || token.last[0] < '0' || token.last[0] > '2' ||
                      !token.last[1])) {
                free(token.last);
                return reason_set(err, -EINVAL, REASON_PAGE_TOKEN_INVALID, "the page token is not one of this listing");
        }
        *ret_after = token.last;
        return 0;
}

static int send_page(Walk *walk, const char *path, HutchError *err) {
        Hutch__V1__ListChangesResponse response = HUTCH__V1__LIST_CHANGES_RESPONSE__INIT;
        _cleanup_free_ char *next = NULL;
        response.changes = walk->changes;
        response.n_changes = walk->n_changes;
        response.incomplete = walk->is_incomplete;
        if (walk->has_more) {
                next = page_token_write(&(PageToken){ .question = question_of(path), .last = walk->last });
                if (!next)
                        return file_fail(err, -ENOMEM, "list changes of", path);
                response.next_page_token = next;
        }
        return file_stream_send(walk->stream, &response.base);
}

int file_method_changes(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__list_changes_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__ListChangesRequest *request = (const Hutch__V1__ListChangesRequest *) unpacked;
        if (layers.kept < 0)
                return reason_set(err, -EOPNOTSUPP, REASON_FEATURE_UNSUPPORTED, "this sandbox has no layers");

        _cleanup_free_ char *path = NULL, *after = NULL;
        r = file_path_check(request->path, &path, err);
        if (r < 0)
                return r;
        /* The root's is empty, as those of its parts are. */
        if (str_equal(path, "/"))
                path[0] = '\0';
        r = read_token(request->page_token, path, &after, err);
        if (r < 0)
                return r;

        uint32_t size = request->page_size;
        _cleanup_(walk_clear) Walk walk = {
                .stream = stream,
                .page_size = size == 0         ? PAGE_DEFAULT
                             : size < PAGE_MAX ? size
                                               : PAGE_MAX,
        };
        r = walk_parts(&walk, path, after ? after : "");
        return r < 0 ? file_fail(err, r, "list changes of", *path ? path : "/") : send_page(&walk, path, err);
}
