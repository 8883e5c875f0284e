/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: watching events without loss and doubles, whatever becomes of the connection. What does not: waiting
 * for one state (sandbox-wait.c). */

#include "client/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "client/checks.h"
#include "client/outcall.h"
#include "client/pairs.h"
#include "client/views.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "contract/hutch/v1/state.pb-c.h"

#define RESUMES_MAX 6 /* in a row that brought nothing */
#define REQUEST_MAX ((size_t) 4 << 20)

typedef Hutch__V1__WatchEventsRequest WatchRequest;

struct HutchWatch {
        HutchClient *client;
        HutchCall *call;
        void *user;
        uint64_t deadline;         /* as client_deadline() says */
        ProtobufCMessage *request; /* to begin with, and to go on with */
        ProtobufCMessage *message; /* the last that came */
        SandboxView sandbox;       /* that it tells, if it is one of a snapshot */
        uint8_t *encoded;          /* the event that it tells */
        uint64_t cursor;
        bool started;
        unsigned n_resumes;
};

HutchWatch *watch_free(HutchWatch *watch) {
        if (!watch)
                return NULL;

        (void) outcall_free(watch->call);
        sandbox_view_clear(&watch->sandbox);
        (void) protobuf_free(watch->request);
        (void) protobuf_free(watch->message);
        free(watch->encoded);
        free(watch);
        return NULL;
}

/* Begins a call that tells what is not told yet. */
static int begin(HutchWatch *watch, Failure *failure) {
        WatchRequest *request = (WatchRequest *) watch->request;
        uint64_t now = uv_hrtime();
        const OutcallOptions options = {
                .method = "AgentSandboxService/WatchEvents",
                .timeout = watch->deadline == DEADLINE_NONE ? HUTCH_FOREVER
                           : watch->deadline > now          ? watch->deadline - now
                                                            : 1,
                .user = watch->user,
        };
        int r;

        if (watch->started) {
                request->include_snapshot = false;
                request->opt_after_sequence_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_SEQUENCE__NOT_SET;
                request->opt_after_cursor_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_CURSOR_AFTER_CURSOR;
                request->after_cursor = watch->cursor;
        }

        watch->call = outcall_free(watch->call);
        r = outcall_new(watch->client, &options, &watch->call, failure);
        if (r == 0)
                r = outcall_queue(watch->call, &request->base, failure);
        if (r == 0)
                hutch_call_end(watch->call);
        return r == -EPIPE ? 0 : r; /* why it is over, the first event will tell */
}

/* A copy of @request, which is encoded and decoded. */
static int copy_request(const WatchRequest *request, ProtobufCMessage **ret_copy) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r = protobuf_pack(&request->base, &bytes, &len);

        return r < 0 ? r
                     : protobuf_unpack(&hutch__v1__watch_events_request__descriptor, bytes, len, REQUEST_MAX, ret_copy);
}

int watch_new(HutchClient *client, const WatchRequest *request, uint64_t timeout, void *user, HutchWatch **ret_watch,
              Failure *failure) {
        HutchWatch *watch = try_new0(HutchWatch, 1);
        int r;

        if (!watch)
                return -ENOMEM;

        watch->client = client;
        watch->user = user;
        watch->deadline = client_deadline(client, timeout > 0 ? timeout : HUTCH_FOREVER);
        watch->cursor = request->opt_after_cursor_case == HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_CURSOR_AFTER_CURSOR
                                ? request->after_cursor
                                : 0;
        r = copy_request(request, &watch->request);
        if (r == 0)
                r = begin(watch, failure);
        if (r < 0) {
                (void) watch_free(watch);
                return r;
        }

        *ret_watch = watch;
        return 0;
}

/* The call has ended with @r. Goes on from the cursor, or fails. */
static int resume(HutchWatch *watch, int r, Failure *failure) {
        bool lagged = str_equal(failure->error.reason, "WATCHER_LAGGED");
        const char *cursor = lagged ? hutch_error_get(&failure->error, "cursor") : NULL;
        uint64_t told = cursor ? strtoull(cursor, NULL, 10) : 0;

        if ((failure->error.code != STATUS_UNAVAILABLE && !lagged) || watch->n_resumes == RESUMES_MAX)
                return r;

        if (told > watch->cursor)
                watch->cursor = told;
        watch->n_resumes++;
        failure_clear(failure);
        return begin(watch, failure);
}

/* Takes what the last message says of the watch itself. Returns whether there is something for the caller. */
static bool take_message(HutchWatch *watch) {
        const Hutch__V1__WatchEventsResponse *step = (const Hutch__V1__WatchEventsResponse *) watch->message;

        switch (step->item_case) {
        case HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_SANDBOX:
                return true;
        case HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_STARTED:
                /* One that goes on has come further than that, or just as far. */
                if (!watch->started)
                        watch->cursor = step->started->cursor;
                watch->started = true;
                return false;
        case HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_EVENT:
                watch->cursor = step->event->cursor;
                watch->n_resumes = 0;
                return true;
        case HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_PROGRESS:
                watch->cursor = step->progress->cursor;
                watch->n_resumes = 0;
                return false;
        default:
                return false;
        }
}

int watch_next(HutchWatch *watch, bool wait, const Hutch__V1__Event **ret_event, Failure *failure) {
        for (;;) {
                const Hutch__V1__WatchEventsResponse *step;
                int r;

                watch->message = protobuf_free(watch->message);
                r = watch->call
                            ? outcall_receive_message(watch->call, wait, &hutch__v1__watch_events_response__descriptor,
                                                      &watch->message, failure)
                            : -ENOMEM;
                if (r == -EAGAIN)
                        return r;
                if (r == 0) /* a watch has no end */
                        r = error_set_code(&failure->error, STATUS_UNAVAILABLE, -ECONNRESET, "STREAM_INCOMPLETE",
                                           "the daemon ended the watch");
                if (r < 0) {
                        r = resume(watch, r, failure);
                        if (r < 0)
                                return r;
                        continue;
                }
                if (!take_message(watch))
                        continue;

                step = (const Hutch__V1__WatchEventsResponse *) watch->message;
                *ret_event = step->item_case == HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_EVENT ? step->event : NULL;
                return 1;
        }
}

/* ---- The public functions ---- */

int hutch_watch_new(HutchClient *client, const HutchWatchOptions *options, HutchWatch **ret_watch,
                    HutchError **ret_error) {
        static const HutchWatchOptions defaults;
        WatchRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        int r;

        if (!options)
                options = &defaults;

        for (size_t i = 0; options->sandbox_ids && options->sandbox_ids[i]; i++)
                checks_element_id(&checks, "sandbox_ids", i, options->sandbox_ids[i]);
        checks_selector(&checks, options->selector, true);
        r = checks_result(&checks, &failure);

        request.sandbox_ids = (char **) options->sandbox_ids;
        request.n_sandbox_ids = texts_count(options->sandbox_ids);
        if (options->selector)
                request.selector = (char *) options->selector;
        request.include_snapshot = options->snapshot;
        if (options->has_after_cursor) {
                request.opt_after_cursor_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_CURSOR_AFTER_CURSOR;
                request.after_cursor = options->after_cursor;
        }
        if (r == 0)
                r = watch_new(client, &request, 0, options->user, ret_watch, &failure);
        return failure_tell(&failure, r, ret_error);
}

static const char *sandbox_state_text(Hutch__V1__SandboxState state) {
        return hutch_sandbox_state_name((HutchSandboxState) state);
}

static const char *exec_state_text(Hutch__V1__ExecState state) {
        return hutch_exec_state_name((HutchExecState) state);
}

/* What changed, by the type of the event. */
static void tell_change(const Hutch__V1__Event *event, HutchEvent *told) {
        told->exec_id = told->from_state = told->to_state = "";
        switch (event->change_case) {
        case HUTCH__V1__EVENT__CHANGE_SANDBOX_STATE:
                told->from_state = sandbox_state_text(event->sandbox_state->from_state);
                told->to_state = sandbox_state_text(event->sandbox_state->to_state);
                break;
        case HUTCH__V1__EVENT__CHANGE_EXEC_STATE:
                told->exec_id = event->exec_state->exec_id;
                told->from_state = exec_state_text(event->exec_state->from_state);
                told->to_state = exec_state_text(event->exec_state->to_state);
                break;
        case HUTCH__V1__EVENT__CHANGE_LIMIT_HIT:
                told->exec_id = event->limit_hit->exec_id;
                break;
        default:
                break;
        }
}

static int tell_event(HutchWatch *watch, const Hutch__V1__Event *event, HutchEvent *ret_event) {
        size_t len;
        int r = protobuf_pack(&event->base, &watch->encoded, &len);

        if (r < 0)
                return r;

        *ret_event = (HutchEvent){
                .cursor = event->cursor,
                .sandbox_id = event->sandbox_id,
                .sequence = event->sequence,
                .time = timestamp_to_ns(event->time),
                .type = enum_name(&hutch__v1__event_type__descriptor, (int) event->type, "EVENT_TYPE_"),
                .reason = reason_text(event->reason),
                .message = event->message,
                .encoded = watch->encoded,
                .encoded_len = len,
        };
        tell_change(event, ret_event);
        return 0;
}

static int tell_sandbox(HutchWatch *watch, HutchEvent *ret_event) {
        const Hutch__V1__WatchEventsResponse *step = (const Hutch__V1__WatchEventsResponse *) watch->message;
        int r = sandbox_view_fill(&watch->sandbox, step->sandbox);

        if (r < 0)
                return r;

        *ret_event = (HutchEvent){
                .sandbox = &watch->sandbox.view,
                .sandbox_id = watch->sandbox.view.id,
                .type = "",
                .exec_id = "",
                .from_state = "",
                .to_state = "",
                .reason = "",
                .message = "",
        };
        return 0;
}

int hutch_watch_next(HutchWatch *watch, bool wait, HutchEvent *ret_event, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        const Hutch__V1__Event *event;
        int r;

        sandbox_view_clear(&watch->sandbox);
        free(watch->encoded);
        watch->encoded = NULL;

        r = watch_next(watch, wait, &event, &failure);
        if (r == -EAGAIN)
                return r;
        if (r == 1) {
                r = event ? tell_event(watch, event, ret_event) : tell_sandbox(watch, ret_event);
                r = r < 0 ? r : 1;
        }
        return failure_tell(&failure, r, ret_error);
}

uint64_t hutch_watch_cursor(const HutchWatch *watch) {
        return watch->cursor;
}

bool hutch_watch_has_started(const HutchWatch *watch) {
        return watch->started;
}

void hutch_watch_free(HutchWatch *watch) {
        (void) watch_free(watch);
}
