/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: WatchEvents. What does not: which events there are and where they are kept (control).
 *
 * A snapshot is sent as fast as the peer takes it, so its objects may be newer than the cursor at which the watch
 * stands. Each carries the sequence of its latest event: events of a sandbox up to the sequence that was shown are left
 * out, and those after it follow without a gap. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "model/ids.h"
#include "rpc/core/protobuf.h"

#define SANDBOX_IDS_MAX 1000
#define PROGRESS_AFTER (30 * NSEC_PER_SEC)
#define EVENT_UNPACKED_MAX ((size_t) 1 << 20)

typedef Hutch__V1__WatchEventsRequest WatchRequest;

/* How far into a sandbox's events the snapshot has shown it. */
typedef struct Shown {
        uint64_t id_hash;
        uint64_t sequence;
} Shown;

typedef struct WatchStream {
        ApiStream base; /* first */
        Watch *watch;
        Deferred *deferred;
        uint64_t last_sent;
        uint64_t told; /* the cursor up to which the last message says that all was told */

        /* The beginning. */
        ProtobufCMessage *request;
        Selector *selector;
        const Caller *caller;  /* as long as the call */
        size_t next_id;        /* of the request's list, or */
        uint64_t after_serial; /* of all */
        bool started;

        Shown *shown; /* until the watch has come to @shown_until */
        size_t n_shown, shown_size;
        uint64_t shown_until; /* what there was when the watch began */
} WatchStream;

static const WatchRequest *request_of(const WatchStream *stream) {
        return (const WatchRequest *) stream->request;
}

static void put(WatchStream *stream, const WireBuffer *buffer) {
        api_stream_put(&stream->base, buffer);
        stream->last_sent = clock_monotonic_ns();
}

/* FNV-1a. */
static uint64_t hash_id(const char *id) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);

        for (; *id; id++)
                hash = (hash ^ (uint8_t) *id) * UINT64_C(0x100000001b3);
        return hash;
}

static int shown_compare(const void *a, const void *b) {
        const Shown *x = a, *y = b;

        return (x->id_hash > y->id_hash) - (x->id_hash < y->id_hash);
}

static void show(WatchStream *stream, const SandboxView *view) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};

        if (stream->n_shown == stream->shown_size) {
                stream->shown_size = stream->shown_size > 0 ? 2 * stream->shown_size : 64;
                stream->shown = xreallocarray(stream->shown, stream->shown_size, sizeof(Shown));
        }
        stream->shown[stream->n_shown++] = (Shown){ hash_id(view->record->id), view->record->sequence };

        put_sandbox(&buffer, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_SANDBOX, view, NULL);
        put(stream, &buffer);
}

static bool has_room(const WatchStream *stream) {
        return !stream->base.finished && call_is_writable(stream->base.call);
}

static bool show_listed(const SandboxView *view, void *user) {
        WatchStream *stream = user;

        if (!has_room(stream))
                return false;

        show(stream, view);
        stream->after_serial = view->record->serial;
        return true;
}

/* Shows the sandboxes of the request's list. Returns whether all were. */
static bool show_named(WatchStream *stream) {
        const WatchRequest *request = request_of(stream);
        const Caller *caller = stream->caller;

        for (; stream->next_id < request->n_sandbox_ids; stream->next_id++) {
                const SandboxRecord *record;
                SandboxView view;

                if (!has_room(stream))
                        return false;
                if (control_get_sandbox(stream->base.api->options.control, caller,
                                        request->sandbox_ids[stream->next_id], &view, NULL) < 0)
                        continue;

                record = view.record;
                if (record->state != SANDBOX_DELETED &&
                    selector_matches(stream->selector, record->spec->labels, record->spec->n_labels))
                        show(stream, &view);
        }

        return true;
}

/* Goes on with the snapshot. Returns whether it is complete. */
static bool show_more(WatchStream *stream) {
        const WatchRequest *request = request_of(stream);
        SandboxFilter filter = { .selector = stream->selector, .all_owners = request->all_owners };
        _cleanup_(error_clear) HutchError err = {};
        uint64_t after = stream->after_serial;

        if (!request->include_snapshot)
                return true;
        if (request->n_sandbox_ids > 0)
                return show_named(stream);

        if (control_list_sandboxes(stream->base.api->options.control, stream->caller, &filter, &after, show_listed,
                                   stream, &err) < 0) {
                api_stream_fail(&stream->base, &err);
                return false;
        }
        /* Without room left there may be more; the next try finds out. */
        return has_room(stream);
}

/* Tells whether the snapshot has shown what came of an event. */
static bool was_shown(WatchStream *stream, const WatchedEvent *event) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        const Hutch__V1__Event *message;
        const Shown *found;
        Shown key;

        if (!stream->shown)
                return false;
        if (event->cursor > stream->shown_until) {
                free(TAKE_PTR(stream->shown));
                return false;
        }
        if (protobuf_unpack(&hutch__v1__event__descriptor, event->encoded, event->encoded_len, EVENT_UNPACKED_MAX,
                            &unpacked) < 0)
                return false;

        message = (const Hutch__V1__Event *) unpacked;
        key.id_hash = hash_id(message->sandbox_id);
        found = bsearch(&key, stream->shown, stream->n_shown, sizeof(Shown), shown_compare);
        return found && message->sequence <= found->sequence;
}

/* An event is kept as the bytes that are sent: only their field and length are put before them. */
static void put_event(WatchStream *stream, const WatchedEvent *event) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};

        wire_put_bytes(&buffer, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_EVENT, event->encoded, event->encoded_len);
        put(stream, &buffer);
        stream->told = event->cursor;
}

static void put_cursor(WatchStream *stream, unsigned field) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        size_t begun = wire_begin(&buffer, field);

        /* hutch.v1.WatchStarted and WatchProgress have the one field. */
        stream->told = watch_cursor(stream->watch);
        wire_put_uint(&buffer, 1, stream->told);
        wire_end(&buffer, begun);
        put(stream, &buffer);
}

/* That all is told of what there was when the watch began, when its last event does not say so. */
static void tell_caught_up(WatchStream *stream) {
        if (stream->told < stream->shown_until && watch_cursor(stream->watch) >= stream->shown_until)
                put_cursor(stream, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_PROGRESS);
}

static void pump_events(WatchStream *stream) {
        while (has_room(stream)) {
                _cleanup_(error_clear) HutchError err = {};
                WatchedEvent event;
                int r = watch_next(stream->watch, &event, &err);

                if (r == 0) {
                        tell_caught_up(stream);
                        return;
                }
                if (r < 0)
                        api_stream_fail(&stream->base, &err);
                else if (!was_shown(stream, &event))
                        put_event(stream, &event);
        }
}

static void start(WatchStream *stream) {
        stream->started = true;
        stream->shown_until = control_cursor(stream->base.api->options.control);
        if (stream->shown_until == watch_cursor(stream->watch))
                free(TAKE_PTR(stream->shown));
        else if (stream->shown)
                qsort(stream->shown, stream->n_shown, sizeof(Shown), shown_compare);

        put_cursor(stream, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_STARTED);
        stream->request = protobuf_free(stream->request);
        stream->selector = selector_free(stream->selector);
}

static void begin(const HutchError *err, void *user);

/* Goes on, with whatever it is at. Objects are shown when they are durable. */
static void pump(WatchStream *stream) {
        if (stream->started)
                pump_events(stream);
        else if (!stream->deferred && has_room(stream))
                stream->deferred = api_defer(stream->base.api, begin, stream);
}

static void on_readable(Watch *watch, void *user) {
        (void) watch;
        pump(user);
}

/* Opens the watch where the request says. */
static int open_watch(WatchStream *stream, HutchError *err) {
        const WatchRequest *request = request_of(stream);
        Control *control = stream->base.api->options.control;
        uint64_t cursor = control_cursor(control);
        WatchFilter filter = {
                .sandbox_ids = (const char *const *) request->sandbox_ids,
                .n_sandbox_ids = request->n_sandbox_ids,
                .selector = request->selector,
                .all_owners = request->all_owners,
        };

        for (size_t i = 0; i < request->n_types; i++)
                filter.types |= 1U << request->types[i];
        if (request->opt_after_cursor_case)
                cursor = request->after_cursor;
        if (request->opt_after_sequence_case) {
                int r = control_sequence_cursor(control, stream->caller, request->sandbox_ids[0],
                                                request->after_sequence, &cursor, err);

                /* From the first event on one can watch what is not there yet. */
                if (r < 0 && request->after_sequence > 0)
                        return r;
                if (r < 0) {
                        error_clear(err);
                        cursor = 0;
                }
                filter.is_sequence = r == 0;
        }

        return control_watch(control, stream->caller, &filter, cursor, on_readable, stream, &stream->watch, err);
}

/* The request names a place that there is not: that is a violation of its field. */
static void refuse_place(WatchStream *stream, const HutchError *err) {
        const char *field = request_of(stream)->opt_after_sequence_case ? "after_sequence" : "after_cursor";
        _cleanup_(violations_clear) Violations violations = {};

        if (str_equal(err->reason, reason_name(REASON_CURSOR_INVALID)))
                violations_add(&violations, field, REASON_CURSOR_INVALID, "%s", error_message(err));
        stream->base.finished = true;
        api_fail(stream->base.call, err, &violations);
}

/* Everything so far is durable: the snapshot, or more of it, and then the events. */
static void begin(const HutchError *err, void *user) {
        _cleanup_(error_clear) HutchError problem = {};
        WatchStream *stream = user;

        stream->deferred = NULL;
        if (stream->base.finished)
                return;
        if (err) {
                api_stream_fail(&stream->base, err);
                return;
        }
        if (!stream->watch && open_watch(stream, &problem) < 0) {
                refuse_place(stream, &problem);
                return;
        }

        if (show_more(stream)) {
                start(stream);
                pump_events(stream);
        }
}

static void on_tick(ApiStream *base, uint64_t now) {
        WatchStream *stream = (WatchStream *) base;

        if (stream->started && has_room(stream) && now - stream->last_sent >= PROGRESS_AFTER)
                put_cursor(stream, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_PROGRESS);
}

static void on_writable(Call *call) {
        pump(call_user(call));
}

static void on_ended(Call *call, CallEnd how) {
        WatchStream *stream = call_user(call);

        (void) how;
        (void) deferred_cancel(stream->deferred);
        (void) watch_free(stream->watch);
        (void) protobuf_free(stream->request);
        (void) selector_free(stream->selector);
        free(stream->shown);
        api_stream_end_of_call(&stream->base);
        free(stream);
}

static void check_request(Request *request, const WatchRequest *message, Selector **ret_selector) {
        Violations *violations = &request->violations;
        bool has_cursor = message->opt_after_cursor_case, has_sequence = message->opt_after_sequence_case;

        if (message->n_sandbox_ids > SANDBOX_IDS_MAX)
                violations_add_limit(violations, "sandbox_ids", REASON_FIELD_TOO_LONG, "sandbox_ids", SANDBOX_IDS_MAX,
                                     "at most %d ids", SANDBOX_IDS_MAX);
        for (size_t i = 0; i < message->n_sandbox_ids && i < SANDBOX_IDS_MAX; i++) {
                const char *id = message->sandbox_ids[i];
                size_t above = violations_enter_element(violations, "sandbox_ids", i);

                (void) violations_note(violations, NULL, id_check(id, strlen(id), &violations->err));
                violations_leave(violations, above);
        }
        (void) violations_note(
                violations, "selector",
                selector_parse(message->selector, strlen(message->selector), ret_selector, &violations->err));
        for (size_t i = 0; i < message->n_types; i++) {
                size_t above = violations_enter_element(violations, "types", i);

                if (message->types[i] == HUTCH__V1__EVENT_TYPE__EVENT_TYPE_UNSPECIFIED ||
                    !protobuf_c_enum_descriptor_get_value(&hutch__v1__event_type__descriptor, (int) message->types[i]))
                        violations_add(violations, NULL, REASON_FIELD_INVALID, "there is no such type");
                violations_leave(violations, above);
        }

        if (has_cursor && message->include_snapshot)
                violations_add(violations, "after_cursor", REASON_FIELD_CONFLICT, "it excludes include_snapshot");
        if (has_sequence && (has_cursor || message->include_snapshot))
                violations_add(violations, "after_sequence", REASON_FIELD_CONFLICT,
                               "it excludes after_cursor and include_snapshot");
        if (has_sequence && message->n_sandbox_ids != 1)
                violations_add(violations, "after_sequence", REASON_FIELD_INVALID,
                               "it needs exactly one sandbox in sandbox_ids");
}

void handle_watch_events(Request *request) {
        static const CallEvents events = { .writable = on_writable, .ended = on_ended };
        _cleanup_(selector_freep) Selector *selector = NULL;
        WatchStream *stream;
        Api *api = request->api;

        check_request(request, (const WatchRequest *) request->message, &selector);
        if (request_is_refused(request))
                return;

        stream = new0(WatchStream, 1);
        if (api_stream_begin(&stream->base, api, request->call, request->caller, true, &request->err) < 0) {
                free(stream);
                request_fail(request);
                return;
        }

        stream->caller = request->caller;
        stream->request = TAKE_PTR(request->message);
        stream->selector = TAKE_PTR(selector);
        stream->base.tick = on_tick;
        call_set_events(request->call, &events, stream);
        pump(stream);
}
