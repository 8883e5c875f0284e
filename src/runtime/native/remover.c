/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which folders are to be removed, and the processes that do. What does not: how trees are removed,
 * which is the keeper's (keeper/root/remove.h). */

#include "runtime/native/remover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "base/table.h"
#include "model/reason.h"
#include "runtime/native/child-process.h"

#define AT_ONCE_MAX 4
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 60000

/* One folder: it waits for its turn, is being removed, or has a pause after that failed. */
typedef struct Job {
        Remover *remover;
        struct Job *next; /* of those that wait */
        bool is_waiting;
        char *name;
        ChildProcess *child; /* NULL: it is not being removed */
        uv_timer_t pause;
        uint64_t pause_ms;        /* the latest */
        void (*done)(void *user); /* NULL: nobody wants to know */
        void *user;
} Job;

struct Remover {
        uv_loop_t *loop;
        uv_timer_t timer; /* runs when there may be somebody to start */
        KeeperNest *nest;
        char *path;
        const IdMap *ids; /* NULL: none */
        int folder;
        Table jobs; /* by name */
        Job *first, **end;
        unsigned n_running;
};

static void run(uv_timer_t *timer);

static void wake(Remover *remover) {
        (void) uv_timer_start(&remover->timer, run, 0, 0);
}

static void on_job_closed(uv_handle_t *handle) {
        Job *job = handle->data;

        free(job->name);
        free(job);
}

static void job_free(Job *job) {
        job->child = child_process_free(job->child);
        uv_close((uv_handle_t *) &job->pause, on_job_closed);
}

static void job_wait(Job *job) {
        Remover *remover = job->remover;

        (void) uv_timer_stop(&job->pause);
        if (job->is_waiting || job->child)
                return;

        job->is_waiting = true;
        job->next = NULL;
        *remover->end = job;
        remover->end = &job->next;
        wake(remover);
}

static void on_pause_over(uv_timer_t *timer) {
        job_wait(timer->data);
}

/* Tries again later, twice as late each time. */
static void postpone(Job *job, const char *why) {
        job->pause_ms = job->pause_ms == 0 ? PAUSE_MIN_MS : job->pause_ms * 2;
        if (job->pause_ms > PAUSE_MAX_MS)
                job->pause_ms = PAUSE_MAX_MS;
        (void) uv_timer_start(&job->pause, on_pause_over, job->pause_ms, 0);
        log_warning("what is in the trash is still there", LOG_STR("name", job->name), LOG_STR("error", why),
                    LOG_UINT("retry_ms", job->pause_ms));
}

static void on_ended(void *user, ChildEnd end) {
        Job *job = user;
        Remover *remover = job->remover;
        void (*done)(void *user) = job->done;
        void *done_user = job->user;
        bool gone = faccessat(remover->folder, job->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
        char text[64];

        FAILPOINT("native.remove.files");
        remover->n_running--;
        job->child = child_process_free(job->child);
        wake(remover);
        if (!gone) {
                postpone(job, child_end_text(end, text, sizeof(text)));
                return;
        }

        table_remove(&remover->jobs, job->name);
        job_free(job);
        if (done)
                done(done_user);
}

static void start(Job *job) {
        static char name[] = "hutch-keeper", verb[] = "remove";
        const IdMap *ids = job->remover->ids;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *path = NULL, *uids = ids ? id_ranges_format(&ids->uids) : NULL,
                            *gids = ids ? id_ranges_format(&ids->gids) : NULL;
        char *argv[8] = { name, verb };
        int r;

        if (asprintf(&path, "%s/%s", job->remover->path, job->name) < 0)
                abort();
        argv[2] = path;
        if (ids) {
                argv[3] = ids->newuidmap;
                argv[4] = ids->newgidmap;
                argv[5] = uids;
                argv[6] = gids;
        }
        r = keeper_nest_spawn(job->remover->nest, &(ChildOptions){ .argv = argv, .standard_error = -1 }, on_ended, job,
                              &job->child, &err);
        if (r < 0)
                postpone(job, error_message(&err));
        else
                job->remover->n_running++;
}

/* Starts those whose turn it is. */
static void run(uv_timer_t *timer) {
        Remover *remover = timer->data;

        while (remover->first && remover->n_running < AT_ONCE_MAX) {
                Job *job = remover->first;

                remover->first = job->next;
                if (!remover->first)
                        remover->end = &remover->first;
                job->is_waiting = false;
                start(job);
        }
}

static Job *get(Remover *remover, const char *name) {
        Job *job = table_get(&remover->jobs, name);

        if (job)
                return job;

        job = new0(Job, 1);
        *job = (Job){ .remover = remover, .name = xstrdup(name) };
        (void) uv_timer_init(remover->loop, &job->pause);
        job->pause.data = job;
        table_add(&remover->jobs, job->name, job);
        job_wait(job);
        return job;
}

static int add_leftovers(Remover *remover, HutchError *err) {
        int fd = openat(remover->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *folder = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;

        if (!folder) {
                int r = -errno;

                fd_close(fd);
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE, "cannot read '%s': %s", remover->path,
                                  strerror(-r));
        }

        while ((entry = readdir(folder)))
                if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
                        (void) get(remover, entry->d_name);
        (void) closedir(folder);
        return 0;
}

int remover_new(uv_loop_t *loop, KeeperNest *nest, const char *path, const IdMap *ids, Remover **ret_remover,
                HutchError *err) {
        Remover *remover = new0(Remover, 1);
        int r;

        *remover = (Remover){ .loop = loop, .nest = nest, .path = xstrdup(path), .ids = ids };
        (void) uv_timer_init(loop, &remover->timer);
        remover->timer.data = remover;
        remover->end = &remover->first;
        remover->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (remover->folder < 0)
                r = reason_set(err, -errno, REASON_RUNTIME_UNAVAILABLE, "cannot open '%s': %s", path, strerror(errno));
        else
                r = add_leftovers(remover, err);
        if (r < 0) {
                remover_free(remover);
                return r;
        }

        *ret_remover = remover;
        return 0;
}

static void on_closed(uv_handle_t *handle) {
        free(handle->data);
}

Remover *remover_free(Remover *remover) {
        if (!remover)
                return NULL;

        for (size_t i = 0; i < remover->jobs.size; i++)
                if (remover->jobs.entries[i].key)
                        job_free(remover->jobs.entries[i].value);
        table_clear(&remover->jobs);
        remover->folder = fd_close(remover->folder);
        free(remover->path);
        uv_close((uv_handle_t *) &remover->timer, on_closed);
        return NULL;
}

int remover_folder(const Remover *remover) {
        return remover->folder;
}

void remover_add(Remover *remover, const char *name, void (*done)(void *user), void *user) {
        Job *job = get(remover, name);

        job->done = done;
        job->user = user;
        /* Somebody waits for it now. */
        job_wait(job);
}

void remover_forget(Remover *remover, const char *name) {
        Job *job = table_get(&remover->jobs, name);

        if (job)
                job->done = NULL;
}
