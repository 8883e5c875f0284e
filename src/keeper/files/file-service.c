/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls and their workers: who waits for one, what goes to and fro, and who gets whose answer. What
 * does not: workers (file-pool.c), and the memory of request ids (file-requests.c).
 *
 * A call may end before its worker does: then what is left of it waits for the worker, so that others who wait for its
 * answer hear what became of it. */

#include "keeper/files/file-service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "keeper/files/file-pool.h"
#include "keeper/files/file-requests.h"
#include "keeper/keeper/keeper.h"
#include "keeper/loop.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-uploads.h"
#include "model/reason.h"
#include "rpc/core/call.h"
#include "rpc/core/metadata.h"
#include "rpc/core/protobuf.h"

#define WAITING_MAX 1024               /* calls that wait for a worker */
#define LASTING_MAX 32                 /* calls that go on until their callers have enough */
#define ANSWER_MAX ((size_t) 64 << 10) /* bytes of an answer that is remembered */
#define FIRST_MAX (1 << 20)            /* bytes in memory of a first message that the keeper itself looks at */
#define COLLECT_RETRY (60 * NSEC_PER_SEC)

typedef struct FileCall FileCall;

struct FileCall {
        FileService *service;
        Call *call; /* NULL: it has ended */
        size_t method;
        char *user_name;
        FileWorker *worker; /* NULL: it has none yet, or no longer */
        bool all_came;      /* the peer has sent everything */
        bool is_queued;     /* it waits for a worker */
        bool is_begun;      /* its worker has its first message */
        bool is_writing;    /* and the keeper counts it */

        FileRequest *request; /* that it does; NULL: it has no name, or somebody else does it */
        uint8_t *answer;      /* to be remembered */
        size_t answer_len;
        FileUpload *upload; /* that it writes */
        uint8_t *held;      /* its first message, while another call ends that writes the same upload */
        size_t held_len;
        FileCall *waiters; /* who wait for that */

        FileCall *followers;  /* who wait for its answer */
        FileCall *next, **at; /* in the list that it waits in; @at is NULL when it does not */
};

struct FileService {
        Keeper *keeper;
        FilePool *pool;
        FileRequests *requests;
        FileUploads *uploads;
        Alarm *upload_alarm; /* at which the next of them expires */
        FileCall *first;     /* of those that wait for a worker */
        size_t n_queued, n_lasting;
        struct MethodContext {
                FileService *service;
                size_t method;
        } * contexts;
        Method *methods;
};

static void call_begin(FileCall *file);
static int worker_take(FileCall *file, HutchError *err);

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
        free(file->held);
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

/* ---- Uploads that can be resumed ---- */

static void uploads_schedule(FileService *service) {
        const FileUpload *first = file_uploads_first(service->uploads);
        uint64_t now = clock_realtime_ns();
        if (!first)
                alarm_set(service->upload_alarm, UINT64_MAX);
        else
                alarm_set(service->upload_alarm, first->expires > now ? first->expires - now : 0);
}

/* Has what came of @upload removed, by a call that nobody made. */
static int collect(FileService *service, const FileUpload *upload) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *path = NULL;
        _cleanup_free_ uint8_t *message = NULL;
        char name[FILE_UPLOAD_NAME_SIZE];
        size_t len, method = 0;
        while (file_methods[method].run != file_method_remove)
                method++;
        file_upload_name(upload->id, name);
        if (asprintf(&path, "%.*s/%s", (int) (strrchr(upload->path, '/') - upload->path), upload->path, name) < 0)
                abort();
        Hutch__V1__RemoveFileRequest request = HUTCH__V1__REMOVE_FILE_REQUEST__INIT;
        request.path = path;
        request.ignore_missing = true;
        int r = protobuf_pack(&request.base, &message, &len);
        if (r < 0)
                return r;

        FileCall *file = new0(FileCall, 1);
        *file = (FileCall){ .service = service, .method = method, .user_name = xstrdup(upload->user_name) };
        r = worker_take(file, &err);
        if (r < 0) {
                file_call_free(file);
                return r;
        }
        (void) file_worker_send(file->worker, FILE_FRAME_MESSAGE, message, len);
        (void) file_worker_send(file->worker, FILE_FRAME_HALF_CLOSE, NULL, 0);
        return 0;
}

static void on_upload_alarm(void *user) {
        FileService *service = user;
        FileUpload *upload = file_uploads_first(service->uploads);
        if (upload && upload->expires <= clock_realtime_ns()) {
                if (collect(service, upload) < 0) {
                        alarm_set(service->upload_alarm, COLLECT_RETRY);
                        return;
                }
                file_uploads_remove(service->uploads, upload);
                file_uploads_save(service->uploads);
        }
        uploads_schedule(service);
}

static int no_upload(HutchError *err) {
        return reason_set(err, -ENOENT, REASON_UPLOAD_NOT_FOUND, "there is no such upload, or no longer");
}

/* Enters an upload that is about to be written into the list. -EAGAIN: another call that writes it has to end first. */
static int upload_enter(FileCall *file, const Hutch__V1__UploadFileHeader *header, FileCall **ret_other,
                        HutchError *err) {
        FileUploads *uploads = file->service->uploads;
        FileUpload *upload = file_uploads_find(uploads, header->upload_id);
        if (upload && upload->runner) {
                FileCall *other = upload->runner;
                if (other->call)
                        return reason_set(err, -EBUSY, REASON_FILE_BUSY, "an upload of that id is under way");
                *ret_other = other;
                return -EAGAIN;
        }
        if (!upload && header->resume_offset > 0)
                return no_upload(err);
        if (upload && !str_equal(upload->path, header->path))
                return reason_set(err, -EINVAL, REASON_FIELD_CONFLICT, "the upload of that id is one to another path");
        if (!upload)
                upload = file_uploads_add(uploads, header->upload_id, file->user_name, header->path);
        if (!upload) {
                reason_set(err, -EMFILE, REASON_QUOTA_EXCEEDED, "too many uploads were begun in this sandbox");
                return reason_add_limit(err, "uploads", FILE_UPLOADS_MAX, -EMFILE);
        }
        upload->runner = file;
        upload->expires = clock_realtime_ns() + FILE_UPLOAD_TIME;
        file->upload = upload;
        file_uploads_save(uploads);
        return 0;
}

static void upload_leave(FileCall *file, const HutchError *err, bool is_kept) {
        FileService *service = file->service;
        FileUpload *upload = TAKE_PTR(file->upload);
        if (!upload)
                return;
        upload->runner = NULL;
        upload->expires = clock_realtime_ns() + FILE_UPLOAD_TIME;
        if (!err || !is_kept)
                file_uploads_remove(service->uploads, upload);
        file_uploads_save(service->uploads);
        uploads_schedule(service);
}

/* Puts the path of an upload into the question about it. */
static int upload_name(FileCall *file, Hutch__V1__StatFileRequest *request, uint8_t **ret_message, size_t *ret_len,
                       FileCall **ret_other, HutchError *err) {
        const FileUpload *upload = file_uploads_find(file->service->uploads, request->upload_id);
        if (!upload)
                return no_upload(err);
        if (upload->runner && !((FileCall *) upload->runner)->call) {
                *ret_other = upload->runner;
                return -EAGAIN;
        }
        char *path = request->path;
        request->path = upload->path;
        int r = protobuf_pack(&request->base, ret_message, ret_len);
        request->path = path;
        return r < 0 ? reason_set(err, r, REASON_HOST_EXHAUSTED, "no memory for the request") : 0;
}

/* Looks whether the first message of a call is about an upload. @ret_message is what to send instead, or NULL. */
static int upload_look(FileCall *file, const uint8_t *message, size_t len, uint8_t **ret_message, size_t *ret_len,
                       FileCall **ret_other, HutchError *err) {
        bool is_written = file_methods[file->method].upload_use == FILE_UPLOAD_WRITTEN;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        /* What cannot be read the worker refuses. */
        if (protobuf_unpack(is_written ? &hutch__v1__upload_file_request__descriptor
                                       : &hutch__v1__stat_file_request__descriptor,
                            message, len, FIRST_MAX, &unpacked) < 0)
                return 0;
        if (is_written) {
                const Hutch__V1__UploadFileRequest *request = (const Hutch__V1__UploadFileRequest *) unpacked;
                if (request->item_case != HUTCH__V1__UPLOAD_FILE_REQUEST__ITEM_HEADER || !*request->header->upload_id)
                        return 0;
                return upload_enter(file, request->header, ret_other, err);
        }
        Hutch__V1__StatFileRequest *request = (Hutch__V1__StatFileRequest *) unpacked;
        return *request->upload_id ? upload_name(file, request, ret_message, ret_len, ret_other, err) : 0;
}

/* ---- What goes to its worker ---- */

static void relay(FileCall *file, const uint8_t *message, size_t len) {
        file->is_begun = true;
        if (file_worker_send(file->worker, FILE_FRAME_MESSAGE, message, len))
                call_read(file->call);
        if (file->all_came)
                (void) file_worker_send(file->worker, FILE_FRAME_HALF_CLOSE, NULL, 0);
}

static void relay_first(FileCall *file, const uint8_t *message, size_t len) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ uint8_t *other_message = NULL;
        FileCall *other = NULL;
        int r = upload_look(file, message, len, &other_message, &len, &other, &err);
        if (r == -EAGAIN && other) {
                file->held = new0(uint8_t, len + 1);
                memcpy(file->held, message, len);
                file->held_len = len;
                list_add(file, &other->waiters);
        } else if (r < 0)
                call_fail(file->call, &err);
        else
                relay(file, other_message ? other_message : message, len);
}

/* The upload that others wait for is theirs. */
static void waiters_go_on(FileCall *file) {
        while (file->waiters) {
                FileCall *waiter = file->waiters;
                _cleanup_free_ uint8_t *held = TAKE_PTR(waiter->held);
                list_remove(waiter);
                relay_first(waiter, held, waiter->held_len);
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

static uint8_t *on_worker_take(void *user) {
        const FileCall *file = user;
        return call_take_message(file->call);
}

static void on_worker_taken(void *user) {
        FileCall *file = user;
        if (file->call && !file->all_came)
                call_read(file->call);
}

static void on_worker_ended(void *user, const HutchError *err, bool is_kept) {
        FileCall *file = user;
        FileService *service = file->service;
        file->worker = NULL;
        if (file->is_writing)
                keeper_end_writing(service->keeper);
        file->is_writing = false;
        stop_waiting(file);
        upload_leave(file, err, is_kept);
        waiters_go_on(file);
        request_end(file, err);
        answer(file, err);
        if (!file->call)
                file_call_free(file);
        queue_run(service);
}

static const FilePoolEvents pool_events = {
        .message = on_worker_message,
        .take = on_worker_take,
        .taken = on_worker_taken,
        .ended = on_worker_ended,
};

/* ---- What its caller says ---- */

static void on_call_message(Call *call, const uint8_t *message, size_t len) {
        FileCall *file = call_user(call);
        if (!file->worker)
                return;
        if (!file->is_begun && file_methods[file->method].upload_use != FILE_UPLOAD_NOT_USED) {
                relay_first(file, message, len);
                return;
        }
        file->is_begun = true;
        if (file_worker_relay(file->worker, message, len))
                call_read(call);
}

static void on_call_half_closed(Call *call) {
        FileCall *file = call_user(call);
        file->all_came = true;
        if (file->worker && !file->held)
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
        stop_waiting(file);
        if (file->worker) {
                file_worker_cancel(file->worker);
                return;
        }
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

static int worker_take(FileCall *file, HutchError *err) {
        FileService *service = file->service;
        int r = check_state(service, err);
        if (r < 0)
                return r;
        if (!service->pool)
                service->pool = file_pool_new(service->keeper->loop, service->keeper->sandbox, &pool_events);
        if (file_methods[file->method].writes) {
                r = keeper_begin_writing(service->keeper, err);
                if (r < 0)
                        return r;
                file->is_writing = true;
        }
        r = file_pool_take(service->pool, file->user_name, file->method, file, &file->worker, err);
        if (r < 0 && file->is_writing) {
                keeper_end_writing(service->keeper);
                file->is_writing = false;
        }
        return r;
}

/* Has a worker do it, now or when there is one. */
static void call_begin(FileCall *file) {
        FileService *service = file->service;
        _cleanup_(error_clear) HutchError err = {};
        int r = worker_take(file, &err);
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

static bool is_writing(const void *user) {
        return ((const FileCall *) user)->is_writing;
}

void file_service_disk_full(FileService *service, const char *limit) {
        _cleanup_(error_clear) HutchError err = {};
        reason_set(&err, -EDQUOT, REASON_DISK_FULL, "the sandbox has more on disk than it may: remove some");
        error_add_pair(&err, "limit", "%s", limit);
        if (service->pool)
                file_pool_fail(service->pool, is_writing, &err);
}

FileService *file_service_new(Keeper *keeper) {
        FileService *service = new0(FileService, 1);
        service->keeper = keeper;
        service->requests = file_requests_new();
        service->uploads = file_uploads_open(keeper->owner.output_folder, clock_realtime_ns());
        service->upload_alarm = alarm_new(keeper->loop, on_upload_alarm, service);
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
        if (service->keeper->state == KEEPER_RUNNING)
                uploads_schedule(service);
        if (service->keeper->state == KEEPER_RUNNING || service->keeper->state == KEEPER_PAUSED || !service->pool)
                return;
        (void) wrong_state(service, &err);
        file_pool_end(service->pool, &err);
        queue_run(service);
}
