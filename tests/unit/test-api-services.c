/* SPDX-License-Identifier: Apache-2.0 */

/* The services on a real server, over a real control plane and a runtime that is only pretended. */

#include "api/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "contract/hutch/v1/system.pb-c.h"
#include "control-fixture.h"
#include "rpc/channel-hub.h"
#include "rpc/channel.h"
#include "rpc/core/method-table.h"
#include "rpc/core/protobuf.h"
#include "rpc/core/status-details.h"
#include "rpc/server.h"

#define MESSAGES_MAX 64
#define PATIENCE (60 * NSEC_PER_SEC)

typedef struct Setting {
        Fixture *fixture;
        Api *api;
        MethodTable *methods;
        Server *server;
        ChannelHub *hub;
        Channel *channel;
} Setting;

/* A call, and what came of it. */
typedef struct Calling {
        Setting *setting;
        ChannelCall *call; /* NULL: it has ended */
        const ProtobufCMessageDescriptor *type;
        ProtobufCMessage *messages[MESSAGES_MAX];
        size_t n_messages;
        StatusCode code;
        char reason[64];
        StatusDetails *details;
} Calling;

static void commit(void *user) {
        const Setting *setting = user;

        control_commit(setting->fixture->control);
}

static int set_up(void **state) {
        Setting *setting = new0(Setting, 1);
        ServerOptions options = server_options_default;
        ChannelOptions channel_options = channel_options_default;
        Fixture *fixture;
        char path[128], target[160];
        void *made;

        assert_int_equal(fixture_set_up(&made), 0);
        setting->fixture = fixture = made;
        fixture_stop(fixture);
        fixture->options.codec = &api_codec;
        fixture_start(fixture);

        setting->api = api_new(&(ApiOptions){
                .loop = &fixture->loop,
                .control = fixture->control,
                .version = "1.2.3",
                .uid = getuid(),
                .limits = api_limits_default,
        });
        setting->methods = method_table_new();
        assert_int_equal(api_add_methods(setting->api, setting->methods), 0);

        options.interceptors = api_interceptor(setting->api);
        options.n_interceptors = 1;
        options.before_flush = commit;
        options.user = setting;
        (void) snprintf(path, sizeof(path), "%s/api.sock", fixture->fake.folder);
        (void) snprintf(target, sizeof(target), "unix:%s", path);
        assert_int_equal(server_new(&fixture->loop, setting->methods, &options, &setting->server), 0);
        assert_int_equal(server_listen_unix(setting->server, path, 0600, NULL), 0);

        channel_options.target = target;
        assert_int_equal(channel_hub_new(&fixture->loop, &setting->hub), 0);
        assert_int_equal(channel_new(setting->hub, &channel_options, &setting->channel, NULL), 0);
        *state = setting;
        return 0;
}

static void note_done(void *user) {
        *(bool *) user = true;
}

static int tear_down(void **state) {
        Setting *setting = *state;
        bool channel_done = false, server_done = false;
        void *fixture = setting->fixture;

        channel_free(setting->channel, note_done, &channel_done);
        server_free(setting->server, note_done, &server_done);
        while (!channel_done || !server_done)
                fixture_turn(setting->fixture);
        channel_hub_free(setting->hub);
        api_free(setting->api);
        fixture_turn(setting->fixture);
        (void) method_table_free(setting->methods);
        assert_int_equal(fixture_tear_down(&fixture), 0);
        free(setting);
        return 0;
}

static void on_message(ChannelCall *call, const uint8_t *bytes, size_t len) {
        Calling *calling = channel_call_user(call);

        assert_true(calling->n_messages < MESSAGES_MAX);
        assert_int_equal(
                protobuf_unpack(calling->type, bytes, len, (size_t) 1 << 26, &calling->messages[calling->n_messages++]),
                0);
        channel_call_read(call);
}

static void on_ended(ChannelCall *call, const ClientStatus *status) {
        Calling *calling = channel_call_user(call);

        calling->call = NULL;
        calling->code = status->code;
        (void) snprintf(calling->reason, sizeof(calling->reason), "%s", status->reason);
        if (status->details_len > 0)
                assert_int_equal(status_details_decode(status->details, status->details_len, &calling->details), 0);
}

/* Starts a call of "Service/Method" whose answers are of @type. */
static Calling *start(Setting *setting, const char *method, const ProtobufCMessageDescriptor *type) {
        static const ChannelEvents events = { .message = on_message, .ended = on_ended };
        Calling *calling = new0(Calling, 1);
        char path[128];

        (void) snprintf(path, sizeof(path), "/hutch.v1.%s", method);
        calling->setting = setting;
        calling->type = type;
        calling->call = channel_call_start(setting->channel, &(ChannelRequest){ .path = path, .deadline = UINT64_MAX },
                                           &events, calling);
        assert_non_null(calling->call);
        channel_call_read(calling->call);
        return calling;
}

static void send_message(Calling *calling, const ProtobufCMessage *message) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(protobuf_pack(message, &bytes, &len), 0);
        assert_int_equal(channel_call_send(calling->call, bytes, len), 0);
}

static Calling *begin(Setting *setting, const char *method, const ProtobufCMessage *request,
                      const ProtobufCMessageDescriptor *type) {
        Calling *calling = start(setting, method, type);

        send_message(calling, request);
        channel_call_end(calling->call);
        return calling;
}

static void turn(const Calling *calling, uint64_t *deadline) {
        if (*deadline == 0)
                *deadline = clock_monotonic_ns() + PATIENCE;
        if (clock_monotonic_ns() > *deadline)
                fail_msg("nothing comes any more: %zu messages, %s", calling->n_messages,
                         calling->call ? "not ended" : calling->reason);
        fixture_turn(calling->setting->fixture);
}

static void wait_end(Calling *calling) {
        uint64_t deadline = 0;

        while (calling->call)
                turn(calling, &deadline);
}

static void wait_messages(Calling *calling, size_t n) {
        uint64_t deadline = 0;

        while (calling->call && calling->n_messages < n)
                turn(calling, &deadline);
        assert_true(calling->n_messages >= n);
}

static void finish(Calling *calling) {
        if (calling->call)
                channel_call_cancel(calling->call);
        wait_end(calling);
        for (size_t i = 0; i < calling->n_messages; i++)
                (void) protobuf_free(calling->messages[i]);
        (void) status_details_free(calling->details);
        free(calling);
}

static void finishp(Calling **calling) {
        if (*calling)
                finish(*calling);
}

/* A call that ends by itself. */
static Calling *ask(Setting *setting, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *type) {
        Calling *calling = begin(setting, method, request, type);

        wait_end(calling);
        return calling;
}

static void assert_ok(const Calling *calling) {
        if (calling->code != STATUS_OK)
                fail_msg("%s %s", status_code_name(calling->code), calling->reason);
}

static void assert_failed(const Calling *calling, const char *reason) {
        assert_int_not_equal(calling->code, STATUS_OK);
        assert_string_equal(calling->reason, reason);
        assert_non_null(calling->details);
        assert_string_equal(calling->details->domain, "hutch");
}

static const char *pair(const Calling *calling, const char *key) {
        for (size_t i = 0; i < calling->details->n_pairs; i++)
                if (str_equal(calling->details->pairs[i].key, key))
                        return calling->details->pairs[i].value;
        return NULL;
}

static Calling *create_named(Setting *setting, const char *id, const char *request_id, const char *user) {
        Hutch__V1__CreateSandboxRequest request = HUTCH__V1__CREATE_SANDBOX_REQUEST__INIT;
        Hutch__V1__SandboxSpec spec = HUTCH__V1__SANDBOX_SPEC__INIT;
        Hutch__V1__SandboxSpec__LabelsEntry label = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT, *labels[] = { &label };

        label.key = (char *) "team";
        label.value = (char *) "red";
        spec.labels = labels;
        spec.n_labels = 1;
        spec.user = (char *) user;
        request.sandbox_id = (char *) id;
        request.request_id = (char *) request_id;
        request.spec = &spec;
        return ask(setting, "AgentSandboxService/CreateSandbox", &request.base,
                   &hutch__v1__create_sandbox_response__descriptor);
}

static void make_sandbox(Setting *setting, const char *id) {
        _cleanup_(finishp) Calling *calling = create_named(setting, id, "", "");

        assert_ok(calling);
        fixture_turn(setting->fixture);
}

static void sandboxes_are_made_shown_and_deleted(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *created = create_named(setting, "sb-one", "", ""), *got = NULL, *deleted = NULL;
        Hutch__V1__GetSandboxRequest get = HUTCH__V1__GET_SANDBOX_REQUEST__INIT;
        Hutch__V1__DeleteSandboxRequest delete = HUTCH__V1__DELETE_SANDBOX_REQUEST__INIT;
        const Hutch__V1__Sandbox *sandbox;

        assert_ok(created);
        sandbox = ((Hutch__V1__CreateSandboxResponse *) created->messages[0])->sandbox;
        assert_string_equal(sandbox->id, "sb-one");
        assert_int_equal(sandbox->state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_PENDING);
        assert_string_equal(sandbox->spec->labels[0]->value, "red");
        assert_string_equal(sandbox->effective->profile, "default");

        fixture_turn(setting->fixture);
        get.sandbox_id = (char *) "sb-one";
        got = ask(setting, "AgentSandboxService/GetSandbox", &get.base, &hutch__v1__get_sandbox_response__descriptor);
        assert_ok(got);
        sandbox = ((Hutch__V1__GetSandboxResponse *) got->messages[0])->sandbox;
        assert_int_equal(sandbox->state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_READY);
        assert_null(sandbox->usage);

        delete.sandbox_id = (char *) "sb-one";
        deleted = ask(setting, "AgentSandboxService/DeleteSandbox", &delete.base,
                      &hutch__v1__delete_sandbox_response__descriptor);
        assert_ok(deleted);
        sandbox = ((Hutch__V1__DeleteSandboxResponse *) deleted->messages[0])->sandbox;
        assert_int_equal(sandbox->state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_DELETING);
}

static void a_request_id_repeats_or_is_refused(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *first = create_named(setting, "", "req-1", "");
        _cleanup_(finishp) Calling *again = create_named(setting, "", "req-1", "");
        _cleanup_(finishp) Calling *other = create_named(setting, "", "req-1", "root");

        assert_ok(first);
        assert_ok(again);
        assert_string_equal(((Hutch__V1__CreateSandboxResponse *) first->messages[0])->sandbox->id,
                            ((Hutch__V1__CreateSandboxResponse *) again->messages[0])->sandbox->id);
        assert_failed(other, "REQUEST_ID_REUSED");
}

static void violations_come_all_at_once(void **state) {
        _cleanup_(finishp) Calling *calling = create_named(*state, "x", "no spaces", "a b");

        assert_failed(calling, "ID_MALFORMED");
        assert_int_equal(calling->code, STATUS_INVALID_ARGUMENT);
        assert_int_equal(calling->details->n_violations, 3);
        assert_string_equal(calling->details->violations[0].field, "sandbox_id");
        assert_string_equal(calling->details->violations[1].field, "request_id");
        assert_string_equal(calling->details->violations[1].reason, "REQUEST_ID_MALFORMED");
        assert_string_equal(calling->details->violations[2].field, "spec.user");
}

static void errors_carry_their_metadata(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *calling = NULL;
        Hutch__V1__UnpauseSandboxRequest unpause = HUTCH__V1__UNPAUSE_SANDBOX_REQUEST__INIT;

        setting->fixture->fake.hold_start = true;
        make_sandbox(setting, "sb-pending");
        unpause.sandbox_id = (char *) "sb-pending";
        calling = ask(setting, "AgentSandboxService/UnpauseSandbox", &unpause.base,
                      &hutch__v1__unpause_sandbox_response__descriptor);
        assert_failed(calling, "SANDBOX_WRONG_STATE");
        assert_string_equal(pair(calling, "state"), "PENDING");
}

static void nothing_is_answered_that_is_not_durable(void **state) {
        Setting *setting = *state;
        Calling *calling;

        fixture_break_store(setting->fixture, true);
        calling = create_named(setting, "sb-lost", "", "");
        assert_failed(calling, "STORE_UNAVAILABLE");
        assert_int_equal(calling->n_messages, 0);
        finish(calling);

        fixture_break_store(setting->fixture, false);
        make_sandbox(setting, "sb-kept");
}

static Calling *list(Setting *setting, uint32_t page_size, const char *token, const char *selector) {
        Hutch__V1__ListSandboxesRequest request = HUTCH__V1__LIST_SANDBOXES_REQUEST__INIT;

        request.page_size = page_size;
        request.page_token = (char *) token;
        request.selector = (char *) selector;
        return ask(setting, "AgentSandboxService/ListSandboxes", &request.base,
                   &hutch__v1__list_sandboxes_response__descriptor);
}

static void lists_come_in_pages(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *first = NULL, *second = NULL, *other = NULL;
        const Hutch__V1__ListSandboxesResponse *page;

        make_sandbox(setting, "sb-1");
        make_sandbox(setting, "sb-2");
        make_sandbox(setting, "sb-3");

        first = list(setting, 2, "", "");
        assert_ok(first);
        page = (Hutch__V1__ListSandboxesResponse *) first->messages[0];
        assert_int_equal(page->n_sandboxes, 2);
        assert_string_equal(page->sandboxes[1]->id, "sb-2");
        assert_true(page->cursor > 0);

        other = list(setting, 2, page->next_page_token, "team=red");
        assert_failed(other, "PAGE_TOKEN_INVALID");
        second = list(setting, 1, page->next_page_token, "");
        assert_ok(second);
        page = (Hutch__V1__ListSandboxesResponse *) second->messages[0];
        assert_int_equal(page->n_sandboxes, 1);
        assert_string_equal(page->sandboxes[0]->id, "sb-3");
        assert_string_equal(page->next_page_token, "");
}

static void an_update_changes_labels_and_keeps_the_rest(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *updated = NULL, *refused = NULL;
        Hutch__V1__UpdateSandboxRequest request = HUTCH__V1__UPDATE_SANDBOX_REQUEST__INIT;
        Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
        char *paths[] = { (char *) "labels" };
        const Hutch__V1__Sandbox *sandbox;

        make_sandbox(setting, "sb-update");
        request.sandbox_id = (char *) "sb-update";
        request.update_mask = &mask;
        refused = ask(setting, "AgentSandboxService/UpdateSandbox", &request.base,
                      &hutch__v1__update_sandbox_response__descriptor);
        assert_failed(refused, "FIELD_MASK_INVALID");

        mask.paths = paths;
        mask.n_paths = 1;
        updated = ask(setting, "AgentSandboxService/UpdateSandbox", &request.base,
                      &hutch__v1__update_sandbox_response__descriptor);
        assert_ok(updated);
        sandbox = ((Hutch__V1__UpdateSandboxResponse *) updated->messages[0])->sandbox;
        assert_int_equal(sandbox->spec->n_labels, 0);
        assert_int_equal(sandbox->spec->idle_ttl->seconds, 600);
}

static void many_are_deleted_by_their_labels(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *all = NULL, *some = NULL;
        Hutch__V1__DeleteSandboxesRequest request = HUTCH__V1__DELETE_SANDBOXES_REQUEST__INIT;

        make_sandbox(setting, "sb-1");
        make_sandbox(setting, "sb-2");
        all = ask(setting, "AgentSandboxService/DeleteSandboxes", &request.base,
                  &hutch__v1__delete_sandboxes_response__descriptor);
        assert_failed(all, "SELECTOR_EMPTY");

        request.selector = (char *) "team=red";
        some = ask(setting, "AgentSandboxService/DeleteSandboxes", &request.base,
                   &hutch__v1__delete_sandboxes_response__descriptor);
        assert_ok(some);
        assert_int_equal(((Hutch__V1__DeleteSandboxesResponse *) some->messages[0])->n_sandbox_ids, 2);
}

static const Hutch__V1__WatchEventsResponse *watched(const Calling *calling, size_t i) {
        assert_true(i < calling->n_messages);
        return (const Hutch__V1__WatchEventsResponse *) calling->messages[i];
}

static void a_watch_begins_with_what_there_is_and_goes_on(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *watch = NULL;
        Hutch__V1__WatchEventsRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        uint64_t sequence, cursor;

        make_sandbox(setting, "sb-1");
        request.include_snapshot = true;
        watch = begin(setting, "AgentSandboxService/WatchEvents", &request.base,
                      &hutch__v1__watch_events_response__descriptor);
        wait_messages(watch, 2);
        assert_int_equal(watched(watch, 0)->item_case, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_SANDBOX);
        assert_string_equal(watched(watch, 0)->sandbox->id, "sb-1");
        sequence = watched(watch, 0)->sandbox->sequence;
        assert_int_equal(watched(watch, 1)->item_case, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_STARTED);
        cursor = watched(watch, 1)->started->cursor;

        {
                _cleanup_(finishp) Calling *deleted = NULL;
                Hutch__V1__DeleteSandboxRequest delete = HUTCH__V1__DELETE_SANDBOX_REQUEST__INIT;

                delete.sandbox_id = (char *) "sb-1";
                deleted = ask(setting, "AgentSandboxService/DeleteSandbox", &delete.base,
                              &hutch__v1__delete_sandbox_response__descriptor);
                assert_ok(deleted);
        }
        wait_messages(watch, 4);
        for (size_t i = 2; i < 4; i++) {
                const Hutch__V1__Event *event = watched(watch, i)->event;

                assert_int_equal(watched(watch, i)->item_case, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_EVENT);
                assert_int_equal(event->sequence, sequence + i - 1);
                assert_true(event->cursor > cursor);
                assert_int_equal(event->type, HUTCH__V1__EVENT_TYPE__EVENT_TYPE_SANDBOX_STATE_CHANGED);
        }
}

static void a_watch_goes_on_from_a_sequence(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *watch = NULL, *refused = NULL, *gone = NULL;
        Hutch__V1__WatchEventsRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        char *ids[] = { (char *) "sb-1" };

        make_sandbox(setting, "sb-1");
        request.opt_after_sequence_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_SEQUENCE_AFTER_SEQUENCE;
        request.after_sequence = 1;
        refused = ask(setting, "AgentSandboxService/WatchEvents", &request.base,
                      &hutch__v1__watch_events_response__descriptor);
        assert_failed(refused, "FIELD_INVALID");

        request.sandbox_ids = ids;
        request.n_sandbox_ids = 1;
        watch = begin(setting, "AgentSandboxService/WatchEvents", &request.base,
                      &hutch__v1__watch_events_response__descriptor);
        wait_messages(watch, 2);
        assert_int_equal(watched(watch, 0)->item_case, HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_STARTED);
        assert_int_equal(watched(watch, 1)->event->sequence, 2);

        request.opt_after_sequence_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_SEQUENCE__NOT_SET;
        request.opt_after_cursor_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_CURSOR_AFTER_CURSOR;
        request.after_cursor = 1000000;
        gone = ask(setting, "AgentSandboxService/WatchEvents", &request.base,
                   &hutch__v1__watch_events_response__descriptor);
        assert_failed(gone, "CURSOR_INVALID");
}

static Calling *run(Setting *setting, uint64_t limit) {
        Hutch__V1__RunCommandRequest request = HUTCH__V1__RUN_COMMAND_REQUEST__INIT;
        Hutch__V1__ExecSpec spec = HUTCH__V1__EXEC_SPEC__INIT;
        char *argv[] = { (char *) "true" };

        spec.argv = argv;
        spec.n_argv = 1;
        request.sandbox_id = (char *) "sb-exec";
        request.spec = &spec;
        request.output_limit_bytes = limit;
        return begin(setting, "ExecService/RunCommand", &request.base, &hutch__v1__run_command_response__descriptor);
}

/* The only exec of the sandbox, once the runtime has it. */
static const char *wait_exec(Setting *setting) {
        const FakeSandbox *sandbox = fake_sandbox(setting->fixture, "sb-exec");

        for (unsigned i = 0; i < 1000 && sandbox->n_execs == 0; i++)
                fixture_turn(setting->fixture);
        assert_int_equal(sandbox->n_execs, 1);
        return sandbox->execs[0].id;
}

static RuntimeExecEnd exited(uint64_t out, uint64_t err) {
        return (RuntimeExecEnd){
                .cause = RUNTIME_END_EXITED,
                .end_time = clock_realtime_ns(),
                .out = { .total = out },
                .err = { .total = err },
        };
}

static void a_command_is_answered_with_its_output(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *calling = NULL;
        const Hutch__V1__RunCommandResponse *answer;
        const char *id;

        make_sandbox(setting, "sb-exec");
        setting->fixture->fake.hold_exec = true;
        calling = run(setting, 8);
        id = wait_exec(setting);
        fake_start_exec(setting->fixture, "sb-exec", id);
        fake_write(setting->fixture, "sb-exec", id, 1, "0123456789");
        fake_write(setting->fixture, "sb-exec", id, 2, "abc");
        fake_end_exec(setting->fixture, "sb-exec", id, exited(10, 3));
        wait_end(calling);

        assert_ok(calling);
        answer = (Hutch__V1__RunCommandResponse *) calling->messages[0];
        assert_int_equal(answer->exec->state, HUTCH__V1__EXEC_STATE__EXEC_STATE_EXITED);
        assert_int_equal(answer->stdout.len, 5);
        assert_memory_equal(answer->stdout.data, "01289", 5);
        assert_int_equal(answer->stdout_summary->total_bytes, 10);
        assert_int_equal(answer->stdout_summary->dropped_bytes, 5);
        assert_int_equal(answer->stdout_summary->head_bytes, 3);
        assert_true(answer->stdout_summary->truncated);
        assert_int_equal(answer->stderr.len, 3);
        assert_memory_equal(answer->stderr.data, "abc", 3);
        assert_false(answer->stderr_summary->truncated);
}

static void a_command_ends_with_its_call(void **state) {
        Setting *setting = *state;
        Calling *calling;
        const char *id;

        make_sandbox(setting, "sb-exec");
        setting->fixture->fake.hold_exec = true;
        calling = run(setting, 0);
        id = wait_exec(setting);
        fake_start_exec(setting->fixture, "sb-exec", id);
        fixture_turn(setting->fixture);
        assert_false(fake_exec(setting->fixture, "sb-exec", id)->cancelled);
        finish(calling);
        for (unsigned i = 0; i < 1000 && !fake_exec(setting->fixture, "sb-exec", id)->cancelled; i++)
                fixture_turn(setting->fixture);
        assert_true(fake_exec(setting->fixture, "sb-exec", id)->cancelled);
}

static void send_attach(Calling *calling, Hutch__V1__AttachExecRequest__ItemCase item_case, const char *text) {
        Hutch__V1__AttachExecRequest request = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        Hutch__V1__CreateExecRequest create = HUTCH__V1__CREATE_EXEC_REQUEST__INIT;
        Hutch__V1__StdinClose close_stdin = HUTCH__V1__STDIN_CLOSE__INIT;
        Hutch__V1__ExecSpec spec = HUTCH__V1__EXEC_SPEC__INIT;
        char *argv[] = { (char *) "cat" };

        request.item_case = item_case;
        switch (item_case) {
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE:
                spec.argv = argv;
                spec.n_argv = 1;
                spec.stdin = HUTCH__V1__STDIN_MODE__STDIN_MODE_STREAM;
                create.sandbox_id = (char *) "sb-exec";
                create.exec_id = (char *) text;
                create.spec = &spec;
                request.create = &create;
                break;
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN:
                request.stdin.data = (uint8_t *) text;
                request.stdin.len = strlen(text);
                break;
        default:
                request.stdin_close = &close_stdin;
        }
        send_message(calling, &request.base);
}

static Calling *attach(Setting *setting) {
        return start(setting, "ExecService/AttachExec", &hutch__v1__attach_exec_response__descriptor);
}

static void attaching_takes_input_and_gives_output_and_the_end(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *calling = NULL;
        const Hutch__V1__AttachExecResponse *answer;

        make_sandbox(setting, "sb-exec");
        setting->fixture->fake.hold_exec = true;
        calling = attach(setting);
        send_attach(calling, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE, "ex-cat");
        wait_messages(calling, 1);
        answer = (Hutch__V1__AttachExecResponse *) calling->messages[0];
        assert_int_equal(answer->item_case, HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ATTACHED);
        assert_string_equal(answer->attached->id, "ex-cat");

        (void) wait_exec(setting);
        fake_start_exec(setting->fixture, "sb-exec", "ex-cat");
        send_attach(calling, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN, "hello");
        send_attach(calling, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN_CLOSE, NULL);
        for (unsigned i = 0; i < 1000 && !strchr(fake_sandbox(setting->fixture, "sb-exec")->input, '|'); i++)
                fixture_turn(setting->fixture);
        assert_string_equal(fake_sandbox(setting->fixture, "sb-exec")->input, "hello|");

        fake_write(setting->fixture, "sb-exec", "ex-cat", 1, "hello");
        wait_messages(calling, 2);
        answer = (Hutch__V1__AttachExecResponse *) calling->messages[1];
        assert_int_equal(answer->item_case, HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_OUTPUT);
        assert_int_equal(answer->output->stream, HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT);
        assert_int_equal(answer->output->offset, 0);
        assert_memory_equal(answer->output->data.data, "hello", 5);

        fake_write(setting->fixture, "sb-exec", "ex-cat", 1, "!");
        fake_end_exec(setting->fixture, "sb-exec", "ex-cat", exited(6, 0));
        wait_end(calling);
        assert_ok(calling);
        assert_int_equal(calling->n_messages, 4);
        answer = (Hutch__V1__AttachExecResponse *) calling->messages[2];
        assert_int_equal(answer->output->offset, 5);
        answer = (Hutch__V1__AttachExecResponse *) calling->messages[3];
        assert_int_equal(answer->item_case, HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ENDED);
        assert_int_equal(answer->ended->result->exit_code, 0);
}

static void input_that_is_lost_ends_the_stream(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *calling = NULL;
        const FakeSandbox *sandbox;

        make_sandbox(setting, "sb-exec");
        sandbox = fake_sandbox(setting->fixture, "sb-exec");
        calling = attach(setting);
        send_attach(calling, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE, "ex-cat");
        send_attach(calling, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN, "hello");
        for (unsigned i = 0; i < 1000 && !*sandbox->input; i++)
                fixture_turn(setting->fixture);
        fake_break_input(setting->fixture, "sb-exec");
        wait_end(calling);
        assert_failed(calling, "KEEPER_UNAVAILABLE");
}

static void an_attached_stream_has_an_order(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *early = NULL, *twice = NULL, *empty = NULL;

        make_sandbox(setting, "sb-exec");
        early = attach(setting);
        send_attach(early, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN, "x");
        wait_end(early);
        assert_failed(early, "STREAM_ORDER");

        empty = attach(setting);
        channel_call_end(empty->call);
        wait_end(empty);
        assert_failed(empty, "STREAM_ORDER");

        twice = attach(setting);
        send_attach(twice, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE, "ex-1");
        send_attach(twice, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE, "ex-2");
        wait_end(twice);
        assert_failed(twice, "STREAM_ORDER");
}

static void output_can_be_read_afterwards(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *attached = NULL, *read = NULL, *beyond = NULL;
        Hutch__V1__ReadExecOutputRequest request = HUTCH__V1__READ_EXEC_OUTPUT_REQUEST__INIT;
        const Hutch__V1__ReadExecOutputResponse *answer;

        make_sandbox(setting, "sb-exec");
        setting->fixture->fake.hold_exec = true;
        attached = attach(setting);
        send_attach(attached, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE, "ex-read");
        wait_messages(attached, 1);
        (void) wait_exec(setting);
        fake_start_exec(setting->fixture, "sb-exec", "ex-read");
        fake_write(setting->fixture, "sb-exec", "ex-read", 1, "0123456789");
        fake_end_exec(setting->fixture, "sb-exec", "ex-read", exited(10, 0));
        wait_end(attached);

        request.sandbox_id = (char *) "sb-exec";
        request.exec_id = (char *) "ex-read";
        request.stdout_offset = 4;
        request.follow = true;
        read = ask(setting, "ExecService/ReadExecOutput", &request.base,
                   &hutch__v1__read_exec_output_response__descriptor);
        assert_ok(read);
        assert_int_equal(read->n_messages, 2);
        answer = (Hutch__V1__ReadExecOutputResponse *) read->messages[0];
        assert_int_equal(answer->output->offset, 4);
        assert_int_equal(answer->output->data.len, 6);
        answer = (Hutch__V1__ReadExecOutputResponse *) read->messages[1];
        assert_int_equal(answer->item_case, HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_EXEC);

        request.stdout_offset = 11;
        beyond = ask(setting, "ExecService/ReadExecOutput", &request.base,
                     &hutch__v1__read_exec_output_response__descriptor);
        assert_failed(beyond, "OFFSET_OUT_OF_RANGE");
}

static void streams_of_a_caller_are_limited(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *first = NULL, *second = NULL, *third = NULL;
        Hutch__V1__WatchEventsRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        ApiLimits limits = api_limits_default;

        limits.streams_per_caller = 1;
        api_set_limits(setting->api, &limits);
        first = begin(setting, "AgentSandboxService/WatchEvents", &request.base,
                      &hutch__v1__watch_events_response__descriptor);
        wait_messages(first, 1);
        second = ask(setting, "AgentSandboxService/WatchEvents", &request.base,
                     &hutch__v1__watch_events_response__descriptor);
        assert_failed(second, "TOO_MANY_STREAMS");
        assert_string_equal(pair(second, "limit"), "streams_per_caller");
        assert_string_equal(pair(second, "value"), "1");

        finish(TAKE_PTR(first));
        for (unsigned i = 0; i < 20; i++)
                fixture_turn(setting->fixture);
        third = begin(setting, "AgentSandboxService/WatchEvents", &request.base,
                      &hutch__v1__watch_events_response__descriptor);
        wait_messages(third, 1);
}

static void shutting_down_ends_streams_and_not_what_they_watch(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *watch = NULL, *command = NULL, *late = NULL;
        Hutch__V1__WatchEventsRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        const char *id;

        make_sandbox(setting, "sb-exec");
        setting->fixture->fake.hold_exec = true;
        watch = begin(setting, "AgentSandboxService/WatchEvents", &request.base,
                      &hutch__v1__watch_events_response__descriptor);
        wait_messages(watch, 1);
        command = run(setting, 0);
        id = wait_exec(setting);
        fake_start_exec(setting->fixture, "sb-exec", id);

        api_shut_down(setting->api);
        wait_end(watch);
        wait_end(command);
        assert_failed(watch, "DRAINING");
        assert_failed(command, "DRAINING");
        fixture_turn(setting->fixture);
        assert_false(fake_exec(setting->fixture, "sb-exec", id)->cancelled);

        late = ask(setting, "AgentSandboxService/WatchEvents", &request.base,
                   &hutch__v1__watch_events_response__descriptor);
        assert_failed(late, "DRAINING");
}

static void the_daemon_tells_about_itself(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *info = NULL, *ping = NULL;
        Hutch__V1__GetInfoRequest request = HUTCH__V1__GET_INFO_REQUEST__INIT;
        Hutch__V1__PingRequest ping_request = HUTCH__V1__PING_REQUEST__INIT;
        const Hutch__V1__GetInfoResponse *answer;

        ping = ask(setting, "SystemService/Ping", &ping_request.base, &hutch__v1__ping_response__descriptor);
        assert_ok(ping);
        make_sandbox(setting, "sb-1");
        info = ask(setting, "SystemService/GetInfo", &request.base, &hutch__v1__get_info_response__descriptor);
        assert_ok(info);
        answer = (Hutch__V1__GetInfoResponse *) info->messages[0];
        assert_string_equal(answer->version, "1.2.3");
        assert_string_equal(answer->instance_id, "this-one");
        assert_int_equal(answer->sandboxes, 1);
        assert_int_equal(answer->n_runtimes, 1);
        assert_int_equal(answer->n_profiles, 4);
        assert_int_equal(answer->profiles[1]->ceilings->memory_bytes, 256 << 20);
        assert_int_equal(answer->profiles[0]->ceilings->opt_memory_bytes_case, 0);
        assert_int_equal(answer->limits->listing_bytes, 8 << 20);
        assert_true(answer->caller_is_admin);
        assert_true(answer->host->cpus > 0);
}

/* File work. */

static Calling *begin_stat(Setting *setting, const char *path) {
        Hutch__V1__StatFileRequest request = HUTCH__V1__STAT_FILE_REQUEST__INIT;
        Calling *calling;
        uint64_t deadline = 0;

        request.sandbox_id = (char *) "sb-one";
        request.path = (char *) path;
        calling = begin(setting, "FileService/StatFile", &request.base, &hutch__v1__stat_file_response__descriptor);
        while (calling->call && !fake_sandbox(setting->fixture, "sb-one")->last_call)
                turn(calling, &deadline);
        return calling;
}

static FakeCall *file_work(Setting *setting) {
        FakeCall *call = fake_sandbox(setting->fixture, "sb-one")->last_call;

        assert_non_null(call);
        return call;
}

static void answer_message(FakeCall *call, const ProtobufCMessage *message) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(protobuf_pack(message, &bytes, &len), 0);
        fake_answer(call, bytes, len);
}

static void file_work_is_checked_completed_and_carried(void **state) {
        Setting *setting = *state;
        _cleanup_(finishp) Calling *calling = NULL, *refused = NULL;
        _cleanup_(protobuf_freep) ProtobufCMessage *sent = NULL;
        Hutch__V1__MakeDirectoryRequest request = HUTCH__V1__MAKE_DIRECTORY_REQUEST__INIT;
        Hutch__V1__MakeDirectoryResponse response = HUTCH__V1__MAKE_DIRECTORY_RESPONSE__INIT;
        Hutch__V1__FileInfo file = HUTCH__V1__FILE_INFO__INIT;
        const Hutch__V1__MakeDirectoryRequest *carried;
        uint64_t deadline = 0;
        char key[128];
        FakeCall *call;

        make_sandbox(setting, "sb-one");
        request.sandbox_id = (char *) "sb-one";
        request.path = (char *) "a/./b/";
        request.request_id = (char *) "req-1";
        calling = begin(setting, "FileService/MakeDirectory", &request.base,
                        &hutch__v1__make_directory_response__descriptor);
        while (!fake_sandbox(setting->fixture, "sb-one")->last_call)
                turn(calling, &deadline);
        call = file_work(setting);
        assert_string_equal(call->path, "/hutch.v1.FileService/MakeDirectory");
        (void) snprintf(key, sizeof(key), ":uid:%u/req-1", getuid());
        assert_string_equal(call->key + 64, key);
        assert_int_equal(strspn(call->key, "0123456789abcdef"), 64);
        assert_true(call->is_whole);
        assert_int_equal(protobuf_unpack(&hutch__v1__make_directory_request__descriptor, call->messages[0],
                                         call->lens[0], 1 << 20, &sent),
                         0);
        carried = (const Hutch__V1__MakeDirectoryRequest *) sent;
        assert_string_equal(carried->path, "/workspace/a/b/");
        assert_string_equal(carried->request_id, "req-1");
        assert_int_equal(carried->mode, 0755);

        file.path = (char *) "/workspace/a/b";
        response.file = &file;
        answer_message(call, &response.base);
        fixture_turn(setting->fixture);
        assert_int_equal(calling->n_messages, 0); /* it might still fail */
        fake_end_call(call, REASON_UNSPECIFIED);
        wait_end(calling);
        assert_ok(calling);
        assert_string_equal(((Hutch__V1__MakeDirectoryResponse *) calling->messages[0])->file->path, "/workspace/a/b");

        request.path = (char *) "/a/../b";
        request.request_id = (char *) "no spaces";
        request.sandbox_id = (char *) "";
        refused = ask(setting, "FileService/MakeDirectory", &request.base,
                      &hutch__v1__make_directory_response__descriptor);
        assert_failed(refused, "FIELD_REQUIRED");
        assert_int_equal(refused->details->n_violations, 3);
        assert_string_equal(refused->details->violations[2].reason, "PATH_DOTDOT");
}

static void answers_of_file_work_are_not_believed(void **state) {
        static const struct {
                const char *bytes;
                size_t len;
        } lies[] = {
                { "\xff", 1 },                     /* no message */
                { "\x0a\x03\x0a\x01\xff", 5 },     /* a path that is not UTF-8 */
                { "\x0a\x04\x0a\x02\x00\x00", 6 }, /* one that has NULs */
        };
        Setting *setting = *state;

        make_sandbox(setting, "sb-one");
        for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
                _cleanup_(finishp) Calling *calling = begin_stat(setting, "/a");

                fake_answer(file_work(setting), lies[i].bytes, lies[i].len);
                wait_end(calling);
                assert_failed(calling, "INTERNAL");
                assert_null(fake_sandbox(setting->fixture, "sb-one")->last_call);
        }
        for (size_t n = 0; n <= 2; n += 2) {
                _cleanup_(finishp) Calling *calling = begin_stat(setting, "/a");
                FakeCall *call = file_work(setting);

                /* No answer, and two. */
                if (n == 0) {
                        fake_end_call(call, REASON_UNSPECIFIED);
                } else {
                        fake_answer(call, "", 0);
                        fake_answer(call, "", 0);
                }
                wait_end(calling);
                assert_failed(calling, "INTERNAL");
        }
        {
                _cleanup_(finishp) Calling *calling = begin_stat(setting, "/a");
                FakeCall *call = file_work(setting);

                /* What it does not know of FileInfo does not get out. */
                fake_answer(call, "\x0a\x06\x0a\x02/a\x78\x01\xf8\x01\x05", 11);
                fake_end_call(call, REASON_UNSPECIFIED);
                wait_end(calling);
                assert_ok(calling);
                assert_int_equal(calling->messages[0]->n_unknown_fields, 0);
        }
}

static void downloads_have_an_order(void **state) {
        static const struct {
                const char *answers[3];
                size_t lens[3];
                bool good;
        } cases[] = {
                { { "\x0a\x00", "\x12\x01x", NULL }, { 2, 3 }, true },
                { { "\x0a\x00", NULL }, { 2 }, true },
                { { NULL }, {}, false },
                { { "\x12\x01x", NULL }, { 3 }, false },
                { { "\x0a\x00", "\x0a\x00", NULL }, { 2, 2 }, false },
                { { "\x0a\x00", "\x12\x01x\x12\x01x", NULL }, { 2, 6 }, false },
                { { "", NULL }, { 0 }, false },
        };
        Setting *setting = *state;
        Hutch__V1__DownloadFileRequest request = HUTCH__V1__DOWNLOAD_FILE_REQUEST__INIT;

        make_sandbox(setting, "sb-one");
        request.sandbox_id = (char *) "sb-one";
        request.path = (char *) "/a";
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_(finishp) Calling *calling = begin(setting, "FileService/DownloadFile", &request.base,
                                                            &hutch__v1__download_file_response__descriptor);
                uint64_t deadline = 0;
                FakeCall *call;

                while (!(call = fake_sandbox(setting->fixture, "sb-one")->last_call))
                        turn(calling, &deadline);
                for (size_t j = 0; cases[i].answers[j]; j++)
                        fake_answer(call, cases[i].answers[j], cases[i].lens[j]);
                if (fake_sandbox(setting->fixture, "sb-one")->last_call)
                        fake_end_call(call, REASON_UNSPECIFIED);
                wait_end(calling);
                if (cases[i].good)
                        assert_ok(calling);
                else
                        assert_failed(calling, "INTERNAL");
        }
}

static Calling *begin_upload(Setting *setting) {
        Hutch__V1__UploadFileRequest request = HUTCH__V1__UPLOAD_FILE_REQUEST__INIT;
        Hutch__V1__UploadFileHeader header = HUTCH__V1__UPLOAD_FILE_HEADER__INIT;
        Calling *calling = start(setting, "FileService/UploadFile", &hutch__v1__upload_file_response__descriptor);
        uint64_t deadline = 0;

        header.sandbox_id = (char *) "sb-one";
        header.path = (char *) "/a";
        request.item_case = HUTCH__V1__UPLOAD_FILE_REQUEST__ITEM_HEADER;
        request.header = &header;
        send_message(calling, &request.base);
        while (!fake_sandbox(setting->fixture, "sb-one")->last_call)
                turn(calling, &deadline);
        return calling;
}

static void uploads_have_an_order_and_wait_for_who_writes(void **state) {
        static const struct {
                const char *bytes;
                size_t len;
                const char *reason;
        } cases[] = {
                { "", 0, "FIELD_REQUIRED" },
                { "\x0a\x00", 2, "STREAM_ORDER" },
                { "\xff", 1, "FIELD_INVALID" },
        };
        Setting *setting = *state;
        Calling *calling;
        uint64_t deadline = 0;
        FakeCall *call;

        make_sandbox(setting, "sb-one");
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                calling = begin_upload(setting);
                assert_int_equal(channel_call_send(calling->call, cases[i].bytes, cases[i].len), 0);
                wait_end(calling);
                assert_failed(calling, cases[i].reason);
                assert_null(fake_sandbox(setting->fixture, "sb-one")->last_call);
                finish(calling);
        }

        calling = begin_upload(setting);
        call = file_work(setting);
        call->is_full = true;
        assert_int_equal(channel_call_send(calling->call, "\x12\x03one", 5), 0);
        assert_int_equal(channel_call_send(calling->call, "\x12\x03two", 5), 0);
        while (call->n_messages < 2)
                turn(calling, &deadline);
        fixture_wait(setting->fixture, 20);
        assert_int_equal(call->n_messages, 2); /* one was on its way */
        call->is_full = false;
        call->events->writable(call->user);
        /* An odd form, and something that is not known: it comes through in the usual form. */
        assert_int_equal(channel_call_send(calling->call, "\x12\x85\x00three\x78\x01", 10), 0);
        channel_call_end(calling->call);
        while (!call->is_whole)
                turn(calling, &deadline);
        assert_int_equal(call->n_messages, 4);
        assert_memory_equal(call->messages[2], "\x12\x03two", 5);
        assert_int_equal(call->lens[3], 7);
        assert_memory_equal(call->messages[3], "\x12\x05three", 7);
        fake_end_call(call, REASON_CHECKSUM_MISMATCH);
        wait_end(calling);
        assert_failed(calling, "CHECKSUM_MISMATCH");
        finish(calling);

        calling = start(setting, "FileService/UploadArchive", &hutch__v1__upload_archive_response__descriptor);
        channel_call_end(calling->call);
        wait_end(calling);
        assert_failed(calling, "STREAM_ORDER");
        finish(calling);
}

static void file_work_is_cancelled_with_its_call(void **state) {
        Setting *setting = *state;
        Calling *calling;
        uint64_t deadline = 0;

        make_sandbox(setting, "sb-one");
        calling = begin_stat(setting, "/a");
        (void) file_work(setting);
        finish(calling);
        calling = begin_stat(setting, "/a"); /* for turns */
        api_shut_down(setting->api);
        wait_end(calling);
        assert_failed(calling, "DRAINING");
        while (fake_sandbox(setting->fixture, "sb-one")->last_call)
                turn(calling, &deadline);
        finish(calling);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                TEST(sandboxes_are_made_shown_and_deleted),
                TEST(a_request_id_repeats_or_is_refused),
                TEST(violations_come_all_at_once),
                TEST(errors_carry_their_metadata),
                TEST(nothing_is_answered_that_is_not_durable),
                TEST(lists_come_in_pages),
                TEST(an_update_changes_labels_and_keeps_the_rest),
                TEST(many_are_deleted_by_their_labels),
                TEST(a_watch_begins_with_what_there_is_and_goes_on),
                TEST(a_watch_goes_on_from_a_sequence),
                TEST(a_command_is_answered_with_its_output),
                TEST(a_command_ends_with_its_call),
                TEST(attaching_takes_input_and_gives_output_and_the_end),
                TEST(input_that_is_lost_ends_the_stream),
                TEST(an_attached_stream_has_an_order),
                TEST(output_can_be_read_afterwards),
                TEST(streams_of_a_caller_are_limited),
                TEST(shutting_down_ends_streams_and_not_what_they_watch),
                TEST(the_daemon_tells_about_itself),
                TEST(file_work_is_checked_completed_and_carried),
                TEST(answers_of_file_work_are_not_believed),
                TEST(downloads_have_an_order),
                TEST(uploads_have_an_order_and_wait_for_who_writes),
                TEST(file_work_is_cancelled_with_its_call),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
