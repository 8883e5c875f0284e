/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls and their workers: who waits for one, what goes to and fro, and who gets whose answer. What does
 * not: workers (file-pool.c), and the memory of request ids (file-requests.c).
 *
 * A call may end before its worker does: then what is left of it waits for the worker, so that others who wait for its
 * answer hear what became of it. */

#include "keeper/file-service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "keeper/file-methods.h"
#include "keeper/file-pool.h"
#include "keeper/file-requests.h"
#include "keeper/keeper.h"
#include "model/reason.h"
#include "rpc/call.h"
#include "rpc/metadata.h"

#define WAITING_MAX 1024               /* calls that wait for a worker */
#define LASTING_MAX 32                 /* calls that go on until their callers have enough */
#define ANSWER_MAX ((size_t) 64 << 10) /* bytes of an answer that is remembered */

typedef struct FileCall FileCall;

struct FileCall {
        FileService *service;
        Call *call; /* NULL: it has ended */
        size_t method;
        char *user_name;
        FileWorker *worker; /* NULL: it has none yet, or no longer */
        bool all_came;      /* the peer has sent everything */
        bool is_queued;     /* it waits for a worker */

        FileRequest *request; /* that it does; NULL: it has no name, or somebody else does it */
        uint8_t *answer;      /* to be remembered */
        size_t answer_len;
        FileCall *followers;  /* who wait for its answer */
        FileCall *next, **at; /* in the list that it waits in; @at is NULL when it does not */
};

struct FileService {
        Keeper *keeper;
        FilePool *pool;
        FileRequests *requests;
        FileCall *first; /* of those that wait for a worker */
        size_t n_queued, n_lasting;
        struct MethodContext {
                FileService *service;
                size_t method;
        } * contexts;
        Method *methods;
};

static void call_begin(FileCall *file);

/* ---- Lists ---- */

static void list_add(FileCall *file, FileCall **at) {
        file->next = *at;
        file->at = at;
        if (file->next)
                file->next->at = &file->next;
        *at = file;
}

static void list_remove(FileCall *file) {
        if (!file->at)
                return;
        *file->at = file->next;
        if (file->next)
                file->next->at = file->at;
        file->next = NULL;
        file->at = NULL;
}

static void queue_add(FileCall *file) {
        FileService *service = file->service;
        FileCall **at = &service->first;
        while (*at)
                at = &(*at)->next;
        list_add(file, at);
        file->is_queued = true;
        service->n_queued++;
}

/* Takes it out of whatever list it waits in. */
static void stop_waiting(FileCall *file) {
        if (file->is_queued)
                file->service->n_queued--;
        file->is_queued = false;
        list_remove(file);
}

/* ---- The end of a call ---- */

static void file_call_free(FileCall *file) {
        stop_waiting(file);
        file->service->n_lasting -= file_methods[file->method].lasts;
        free(file->user_name);
        free(file->answer);
        free(file);
}

/* Tells the caller, if there still is one. */
static void answer(FileCall *file, const HutchError *err) {
        if (!file->call)
                return;
        if (err)
                call_fail(file->call, err);
        else
                call_finish(file->call, STATUS_OK, NULL);
}

/* Has the first of those who wait for the answer do the request instead. */
static void pass_on(FileCall *file, FileRequest *request) {
        FileCall *heir = file->followers;
        list_remove(heir);
        while (file->followers) {
                FileCall *follower = file->followers;
                list_remove(follower);
                list_add(follower, &heir->followers);
        }
        request->runner = heir;
        heir->request = request;
        call_begin(heir);
}

/* The request was done, or not. Those who waited for the answer have it now; but that its caller went away is not the
 * answer for others. */
static void request_end(FileCall *file, const HutchError *err) {
        FileRequests *requests = file->service->requests;
        FileRequest *request = TAKE_PTR(file->request);
        if (!request)
                return;
        if (err && !file->call && file->followers) {
                pass_on(file, request);
                return;
        }
        while (file->followers) {
                FileCall *follower = file->followers;
                list_remove(follower);
                if (!err && file->answer)
                        (void) call_send(follower->call, file->answer, file->answer_len);
                answer(follower, err);
        }
        if (!err && file->answer) {
                file_request_finish(request, TAKE_PTR(file->answer), file->answer_len, clock_monotonic_ns());
                return;
        }
        file_requests_remove(requests, request);
}

static void queue_run(FileService *service) {
        while (service->first) {
                FileCall *file = service->first;
                stop_waiting(file);
                call_begin(file);
                /* It has to wait on. */
                if (file->is_queued)
                        return;
        }
}

/* ---- What its worker says ---- */

static void on_worker_message(void *user, uint8_t *message, size_t len) {
        FileCall *file = user;
        if (file->request && !file->answer && len <= ANSWER_MAX) {
                file->answer = malloc(len + 1);
                if (file->answer)
                        memcpy(file->answer, message, len);
                file->answer_len = len;
        }
        if (!file->call) {
                free(message);
                return;
        }
        (void) call_send_taken(file->call, message, len);
        if (!call_is_writable(file->call))
                file_worker_set_reading(file->worker, false);
}

static void on_worker_taken(void *user) {
        FileCall *file = user;
        if (file->call && !file->all_came)
                call_read(file->call);
}

static void on_worker_ended(void *user, const HutchError *err) {
        FileCall *file = user;
        FileService *service = file->service;
        file->worker = NULL;
        request_end(file, err);
        answer(file, err);
        if (!file->call)
                file_call_free(file);
        queue_run(service);
}

static const FilePoolEvents pool_events = {
        .message = on_worker_message,
        .taken = on_worker_taken,
        .ended = on_worker_ended,
};

/* ---- What its caller says ---- */

static void on_call_message(Call *call, const uint8_t *message, size_t len) {
        FileCall *file = call_user(call);
        if (file->worker && file_worker_send(file->worker, FILE_FRAME_MESSAGE, message, len))
                call_read(call);
}

static void on_call_half_closed(Call *call) {
        FileCall *file = call_user(call);
        file->all_came = true;
        if (file->worker)
                (void) file_worker_send(file->worker, FILE_FRAME_HALF_CLOSE, NULL, 0);
}

static void on_call_writable(Call *call) {
        FileCall *file = call_user(call);
        if (file->worker)
                file_worker_set_reading(file->worker, true);
}

static void on_call_ended(Call *call, CallEnd how) {
        FileCall *file = call_user(call);
        _cleanup_(error_clear) HutchError err = {};
        (void) how;
        file->call = NULL;
        if (file->worker) {
                file_worker_cancel(file->worker);
                return;
        }
        /* It waited, or has its answer. */
        stop_waiting(file);
        reason_set(&err, -ECANCELED, REASON_CALL_CANCELLED, "the call was cancelled");
        request_end(file, &err);
        file_call_free(file);
}

static const CallEvents call_events = {
        .message = on_call_message,
        .half_closed = on_call_half_closed,
        .writable = on_call_writable,
        .ended = on_call_ended,
};

/* ---- The beginning of a call ---- */

static int wrong_state(const FileService *service, HutchError *err) {
        static const char *const names[] = {
                [KEEPER_STARTING] = "PENDING",  [KEEPER_RUNNING] = "READY", [KEEPER_PAUSED] = "PAUSED",
                [KEEPER_STOPPING] = "STOPPING", [KEEPER_FAILED] = "FAILED",
        };
        reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE, "the sandbox does not run");
        error_add_pair(err, "state", "%s", names[service->keeper->state]);
        return -EBUSY;
}

static int check_state(const FileService *service, HutchError *err) {
        return service->keeper->state == KEEPER_RUNNING ? 0 : wrong_state(service, err);
}

static int too_many(HutchError *err, const char *limit, uint64_t value) {
        reason_set(err, -EMFILE, REASON_TOO_MANY_STREAMS, "too many calls of this kind in this sandbox");
        return reason_add_limit(err, limit, value, -EMFILE);
}

/* Has a worker do it, now or when there is one. */
static void call_begin(FileCall *file) {
        FileService *service = file->service;
        _cleanup_(error_clear) HutchError err = {};
        int r = check_state(service, &err);
        if (r >= 0 && !service->pool)
                service->pool = file_pool_new(service->keeper->loop, service->keeper->sandbox, &pool_events);
        if (r >= 0)
                r = file_pool_take(service->pool, file->user_name, file->method, file, &file->worker, &err);
        if (r == -EAGAIN && service->n_queued < WAITING_MAX) {
                queue_add(file);
                return;
        }
        if (r == -EAGAIN)
                r = too_many(&err, "file_calls_waiting", WAITING_MAX);
        if (r < 0) {
                request_end(file, &err);
                answer(file, &err);
                return;
        }
        call_read(file->call);
}

/* Finds out whether the request is known. Returns whether it has to be done. */
static bool request_begin(FileCall *file, const char *key, HutchError *err) {
        FileService *service = file->service;
        const char *name = key + FILE_REQUEST_FINGERPRINT_SIZE + 1;
        if (strnlen(key, FILE_REQUEST_FINGERPRINT_SIZE + 1) <= FILE_REQUEST_FINGERPRINT_SIZE || name[-1] != ':') {
                reason_set(err, -EINVAL, REASON_INTERNAL, "the request's key is malformed");
                return false;
        }

        FileRequest *request = file_requests_find(service->requests, name, clock_monotonic_ns());
        if (!request) {
                file->request = file_requests_add(service->requests, name, key, file);
                if (!file->request)
                        (void) too_many(err, "file_requests", FILE_REQUESTS_MAX);
                return file->request;
        }
        if (memcmp(request->fingerprint, key, sizeof(request->fingerprint)) != 0)
                reason_set(err, -EEXIST, REASON_REQUEST_ID_REUSED, "the request id came before with another request");
        else if (request->runner)
                list_add(file, &((FileCall *) request->runner)->followers);
        else
                call_reply(file->call, request->answer, request->answer_len);
        return false;
}

static void start(Call *call, void *context) {
        const struct MethodContext *method = context;
        FileService *service = method->service;
        const MetadataEntry *user = metadata_find(call_metadata(call), "hutch-user");
        const MetadataEntry *key = metadata_find(call_metadata(call), "hutch-key");
        _cleanup_(error_clear) HutchError err = {};
        FileCall *file = new0(FileCall, 1);

        *file = (FileCall){ .service = service, .call = call, .method = method->method };
        file->user_name = xstrdup(user ? user->value : "");
        service->n_lasting += file_methods[file->method].lasts;
        call_set_events(call, &call_events, file);
        if (!user)
                reason_set(&err, -EINVAL, REASON_INTERNAL, "the call does not say as whom");
        else if (check_state(service, &err) >= 0 && service->n_lasting > LASTING_MAX)
                (void) too_many(&err, "file_watches", LASTING_MAX);
        if (err.error == 0 && (!key || request_begin(file, key->value, &err)))
                call_begin(file);
        if (err.error != 0)
                call_fail(call, &err);
}

/* ---- The service ---- */

FileService *file_service_new(Keeper *keeper) {
        FileService *service = new0(FileService, 1);
        service->keeper = keeper;
        service->requests = file_requests_new();
        service->contexts = new0(struct MethodContext, n_file_methods);
        service->methods = new0(Method, n_file_methods);
        for (size_t i = 0; i < n_file_methods; i++) {
                service->contexts[i] = (struct MethodContext){ .service = service, .method = i };
                service->methods[i] =
                        (Method){ .path = file_methods[i].path, .start = start, .context = &service->contexts[i] };
        }
        return service;
}

int file_service_add_methods(FileService *service, MethodTable *table) {
        return method_table_add(table, service->methods, n_file_methods);
}

void file_service_keeper_changed(FileService *service) {
        _cleanup_(error_clear) HutchError err = {};
        if (service->keeper->state == KEEPER_RUNNING || service->keeper->state == KEEPER_PAUSED || !service->pool)
                return;
        (void) wrong_state(service, &err);
        file_pool_end(service->pool, &err);
        queue_run(service);
}
