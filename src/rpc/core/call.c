/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what all calls have in common, wherever they come from. What does not: how bytes come and go
 * (server-session.c, local-call.c). */

#include "rpc/core/call.h"

#include <errno.h>

#include "base/memory.h"
#include "rpc/core/call-verbs.h"
#include "rpc/core/server-session.h"
#include "rpc/core/status-details.h"

#define DOMAIN "hutch" /* of the reasons of errors */

const char *call_path(const Call *call) {
        return call->path;
}

const Metadata *call_metadata(const Call *call) {
        return call->metadata;
}

const Peer *call_peer(const Call *call) {
        return call->peer;
}

uint64_t call_deadline(const Call *call) {
        return call->verbs->deadline(call);
}

void call_set_identity(Call *call, void *identity, void (*free_identity)(void *identity)) {
        if (call->free_identity)
                call->free_identity(call->identity);
        call->identity = identity;
        call->free_identity = free_identity;
}

void *call_identity(const Call *call) {
        return call->identity;
}

void call_set_events(Call *call, const CallEvents *events, void *user) {
        call->events = events;
        call->user = user;
}

void *call_user(const Call *call) {
        return call->user;
}

void call_read(Call *call) {
        call->verbs->read(call);
}

uint8_t *call_take_message(Call *call) {
        return call->verbs->take_message(call);
}

bool call_message_was_compressed(const Call *call) {
        return call->verbs->message_was_compressed(call);
}

Metadata *call_initial_metadata(Call *call) {
        return call->verbs->initial_metadata(call);
}

Metadata *call_trailing_metadata(Call *call) {
        return call->verbs->trailing_metadata(call);
}

void call_set_compression(Call *call, bool compress) {
        call->verbs->set_compression(call, compress);
}

int call_send(Call *call, const void *message, size_t len) {
        return call->verbs->send(call, message, len);
}

int call_send_taken(Call *call, uint8_t *message, size_t len) {
        return call->verbs->send_taken(call, message, len);
}

bool call_is_writable(const Call *call) {
        return call->verbs->is_writable(call);
}

/* ---- Ending ---- */

void call_finish_details(Call *call, StatusCode status, const char *message, const void *details, size_t details_len) {
        call->verbs->finish(call, status, message, details, details_len);
}

void call_finish(Call *call, StatusCode status, const char *message) {
        call_finish_details(call, status, message, NULL, 0);
}

void call_fail(Call *call, const HutchError *err) {
        call_fail_details(call, err, &(StatusDetails){ .domain = DOMAIN });
}

void call_fail_with(Call *call, StatusCode status, const char *reason, const char *message) {
        const HutchError err = { .code = status, .message = (char *) message };

        call_fail_details(call, &err, &(StatusDetails){ .reason = reason, .domain = DOMAIN });
}

/* Ends the call after its only message, which was sent with @r. */
static void finish_reply(Call *call, int r) {
        if (r == 0)
                call_finish(call, STATUS_OK, NULL);
        else if (r == -EMSGSIZE)
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", "the answer is too large");
        else if (r != -EPIPE)
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory for the answer");
}

void call_reply(Call *call, const void *message, size_t len) {
        finish_reply(call, call_send(call, message, len));
}

void call_reply_taken(Call *call, uint8_t *message, size_t len) {
        finish_reply(call, call_send_taken(call, message, len));
}

/* ---- Interceptors ---- */

int call_run_interceptors(Call *call, HutchError *err) {
        while (call->n_begun < call->handlers->n_interceptors) {
                const Interceptor *interceptor = &call->handlers->interceptors[call->n_begun];
                int r = interceptor->begin ? interceptor->begin(call, interceptor->context, err) : 0;

                call->waits = r == CALL_WAITS;
                if (r != 0)
                        return r;
                call->n_begun++;
        }

        return 0;
}

void call_go_on(Call *call, const HutchError *refusal) {
        _cleanup_(error_clear) HutchError err = {};
        int r;

        if (!call->waits || call->told)
                return;
        call->waits = false;
        if (refusal) {
                call_fail(call, refusal);
                return;
        }

        call->n_begun++;
        r = call_run_interceptors(call, &err);
        if (r < 0)
                call_fail(call, &err);
        else if (r == 0)
                call->verbs->passed(call);
}

void call_tell_end(Call *call, StatusCode status, CallEnd how) {
        bool by_peer = how == CALL_END_CANCELLED || how == CALL_END_LOST;

        if (call->told)
                return;

        call->told = true;
        if (call->events && call->events->ended)
                call->events->ended(call, how);
        while (call->n_begun > 0) {
                const Interceptor *interceptor = &call->handlers->interceptors[--call->n_begun];

                if (interceptor->end)
                        interceptor->end(call, by_peer ? STATUS_CANCELLED : status, how, interceptor->context);
        }
        call_set_identity(call, NULL, NULL);
}
