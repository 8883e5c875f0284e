/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a request's way from its bytes to its answer, whatever it asks. What does not: the services, and
 * calls that go on (stream.c). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/message.h"
#include "api/service.h"
#include "base/memory.h"
#include "model/ids.h"
#include "rpc/core/protobuf.h"
#include "rpc/core/status-details.h"

#define ERROR_DOMAIN "hutch"
#define INPUT_MAX ((size_t) 3 << 20) /* bytes for the stdin of a command */

void api_fail(Call *call, const HutchError *err, const Violations *violations) {
        StatusViolation list[VIOLATIONS_MAX];
        StatusDetails details = { .domain = ERROR_DOMAIN, .violations = list };

        for (; violations && details.n_violations < violations_kept(violations); details.n_violations++) {
                const Violation *violation = &violations->list[details.n_violations];

                list[details.n_violations] = (StatusViolation){
                        .field = violation->field,
                        .reason = reason_name(violation->reason),
                        .description = violation->description,
                };
        }

        call_fail_details(call, err, &details);
}

struct Deferred {
        void (*run)(const HutchError *err, void *user); /* NULL: it was cancelled */
        void *user;
};

static void deferred_run(const HutchError *err, void *user) {
        Deferred *deferred = user;

        if (deferred->run)
                deferred->run(err, deferred->user);
        free(deferred);
}

static Deferred *deferred_new(void (*run)(const HutchError *err, void *user), void *user) {
        Deferred *deferred = new0(Deferred, 1);

        *deferred = (Deferred){ .run = run, .user = user };
        return deferred;
}

Deferred *api_defer(Api *api, void (*run)(const HutchError *err, void *user), void *user) {
        Deferred *deferred = deferred_new(run, user);

        control_when_committed(api->options.control, deferred_run, deferred);
        return deferred;
}

Deferred *api_defer_patiently(Api *api, void (*run)(const HutchError *err, void *user), void *user) {
        Deferred *deferred = deferred_new(run, user);

        control_when_durable(api->options.control, deferred_run, deferred);
        return deferred;
}

Deferred *deferred_cancel(Deferred *deferred) {
        if (deferred)
                deferred->run = NULL;
        return NULL;
}

void *request_begin(Request *request, Api *api, Call *call, const ProtobufCMessageDescriptor *type,
                    const uint8_t *bytes, size_t len) {
        request->api = api;
        request->call = call;
        request->caller = api_caller(call);
        request->message = message_unpack(type, bytes, len, &request->violations);
        if (!request->message) {
                (void) request_is_refused(request);
                return NULL;
        }

        return request->message;
}

void request_clear(Request *request) {
        (void) protobuf_free(request->message);
        violations_clear(&request->violations);
        error_clear(&request->err);
}

bool request_is_refused(Request *request) {
        if (violations_result(&request->violations, &request->err) == 0)
                return false;

        api_fail(request->call, &request->err, &request->violations);
        return true;
}

void request_fail(Request *request) {
        api_fail(request->call, &request->err, NULL);
}

void request_fail_inside(Request *request, int r) {
        if (r == -ENOMEM)
                (void) reason_set(&request->err, r, REASON_HOST_EXHAUSTED, "the daemon is out of memory");
        else
                (void) reason_set(&request->err, r, REASON_INTERNAL, "the daemon failed: %s", strerror(-r));
        request_fail(request);
}

/* An answer that waits. */
typedef struct PendingReply {
        Call *call;
        Deferred *deferred;
        WireBuffer buffer;
} PendingReply;

static void pending_free(PendingReply *pending) {
        wire_buffer_clear(&pending->buffer);
        free(pending);
}

static void pending_ended(Call *call, CallEnd how) {
        PendingReply *pending = call_user(call);

        (void) how;
        (void) deferred_cancel(pending->deferred);
        pending_free(pending);
}

static void pending_send(const HutchError *err, void *user) {
        PendingReply *pending = user;
        Call *call = pending->call;

        call_set_events(call, NULL, NULL);
        if (err)
                api_fail(call, err, NULL);
        else
                call_reply_taken(call, TAKE_PTR(pending->buffer.bytes), pending->buffer.len);
        pending_free(pending);
}

void request_reply(Request *request, WireBuffer *buffer) {
        static const CallEvents events = { .ended = pending_ended };
        PendingReply *pending;

        if (buffer->failed) {
                request_fail_inside(request, -ENOMEM);
                return;
        }

        pending = new0(PendingReply, 1);
        *pending = (PendingReply){ .call = request->call, .buffer = *buffer };
        *buffer = (WireBuffer){};
        call_set_events(request->call, &events, pending);
        pending->deferred = api_defer(request->api, pending_send, pending);
}

int request_key(const ProtobufCMessage *message, const char *method, const char *request_id, RequestKey *ret_key) {
        *ret_key = (RequestKey){ .method = method, .request_id = request_id };
        if (!*request_id)
                return 0;
        return message_fingerprint(message, method, ret_key->fingerprint);
}

void check_id(Request *request, const char *field, const char *id) {
        Violations *violations = &request->violations;

        if (*id)
                check_new_id(request, field, id);
        else
                violations_add(violations, field, REASON_FIELD_REQUIRED, "the field is required");
}

void check_new_id(Request *request, const char *field, const char *id) {
        Violations *violations = &request->violations;

        if (*id)
                (void) violations_note(violations, field, id_check(id, strlen(id), &violations->err));
}

void check_request_id(Request *request, const char *id) {
        Violations *violations = &request->violations;

        if (*id)
                (void) violations_note(violations, "request_id", request_id_check(id, strlen(id), &violations->err));
}

void check_input(Request *request, const ProtobufCBinaryData *input) {
        if (input->len > INPUT_MAX)
                violations_add_limit(&request->violations, "input", REASON_FIELD_TOO_LONG, "input_bytes", INPUT_MAX,
                                     "at most %zu bytes", INPUT_MAX);
}
