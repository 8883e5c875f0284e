/* SPDX-License-Identifier: Apache-2.0 */

/* Calls of every kind between a server session and a client session, with each allocation failing in turn, ours and
 * nghttp2's. Every call ends once; a connection either goes on as if nothing had happened or says that it is broken;
 * and nothing leaks, which the sanitizer sees. The same for channels. */

#include "rpc/core/client-session.h"
#include "rpc/core/server-session.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "rpc/blocking.h"
#include "rpc/channel-hub.h"
#include "rpc/channel.h"
#include "rpc/connector.h"
#include "rpc/core/call.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/peer.h"
#include "rpc/server.h"
#include "rpc/tls.h"

#include "certificates.h"
#include "fail-alloc.h"
#include "test.h"

#define POUR_MESSAGES 20
#define DEADLINE (100 * NSEC_PER_MSEC)

/* nghttp2 is a shared library, whose calls of malloc() the linker does not redirect: sessions are given ours. */
static void *http2_malloc(size_t size, void *user) {
        (void) user;
        return malloc(size);
}

static void http2_free(void *pointer, void *user) {
        (void) user;
        free(pointer);
}

static void *http2_calloc(size_t n, size_t size, void *user) {
        (void) user;
        return calloc(n, size);
}

static void *http2_realloc(void *pointer, size_t size, void *user) {
        (void) user;
        return realloc(pointer, size);
}

static nghttp2_mem http2_mem = { NULL, http2_malloc, http2_free, http2_calloc, http2_realloc };

int __wrap_nghttp2_session_server_new2(nghttp2_session **session, const nghttp2_session_callbacks *callbacks,
                                       void *user, const nghttp2_option *option);
int __wrap_nghttp2_session_client_new2(nghttp2_session **session, const nghttp2_session_callbacks *callbacks,
                                       void *user, const nghttp2_option *option);

int __wrap_nghttp2_session_server_new2(nghttp2_session **session, const nghttp2_session_callbacks *callbacks,
                                       void *user, const nghttp2_option *option) {
        return nghttp2_session_server_new3(session, callbacks, user, option, &http2_mem);
}

int __wrap_nghttp2_session_client_new2(nghttp2_session **session, const nghttp2_session_callbacks *callbacks,
                                       void *user, const nghttp2_option *option) {
        return nghttp2_session_client_new3(session, callbacks, user, option, &http2_mem);
}

/* What a client does. */
typedef struct Scenario {
        const char *path;
        size_t n_messages;
        size_t len; /* of each */
        bool compresses;
        bool has_metadata;
        bool cancels;
        bool expires;
        bool drains;
        StatusCode code;  /* when memory is enough */
        size_t n_answers; /* the same */
} Scenario;

typedef struct Pair {
        const Scenario *scenario;
        SessionBudget budget;
        ServerSession *server;
        ClientSession *client;
        bool broken; /* one of them said so */
        uint64_t now;
        size_t n_begun, n_over; /* calls of the server */
} Pair;

typedef struct Outcome {
        ClientCall *call;
        bool started;
        bool ended;
        StatusCode code;
        size_t n_answers;
} Outcome;

static Pair *current;
static uint8_t block[60000];
static char folder[] = "/tmp/hutch-memory-XXXXXX"; /* of certificates and sockets */

static void on_message(ClientCall *call, const uint8_t *message, size_t len) {
        Outcome *outcome = client_call_user(call);

        (void) message, (void) len;
        outcome->n_answers++;
        client_call_read(call);
}

static void on_ended(ClientCall *call, const ClientStatus *status) {
        Outcome *outcome = client_call_user(call);

        assert_false(outcome->ended);
        outcome->ended = true;
        outcome->call = NULL;
        outcome->code = status->code;
}

static const ClientEvents client_events = { .message = on_message, .ended = on_ended };

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        const Metadata *metadata = call_metadata(call);

        (void) context;
        for (size_t i = 0; i < metadata->n_entries; i++) {
                const MetadataEntry *entry = &metadata->entries[i];

                (void) metadata_add(call_initial_metadata(call), entry->name, entry->value, entry->value_len);
                (void) metadata_add(call_trailing_metadata(call), entry->name, entry->value, entry->value_len);
        }
        call_set_compression(call, true);
        call_reply(call, message, len);
}

static void fail_call(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len, (void) context;
        call_finish_details(call, STATUS_NOT_FOUND, "nothing there", "\1\2\3", 3);
}

static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) call, (void) message, (void) len, (void) context;
}

/* A handler that cannot send says so, as every handler should. */
static void send_or_fail(Call *call, const void *message, size_t len) {
        if (call_send(call, message, len) < 0)
                call_finish(call, STATUS_RESOURCE_EXHAUSTED, "no memory");
}

static void pour(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len, (void) context;
        for (size_t i = 0; i < POUR_MESSAGES; i++)
                send_or_fail(call, block, 10000);
        call_finish(call, STATUS_OK, NULL);
}

static void converse_message(Call *call, const uint8_t *message, size_t len) {
        send_or_fail(call, message, len);
        call_read(call);
}

static void converse_end(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void converse(Call *call, void *context) {
        static const CallEvents events = { .message = converse_message, .half_closed = converse_end };

        (void) context;
        call_set_events(call, &events, NULL);
        call_read(call);
}

static const Method methods[] = {
        { .path = "/m.M/Echo", .handle = echo },        { .path = "/m.M/Fail", .handle = fail_call },
        { .path = "/m.M/Hang", .handle = hang },        { .path = "/m.M/Pour", .handle = pour },
        { .path = "/m.M/Converse", .start = converse },
};

#define N_METHODS (sizeof(methods) / sizeof(methods[0]))

static int on_begin(Call *call, void *context, HutchError *err) {
        (void) call, (void) context, (void) err;
        current->n_begun++;
        return 0;
}

static void on_end(Call *call, StatusCode status, CallEnd how, void *context) {
        (void) call, (void) status, (void) how, (void) context;
        current->n_over++;
}

static const Interceptor interceptor = { .begin = on_begin, .end = on_end };

/* Moves what @from has for @to. Returns how much. */
static size_t carry(Pair *pair, Session *from, Session *to) {
        static uint8_t buffer[65536];
        size_t total = 0;

        while (!pair->broken) {
                ssize_t n = session_produce(from, buffer, sizeof(buffer));
                int r = n > 0 ? session_receive(to, buffer, (size_t) n, pair->now) : 0;

                pair->broken = n < 0 || r < 0;
                while (session_dispatch(to, 1))
                        ;
                if (n <= 0)
                        break;
                total += (size_t) n;
        }

        return total;
}

static void pump(Pair *pair) {
        Session *server = server_session_base(pair->server), *client = client_session_base(pair->client);
        size_t carried;

        do {
                while (session_dispatch(client, 1) || session_dispatch(server, 1))
                        ;
                carried = carry(pair, client, server) + carry(pair, server, client);
        } while (carried > 0);

        pair->broken |= session_is_finished(server) || session_is_finished(client) || client->peer_draining;
}

/* Does what the scenario says with a new call. */
static void play(Pair *pair, Outcome *outcome, const Metadata *metadata) {
        const Scenario *scenario = pair->scenario;
        const ClientRequest request = {
                .path = scenario->path,
                .metadata = metadata,
                .deadline = scenario->expires ? pair->now + DEADLINE : DEADLINE_NONE,
                .compresses = scenario->compresses,
        };
        int r = 0;

        outcome->call = client_call_start(pair->client, &request, &client_events, outcome);
        if (!outcome->call)
                return;

        outcome->started = true;
        client_call_read(outcome->call);
        for (size_t i = 0; i < scenario->n_messages && r == 0; i++)
                r = client_call_send(outcome->call, block, scenario->len);
        if (r < 0)
                client_call_cancel(outcome->call);
        else
                client_call_end(outcome->call);
        pump(pair);

        if (scenario->cancels && outcome->call) {
                client_call_cancel(outcome->call);
                pump(pair);
        }
        if (scenario->expires) {
                pair->now += DEADLINE;
                session_tick(server_session_base(pair->server), pair->now);
                session_tick(client_session_base(pair->client), pair->now);
                pump(pair);
        }

        if (pair->broken)
                return;
        assert_true(outcome->ended);
        assert_int_equal(client_session_base(pair->client)->n_streams, 0);
        assert_int_equal(server_session_base(pair->server)->n_streams, 0);
}

static void play_on_pair(Pair *pair, Outcome outcomes[static 2], const Metadata *metadata) {
        bool failed;

        play(pair, &outcomes[0], metadata);
        failed = fail_alloc_happened();
        if (pair->broken)
                return;

        play(pair, &outcomes[1], metadata);
        if (pair->scenario->drains) {
                if (!pair->broken && session_drain(server_session_base(pair->server)) == 0)
                        pump(pair);
                assert_true(fail_alloc_happened() || session_is_finished(server_session_base(pair->server)));
        }

        /* What failed for the first is no matter for the second. */
        if (failed || !fail_alloc_happened()) {
                assert_true(outcomes[1].ended);
                assert_int_equal(outcomes[1].code, pair->scenario->code);
                assert_int_equal(outcomes[1].n_answers, pair->scenario->n_answers);
        }
}

static void run(const Scenario *scenario) {
        static const Peer peer;
        static const ClientIdentity identity = { .authority = "localhost", .user_agent = "test" };
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 4096 };
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        ServerHandlers handlers = { .methods = table, .interceptors = &interceptor, .n_interceptors = 1 };
        SessionLimits limits = session_limits_default;

        limits.stream_window = limits.connection_window = 65535;
        assert_non_null(table);
        assert_int_equal(method_table_add(table, methods, N_METHODS), 0);
        if (scenario->has_metadata) {
                assert_int_equal(metadata_add(&metadata, "x-text", "text", 4), 0);
                assert_int_equal(metadata_add(&metadata, "x-bytes-bin", block, 100), 0);
        }

        FAIL_ALLOC_LOOP {
                Pair pair = {
                        .scenario = scenario,
                        .now = NSEC_PER_SEC,
                        .budget = { .max_buffered = SIZE_MAX, .max_queued = SIZE_MAX, .max_streams = SIZE_MAX },
                };
                Outcome outcomes[2] = {};

                current = &pair;
                pair.server = server_session_new(&handlers, &limits, &pair.budget, &peer, pair.now);
                pair.client = client_session_new(&identity, &limits, pair.now);
                if (pair.server && pair.client)
                        play_on_pair(&pair, outcomes, &metadata);
                else
                        assert_true(fail_alloc_happened());
                client_session_free(pair.client);
                server_session_free(pair.server);

                for (size_t i = 0; i < 2; i++)
                        assert_int_equal(outcomes[i].started, outcomes[i].ended);
                assert_true(fail_alloc_happened() || (outcomes[0].ended && outcomes[0].code == scenario->code));
                assert_int_equal(pair.n_begun, pair.n_over);
                assert_int_equal(pair.budget.buffered, 0);
                assert_int_equal(pair.budget.streams, 0);
        }
}

static void unary_call(void **state) {
        run(&(Scenario){ .path = "/m.M/Echo", .n_messages = 1, .len = 100, .n_answers = 1 });
}

static void large_messages(void **state) {
        run(&(Scenario){ .path = "/m.M/Converse", .n_messages = 4, .len = sizeof(block), .n_answers = 4 });
}

static void server_streaming(void **state) {
        run(&(Scenario){ .path = "/m.M/Pour", .n_messages = 1, .n_answers = POUR_MESSAGES });
}

static void compressed_call(void **state) {
        run(&(Scenario){ .path = "/m.M/Echo", .n_messages = 1, .len = 5000, .compresses = true, .n_answers = 1 });
}

static void metadata_both_ways(void **state) {
        run(&(Scenario){ .path = "/m.M/Echo", .n_messages = 1, .has_metadata = true, .n_answers = 1 });
}

static void failing_call(void **state) {
        run(&(Scenario){ .path = "/m.M/Fail", .n_messages = 1, .code = STATUS_NOT_FOUND });
}

static void unknown_method(void **state) {
        run(&(Scenario){ .path = "/m.M/None", .n_messages = 1, .code = STATUS_UNIMPLEMENTED });
}

static void cancelled_call(void **state) {
        run(&(Scenario){ .path = "/m.M/Hang", .n_messages = 1, .cancels = true, .code = STATUS_CANCELLED });
}

static void deadline(void **state) {
        run(&(Scenario){ .path = "/m.M/Hang", .n_messages = 1, .expires = true, .code = STATUS_DEADLINE_EXCEEDED });
}

static void drain(void **state) {
        run(&(Scenario){ .path = "/m.M/Echo", .n_messages = 1, .drains = true, .n_answers = 1 });
}

static void method_table(void **state) {
        FAIL_ALLOC_LOOP {
                _cleanup_(method_table_freep) MethodTable *table = method_table_new();
                int r = table ? method_table_add(table, methods, N_METHODS) : -ENOMEM;

                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
        }
}

static const RetryPolicy no_retry = { .attempts = 1, .initial_ms = 1, .max_ms = 1 };

static ChannelOptions channel_options(const char *text) {
        ChannelOptions options = channel_options_default;

        options.target = text;
        options.token = "secret";
        options.retry = &no_retry;
        return options;
}

static void set_true(void *user) {
        *(bool *) user = true;
}

static void on_channel_ended(ChannelCall *call, const ClientStatus *status) {
        Outcome *outcome = channel_call_user(call);

        assert_false(outcome->ended);
        outcome->ended = true;
        outcome->code = status->code;
}

/* One call over a channel of its own. */
static Outcome call_over_channel(uv_loop_t *loop, const char *text, TlsContext *tls) {
        static const ChannelEvents events = { .ended = on_channel_ended };
        ChannelOptions options = channel_options(text);
        const ChannelRequest request = { .path = "/m.M/Echo", .deadline = uv_hrtime() + 80 * NSEC_PER_SEC };
        _cleanup_(error_clear) HutchError err = {};
        Outcome outcome = {};
        ChannelHub *hub = NULL;
        Channel *channel = NULL;
        ChannelCall *call;
        bool freed = false;
        int r = channel_hub_new(loop, &hub);

        options.tls = tls;
        if (r == 0) {
                r = channel_new(hub, &options, &channel, &err);
                channel_hub_free(hub); /* with its channel */
        }
        assert_true(r == 0 || (r == -ENOMEM && fail_alloc_happened()));
        if (!channel)
                return outcome;

        call = channel_call_start(channel, &request, &events, &outcome);
        outcome.started = call;
        if (call) {
                if (channel_call_send(call, "hello", 5) < 0)
                        channel_call_cancel(call);
                channel_call_end(call);
                channel_call_read(call);
        }
        while (outcome.started && !outcome.ended)
                (void) uv_run(loop, UV_RUN_ONCE);
        channel_free(channel, set_true, &freed);
        while (!freed)
                (void) uv_run(loop, UV_RUN_ONCE);
        return outcome;
}

static void channel_to_nobody(void **state) {
        uv_loop_t loop;

        assert_int_equal(uv_loop_init(&loop), 0);
        FAIL_ALLOC_LOOP {
                Outcome outcome = call_over_channel(&loop, "unix:/nonexistent/hutch.sock", NULL);

                assert_true(outcome.ended || fail_alloc_happened());
                assert_true(!outcome.ended || outcome.code == STATUS_UNAVAILABLE || fail_alloc_happened());
        }
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&loop), 0);
}

/* In one process: the allocations of the server fail as well. */
static void channel_to_a_server(void **state) {
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        char path[64], text[80];
        Server *server;
        uv_loop_t loop;
        bool freed = false;

        snprintf(path, sizeof(path), "%s/socket", folder);
        snprintf(text, sizeof(text), "unix:%s", path);
        assert_non_null(table);
        assert_int_equal(method_table_add(table, methods, N_METHODS), 0);
        assert_int_equal(uv_loop_init(&loop), 0);
        assert_int_equal(server_new(&loop, table, &server_options_default, &server), 0);
        assert_int_equal(server_listen_unix(server, path, 0600, NULL), 0);

        FAIL_ALLOC_LOOP {
                Outcome outcome = call_over_channel(&loop, text, NULL);

                assert_true((outcome.ended && outcome.code == STATUS_OK) || fail_alloc_happened());
                assert_int_not_equal(outcome.code, STATUS_DEADLINE_EXCEEDED); /* nobody waits in vain */
                while (server_stats(server).connections > 0)
                        (void) uv_run(&loop, UV_RUN_ONCE);
                assert_int_equal(server_stats(server).streams, 0);
                assert_int_equal(server_stats(server).buffered, 0);
        }

        server_free(server, set_true, &freed);
        while (!freed)
                (void) uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(uv_loop_close(&loop), 0);
        assert_int_equal(access(path, F_OK), -1);
}

/* Once, and without a failure: those of every library, OpenSSL above all, are for fail-each-alloc.h. */
static void call_over_tls(void **state) {
        const TlsServerOptions server_files = {
                .certificate_file = certificate_file(folder, "server", ".pem"),
                .key_file = certificate_file(folder, "server", ".key"),
        };
        const TlsClientOptions client_files = { .ca_file = certificate_file(folder, "ca", ".pem") };
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        _cleanup_(tls_context_unrefp) TlsContext *server_tls = NULL, *client_tls = NULL;
        int r = table ? method_table_add(table, methods, N_METHODS) : -ENOMEM;
        Server *server = NULL;
        Outcome outcome = {};
        bool freed = false;
        uint16_t port = 0;
        uv_loop_t loop;
        char text[32];

        if (r == 0)
                r = tls_context_new_server(&server_files, &server_tls, NULL);
        if (r == 0)
                r = tls_context_new_client(&client_files, &client_tls, NULL);
        if (r == 0)
                r = uv_loop_init(&loop);
        assert_true(r == 0 || fail_alloc_happened());
        if (r < 0)
                return;

        r = server_new(&loop, table, &server_options_default, &server);
        if (r == 0)
                r = server_listen_tcp(server, "127.0.0.1", 0, server_tls, &port, NULL);
        if (r == 0) {
                snprintf(text, sizeof(text), "localhost:%u", port);
                outcome = call_over_channel(&loop, text, client_tls);
        }
        assert_true((outcome.ended && outcome.code == STATUS_OK) || fail_alloc_happened());
        assert_int_not_equal(outcome.code, STATUS_DEADLINE_EXCEEDED);

        if (server)
                server_free(server, set_true, &freed);
        while (server && !freed)
                (void) uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&loop), 0);
}

static void blocking_call_to_nobody(void **state) {
        const ChannelOptions options = channel_options("unix:/nonexistent/hutch.sock");
        const ChannelRequest request = { .path = "/m.M/Echo", .deadline = DEADLINE_NONE };

        FAIL_ALLOC_LOOP {
                _cleanup_(blocking_freep) Blocking *blocking = NULL;
                _cleanup_(error_clear) HutchError err = {};
                BlockingMessage reply = {};
                int r = blocking_new(&options, &blocking, &err);

                assert_true(r == 0 || (r == -ENOMEM && fail_alloc_happened()));
                if (r == 0)
                        assert_true(blocking_unary(blocking, &request, "hello", 5, &reply, &err) < 0);
                assert_null(reply.data);
        }
}

static void target(void **state) {
        static const char *const texts[] = { "unix:/run/x.sock", "example.com:443", "[::1]:1" };

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                FAIL_ALLOC_LOOP {
                        _cleanup_(target_clear) Target parsed = {};
                        _cleanup_(error_clear) HutchError err = {};
                        int r = target_parse(texts[i], &parsed, &err);

                        assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
                }
}

static int make_folder(void **state) {
        assert_non_null(mkdtemp(folder));
        certificate_make(folder, &(CertificateSpec){ .name = "ca", .is_ca = true });
        certificate_make(folder, &(CertificateSpec){ .name = "server", .issuer = "ca", .is_for = "DNS:localhost" });
        return 0;
}

static int remove_folder(void **state) {
        static const char *const names[] = { "ca", "server" };

        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(unlink(certificate_file(folder, names[i], ".pem")), 0);
                assert_int_equal(unlink(certificate_file(folder, names[i], ".key")), 0);
        }
        (void) unlink(certificate_file(folder, "socket", "")); /* of a test that failed */
        return rmdir(folder);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(unary_call),
                cmocka_unit_test(large_messages),
                cmocka_unit_test(server_streaming),
                cmocka_unit_test(compressed_call),
                cmocka_unit_test(metadata_both_ways),
                cmocka_unit_test(failing_call),
                cmocka_unit_test(unknown_method),
                cmocka_unit_test(cancelled_call),
                cmocka_unit_test(deadline),
                cmocka_unit_test(drain),
                cmocka_unit_test(method_table),
                cmocka_unit_test(channel_to_nobody),
                cmocka_unit_test(channel_to_a_server),
                cmocka_unit_test(call_over_tls),
                cmocka_unit_test(blocking_call_to_nobody),
                cmocka_unit_test(target),
        };

        fail_alloc_set_waits_count();
        return cmocka_run_group_tests_name("rpc-memory", tests, make_folder, remove_folder);
}
