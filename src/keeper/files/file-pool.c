/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: workers' sockets and processes, and which of them are kept. What does not: whose calls they do
 * (file-service.c), and what they do (file-worker.h). */

#include "keeper/files/file-pool.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "keeper/loop.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-process.h"
#include "model/reason.h"

#define GROUP_NAME ".files" /* no exec has such an id */
#define IDLE_MAX 4
#define IDLE_TIME (5 * NSEC_PER_SEC)
#define CANCEL_TIME (5 * NSEC_PER_SEC)
#define READ_AT_ONCE (1 << 20) /* bytes, before others have their turn */
#define MEMORY_KEPT (2 << 20)  /* bytes of messages that came and went, while there are workers */

struct FileWorker {
        FileWorker *next, **at;
        FilePool *pool;
        char *user_name;
        bool sees_layers;
        FileProcess process;
        int write_fd; /* the socket again, to be waited for apart */
        Watch *read_watch, *write_watch;
        Alarm *alarm; /* at which it has been idle, or cancelled, for too long */
        bool is_busy, is_reading;
        void *user;

        uint8_t *out; /* what the socket had no room for */
        size_t out_at, out_len;
        FileFrameHead out_head; /* the end of it stands in front of that */
        size_t out_head_left;

        FileFrameHead head; /* of the frame that is being read */
        size_t head_len;
        uint8_t *in;
        size_t in_len;
};

struct FilePool {
        uv_loop_t *loop;
        KeptSandbox *sandbox;
        const FilePoolEvents *events;
        ExecGroup *group;
        FileWorker *first;
        size_t n_busy, n_idle;
        bool is_ended;
};

/* A process that is to be waited for. */
typedef struct Dying {
        Watch *watch;
        int pidfd;
} Dying;

/* ---- Ends ---- */

static void on_dead(void *user) {
        Dying *dying = user;
        siginfo_t info = {};
        if (waitid((idtype_t) P_PIDFD, (id_t) dying->pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
                return;
        watch_free(dying->watch);
        fd_close(dying->pidfd);
        free(dying);
}

static void process_end(uv_loop_t *loop, FileProcess *process) {
        (void) syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
        fd_close(process->socket);
        Dying *dying = new0(Dying, 1);
        dying->pidfd = process->pidfd;
        dying->watch = watch_new(loop, dying->pidfd, UV_READABLE, on_dead, dying);
        if (!dying->watch)
                free(dying);
}

static void worker_free(FileWorker *worker) {
        FilePool *pool = worker->pool;
        *(worker->is_busy ? &pool->n_busy : &pool->n_idle) -= 1;
        *worker->at = worker->next;
        if (worker->next)
                worker->next->at = worker->at;
        watch_free(worker->read_watch);
        watch_free(worker->write_watch);
        alarm_free(worker->alarm);
        fd_close(worker->write_fd);
        process_end(pool->loop, &worker->process);
        free(worker->user_name);
        free(worker->out);
        free(worker->in);
        free(worker);
}

/* The worker is of no use any more; its call, if it has one, ends with @err. */
static void worker_fail(FileWorker *worker, const HutchError *err) {
        const FilePoolEvents *events = worker->pool->events;
        bool was_busy = worker->is_busy;
        void *user = worker->user;
        worker_free(worker);
        if (was_busy)
                events->ended(user, err, true);
}

static void worker_lost(FileWorker *worker) {
        _cleanup_(error_clear) HutchError err = {};
        reason_set(&err, -ECHILD, REASON_KEEPER_UNAVAILABLE, "the process that did the file work has ended");
        if (worker->is_busy)
                log_warning("a file worker has ended", LOG_INT("pid", worker->process.pid));
        worker_fail(worker, &err);
}

static void on_alarm(void *user) {
        FileWorker *worker = user;
        if (worker->is_busy)
                log_warning("a file worker does not stop", LOG_INT("pid", worker->process.pid));
        _cleanup_(error_clear) HutchError err = {};
        reason_set(&err, -ECANCELED, REASON_CALL_CANCELLED, "the call was cancelled");
        worker_fail(worker, &err);
        (void) malloc_trim(0);
}

/* The call is over: the worker waits for another, or goes. */
static void worker_end_call(FileWorker *worker, const FileEnd *end, const HutchError *err) {
        FilePool *pool = worker->pool;
        void *user = worker->user;
        if (end->is_last || worker->out || pool->n_idle == IDLE_MAX)
                worker_free(worker);
        else {
                pool->n_busy--;
                pool->n_idle++;
                worker->is_busy = false;
                worker->user = NULL;
                alarm_set(worker->alarm, IDLE_TIME);
        }
        pool->events->ended(user, err, end->is_kept);
}

/* ---- What it says ---- */

/* It was inside, with files that anybody may have made: its texts may have no end. */
static void take_end(FileWorker *worker) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *message = NULL;
        FileEnd end;
        if (worker->head.len < sizeof(end)) {
                worker_lost(worker);
                return;
        }
        memcpy(&end, worker->in, sizeof(end));
        end.reason[sizeof(end.reason) - 1] = '\0';
        message = xstrndup((const char *) worker->in + sizeof(end), worker->head.len - sizeof(end));
        worker->in = (free(worker->in), NULL);
        if (end.code == STATUS_OK) {
                worker_end_call(worker, &end, NULL);
                return;
        }

        error_set_code(&err, (StatusCode) end.code, end.error > 0 ? -end.error : -EIO, end.reason, "%s", message);
        for (unsigned i = 0; i < end.n_pairs && i < ERROR_PAIRS_MAX; i++) {
                end.pairs[i].key[sizeof(end.pairs[i].key) - 1] = '\0';
                error_add_pair(&err, end.pairs[i].key, "%.*s", (int) sizeof(end.pairs[i].value) - 1,
                               end.pairs[i].value);
        }
        worker_end_call(worker, &end, &err);
}

/* A frame is whole. Returns whether the worker is there and may be read from. */
static bool take_frame(FileWorker *worker) {
        worker->head_len = 0;
        if (worker->head.kind == FILE_FRAME_END) {
                take_end(worker);
                return false;
        }
        if (worker->head.kind != FILE_FRAME_MESSAGE) {
                worker_lost(worker);
                return false;
        }
        worker->pool->events->message(worker->user, TAKE_PTR(worker->in), worker->head.len);
        return worker->is_reading;
}

/* Reads more of the frame. Returns its bytes, 0: it is whole already, or a negative errno. */
static ssize_t read_part(FileWorker *worker) {
        ssize_t n;
        if (worker->head_len < sizeof(worker->head)) {
                n = recv(worker->process.socket, (char *) &worker->head + worker->head_len,
                         sizeof(worker->head) - worker->head_len, 0);
                if (n <= 0)
                        return n < 0 ? -errno : -EPIPE;
                worker->head_len += (size_t) n;
                if (worker->head_len < sizeof(worker->head))
                        return n;
                worker->in_len = 0;
                worker->in = worker->head.len <= FILE_FRAME_MAX ? malloc(worker->head.len + 1) : NULL;
                return worker->in ? n : -ENOMEM;
        }
        if (worker->in_len == worker->head.len)
                return 0;
        n = recv(worker->process.socket, worker->in + worker->in_len, worker->head.len - worker->in_len, 0);
        if (n <= 0)
                return n < 0 ? -errno : -EPIPE;
        worker->in_len += (size_t) n;
        return n;
}

static void on_readable(void *user) {
        FileWorker *worker = user;
        for (size_t budget = READ_AT_ONCE; budget > 0;) {
                ssize_t n = read_part(worker);
                if (n == -EINTR)
                        continue;
                if (n == -EAGAIN)
                        return;
                /* One that has nothing to do has nothing to say. */
                if (n < 0 || !worker->is_busy) {
                        worker_lost(worker);
                        return;
                }
                budget -= (size_t) n < budget ? (size_t) n : budget;
                if (worker->head_len == sizeof(worker->head) && worker->in_len == worker->head.len &&
                    !take_frame(worker))
                        return;
        }
}

/* ---- What it is told ---- */

static void out_clear(FileWorker *worker) {
        worker->out = (free(worker->out), NULL);
        worker->out_at = worker->out_len = worker->out_head_left = 0;
        watch_set_active(worker->write_watch, false);
}

static void on_writable(void *user) {
        FileWorker *worker = user;
        while (worker->out_head_left > 0 || worker->out_at < worker->out_len) {
                struct iovec parts[] = {
                        { .iov_base = (char *) (&worker->out_head + 1) - worker->out_head_left,
                          .iov_len = worker->out_head_left },
                        { .iov_base = worker->out + worker->out_at, .iov_len = worker->out_len - worker->out_at },
                };
                struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
                ssize_t n = sendmsg(worker->process.socket, &message, MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                /* That it is gone is noticed where it is read from, after what it had to say. */
                if (n < 0)
                        break;
                size_t of_head = (size_t) n < worker->out_head_left ? (size_t) n : worker->out_head_left;
                worker->out_head_left -= of_head;
                worker->out_at += (size_t) n - of_head;
        }
        out_clear(worker);
        if (worker->is_busy)
                worker->pool->events->taken(worker->user);
}

/* Keeps what is left of @parts behind its first @sent bytes. */
static void out_append(FileWorker *worker, const struct iovec parts[2], size_t sent) {
        size_t len = parts[0].iov_len + parts[1].iov_len - sent;
        uint8_t *out = xreallocarray(worker->out, worker->out_len + len, 1);
        worker->out = out;
        out += worker->out_len;
        for (int i = 0; i < 2; i++) {
                size_t skipped = sent < parts[i].iov_len ? sent : parts[i].iov_len;
                sent -= skipped;
                if (parts[i].iov_len > skipped)
                        out = mempcpy(out, (const char *) parts[i].iov_base + skipped, parts[i].iov_len - skipped);
        }
        worker->out_len += len;
        watch_set_active(worker->write_watch, true);
}

/* Sends what the socket has room for. Returns how much, or a negative errno: it is gone. */
static ssize_t send_parts(FileWorker *worker, struct iovec parts[2]) {
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
        if (worker->out)
                return 0;
        ssize_t n = sendmsg(worker->process.socket, &message, MSG_NOSIGNAL);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        return n;
}

bool file_worker_send(FileWorker *worker, FileFrameKind kind, const void *bytes, size_t len) {
        FileFrameHead head = { .len = (uint32_t) len, .kind = (uint8_t) kind };
        struct iovec parts[] = {
                { .iov_base = &head, .iov_len = sizeof(head) },
                { .iov_base = (void *) bytes, .iov_len = len },
        };
        ssize_t sent = send_parts(worker, parts);
        if (sent >= 0 && (size_t) sent < sizeof(head) + len)
                out_append(worker, parts, (size_t) sent);
        return !worker->out;
}

bool file_worker_relay(FileWorker *worker, const uint8_t *message, size_t len) {
        FileFrameHead head = { .len = (uint32_t) len, .kind = FILE_FRAME_MESSAGE };
        struct iovec parts[] = {
                { .iov_base = &head, .iov_len = sizeof(head) },
                { .iov_base = (void *) message, .iov_len = len },
        };
        if (worker->out)
                return file_worker_send(worker, FILE_FRAME_MESSAGE, message, len);
        ssize_t sent = send_parts(worker, parts);
        if (sent < 0 || (size_t) sent == sizeof(head) + len)
                return true;

        size_t of_head = (size_t) sent < sizeof(head) ? (size_t) sent : sizeof(head);
        worker->out = worker->pool->events->take(worker->user);
        worker->out_len = len;
        worker->out_at = (size_t) sent - of_head;
        worker->out_head = head;
        worker->out_head_left = sizeof(head) - of_head;
        watch_set_active(worker->write_watch, true);
        return false;
}

void file_worker_set_reading(FileWorker *worker, bool is_reading) {
        worker->is_reading = is_reading;
        watch_set_active(worker->read_watch, is_reading);
}

void file_worker_cancel(FileWorker *worker) {
        (void) file_worker_send(worker, FILE_FRAME_CANCEL, NULL, 0);
        file_worker_set_reading(worker, true);
        alarm_set(worker->alarm, CANCEL_TIME);
}

/* ---- The pool ---- */

FilePool *file_pool_new(uv_loop_t *loop, KeptSandbox *sandbox, const FilePoolEvents *events) {
        FilePool *pool = new0(FilePool, 1);
        /* Messages are large, and each would have its memory from the kernel, and give it back. */
        (void) mallopt(M_MMAP_THRESHOLD, MEMORY_KEPT);
        (void) mallopt(M_TRIM_THRESHOLD, MEMORY_KEPT);
        pool->loop = loop;
        pool->sandbox = sandbox;
        pool->events = events;
        return pool;
}

static FileWorker *find_idle(FilePool *pool, const char *user_name, bool sees_layers) {
        for (FileWorker *worker = pool->first; worker; worker = worker->next)
                if (!worker->is_busy && worker->sees_layers == sees_layers && str_equal(worker->user_name, user_name))
                        return worker;
        return NULL;
}

static int start_process(FilePool *pool, const char *user_name, bool sees_layers, FileProcess *ret_process,
                         HutchError *err) {
        if (!pool->group) {
                int r = exec_group_new(pool->sandbox, GROUP_NAME, &pool->group, err);
                if (r < 0)
                        return r;
        }
        return file_process_start(pool->sandbox, pool->group, user_name, sees_layers, ret_process, err);
}

/* NULL: @err says why not. */
static FileWorker *worker_new(FilePool *pool, const char *user_name, bool sees_layers, HutchError *err) {
        FileProcess process;
        if (start_process(pool, user_name, sees_layers, &process, err) < 0)
                return NULL;

        FileWorker *worker = new0(FileWorker, 1);
        *worker = (FileWorker){ .next = pool->first, .at = &pool->first, .pool = pool, .process = process };
        if (worker->next)
                worker->next->at = &worker->next;
        pool->first = worker;
        pool->n_idle++;
        worker->user_name = xstrdup(user_name);
        worker->sees_layers = sees_layers;
        worker->alarm = alarm_new(pool->loop, on_alarm, worker);
        worker->write_fd = fcntl(process.socket, F_DUPFD_CLOEXEC, 0);
        if (worker->write_fd >= 0)
                worker->write_watch = watch_new(pool->loop, worker->write_fd, UV_WRITABLE, on_writable, worker);
        if (worker->write_watch)
                worker->read_watch = watch_new(pool->loop, process.socket, UV_READABLE, on_readable, worker);
        if (!worker->write_watch || !worker->read_watch) {
                worker_free(worker);
                reason_set(err, -EMFILE, REASON_HOST_EXHAUSTED, "cannot wait for a file worker");
                return NULL;
        }
        watch_set_active(worker->write_watch, false);
        return worker;
}

int file_pool_take(FilePool *pool, const char *user_name, size_t method, void *user, FileWorker **ret_worker,
                   HutchError *err) {
        if (pool->is_ended)
                return reason_set(err, -ESHUTDOWN, REASON_KEEPER_UNAVAILABLE, "the sandbox has ended");
        if (pool->n_busy == FILE_WORKERS_MAX)
                return -EAGAIN;
        bool sees_layers = file_methods[method].sees_layers;
        FileWorker *worker = find_idle(pool, user_name, sees_layers);
        if (!worker)
                worker = worker_new(pool, user_name, sees_layers, err);
        /* With as many processes as the sandbox may have, those at work make room when they are done. */
        if (!worker)
                return err->error == EAGAIN && pool->n_busy > 0 ? -EAGAIN : -EBUSY;

        pool->n_idle--;
        pool->n_busy++;
        worker->is_busy = true;
        worker->user = user;
        alarm_set(worker->alarm, UINT64_MAX);
        const FileBegin begin = { .method = (uint32_t) method };
        (void) file_worker_send(worker, FILE_FRAME_BEGIN, &begin, sizeof(begin));
        file_worker_set_reading(worker, true);
        *ret_worker = worker;
        return 0;
}

void file_pool_fail(FilePool *pool, bool (*which)(const void *user), const HutchError *err) {
        for (FileWorker *worker = pool->first, *next; worker; worker = next) {
                next = worker->next;
                if (worker->is_busy && which(worker->user))
                        worker_fail(worker, err);
        }
}

void file_pool_end(FilePool *pool, const HutchError *err) {
        pool->is_ended = true;
        for (FileWorker *worker = pool->first, *next; worker; worker = next) {
                next = worker->next;
                worker_fail(worker, err);
        }
        pool->group = exec_group_free(pool->group);
}
