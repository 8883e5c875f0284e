/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method WatchFiles: which folders inotify watches, and what its events mean. What does not:
 * sending (file-stream.c): while nobody reads, the kernel's queue fills, and that it was full is told.
 *
 * A folder that comes to be below a watched one is watched first and read then, so that nothing in it is missed: what
 * is found there is told as created, and as written when it has bytes. What was found and is then reported by the
 * kernel as well, is told once. In a narrow gap, when the kernel has made a name and not yet queued that it did, it can
 * be told twice; it is never lost. Folders are not gone into through links, nor into other mounts, nor where the
 * sandbox's user may not read. A file that is changed by truncate(2) alone is not told as written: nobody closes it.
 *
 * A move is two events with one cookie: the second is looked for among those that came so far, and a moment longer. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "keeper/worker/file-frames.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define FOLDERS_MAX 8192
#define SEEN_MAX 65536    /* names that were found, of all folders, before the kernel's queue was empty */
#define PAIR_WAIT_MS 20   /* for the other half of a move */
#define TOP_CHECK_MS 1000 /* while nothing happens, whether the top is still there */
#define BUFFER_SIZE (64 * 1024)
#define EVENTS                                                                                                         \
        (IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF |        \
         IN_EXCL_UNLINK | IN_ONLYDIR)

typedef Hutch__V1__FileChangeType ChangeType;
typedef Hutch__V1__FileType ThingType;
#define CREATED HUTCH__V1__FILE_CHANGE_TYPE__FILE_CHANGE_TYPE_CREATED
#define WRITTEN HUTCH__V1__FILE_CHANGE_TYPE__FILE_CHANGE_TYPE_WRITTEN
#define MOVED HUTCH__V1__FILE_CHANGE_TYPE__FILE_CHANGE_TYPE_MOVED
#define DELETED HUTCH__V1__FILE_CHANGE_TYPE__FILE_CHANGE_TYPE_DELETED
#define FOLDER HUTCH__V1__FILE_TYPE__FILE_TYPE_DIRECTORY
#define UNKNOWN HUTCH__V1__FILE_TYPE__FILE_TYPE_UNSPECIFIED

/* A name that was found in a folder. */
typedef struct Seen {
        struct Seen *next;
        char name[];
} Seen;

typedef struct Folder {
        struct Folder *above; /* NULL: the top */
        struct Folder *next;  /* to be watched after this one */
        char *name;           /* in the folder above; "" for the top */
        int wd;
        Seen *seen;
} Folder;

typedef struct Watcher {
        FileStream *stream;
        const char *path; /* of the top */
        int path_len;     /* without the slash at its end */
        bool is_recursive;
        int top;
        int inotify;
        Folder **folders; /* folders[0] is the top */
        size_t n_folders, n_allocated, n_seen;
        size_t len; /* of the events in the buffer */
        alignas(struct inotify_event) char buffer[BUFFER_SIZE];
} Watcher;

static void forget_seen(Watcher *watcher, Folder *folder) {
        for (Seen *seen = folder->seen, *next; seen; seen = next) {
                next = seen->next;
                free(seen);
                watcher->n_seen--;
        }
        folder->seen = NULL;
}

static void folder_free(Watcher *watcher, Folder *folder) {
        forget_seen(watcher, folder);
        free(folder->name);
        free(folder);
}

/* Ends all watches. */
static void forget_all(Watcher *watcher) {
        for (size_t i = 0; i < watcher->n_folders; i++)
                folder_free(watcher, watcher->folders[i]);
        watcher->n_folders = 0;
        watcher->inotify = fd_close(watcher->inotify);
        watcher->len = 0;
}

static void watcher_clear(Watcher *watcher) {
        forget_all(watcher);
        free(watcher->folders);
        fd_close(watcher->top);
}

/* ---- Names ---- */

/* Writes the path of @name, which may be "", in @folder, relative to the top. -ENAMETOOLONG. */
static int relative_path(const Folder *folder, const char *name, char path[static PATH_MAX]) {
        size_t at = PATH_MAX - 1;
        path[at] = '\0';
        for (const char *part = name;; part = folder->name, folder = folder->above) {
                size_t len = strlen(part);
                bool has_slash = len > 0 && path[at] != '\0';
                if (len + has_slash > at)
                        return -ENAMETOOLONG;
                if (has_slash)
                        path[--at] = '/';
                at -= len;
                memcpy(path + at, part, len);
                if (!folder)
                        break;
        }
        memmove(path, path + at, PATH_MAX - at);
        return 0;
}

/* The path as the caller has it. NULL when memory is out. */
static char *told_path(const Watcher *watcher, const char *relative) {
        char whole[2 * PATH_MAX];
        int len = snprintf(whole, sizeof(whole), "%.*s%s%s", watcher->path_len, watcher->path, *relative ? "/" : "",
                           relative);
        return file_text(whole, (size_t) len < sizeof(whole) ? (size_t) len : sizeof(whole) - 1);
}

static ThingType type_at(const Watcher *watcher, const char *relative, bool *ret_has_bytes) {
        struct stat st = {};
        _cleanup_close_ int fd = file_open_below(watcher->top, relative, O_PATH | O_NOFOLLOW, 0, 0);
        if (fd < 0 || fstat(fd, &st) < 0)
                return UNKNOWN;
        *ret_has_bytes = S_ISREG(st.st_mode) && st.st_size > 0;
        return file_type(st.st_mode);
}

/* ---- Telling ---- */

/* Tells of a change of @name in @folder. @old is the path before, relative to the top; NULL: it has none. */
static int tell(Watcher *watcher, ChangeType type, const Folder *folder, const char *name, bool is_folder,
                const char *old) {
        char relative[PATH_MAX];
        bool has_bytes;
        if (relative_path(folder, name, relative) < 0)
                return 0;
        _cleanup_free_ char *path = told_path(watcher, relative);
        _cleanup_free_ char *old_path = old ? told_path(watcher, old) : NULL;
        if (!path || (old && !old_path))
                return -ENOMEM;
        Hutch__V1__FileChange change = HUTCH__V1__FILE_CHANGE__INIT;
        change.type = type;
        change.path = path;
        if (old_path)
                change.old_path = old_path;
        change.file_type = is_folder ? FOLDER : type == DELETED ? UNKNOWN : type_at(watcher, relative, &has_bytes);
        Hutch__V1__WatchFilesResponse response = HUTCH__V1__WATCH_FILES_RESPONSE__INIT;
        response.item_case = HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_CHANGE;
        response.change = &change;
        return file_stream_send(watcher->stream, &response.base);
}

/* Tells of what was found in a new folder. */
static int tell_found(Watcher *watcher, Folder *folder, const char *name, bool is_folder) {
        char relative[PATH_MAX];
        bool has_bytes = false;
        int r = tell(watcher, CREATED, folder, name, is_folder, NULL);
        if (r >= 0 && !is_folder && relative_path(folder, name, relative) >= 0) {
                (void) type_at(watcher, relative, &has_bytes);
                if (has_bytes)
                        r = tell(watcher, WRITTEN, folder, name, false, NULL);
        }
        if (r < 0 || watcher->n_seen == SEEN_MAX)
                return r;
        size_t size = strlen(name) + 1;
        Seen *seen = xcalloc(1, sizeof(Seen) + size);
        seen->next = folder->seen;
        memcpy(seen->name, name, size);
        folder->seen = seen;
        watcher->n_seen++;
        return 0;
}

/* Whether that @name is there was told already: forgets that, for the next time. */
static bool take_seen(Watcher *watcher, Folder *folder, const char *name) {
        for (Seen **at = &folder->seen; *at; at = &(*at)->next)
                if (str_equal((*at)->name, name)) {
                        Seen *seen = *at;
                        *at = seen->next;
                        free(seen);
                        watcher->n_seen--;
                        return true;
                }
        return false;
}

/* ---- Watching ---- */

static Folder *find_wd(const Watcher *watcher, int wd) {
        for (size_t i = 0; i < watcher->n_folders; i++)
                if (watcher->folders[i]->wd == wd)
                        return watcher->folders[i];
        return NULL;
}

static Folder *find_name(const Watcher *watcher, const Folder *above, const char *name) {
        for (size_t i = 0; i < watcher->n_folders; i++)
                if (watcher->folders[i]->above == above && str_equal(watcher->folders[i]->name, name))
                        return watcher->folders[i];
        return NULL;
}

static Folder *folder_new(Folder *above, const char *name, Folder *next) {
        Folder *folder = new0(Folder, 1);
        folder->above = above;
        folder->name = xstrdup(name);
        folder->next = next;
        return folder;
}

static bool is_below(const Folder *folder, const Folder *above) {
        while (folder && folder != above)
                folder = folder->above;
        return folder;
}

/* Ends the watches of @top and of all below it. */
static void drop(Watcher *watcher, Folder *top) {
        size_t n = 0;
        Folder *gone = NULL;
        for (size_t i = 0; i < watcher->n_folders; i++) {
                Folder *folder = watcher->folders[i];
                if (is_below(folder, top)) {
                        (void) inotify_rm_watch(watcher->inotify, folder->wd);
                        folder->next = gone;
                        gone = folder;
                } else
                        watcher->folders[n++] = folder;
        }
        watcher->n_folders = n;
        while (gone) {
                Folder *next = gone->next;
                folder_free(watcher, gone);
                gone = next;
        }
}

/* Watches @folder, and opens it to be read. -EEXIST: it is watched already; -ENOSPC: by no more than so many. */
static int watch(Watcher *watcher, Folder *folder) {
        char path[PATH_MAX], link[32];
        int r = relative_path(folder, "", path);
        if (r < 0)
                return r;
        _cleanup_close_ int fd =
                file_open_below(watcher->top, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, FILE_SAME_MOUNT);
        if (fd < 0)
                return fd;
        if (watcher->n_folders == FOLDERS_MAX)
                return -EDQUOT;
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        folder->wd = inotify_add_watch(watcher->inotify, link, EVENTS);
        if (folder->wd < 0)
                return -errno;
        if (find_wd(watcher, folder->wd))
                return -EEXIST;
        if (watcher->n_folders == watcher->n_allocated) {
                watcher->n_allocated = watcher->n_allocated > 0 ? 2 * watcher->n_allocated : 64;
                watcher->folders = xreallocarray(watcher->folders, watcher->n_allocated, sizeof(Folder *));
        }
        watcher->folders[watcher->n_folders++] = folder;
        return TAKE_FD(fd);
}

static bool is_dots(const char *name) {
        return str_equal(name, ".") || str_equal(name, "..");
}

static bool is_folder_at(int fd, const struct dirent *entry) {
        struct stat st;
        if (entry->d_type != DT_UNKNOWN)
                return entry->d_type == DT_DIR;
        return fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Reads @folder, by @fd, which it closes: has its folders be watched, and tells of all when @is_told. */
static int look(Watcher *watcher, Folder *folder, int fd, bool is_told, Folder **waiting) {
        DIR *dir = fdopendir(fd);
        if (!dir) {
                fd_close(fd);
                return -ENOMEM;
        }
        int r = 0;
        for (const struct dirent *entry; r >= 0 && (entry = readdir(dir));) {
                if (is_dots(entry->d_name))
                        continue;
                bool is_folder = is_folder_at(fd, entry);
                if (is_told)
                        r = tell_found(watcher, folder, entry->d_name, is_folder);
                if (is_folder && watcher->is_recursive)
                        *waiting = folder_new(folder, entry->d_name, *waiting);
        }
        (void) closedir(dir);
        return r;
}

/* Watches the folder @name in @above and all that are below it. What cannot be watched because it is gone, is another
 * mount's or not for this user, is left out. */
static int watch_tree(Watcher *watcher, Folder *above, const char *name, bool is_told) {
        Folder *waiting = folder_new(above, name, NULL);
        int r = 0;
        while (waiting) {
                Folder *folder = waiting;
                waiting = folder->next;
                int fd = r < 0 ? r : watch(watcher, folder);
                if (fd < 0)
                        folder_free(watcher, folder);
                if (fd >= 0)
                        r = look(watcher, folder, fd, is_told, &waiting);
                else if (fd == -ENOSPC || fd == -EDQUOT || fd == -ENOMEM || fd == -EMFILE)
                        r = fd;
        }
        return r;
}

/* Watches everything, from the beginning. */
static int watch_all(Watcher *watcher) {
        forget_all(watcher);
        watcher->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (watcher->inotify < 0)
                return -errno;
        int r = watch_tree(watcher, NULL, "", false);
        return r >= 0 && watcher->n_folders == 0 ? -EACCES : r;
}

/* ---- Events ---- */

/* Reads more events behind those in the buffer. Returns how many bytes. */
static size_t read_events(Watcher *watcher) {
        ssize_t n = read(watcher->inotify, watcher->buffer + watcher->len, BUFFER_SIZE - watcher->len);
        if (n <= 0)
                return 0;
        watcher->len += (size_t) n;
        return (size_t) n;
}

static struct inotify_event *event_at(Watcher *watcher, size_t at) {
        return (struct inotify_event *) (void *) (watcher->buffer + at);
}

/* Finds where what was moved away, by the event at @at, came to; what follows is read when it is not there yet. */
static struct inotify_event *find_other_half(Watcher *watcher, size_t at) {
        uint32_t cookie = event_at(watcher, at)->cookie;
        for (bool is_last = false;; is_last = true) {
                for (size_t i = at; i < watcher->len; i += sizeof(struct inotify_event) + event_at(watcher, i)->len)
                        if ((event_at(watcher, i)->mask & IN_MOVED_TO) && event_at(watcher, i)->cookie == cookie)
                                return event_at(watcher, i);
                if (is_last)
                        return NULL;
                struct pollfd wait = { .fd = watcher->inotify, .events = POLLIN };
                (void) poll(&wait, 1, PAIR_WAIT_MS);
                (void) read_events(watcher);
        }
}

/* Something came to be @name in @folder. */
static int appeared(Watcher *watcher, Folder *folder, const char *name, bool is_folder, ChangeType type) {
        if (take_seen(watcher, folder, name))
                return 0;
        int r = tell(watcher, type, folder, name, is_folder, NULL);
        if (r < 0 || !is_folder || !watcher->is_recursive)
                return r;
        return watch_tree(watcher, folder, name, true);
}

/* The kernel's queue was full. Everything is watched anew before that is told: who looks then misses nothing. */
static int overflowed(Watcher *watcher) {
        int r = watch_all(watcher);
        if (r < 0)
                return r;
        Hutch__V1__WatchFilesOverflow overflow = HUTCH__V1__WATCH_FILES_OVERFLOW__INIT;
        Hutch__V1__WatchFilesResponse response = HUTCH__V1__WATCH_FILES_RESPONSE__INIT;
        response.item_case = HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_OVERFLOW;
        response.overflow = &overflow;
        return file_stream_send(watcher->stream, &response.base);
}

static int moved(Watcher *watcher, size_t at, Folder *from) {
        struct inotify_event *event = event_at(watcher, at);
        bool is_folder = event->mask & IN_ISDIR;
        Folder *moving = is_folder ? find_name(watcher, from, event->name) : NULL;
        struct inotify_event *other = find_other_half(watcher, at);
        Folder *to = other ? find_wd(watcher, other->wd) : NULL;
        (void) take_seen(watcher, from, event->name);
        if (!to) {
                int r = tell(watcher, DELETED, from, event->name, is_folder, NULL);
                if (moving)
                        drop(watcher, moving);
                return r;
        }

        /* No folder can be moved into itself: what is known of them is no longer true. */
        if (moving && is_below(to, moving))
                return overflowed(watcher);
        char old[PATH_MAX];
        other->mask &= ~(uint32_t) IN_MOVED_TO;
        (void) take_seen(watcher, to, other->name);
        if (relative_path(from, event->name, old) < 0)
                return 0;
        Folder *replaced = is_folder ? find_name(watcher, to, other->name) : NULL;
        if (replaced && replaced != moving)
                drop(watcher, replaced);
        if (moving) {
                free(moving->name);
                moving->name = xstrdup(other->name);
                moving->above = to;
        }
        int r = tell(watcher, MOVED, to, other->name, is_folder, old);
        /* It came before it could be watched where it was. */
        if (r >= 0 && is_folder && !moving && watcher->is_recursive)
                r = watch_tree(watcher, to, other->name, false);
        return r;
}

/* What one event means. -ENOENT: the top is gone. */
static int take_event(Watcher *watcher, size_t at) {
        struct inotify_event *event = event_at(watcher, at);
        if (event->mask & IN_Q_OVERFLOW)
                return overflowed(watcher);
        Folder *folder = find_wd(watcher, event->wd);
        if (!folder)
                return 0;
        bool is_folder = event->mask & IN_ISDIR;
        if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) {
                if (!folder->above)
                        return -ENOENT;
                /* Its own folder tells of it; only the watch has ended. */
                if (!(event->mask & IN_MOVE_SELF))
                        drop(watcher, folder);
                return 0;
        }
        if (event->mask & IN_CREATE)
                return appeared(watcher, folder, event->name, is_folder, CREATED);
        if (event->mask & IN_MOVED_TO)
                return appeared(watcher, folder, event->name, is_folder, MOVED);
        if (event->mask & IN_MOVED_FROM)
                return moved(watcher, at, folder);
        if (event->mask & IN_CLOSE_WRITE)
                return tell(watcher, WRITTEN, folder, event->name, false, NULL);
        if (event->mask & IN_DELETE) {
                (void) take_seen(watcher, folder, event->name);
                int r = tell(watcher, DELETED, folder, event->name, is_folder, NULL);
                Folder *below = is_folder ? find_name(watcher, folder, event->name) : NULL;
                if (below)
                        drop(watcher, below);
                return r;
        }
        return 0;
}

/* Tells of all that is queued. */
static int take_events(Watcher *watcher) {
        while (read_events(watcher) > 0) {
                for (size_t at = 0, next; at < watcher->len; at = next) {
                        next = at + sizeof(struct inotify_event) + event_at(watcher, at)->len;
                        int r = take_event(watcher, at);
                        if (r < 0)
                                return r;
                }
                watcher->len = 0;
        }
        /* Whatever was found when a folder was read is also queued by now, or was there before. */
        for (size_t i = 0; i < watcher->n_folders && watcher->n_seen > 0; i++)
                forget_seen(watcher, watcher->folders[i]);
        return 0;
}

/* ---- The method ---- */

static int fail(const Watcher *watcher, int r, HutchError *err) {
        if (r == -EDQUOT) {
                reason_set(err, r, REASON_QUOTA_EXCEEDED, "there are more than %d folders below %s to watch",
                           FOLDERS_MAX, watcher->path);
                return reason_add_limit(err, "watched_folders", FOLDERS_MAX, r);
        }
        if (r == -ENOSPC)
                return reason_set(err, r, REASON_HOST_EXHAUSTED,
                                  "the host watches as many folders as it can: raise fs.inotify.max_user_watches");
        if (r == -EBADMSG)
                return reason_set(err, r, REASON_STREAM_ORDER, "nothing can follow the request");
        return file_fail(err, r, "watch", watcher->path);
}

/* Whether another message has come: it would be there for ever, and hide what comes behind it. */
static bool has_message(const FileStream *stream) {
        FileFrameHead head;
        ssize_t n = recv(file_stream_fd(stream), &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
        return n == (ssize_t) sizeof(head) && head.kind == FILE_FRAME_MESSAGE;
}

/* While it is held open the kernel does not tell that it was removed. */
static int check_top(const Watcher *watcher) {
        struct stat st;
        if (fstat(watcher->top, &st) < 0)
                return -errno;
        return st.st_nlink > 0 ? 0 : -ENOENT;
}

static int tell_started(Watcher *watcher) {
        Hutch__V1__WatchFilesStarted started = HUTCH__V1__WATCH_FILES_STARTED__INIT;
        started.folders = watcher->n_folders;
        Hutch__V1__WatchFilesResponse response = HUTCH__V1__WATCH_FILES_RESPONSE__INIT;
        response.item_case = HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_STARTED;
        response.started = &started;
        return file_stream_send(watcher->stream, &response.base);
}

int file_method_watch(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__watch_files_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__WatchFilesRequest *request = (const Hutch__V1__WatchFilesRequest *) unpacked;
        size_t len = strlen(request->path);
        _cleanup_(watcher_clear) Watcher watcher = {
                .stream = stream,
                .path = request->path,
                .path_len = (int) (len > 0 && request->path[len - 1] == '/' ? len - 1 : len),
                .is_recursive = request->recursive,
                .top = -1,
                .inotify = -1,
        };
        r = file_open_folder(request->path, &watcher.top, err);
        if (r < 0)
                return r;
        r = watch_all(&watcher);
        if (r >= 0)
                r = tell_started(&watcher);
        while (r >= 0) {
                struct pollfd wait[] = {
                        { .fd = watcher.inotify, .events = POLLIN },
                        { .fd = file_stream_fd(stream), .events = POLLIN },
                };
                int n = poll(wait, 2, TOP_CHECK_MS);
                if (n < 0 && errno != EINTR)
                        r = -errno;
                else if (file_stream_is_cancelled(stream))
                        r = -ECANCELED;
                else if (n > 0 && wait[1].revents != 0 && has_message(stream))
                        r = -EBADMSG;
                else
                        r = n > 0 ? take_events(&watcher) : check_top(&watcher);
        }
        return fail(&watcher, r, err);
}
