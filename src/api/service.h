/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "api/api.h"
#include "api/exec-spec.h"
#include "api/sandbox-spec.h"
#include "api/violations.h"
#include "api/wire-buffer.h"
#include "control/control.h"
#include "rpc/core/call.h"

/* What the services of this room share: the api's own state, requests from their bytes to their answer, and streams.
 *
 *         static void get_exec(Request *request) {
 *                 const GetExecRequest *message = (const GetExecRequest *) request->message;
 *
 *                 check_id(request, "exec_id", message->exec_id);
 *                 if (request_is_refused(request))
 *                         return;                              it was answered
 *                 …
 *                 request_reply(request, &buffer);
 *         } */

#define CALLER_NAME_SIZE (OWNER_LEN_MAX + 1)
#define CHUNK_MAX ((size_t) 256 << 10) /* bytes of output in one message */
#define CHUNK_HEAD 64                  /* room for the fields before them */

typedef struct ApiStream ApiStream;
typedef struct Request Request;
typedef struct ServedMethod ServedMethod;
typedef struct CallerStreams CallerStreams;
typedef struct Hutch__V1__CreateExecRequest Hutch__V1__CreateExecRequest;

struct Api {
        ApiOptions options;
        ApiLimits limits;
        ApiRemote remote;
        uint64_t start_time;
        Interceptor interceptor;
        Method *methods;
        ServedMethod *served; /* one for each of them */
        size_t n_methods;

        ApiStream *streams;
        CallerStreams *caller_streams;
        bool shut_down;
        uv_timer_t timer;                      /* while there are streams */
        uint8_t chunk[CHUNK_HEAD + CHUNK_MAX]; /* for whoever sends output */

        /* The caller who was looked up last among the members of the group. */
        uid_t member_uid;
        bool member_allowed;
        uint64_t member_until;

        uint64_t refusals;      /* of callers, since the start */
        uint64_t refusal_noted; /* when one was logged last */
};

/* A method of the contract. */
typedef struct ApiMethod {
        const char *path; /* "/package.Service/Method" */
        /* Clients send one message, of the type @request, and handle() is given it, decoded. */
        const ProtobufCMessageDescriptor *request;
        void (*handle)(Request *request);
        /* Or they stream: context is the Api. */
        void (*start)(Call *call, void *context);
} ApiMethod;

typedef struct MethodList {
        const ApiMethod *methods;
        size_t n;
} MethodList;

MethodList sandbox_service_methods(void);
MethodList exec_service_methods(void);
MethodList sandbox_exec_service_methods(void);
MethodList file_service_methods(void);
MethodList system_service_methods(void);

/* Lets a caller in or not, and keeps who it is as the call's identity: Interceptor.begin(). */
int api_admit(Call *call, void *context, HutchError *err) __attribute__((nonnull(1, 2)));

/* Who calls: of a call that was let in, and valid as long as it. */
const Caller *api_caller(const Call *call) __attribute__((nonnull, returns_nonnull));

SandboxRules api_sandbox_rules(const Api *api) __attribute__((nonnull));
ExecRules api_exec_rules(const Api *api) __attribute__((nonnull));

/* Ends a call with what @err says, with its pairs and, when there are, the violations. */
void api_fail(Call *call, const HutchError *err, const Violations *violations) __attribute__((nonnull(1, 2)));

/* Something to do once all that has happened so far is in the store (@err NULL), or was taken back. What is sent then
 * waits for the disk. Patiently: not before it is on the disk by itself, a few milliseconds later. */
typedef struct Deferred Deferred;
Deferred *api_defer(Api *api, void (*run)(const HutchError *err, void *user), void *user)
        __attribute__((nonnull, returns_nonnull));
Deferred *api_defer_patiently(Api *api, void (*run)(const HutchError *err, void *user), void *user)
        __attribute__((nonnull, returns_nonnull));

/* It is not done, if it was not yet. @deferred may be NULL. Returns NULL. */
Deferred *deferred_cancel(Deferred *deferred);

/* A request being answered. */
struct Request {
        Api *api;
        Call *call;
        const Caller *caller;
        ProtobufCMessage *message;
        Violations violations;
        HutchError err;
};

/* Decodes a request. NULL: it was answered. Else it may have violations already: those of its texts. */
void *request_begin(Request *request, Api *api, Call *call, const ProtobufCMessageDescriptor *type,
                    const uint8_t *bytes, size_t len) __attribute__((nonnull(1, 2, 3, 4)));
void request_clear(Request *request) __attribute__((nonnull));

/* Tells whether there are violations; then the request was answered with them. */
bool request_is_refused(Request *request) __attribute__((nonnull));

/* Answers with what @request.err says. */
void request_fail(Request *request) __attribute__((nonnull));

/* Answers with -ENOMEM, or whatever else went wrong inside. */
void request_fail_inside(Request *request, int r) __attribute__((nonnull));

/* Answers with @buffer, which is taken over, when all is durable. */
void request_reply(Request *request, WireBuffer *buffer) __attribute__((nonnull));

/* Makes the key under which a request with @message can be repeated. -ENOMEM. */
int request_key(const ProtobufCMessage *message, const char *method, const char *request_id, RequestKey *ret_key)
        __attribute__((nonnull));

/* Checks of fields that many requests have. The first: an id that is required. */
void check_id(Request *request, const char *field, const char *id) __attribute__((nonnull));
void check_new_id(Request *request, const char *field, const char *id) __attribute__((nonnull));
void check_request_id(Request *request, const char *id) __attribute__((nonnull));
void check_input(Request *request, const ProtobufCBinaryData *input) __attribute__((nonnull));

/* A call that goes on. Part of whatever the call's user is. */
struct ApiStream {
        Api *api;
        Call *call;
        ApiStream *prev, *next;
        CallerStreams *counted;                        /* NULL: not counted */
        bool finished;                                 /* its status was told */
        void (*tick)(ApiStream *stream, uint64_t now); /* every few seconds; may be NULL */
};

/* Begins a stream. Those that are counted are limited for each caller: TOO_MANY_STREAMS. DRAINING. */
int api_stream_begin(ApiStream *stream, Api *api, Call *call, const Caller *caller, bool counted, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4)));

/* When the call has ended. */
void api_stream_end_of_call(ApiStream *stream) __attribute__((nonnull));

/* Sends @buffer; fails the stream when that cannot be done. */
void api_stream_put(ApiStream *stream, const WireBuffer *buffer) __attribute__((nonnull));
void api_stream_send_bytes(ApiStream *stream, const void *bytes, size_t len) __attribute__((nonnull));
void api_stream_send_taken(ApiStream *stream, uint8_t *bytes, size_t len) __attribute__((nonnull)); /* from malloc() */

/* Ends the call. */
void api_stream_finish(ApiStream *stream) __attribute__((nonnull));
void api_stream_fail(ApiStream *stream, const HutchError *err) __attribute__((nonnull));

/* Handlers that have files of their own. */
void handle_watch_events(Request *request);
void handle_read_exec_output(Request *request);
void handle_run_command(Request *request);
void start_attach_exec(Call *call, void *context);

/* Checks @message, where the request's violations are, and creates the exec; @streams: it may be bound. Fails with
 * @request.err or with violations. */
int request_create_exec(Request *request, const Hutch__V1__CreateExecRequest *message, bool streams, ExecView *ret_view)
        __attribute__((nonnull));

/* Creates an exec of a spec that was checked, in the sandbox of that id. Violations are added below "spec". */
int request_create_exec_of(Request *request, const char *sandbox_id, const char *exec_id,
                           const Hutch__V1__ExecSpec *spec, const RequestKey *key, const ProtobufCBinaryData *input,
                           bool bound, ExecView *ret_view) __attribute__((nonnull(1, 2, 3, 4, 5, 8)));
