/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: hutch.v1.AgentSandboxService, but for WatchEvents (watch.c). What does not: the rules of specs
 * (sandbox-spec.c), and all that happens to sandboxes (control). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "api/listing.h"
#include "api/service.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/memory.h"
#include "contract/hutch/v1/sandbox.pb-c.h"

#define STOP_GRACE_DEFAULT (10 * NSEC_PER_SEC)
#define RESPONSE_SANDBOX_FIELD 1 /* of every response that holds one sandbox */

/* Answers with the sandbox, or with why there is none. */
static void reply_sandbox(Request *request, int r, const SandboxView *view) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};

        if (r < 0) {
                request_fail(request);
                return;
        }

        put_sandbox(&buffer, RESPONSE_SANDBOX_FIELD, view, NULL);
        request_reply(request, &buffer);
}

static void create_sandbox(Request *request) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Api *api = request->api;
        SandboxRules rules = api_sandbox_rules(api);
        const Hutch__V1__CreateSandboxRequest *message = (const Hutch__V1__CreateSandboxRequest *) request->message;
        SandboxView view;
        RequestKey key;
        size_t above;
        int r;

        r = request_key(&message->base, "CreateSandbox", message->request_id, &key);
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }
        r = control_repeat_sandbox(api->options.control, request->caller, &key, &view, &request->err);
        if (r != 0) {
                reply_sandbox(request, r, &view);
                return;
        }

        check_new_id(request, "sandbox_id", message->sandbox_id);
        check_request_id(request, message->request_id);
        rules.owner = request->caller->name;
        above = violations_enter(&request->violations, "spec");
        r = sandbox_spec_create(message->spec, &rules, &request->violations, &spec);
        violations_leave(&request->violations, above);
        if (request_is_refused(request))
                return;
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }

        r = control_create_sandbox(api->options.control, request->caller, &key, message->sandbox_id, spec, &view,
                                   &request->err);
        reply_sandbox(request, r, &view);
}

/* GetSandbox while the sandbox is being measured. */
typedef struct Measuring {
        Api *api;
        Call *call; /* NULL: it has ended */
        char id[ID_LEN_MAX + 1];
} Measuring;

static void measuring_ended(Call *call, CallEnd how) {
        Measuring *measuring = call_user(call);

        (void) how;
        measuring->call = NULL;
}

static bool is_up(const SandboxRecord *record) {
        return record->state == SANDBOX_READY || record->state == SANDBOX_PAUSED;
}

static void measured(const RuntimeUsage *usage, const HutchError *err, void *user) {
        _cleanup_free_ Measuring *measuring = user;
        _cleanup_(request_clear) Request request = { .api = measuring->api, .call = measuring->call };
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        SandboxView view;

        if (!measuring->call)
                return;

        call_set_events(measuring->call, NULL, NULL);
        request.caller = api_caller(measuring->call);
        if (control_get_sandbox(measuring->api->options.control, request.caller, measuring->id, &view, &request.err) <
            0) {
                request_fail(&request);
                return;
        }
        /* One that has gone down meanwhile uses nothing. */
        if (err && is_up(view.record)) {
                api_fail(measuring->call, err, NULL);
                return;
        }

        put_sandbox(&buffer, RESPONSE_SANDBOX_FIELD, &view, is_up(view.record) ? usage : NULL);
        request_reply(&request, &buffer);
}

static void measure(Request *request, const SandboxView *view) {
        static const CallEvents events = { .ended = measuring_ended };
        Measuring *measuring = new0(Measuring, 1);

        measuring->api = request->api;
        measuring->call = request->call;
        memcpy(measuring->id, view->record->id, sizeof(measuring->id));
        call_set_events(request->call, &events, measuring);
        if (control_get_usage(request->api->options.control, request->caller, measuring->id, measured, measuring,
                              &request->err) >= 0)
                return;

        call_set_events(request->call, NULL, NULL);
        free(measuring);
        request_fail(request);
}

static void get_sandbox(Request *request) {
        const Hutch__V1__GetSandboxRequest *message = (const Hutch__V1__GetSandboxRequest *) request->message;
        SandboxView view;
        Api *api = request->api;
        int r;

        check_id(request, "sandbox_id", message->sandbox_id);
        if (request_is_refused(request))
                return;

        r = control_get_sandbox(api->options.control, request->caller, message->sandbox_id, &view, &request->err);
        if (r >= 0 && message->include_usage && is_up(view.record))
                measure(request, &view);
        else
                reply_sandbox(request, r, &view);
}

static void check_selector(Request *request, const char *text, Selector **ret_selector) {
        Violations *violations = &request->violations;

        (void) violations_note(violations, "selector",
                               selector_parse(text, strlen(text), ret_selector, &violations->err));
}

static bool list_sandbox(const SandboxView *view, void *user) {
        Listing *listing = user;

        if (!listing_has_room(listing))
                return false;

        put_sandbox(&listing->buffer, 1, view, NULL);
        listing_added(listing, view->record->serial);
        return true;
}

static void check_states(Request *request, const Hutch__V1__SandboxState states[], size_t n, unsigned *ret_states) {
        SandboxState state;

        for (size_t i = 0; i < n; i++) {
                size_t above = violations_enter_element(&request->violations, "states", i);

                if (sandbox_state_from_message((int) states[i], &state) < 0)
                        violations_add(&request->violations, NULL, REASON_FIELD_INVALID, "there is no such state");
                else
                        *ret_states |= 1U << state;
                violations_leave(&request->violations, above);
        }
}

static void list_sandboxes(Request *request) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        _cleanup_(listing_clear) Listing listing = {};
        _cleanup_(string_builder_clear) StringBuilder text = {};
        const Hutch__V1__ListSandboxesRequest *message = (const Hutch__V1__ListSandboxesRequest *) request->message;
        SandboxFilter filter = {};
        uint64_t cursor, after;
        Api *api = request->api;
        int r;

        check_selector(request, message->selector, &selector);
        check_states(request, message->states, message->n_states, &filter.states);
        string_builder_appendf(&text, "sandboxes %s %u %d ", request->caller->name, filter.states, message->all_owners);
        if (strlen(message->selector) <= SELECTOR_LEN_MAX)
                string_builder_append(&text, message->selector);
        listing_begin(&listing, request, message->page_size, message->page_token, &text);
        if (request_is_refused(request))
                return;

        /* What changes from here on is after this cursor. */
        cursor = control_cursor(api->options.control);
        filter.selector = selector;
        filter.all_owners = message->all_owners;
        after = listing.after_serial;
        r = control_list_sandboxes(api->options.control, request->caller, &filter, &after, list_sandbox, &listing,
                                   &request->err);
        if (r < 0) {
                request_fail(request);
                return;
        }

        if (r > 0)
                listing_break(&listing, after);
        listing_end(&listing, 2);
        wire_put_uint(&listing.buffer, 3, cursor);
        request_reply(request, &listing.buffer);
}

/* Reads the mask into bits by SpecField. */
static unsigned check_mask(Request *request, const Google__Protobuf__FieldMask *mask) {
        Violations *violations = &request->violations;
        unsigned fields = 0;
        size_t above;

        if (!mask || mask->n_paths == 0) {
                violations_add(violations, "update_mask", REASON_FIELD_MASK_INVALID, "say which fields to change");
                return 0;
        }

        above = violations_enter(violations, "update_mask");
        for (size_t i = 0; i < mask->n_paths; i++) {
                size_t element = violations_enter_element(violations, "paths", i);
                SpecField field = spec_field_from_name(mask->paths[i]);

                if (field == N_SPEC_FIELDS)
                        violations_add(violations, NULL, REASON_FIELD_MASK_INVALID,
                                       "only labels, times to live and what is done at their ends can be changed");
                else
                        fields |= 1U << field;
                violations_leave(violations, element);
        }
        violations_leave(violations, above);
        return fields;
}

static void update_sandbox(Request *request) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        const Hutch__V1__SandboxSpec empty = HUTCH__V1__SANDBOX_SPEC__INIT, *changes;
        const char *names[N_SPEC_FIELDS + 1] = {};
        const Hutch__V1__UpdateSandboxRequest *message = (const Hutch__V1__UpdateSandboxRequest *) request->message;
        Api *api = request->api;
        SandboxRules rules = api_sandbox_rules(api);
        size_t n_names = 0, above;
        SandboxView view;
        unsigned fields;
        int r;

        changes = message->spec ? message->spec : &empty;
        check_id(request, "sandbox_id", message->sandbox_id);
        fields = check_mask(request, message->update_mask);
        above = violations_enter(&request->violations, "spec");
        sandbox_spec_check_update(changes, fields, &rules, &request->violations);
        violations_leave(&request->violations, above);
        if (request_is_refused(request))
                return;

        r = control_get_sandbox(api->options.control, request->caller, message->sandbox_id, &view, &request->err);
        if (r < 0) {
                request_fail(request);
                return;
        }
        r = sandbox_spec_update(view.record->spec, changes, fields, &rules, &spec);
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }

        for (SpecField field = 0; field < N_SPEC_FIELDS; field++)
                if (fields & 1U << field)
                        names[n_names++] = spec_field_name(field);
        r = control_update_sandbox(api->options.control, request->caller, message->sandbox_id, spec, names, &view,
                                   &request->err);
        reply_sandbox(request, r, &view);
}

static void stop_sandbox(Request *request) {
        const Hutch__V1__StopSandboxRequest *message = (const Hutch__V1__StopSandboxRequest *) request->message;
        SandboxView view;
        uint64_t grace;
        Api *api = request->api;
        int r;

        check_id(request, "sandbox_id", message->sandbox_id);
        duration_read_bounded(message->grace, "grace", KILL_GRACE_MAX, STOP_GRACE_DEFAULT, &request->violations,
                              &grace);
        if (request_is_refused(request))
                return;

        r = control_stop_sandbox(api->options.control, request->caller, message->sandbox_id, grace, &view,
                                 &request->err);
        reply_sandbox(request, r, &view);
}

static void resume_sandbox(Request *request) {
        const Hutch__V1__ResumeSandboxRequest *message = (const Hutch__V1__ResumeSandboxRequest *) request->message;
        SandboxView view;
        RequestKey key;
        Api *api = request->api;
        int r;

        check_id(request, "sandbox_id", message->sandbox_id);
        check_request_id(request, message->request_id);
        if (request_is_refused(request))
                return;

        r = request_key(&message->base, "ResumeSandbox", message->request_id, &key);
        if (r < 0) {
                request_fail_inside(request, r);
                return;
        }
        r = control_resume_sandbox(api->options.control, request->caller, &key, message->sandbox_id, &view,
                                   &request->err);
        reply_sandbox(request, r, &view);
}

/* Pause and unpause have requests of one shape. */
static void set_paused(Request *request, bool pause) {
        const Hutch__V1__PauseSandboxRequest *message = (const Hutch__V1__PauseSandboxRequest *) request->message;
        SandboxView view;
        int r;

        check_id(request, "sandbox_id", message->sandbox_id);
        if (request_is_refused(request))
                return;

        r = control_pause_sandbox(request->api->options.control, request->caller, message->sandbox_id, pause, &view,
                                  &request->err);
        reply_sandbox(request, r, &view);
}

_Static_assert(sizeof(Hutch__V1__PauseSandboxRequest) == sizeof(Hutch__V1__UnpauseSandboxRequest) &&
                       offsetof(Hutch__V1__PauseSandboxRequest, sandbox_id) ==
                               offsetof(Hutch__V1__UnpauseSandboxRequest, sandbox_id),
               "requests to pause and to unpause have one shape");

static void pause_sandbox(Request *request) {
        set_paused(request, true);
}

static void unpause_sandbox(Request *request) {
        set_paused(request, false);
}

static void delete_sandbox(Request *request) {
        const Hutch__V1__DeleteSandboxRequest *message = (const Hutch__V1__DeleteSandboxRequest *) request->message;
        SandboxView view;
        Api *api = request->api;
        int r;

        check_id(request, "sandbox_id", message->sandbox_id);
        if (request_is_refused(request))
                return;

        r = control_delete_sandbox(api->options.control, request->caller, message->sandbox_id, &view, &request->err);
        reply_sandbox(request, r, &view);
}

static bool put_deleted_id(const SandboxView *view, void *user) {
        wire_put_text(user, 1, view->record->id);
        return true;
}

static void delete_sandboxes(Request *request) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        const Hutch__V1__DeleteSandboxesRequest *message = (const Hutch__V1__DeleteSandboxesRequest *) request->message;
        SandboxFilter filter = {};
        Api *api = request->api;

        check_selector(request, message->selector, &selector);
        if (selector)
                (void) violations_note(&request->violations, "selector",
                                       selector_check_not_empty(selector, &request->violations.err));
        if (request_is_refused(request))
                return;

        filter.selector = selector;
        filter.all_owners = message->all_owners;
        if (control_delete_sandboxes(api->options.control, request->caller, &filter, put_deleted_id, &buffer,
                                     &request->err) < 0)
                request_fail(request);
        else
                request_reply(request, &buffer);
}

MethodList sandbox_service_methods(void) {
        static const ApiMethod methods[] = {
                { .path = "/hutch.v1.AgentSandboxService/CreateSandbox",
                  .request = &hutch__v1__create_sandbox_request__descriptor,
                  .handle = create_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/GetSandbox",
                  .request = &hutch__v1__get_sandbox_request__descriptor,
                  .handle = get_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/ListSandboxes",
                  .request = &hutch__v1__list_sandboxes_request__descriptor,
                  .handle = list_sandboxes },
                { .path = "/hutch.v1.AgentSandboxService/UpdateSandbox",
                  .request = &hutch__v1__update_sandbox_request__descriptor,
                  .handle = update_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/StopSandbox",
                  .request = &hutch__v1__stop_sandbox_request__descriptor,
                  .handle = stop_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/ResumeSandbox",
                  .request = &hutch__v1__resume_sandbox_request__descriptor,
                  .handle = resume_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/PauseSandbox",
                  .request = &hutch__v1__pause_sandbox_request__descriptor,
                  .handle = pause_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/UnpauseSandbox",
                  .request = &hutch__v1__unpause_sandbox_request__descriptor,
                  .handle = unpause_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/DeleteSandbox",
                  .request = &hutch__v1__delete_sandbox_request__descriptor,
                  .handle = delete_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/DeleteSandboxes",
                  .request = &hutch__v1__delete_sandboxes_request__descriptor,
                  .handle = delete_sandboxes },
                { .path = "/hutch.v1.AgentSandboxService/WatchEvents",
                  .request = &hutch__v1__watch_events_request__descriptor,
                  .handle = handle_watch_events },
        };

        return (MethodList){ methods, sizeof(methods) / sizeof(methods[0]) };
}
