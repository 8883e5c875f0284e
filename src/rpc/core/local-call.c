/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls from within this process. What does not: what all calls have in common (call.c). */

#include "rpc/core/local-call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/core/call-verbs.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/core/server-session.h"

/* A message that the method has not asked for yet. */
typedef struct Waiting {
        struct Waiting *next;
        size_t len;
        uint8_t *bytes;
} Waiting;

struct LocalCall {
        Call base; /* first */
        const Method *method;
        const LocalCallEvents *events;
        void *user;
        uint64_t deadline;

        Waiting *first, **end;
        size_t demand;      /* messages asked for and not handed out */
        uint8_t **offered;  /* in the event `message`, until somebody takes it */
        bool is_delivering; /* messages, further up on the stack */
        bool is_started;    /* the method knows of it */
        bool is_half_closed, half_close_told;
        bool is_finished;
        StatusCode status;
        Metadata initial, trailing; /* nobody reads them */
};

static LocalCall *local_call(const Call *base) {
        return (LocalCall *) base;
}

/* A method without a stream wants its only message when there will be no other. */
static void hand_to_method(LocalCall *call) {
        Waiting *request = call->first;

        call->half_close_told = true;
        if (!request || request->next)
                call_fail_with(&call->base, STATUS_UNIMPLEMENTED, "METHOD_UNIMPLEMENTED",
                               request ? "the method takes one message, and more came"
                                       : "the method takes one message, and none came");
        else
                call->method->handle(&call->base, request->bytes, request->len, call->method->context);
}

static void hand_out_one(LocalCall *call) {
        Waiting *waiting = call->first;
        uint8_t *bytes = waiting->bytes;

        size_t len = waiting->len;

        call->demand--;
        call->first = waiting->next;
        if (!call->first)
                call->end = &call->first;
        free(waiting);
        call->offered = &bytes;
        if (call->base.events && call->base.events->message)
                call->base.events->message(&call->base, bytes, len);
        call->offered = NULL;
        free(bytes);
}

/* Tells the method all that it can be told. */
static void deliver(LocalCall *call) {
        if (!call->is_started || call->is_delivering || call->is_finished)
                return;
        if (!call->method->start) {
                if (call->is_half_closed && !call->half_close_told)
                        hand_to_method(call);
                return;
        }

        call->is_delivering = true;
        while (call->demand > 0 && call->first && !call->is_finished)
                hand_out_one(call);
        if (!call->first && call->is_half_closed && !call->half_close_told && !call->is_finished) {
                call->half_close_told = true;
                if (call->base.events && call->base.events->half_closed)
                        call->base.events->half_closed(&call->base);
        }
        call->is_delivering = false;
}

static void start(LocalCall *call) {
        call->is_started = true;
        if (call->method->start)
                call->method->start(&call->base, call->method->context);
        deliver(call);
}

/* ---- The verbs ---- */

static uint64_t local_deadline(const Call *base) {
        return local_call(base)->deadline;
}

static void local_read(Call *base) {
        LocalCall *call = local_call(base);

        call->demand++;
        deliver(call);
}

static uint8_t *local_take_message(Call *base) {
        return TAKE_PTR(*local_call(base)->offered);
}

static bool local_message_was_compressed(const Call *base) {
        (void) base;
        return false;
}

static Metadata *local_initial_metadata(Call *base) {
        return &local_call(base)->initial;
}

static Metadata *local_trailing_metadata(Call *base) {
        return &local_call(base)->trailing;
}

static void local_set_compression(Call *base, bool compress) {
        (void) base;
        (void) compress;
}

static int local_send(Call *base, const void *message, size_t len) {
        LocalCall *call = local_call(base);

        if (call->is_finished || base->told)
                return -EPIPE;
        call->events->message(message, len, call->user);
        return 0;
}

static int local_send_taken(Call *base, uint8_t *message, size_t len) {
        int r = local_send(base, message, len);

        free(message);
        return r;
}

static bool local_is_writable(const Call *base) {
        (void) base;
        return true;
}

static void local_finish(Call *base, StatusCode status, const char *message, const void *details, size_t details_len) {
        LocalCall *call = local_call(base);

        if (call->is_finished)
                return;
        call->is_finished = true;
        call->status = status;
        call->events->finished(status, message ? message : "", details, details_len, call->user);
}

static void local_passed(Call *base) {
        start(local_call(base));
}

static const CallVerbs local_call_verbs = {
        .deadline = local_deadline,
        .read = local_read,
        .take_message = local_take_message,
        .message_was_compressed = local_message_was_compressed,
        .initial_metadata = local_initial_metadata,
        .trailing_metadata = local_trailing_metadata,
        .set_compression = local_set_compression,
        .send = local_send,
        .send_taken = local_send_taken,
        .is_writable = local_is_writable,
        .finish = local_finish,
        .passed = local_passed,
};

/* ---- For the caller ---- */

LocalCall *local_call_new(const ServerHandlers *handlers, const char *path, const Metadata *metadata, const Peer *peer,
                          uint64_t deadline, const LocalCallEvents *events, void *user) {
        _cleanup_(error_clear) HutchError err = {};
        LocalCall *call = try_new0(LocalCall, 1);
        int r;

        if (!call)
                return NULL;

        *call = (LocalCall){
                .base = { .verbs = &local_call_verbs,
                          .handlers = handlers,
                          .path = path,
                          .metadata = metadata,
                          .peer = peer },
                .method = method_table_find(handlers->methods, path, strlen(path)),
                .events = events,
                .user = user,
                .deadline = deadline,
                .end = &call->first,
        };
        if (!call->method) {
                call_fail_with(&call->base, STATUS_UNIMPLEMENTED, "METHOD_UNIMPLEMENTED", "no such method is served");
                return call;
        }

        r = call_run_interceptors(&call->base, &err);
        if (r < 0)
                call_fail(&call->base, &err);
        else if (r == 0)
                start(call);
        return call;
}

int local_call_send(LocalCall *call, const void *message, size_t len) {
        Waiting *waiting;

        if (call->is_finished || call->is_half_closed)
                return -EPIPE;
        waiting = try_new0(Waiting, 1);
        if (!waiting)
                return -ENOMEM;
        waiting->len = len;
        waiting->bytes = malloc(len > 0 ? len : 1);
        if (!waiting->bytes) {
                free(waiting);
                return -ENOMEM;
        }

        if (len > 0)
                memcpy(waiting->bytes, message, len);
        *call->end = waiting;
        call->end = &waiting->next;
        deliver(call);
        return 0;
}

void local_call_half_close(LocalCall *call) {
        call->is_half_closed = true;
        deliver(call);
}

LocalCall *local_call_free(LocalCall *call) {
        if (!call)
                return NULL;

        call_tell_end(&call->base, call->status, call->is_finished ? CALL_END_FINISHED : CALL_END_CANCELLED);
        for (Waiting *next; call->first; call->first = next) {
                next = call->first->next;
                free(call->first->bytes);
                free(call->first);
        }
        metadata_clear(&call->initial);
        metadata_clear(&call->trailing);
        free(call);
        return NULL;
}
