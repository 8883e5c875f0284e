/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: inotify, and which follower a descriptor of it belongs to. What does not: reading output
 * (output/output-file.h). */

#include "runtime/native/output-watch.h"

#include <errno.h>
#include <stdalign.h>
#include <stdbool.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "model/reason.h"

#define FILES_MAX 2
#define BUFFER_SIZE 16384
#define READS_MAX 16 /* before the loop gets to its other work */
#define BUCKETS_MIN 64

/* One file of a follower, in the table of watch descriptors. */
typedef struct WatchedFile WatchedFile;
struct WatchedFile {
        WatchedFile *next; /* in its bucket */
        OutputFollow *follow;
        int descriptor;
};

struct OutputFollow {
        OutputWatch *watch;
        WatchedFile files[FILES_MAX];
        unsigned n_files;
        void (*grew)(void *user);
        void *user;
        OutputFollow *prev, *next; /* among those to be told */
        bool to_tell;
};

struct OutputWatch {
        uv_poll_t poll;
        int fd;
        OutputFollow *to_tell;
        WatchedFile **buckets; /* by watch descriptors, which grow for ever */
        size_t n_buckets;      /* a power of two */
        size_t n_files;
};

static WatchedFile **bucket(OutputWatch *watch, int descriptor) {
        return &watch->buckets[(size_t) descriptor & (watch->n_buckets - 1)];
}

static void table_add(OutputWatch *watch, WatchedFile *file) {
        WatchedFile **place = bucket(watch, file->descriptor);

        file->next = *place;
        *place = file;
}

/* Keeps the buckets short. */
static void table_grow(OutputWatch *watch) {
        WatchedFile **old = watch->buckets;
        size_t n_old = watch->n_buckets;

        watch->n_buckets = n_old ? n_old * 2 : BUCKETS_MIN;
        watch->buckets = new0(WatchedFile *, watch->n_buckets);
        for (size_t i = 0; i < n_old; i++)
                for (WatchedFile *file = old[i], *next; file; file = next) {
                        next = file->next;
                        table_add(watch, file);
                }
        free(old);
}

static void set_to_tell(OutputFollow *follow, bool to_tell) {
        OutputWatch *watch = follow->watch;

        if (follow->to_tell == to_tell)
                return;

        follow->to_tell = to_tell;
        if (to_tell) {
                follow->prev = NULL;
                follow->next = watch->to_tell;
                watch->to_tell = follow;
        } else
                *(follow->prev ? &follow->prev->next : &watch->to_tell) = follow->next;
        if (follow->next)
                follow->next->prev = to_tell ? follow : follow->prev;
}

static void take_event(OutputWatch *watch, const struct inotify_event *event) {
        if (event->mask & IN_Q_OVERFLOW) {
                for (size_t i = 0; i < watch->n_buckets; i++)
                        for (WatchedFile *file = watch->buckets[i]; file; file = file->next)
                                set_to_tell(file->follow, true);
                return;
        }

        if (!(event->mask & IN_MODIFY))
                return;
        for (WatchedFile *file = *bucket(watch, event->wd); file; file = file->next)
                if (file->descriptor == event->wd)
                        set_to_tell(file->follow, true);
}

static void on_events(uv_poll_t *poll, int status, int events) {
        OutputWatch *watch = poll->data;
        alignas(struct inotify_event) char buffer[BUFFER_SIZE];

        (void) status;
        (void) events;
        for (int i = 0; i < READS_MAX; i++) {
                ssize_t n = read(watch->fd, buffer, sizeof(buffer));

                if (n <= 0)
                        break;
                for (const char *at = buffer; at < buffer + n;) {
                        const struct inotify_event *event = (const struct inotify_event *) (const void *) at;

                        take_event(watch, event);
                        at += sizeof(*event) + event->len;
                }
        }

        /* Who is told may free any of them. */
        while (watch->to_tell) {
                OutputFollow *follow = watch->to_tell;

                set_to_tell(follow, false);
                follow->grew(follow->user);
        }
}

int output_watch_new(uv_loop_t *loop, OutputWatch **ret_watch, HutchError *err) {
        int r, fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        OutputWatch *watch;

        if (fd < 0) {
                r = -errno;
                return reason_set(err, r, REASON_HOST_EXHAUSTED,
                                  "cannot watch files (%s): raise fs.inotify.max_user_instances", strerror(-r));
        }

        watch = new0(OutputWatch, 1);
        watch->fd = fd;
        r = uv_poll_init(loop, &watch->poll, fd);
        if (r < 0) {
                fd_close(fd);
                free(watch);
                return reason_set(err, r, REASON_HOST_EXHAUSTED, "cannot watch files: %s", strerror(-r));
        }

        table_grow(watch);
        watch->poll.data = watch;
        (void) uv_poll_start(&watch->poll, UV_READABLE, on_events);
        *ret_watch = watch;
        return 0;
}

static void on_closed(uv_handle_t *handle) {
        OutputWatch *watch = handle->data;

        free(watch->buckets);
        free(watch);
}

OutputWatch *output_watch_free(OutputWatch *watch) {
        if (watch) {
                uv_close((uv_handle_t *) &watch->poll, on_closed);
                watch->fd = fd_close(watch->fd);
        }
        return NULL;
}

OutputFollow *output_follow_new(OutputWatch *watch, const char *const paths[], unsigned n_paths,
                                void (*grew)(void *user), void *user) {
        OutputFollow *follow = new0(OutputFollow, 1);

        *follow = (OutputFollow){ .watch = watch, .grew = grew, .user = user };
        for (unsigned i = 0; i < n_paths && i < FILES_MAX; i++) {
                WatchedFile *file = &follow->files[follow->n_files];

                file->follow = follow;
                file->descriptor = inotify_add_watch(watch->fd, paths[i], IN_MODIFY | IN_DONT_FOLLOW);
                if (file->descriptor < 0)
                        continue;
                follow->n_files++;
                if (++watch->n_files > watch->n_buckets)
                        table_grow(watch);
                table_add(watch, file);
        }
        if (follow->n_files == 0)
                return output_follow_free(follow);

        return follow;
}

OutputFollow *output_follow_free(OutputFollow *follow) {
        if (!follow)
                return NULL;

        set_to_tell(follow, false);
        for (unsigned i = 0; i < follow->n_files; i++) {
                WatchedFile *file = &follow->files[i], **link = bucket(follow->watch, file->descriptor);

                (void) inotify_rm_watch(follow->watch->fd, file->descriptor);
                follow->watch->n_files--;
                while (*link != file)
                        link = &(*link)->next;
                *link = file->next;
        }
        free(follow);
        return NULL;
}
