/* SPDX-License-Identifier: Apache-2.0 */

/* Channels against real servers on real sockets: on one loop, and, for callers that block, in another process. */

#include "rpc/channel.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "rpc/blocking.h"
#include "rpc/call.h"
#include "rpc/connector.h"
#include "rpc/method-table.h"
#include "rpc/server.h"

#include "test.h"

#define LIMIT_NS (20 * NSEC_PER_SEC) /* no test waits longer */

static char folder[] = "/tmp/hutch-channel-XXXXXX";
static char socket_path[64], target[80];

static const RetryPolicy quick = { .attempts = 6, .initial_ms = 5, .max_ms = 20 };

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) context;
        call_reply(call, message, len);
}

static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) call, (void) message, (void) len, (void) context;
}

/* Fails as often as its context says, and then answers. */
static void flaky(Call *call, const uint8_t *message, size_t len, void *context) {
        int *failures = context;

        if ((*failures)-- > 0)
                call_finish(call, STATUS_UNAVAILABLE, "not now");
        else
                call_reply(call, message, len);
}

static void whoami(Call *call, const uint8_t *message, size_t len, void *context) {
        const MetadataEntry *entry = metadata_find(call_metadata(call), "authorization");

        (void) message, (void) len, (void) context;
        call_reply(call, entry ? entry->value : "", entry ? entry->value_len : 0);
}

static void converse_message(Call *call, const uint8_t *message, size_t len) {
        (void) call_send(call, message, len);
        call_read(call);
}

static void converse_end(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void converse(Call *call, void *context) {
        static const CallEvents events = { .message = converse_message, .half_closed = converse_end };

        call_set_events(call, &events, context);
        call_read(call);
}

static void inspect_message(Call *call, const uint8_t *message, size_t len) {
        const char *answer = call_message_was_compressed(call) ? "compressed" : "plain";

        (void) message, (void) len;
        call_set_compression(call, call_message_was_compressed(call));
        (void) call_send(call, answer, strlen(answer));
        call_read(call);
}

/* Answers each message with whether it was compressed, in kind, and sends metadata before and after. Fails at first as
 * often as its context says. */
static void inspect(Call *call, void *context) {
        static const CallEvents events = { .message = inspect_message, .half_closed = converse_end };
        int *failures = context;

        if ((*failures)-- > 0) {
                call_finish(call, STATUS_UNAVAILABLE, "not now");
                return;
        }
        assert_int_equal(metadata_add(call_initial_metadata(call), "x-first", "1", 1), 0);
        assert_int_equal(metadata_add(call_trailing_metadata(call), "x-last-bin", "\0", 1), 0);
        call_set_events(call, &events, NULL);
        call_read(call);
}

typedef struct Fixture {
        uv_loop_t loop;
        MethodTable *methods;
        int failures;
        Method list[6];
        Server *server;
        Channel *channel;
} Fixture;

static void serve(Fixture *fixture) {
        fixture->list[0] = (Method){ .path = "/t.T/Echo", .handle = echo };
        fixture->list[1] = (Method){ .path = "/t.T/Hang", .handle = hang };
        fixture->list[2] = (Method){ .path = "/t.T/Flaky", .handle = flaky, .context = &fixture->failures };
        fixture->list[3] = (Method){ .path = "/t.T/Whoami", .handle = whoami };
        fixture->list[4] = (Method){ .path = "/t.T/Converse", .start = converse };
        fixture->list[5] = (Method){ .path = "/t.T/Inspect", .start = inspect, .context = &fixture->failures };
        fixture->methods = method_table_new();
        assert_int_equal(method_table_add(fixture->methods, fixture->list, 6), 0);
        assert_int_equal(server_new(&fixture->loop, fixture->methods, &server_options_default, &fixture->server), 0);
}

static void listen_again(Fixture *fixture) {
        assert_int_equal(server_listen_unix(fixture->server, socket_path, 0600, NULL), 0);
}

static int set_up(void **state) {
        Fixture *fixture = new0(Fixture, 1);
        ChannelOptions options = channel_options_default;

        options.target = target;
        options.retry = &quick;
        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        serve(fixture);
        listen_again(fixture);
        assert_int_equal(channel_new(&fixture->loop, &options, &fixture->channel, NULL), 0);
        *state = fixture;
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;

        if (fixture->channel)
                channel_free(fixture->channel, NULL, NULL);
        if (fixture->server)
                server_free(fixture->server, NULL, NULL);
        assert_int_equal(uv_run(&fixture->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        method_table_free(fixture->methods);
        free(fixture);
        return 0;
}

typedef struct Outcome {
        bool ended;
        StatusCode code;
        char text[256]; /* the status message, or the first answer */
        size_t n_messages;
        bool from_server;
} Outcome;

static void on_message(ChannelCall *call, const uint8_t *message, size_t len) {
        Outcome *outcome = channel_call_user(call);

        outcome->n_messages++;
        snprintf(outcome->text, sizeof(outcome->text), "%.*s", (int) len, (const char *) message);
        channel_call_read(call);
}

static void on_ended(ChannelCall *call, const ClientStatus *status) {
        Outcome *outcome = channel_call_user(call);

        assert_false(outcome->ended);
        outcome->ended = true;
        outcome->code = status->code;
        outcome->from_server = status->from_server;
        if (status->code != STATUS_OK)
                snprintf(outcome->text, sizeof(outcome->text), "%s", status->message);
}

static const ChannelEvents events = { .message = on_message, .ended = on_ended };

static ChannelCall *start(Fixture *fixture, Outcome *outcome, const ChannelRequest *request) {
        ChannelCall *call = channel_call_start(fixture->channel, request, &events, outcome);

        assert_non_null(call);
        assert_int_equal(channel_call_send(call, "hi", 2), 0);
        channel_call_end(call);
        channel_call_read(call);
        return call;
}

static void on_limit(uv_timer_t *timer) {
        (void) timer;
        fail_msg("nothing happens");
}

static void wait_for(Fixture *fixture, const bool *condition) {
        uv_timer_t limit;

        uv_timer_init(&fixture->loop, &limit);
        uv_timer_start(&limit, on_limit, LIMIT_NS / NSEC_PER_MSEC, 0);
        while (!*condition)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        uv_close((uv_handle_t *) &limit, NULL);
        uv_run(&fixture->loop, UV_RUN_NOWAIT);
}

static Outcome call_and_wait(Fixture *fixture, const char *path, bool safe) {
        Outcome outcome = {};

        start(fixture, &outcome, &(ChannelRequest){ .path = path, .deadline = uv_hrtime() + LIMIT_NS, .safe = safe });
        wait_for(fixture, &outcome.ended);
        return outcome;
}

static void call_connects_and_is_answered(void **state) {
        Outcome outcome = call_and_wait(*state, "/t.T/Echo", false);

        assert_int_equal(outcome.code, STATUS_OK);
        assert_string_equal(outcome.text, "hi");
        assert_int_equal(outcome.n_messages, 1);
}

static void many_calls_share_one_connection(void **state) {
        Fixture *fixture = *state;
        Outcome outcomes[500] = {};

        for (size_t i = 0; i < 500; i++)
                start(fixture, &outcomes[i],
                      &(ChannelRequest){ .path = "/t.T/Echo", .deadline = uv_hrtime() + LIMIT_NS });
        for (size_t i = 0; i < 500; i++) {
                wait_for(fixture, &outcomes[i].ended);
                assert_int_equal(outcomes[i].code, STATUS_OK);
        }
        assert_int_equal(server_stats(fixture->server).accepted_connections, 1);
}

static void unavailable_is_tried_again_when_that_is_safe(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        fixture->failures = 5;
        outcome = call_and_wait(fixture, "/t.T/Flaky", true);
        assert_int_equal(outcome.code, STATUS_OK);
        assert_int_equal(server_stats(fixture->server).calls, 6);
}

static void tries_are_used_up(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        fixture->failures = 6;
        outcome = call_and_wait(fixture, "/t.T/Flaky", true);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_string_equal(outcome.text, "not now");
}

static void unsafe_call_is_not_repeated(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        fixture->failures = 1;
        outcome = call_and_wait(fixture, "/t.T/Flaky", false);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_int_equal(server_stats(fixture->server).calls, 1);
}

static void gone(void *user) {
        *(bool *) user = true;
}

static void stop_server(Fixture *fixture) {
        bool stopped = false;

        server_free(fixture->server, gone, &stopped);
        fixture->server = NULL;
        wait_for(fixture, &stopped);
        method_table_free(fixture->methods);
        fixture->methods = NULL;
}

static void nobody_there_is_unavailable_and_says_where(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        stop_server(fixture);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_non_null(strstr(outcome.text, socket_path));
}

static void refused_connection_says_so(void **state) {
        Fixture *fixture = *state;
        ChannelOptions options = channel_options_default;
        Outcome outcome;

        channel_free(fixture->channel, NULL, NULL);
        options.target = "127.0.0.1:1";
        options.retry = &quick;
        assert_int_equal(channel_new(&fixture->loop, &options, &fixture->channel, NULL), 0);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_string_equal(outcome.text, "cannot connect to 127.0.0.1:1: Connection refused");
}

static void connects_anew_after_the_server_came_back(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = call_and_wait(fixture, "/t.T/Echo", false);

        assert_int_equal(outcome.code, STATUS_OK);
        stop_server(fixture);
        serve(fixture);
        listen_again(fixture);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_OK);
}

static void lost_connection_ends_a_call_that_is_not_safe(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = {};
        bool stopped = false;

        start(fixture, &outcome, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = uv_hrtime() + LIMIT_NS });
        while (server_stats(fixture->server).calls == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        server_free(fixture->server, gone, &stopped);
        fixture->server = NULL;
        wait_for(fixture, &outcome.ended);
        wait_for(fixture, &stopped);
        assert_true(outcome.code == STATUS_UNAVAILABLE || outcome.code == STATUS_CANCELLED);
}

static void drained_connection_is_replaced(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = call_and_wait(fixture, "/t.T/Echo", false);
        bool drained = false;

        assert_int_equal(outcome.code, STATUS_OK);
        server_drain(fixture->server, NSEC_PER_SEC, gone, &drained);
        wait_for(fixture, &drained);
        stop_server(fixture);
        serve(fixture);
        listen_again(fixture);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_OK);
}

static void deadline_ends_the_wait(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = {};

        start(fixture, &outcome,
              &(ChannelRequest){ .path = "/t.T/Hang", .deadline = uv_hrtime() + 50 * NSEC_PER_MSEC });
        wait_for(fixture, &outcome.ended);
        assert_int_equal(outcome.code, STATUS_DEADLINE_EXCEEDED);
}

static void cancel_ends_the_call(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = {}, waiting = {};
        ChannelCall *call =
                start(fixture, &outcome, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });

        while (server_stats(fixture->server).calls == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        channel_call_cancel(call);
        wait_for(fixture, &outcome.ended);
        assert_int_equal(outcome.code, STATUS_CANCELLED);

        /* Before it is sent, too. */
        call = start(fixture, &waiting, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });
        channel_call_cancel(call);
        wait_for(fixture, &waiting.ended);
        assert_int_equal(waiting.code, STATUS_CANCELLED);
}

static void freeing_the_channel_ends_its_calls(void **state) {
        Fixture *fixture = *state;
        Outcome sent = {}, waiting = {};
        bool freed = false;

        start(fixture, &sent, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });
        while (server_stats(fixture->server).calls == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        start(fixture, &waiting, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });

        channel_free(fixture->channel, gone, &freed);
        fixture->channel = NULL;
        wait_for(fixture, &freed);
        assert_true(sent.ended);
        assert_true(waiting.ended);
}

static void token_is_not_sent_in_clear_text(void **state) {
        Fixture *fixture = *state;
        ChannelOptions options = channel_options_default;
        _cleanup_(error_clear) HutchError err = {};
        Channel *channel = NULL;

        options.target = "127.0.0.1:1";
        options.token = "secret";
        assert_int_equal(channel_new(&fixture->loop, &options, &channel, &err), -EPERM);
        assert_string_equal(err.reason, "TOKEN_IN_CLEAR_TEXT");
        assert_null(strstr(error_message(&err), "secret"));

        /* A Unix socket is no network. */
        channel_free(fixture->channel, NULL, NULL);
        options.target = target;
        assert_int_equal(channel_new(&fixture->loop, &options, &fixture->channel, &err), 0);
        assert_string_equal(call_and_wait(fixture, "/t.T/Whoami", false).text, "Bearer secret");
}

static void targets_are_read(void **state) {
        static const char *const bad[] = {
                "", "unix:", "host", "host:", ":1", "host:0", "host:65536", "host:x", "::1:1"
        };

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                Target ignored;

                if (target_parse(bad[i], &ignored, NULL) != -EINVAL)
                        fail_msg("'%s' is read as a target", bad[i]);
        }

        _cleanup_(target_clear) Target v6 = {};
        assert_int_equal(target_parse("[::1]:443", &v6, NULL), 0);
        assert_string_equal(v6.host, "::1");
        assert_string_equal(v6.port, "443");
}

/* A server in a child, for a caller that blocks. */
static pid_t fork_server(void) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                Fixture *fixture = new0(Fixture, 1);

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                uv_loop_init(&fixture->loop);
                fixture->failures = 2;
                serve(fixture);
                listen_again(fixture);
                uv_run(&fixture->loop, UV_RUN_DEFAULT);
                _exit(1);
        }
        return pid;
}

static Blocking *connect_blocking(void) {
        ChannelOptions options = channel_options_default;
        Blocking *blocking;

        options.target = target;
        options.retry = &(RetryPolicy){ .attempts = 50, .initial_ms = 5, .max_ms = 50 }; /* until the child listens */
        assert_int_equal(blocking_new(&options, &blocking, NULL), 0);
        return blocking;
}

static void blocking_calls_return_when_done(void **state) {
        pid_t pid = fork_server();
        Blocking *blocking = connect_blocking();
        _cleanup_(error_clear) HutchError err = {};
        BlockingMessage reply;
        BlockingCall *call;
        ChannelRequest request = { .path = "/t.T/Echo", .deadline = uv_hrtime() + LIMIT_NS };

        assert_int_equal(blocking_unary(blocking, &request, "hello", 5, &reply, &err), 0);
        assert_int_equal(reply.len, 5);
        assert_memory_equal(reply.data, "hello", 5);
        free(reply.data);

        request.path = "/t.T/None";
        assert_int_equal(blocking_unary(blocking, &request, "", 0, &reply, &err), -EOPNOTSUPP);
        assert_int_equal(err.code, STATUS_UNIMPLEMENTED);

        request.path = "/t.T/Flaky";
        request.safe = true;
        assert_int_equal(blocking_unary(blocking, &request, "x", 1, &reply, &err), 0);
        free(reply.data);

        request.path = "/t.T/Converse";
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        for (int i = 0; i < 100; i++) {
                assert_int_equal(blocking_call_send(call, "ping", 4), 0);
                assert_int_equal(blocking_call_read(call, &reply, &err), 1);
                assert_int_equal(reply.len, 4);
                free(reply.data);
        }
        blocking_call_end(call);
        assert_int_equal(blocking_call_read(call, &reply, &err), 0);
        blocking_call_free(call);

        /* One that is left in the middle is cancelled. */
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "ping", 4), 0);
        blocking_call_free(call);

        blocking_free(blocking);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(socket_path);
}

/* The next message must be @expected, compressed if it says so. */
static void read_inspected(BlockingCall *call, const char *expected) {
        BlockingMessage message;

        assert_int_equal(blocking_call_read(call, &message, NULL), 1);
        assert_int_equal(message.len, strlen(expected));
        assert_memory_equal(message.data, expected, message.len);
        assert_int_equal(message.was_compressed, strcmp(expected, "compressed") == 0);
        free(message.data);
}

static void blocking_call_compresses_each_message_or_not(void **state) {
        pid_t pid = fork_server(); /* whose first answers are that it is not available */
        Blocking *blocking = connect_blocking();
        BlockingMessage none;
        BlockingCall *call;
        ChannelRequest request = {
                .path = "/t.T/Inspect",
                .deadline = uv_hrtime() + LIMIT_NS,
                .safe = true,
                .compresses = true,
        };

        (void) state;
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        blocking_call_set_compression(call, false);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        blocking_call_set_compression(call, true);
        read_inspected(call, "compressed");
        read_inspected(call, "plain");
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        read_inspected(call, "compressed");
        blocking_call_set_compression(call, false);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        read_inspected(call, "plain");
        blocking_call_end(call);
        assert_int_equal(blocking_call_read(call, &none, NULL), 0);
        blocking_call_free(call);

        /* A request that has not announced it does not compress. */
        request.compresses = false;
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        blocking_call_set_compression(call, true);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        read_inspected(call, "plain");
        blocking_call_free(call);

        blocking_free(blocking);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(socket_path);
}

static void blocking_call_tells_metadata(void **state) {
        pid_t pid = fork_server();
        Blocking *blocking = connect_blocking();
        const ChannelRequest request = { .path = "/t.T/Inspect", .deadline = uv_hrtime() + LIMIT_NS, .safe = true };
        const MetadataEntry *entry;
        BlockingMessage none;
        BlockingCall *call;

        (void) state;
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        assert_int_equal(blocking_call_initial_metadata(call)->n_entries, 0);
        read_inspected(call, "plain");
        entry = metadata_find(blocking_call_initial_metadata(call), "x-first");
        assert_non_null(entry);
        assert_string_equal(entry->value, "1");
        assert_int_equal(blocking_call_trailing_metadata(call)->n_entries, 0);

        blocking_call_end(call);
        assert_int_equal(blocking_call_read(call, &none, NULL), 0);
        entry = metadata_find(blocking_call_trailing_metadata(call), "x-last-bin");
        assert_non_null(entry);
        assert_int_equal(entry->value_len, 1);
        assert_memory_equal(entry->value, "\0", 1);
        blocking_call_free(call);

        blocking_free(blocking);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(socket_path);
}

static void blocking_call_tells_that_it_was_cancelled(void **state) {
        pid_t pid = fork_server();
        Blocking *blocking = connect_blocking();
        const ChannelRequest request = { .path = "/t.T/Converse", .deadline = uv_hrtime() + LIMIT_NS };
        _cleanup_(error_clear) HutchError err = {};
        BlockingMessage message;
        BlockingCall *call;

        (void) state;
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "ping", 4), 0);
        assert_int_equal(blocking_call_read(call, &message, &err), 1);
        free(message.data);
        blocking_call_cancel(call);
        assert_int_equal(blocking_call_send(call, "ping", 4), -EPIPE);
        assert_int_equal(blocking_call_read(call, &message, &err), -ECANCELED);
        assert_int_equal(err.code, STATUS_CANCELLED);
        blocking_call_free(call);

        blocking_free(blocking);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(socket_path);
}

static void blocking_call_tells_that_the_server_died(void **state) {
        pid_t pid = fork_server();
        Blocking *blocking = connect_blocking();
        const ChannelRequest request = { .path = "/t.T/Converse", .deadline = uv_hrtime() + LIMIT_NS };
        _cleanup_(error_clear) HutchError err = {};
        BlockingMessage message;
        BlockingCall *call;

        (void) state;
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "ping", 4), 0);
        assert_int_equal(blocking_call_read(call, &message, &err), 1);
        free(message.data);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(blocking_call_read(call, &message, &err), -ECONNREFUSED);
        assert_int_equal(err.code, STATUS_UNAVAILABLE);
        assert_string_not_equal(error_message(&err), "the connection was lost"); /* it says how */
        blocking_call_free(call);

        blocking_free(blocking);
        unlink(socket_path);
}

int main(void) {
        int r;
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(call_connects_and_is_answered, set_up, tear_down),
                cmocka_unit_test_setup_teardown(many_calls_share_one_connection, set_up, tear_down),
                cmocka_unit_test_setup_teardown(unavailable_is_tried_again_when_that_is_safe, set_up, tear_down),
                cmocka_unit_test_setup_teardown(tries_are_used_up, set_up, tear_down),
                cmocka_unit_test_setup_teardown(unsafe_call_is_not_repeated, set_up, tear_down),
                cmocka_unit_test_setup_teardown(nobody_there_is_unavailable_and_says_where, set_up, tear_down),
                cmocka_unit_test_setup_teardown(refused_connection_says_so, set_up, tear_down),
                cmocka_unit_test_setup_teardown(connects_anew_after_the_server_came_back, set_up, tear_down),
                cmocka_unit_test_setup_teardown(lost_connection_ends_a_call_that_is_not_safe, set_up, tear_down),
                cmocka_unit_test_setup_teardown(drained_connection_is_replaced, set_up, tear_down),
                cmocka_unit_test_setup_teardown(deadline_ends_the_wait, set_up, tear_down),
                cmocka_unit_test_setup_teardown(cancel_ends_the_call, set_up, tear_down),
                cmocka_unit_test_setup_teardown(freeing_the_channel_ends_its_calls, set_up, tear_down),
                cmocka_unit_test_setup_teardown(token_is_not_sent_in_clear_text, set_up, tear_down),
                cmocka_unit_test(targets_are_read),
                cmocka_unit_test(blocking_calls_return_when_done),
                cmocka_unit_test(blocking_call_compresses_each_message_or_not),
                cmocka_unit_test(blocking_call_tells_metadata),
                cmocka_unit_test(blocking_call_tells_that_it_was_cancelled),
                cmocka_unit_test(blocking_call_tells_that_the_server_died),
        };

        if (!mkdtemp(folder))
                return 1;
        snprintf(socket_path, sizeof(socket_path), "%s/s", folder);
        snprintf(target, sizeof(target), "unix:%s", socket_path);
        r = cmocka_run_group_tests_name("channel", tests, NULL, NULL);
        (void) unlink(socket_path);
        (void) rmdir(folder);
        return r;
}
