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

#define BUFFER_SIZE 16384
#define READS_MAX 16 /* before the loop gets to its other work */
#define BUCKETS_MIN 64

struct OutputFollow {
        OutputWatch *watch;
        OutputFollow *next_in_bucket;
        int descriptor; /* of the folder; those who follow files of the same one have the same */
        char *name;
        void (*grew)(void *user);
        void *user;
        OutputFollow *prev, *next; /* among those to be told */
        bool to_tell;
};

struct OutputWatch {
        uv_poll_t poll;
        int fd;
        OutputFollow *to_tell;
        OutputFollow **buckets; /* by watch descriptors, which grow for ever */
        size_t n_buckets;       /* a power of two */
        size_t n_follows;
};

static OutputFollow **bucket(OutputWatch *watch, int descriptor) {
        return &watch->buckets[(size_t) descriptor & (watch->n_buckets - 1)];
}

static void table_add(OutputWatch *watch, OutputFollow *follow) {
        OutputFollow **place = bucket(watch, follow->descriptor);

        follow->next_in_bucket = *place;
        *place = follow;
}

/* Tells whether anybody was left who follows files of that folder. */
static bool table_remove(OutputWatch *watch, OutputFollow *follow) {
        bool others = false;

        for (OutputFollow **link = bucket(watch, follow->descriptor); *link;)
                if (*link == follow) {
                        *link = follow->next_in_bucket;
                } else {
                        others |= (*link)->descriptor == follow->descriptor;
                        link = &(*link)->next_in_bucket;
                }
        return others;
}

/* Keeps the buckets short. */
static void table_grow(OutputWatch *watch) {
        OutputFollow **old = watch->buckets;
        size_t n_old = watch->n_buckets;

        watch->n_buckets = n_old ? n_old * 2 : BUCKETS_MIN;
        watch->buckets = new0(OutputFollow *, watch->n_buckets);
        for (size_t i = 0; i < n_old; i++)
                for (OutputFollow *follow = old[i], *next; follow; follow = next) {
                        next = follow->next_in_bucket;
                        table_add(watch, follow);
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

static bool is_file_of(const OutputFollow *follow, const struct inotify_event *event) {
        size_t len = strlen(follow->name);

        return event->wd == follow->descriptor && event->len > len + 1 && memcmp(event->name, follow->name, len) == 0 &&
               event->name[len] == '.';
}

static void take_event(OutputWatch *watch, const struct inotify_event *event) {
        if (event->mask & IN_Q_OVERFLOW) {
                for (size_t i = 0; i < watch->n_buckets; i++)
                        for (OutputFollow *follow = watch->buckets[i]; follow; follow = follow->next_in_bucket)
                                set_to_tell(follow, true);
                return;
        }

        for (OutputFollow *follow = *bucket(watch, event->wd); follow; follow = follow->next_in_bucket)
                if (is_file_of(follow, event))
                        set_to_tell(follow, true);
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

OutputFollow *output_follow_new(OutputWatch *watch, const char *folder, const char *name, void (*grew)(void *user),
                                void *user) {
        int descriptor = inotify_add_watch(watch->fd, folder, IN_CREATE | IN_MODIFY | IN_DONT_FOLLOW | IN_ONLYDIR);
        OutputFollow *follow;

        if (descriptor < 0)
                return NULL;

        follow = new0(OutputFollow, 1);
        *follow = (OutputFollow){
                .watch = watch, .descriptor = descriptor, .name = xstrdup(name), .grew = grew, .user = user
        };
        if (++watch->n_follows > watch->n_buckets)
                table_grow(watch);
        table_add(watch, follow);
        return follow;
}

OutputFollow *output_follow_free(OutputFollow *follow) {
        if (!follow)
                return NULL;

        set_to_tell(follow, false);
        if (!table_remove(follow->watch, follow))
                (void) inotify_rm_watch(follow->watch->fd, follow->descriptor);
        follow->watch->n_follows--;
        free(follow->name);
        free(follow);
        return NULL;
}
