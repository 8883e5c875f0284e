/* SPDX-License-Identifier: Apache-2.0 */

/* Channels against real servers on real sockets, mostly on one loop. */

#include "rpc/channel.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "rpc/channel-hub.h"
#include "rpc/connector.h"

#include "channel-server.h"
#include "test.h"

#define LIMIT_NS (60 * NSEC_PER_SEC) /* no test waits longer */

static const RetryPolicy quick = { .attempts = 6, .initial_ms = 5, .max_ms = 20 };

typedef struct Fixture {
        uv_loop_t loop;
        ChannelServer peer;
        ChannelHub *hub;
        Channel *channel;
} Fixture;

static int set_up(void **state) {
        Fixture *fixture = new0(Fixture, 1);
        ChannelOptions options = channel_options_default;

        options.target = channel_target;
        options.retry = &quick;
        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        channel_server_start(&fixture->peer, &fixture->loop);
        assert_int_equal(channel_hub_new(&fixture->loop, &fixture->hub), 0);
        assert_int_equal(channel_new(fixture->hub, &options, &fixture->channel, NULL), 0);
        *state = fixture;
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;

        if (fixture->channel)
                channel_free(fixture->channel, NULL, NULL);
        channel_hub_free(fixture->hub);
        if (fixture->peer.server)
                server_free(fixture->peer.server, NULL, NULL);
        assert_int_equal(uv_run(&fixture->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        method_table_free(fixture->peer.methods);
        free(fixture);
        return 0;
}

typedef struct Outcome {
        bool ended;
        StatusCode code;
        char text[256]; /* the status message, or the first answer */
        size_t n_messages;
        char reason[64];
        bool from_server;
        bool lost;
        bool slow; /* reads no further by itself */
} Outcome;

static void on_message(ChannelCall *call, const uint8_t *message, size_t len) {
        Outcome *outcome = channel_call_user(call);

        outcome->n_messages++;
        snprintf(outcome->text, sizeof(outcome->text), "%.*s", (int) len, (const char *) message);
        if (!outcome->slow)
                channel_call_read(call);
}

static void on_ended(ChannelCall *call, const ClientStatus *status) {
        Outcome *outcome = channel_call_user(call);

        assert_false(outcome->ended);
        outcome->ended = true;
        outcome->code = status->code;
        outcome->from_server = status->from_server;
        outcome->lost = status->lost;
        snprintf(outcome->reason, sizeof(outcome->reason), "%s", status->reason);
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
        assert_int_equal(server_stats(fixture->peer.server).accepted_connections, 1);
}

static void calls_are_made_in_the_order_they_were_started(void **state) {
        Fixture *fixture = *state;
        Outcome outcomes[10] = {};

        fixture->peer.failures = 4; /* the first that come */
        for (size_t i = 0; i < 10; i++)
                start(fixture, &outcomes[i],
                      &(ChannelRequest){ .path = "/t.T/Flaky", .deadline = uv_hrtime() + LIMIT_NS });
        for (size_t i = 0; i < 10; i++) {
                wait_for(fixture, &outcomes[i].ended);
                assert_int_equal(outcomes[i].code, i < 4 ? STATUS_UNAVAILABLE : STATUS_OK);
        }
}

static void unavailable_is_tried_again_when_that_is_safe(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        fixture->peer.failures = 5;
        outcome = call_and_wait(fixture, "/t.T/Flaky", true);
        assert_int_equal(outcome.code, STATUS_OK);
        assert_int_equal(server_stats(fixture->peer.server).calls, 6);
}

static void tries_are_used_up(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        fixture->peer.failures = 6;
        outcome = call_and_wait(fixture, "/t.T/Flaky", true);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_string_equal(outcome.text, "not now");
}

static void unsafe_call_is_not_repeated(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        fixture->peer.failures = 1;
        outcome = call_and_wait(fixture, "/t.T/Flaky", false);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_int_equal(server_stats(fixture->peer.server).calls, 1);
}

static void gone(void *user) {
        *(bool *) user = true;
}

static void stop_server(Fixture *fixture) {
        bool stopped = false;

        server_free(fixture->peer.server, gone, &stopped);
        fixture->peer.server = NULL;
        wait_for(fixture, &stopped);
        method_table_free(fixture->peer.methods);
        fixture->peer.methods = NULL;
}

static void nobody_there_is_unavailable_and_says_where(void **state) {
        Fixture *fixture = *state;
        Outcome outcome;

        stop_server(fixture);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_non_null(strstr(outcome.text, channel_socket));
}

static void refused_connection_says_so(void **state) {
        Fixture *fixture = *state;
        ChannelOptions options = channel_options_default;
        Outcome outcome;

        channel_free(fixture->channel, NULL, NULL);
        options.target = "127.0.0.1:1";
        options.retry = &quick;
        assert_int_equal(channel_new(fixture->hub, &options, &fixture->channel, NULL), 0);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_string_equal(outcome.text, "cannot connect to 127.0.0.1:1: Connection refused");
}

static void connects_anew_after_the_server_came_back(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = call_and_wait(fixture, "/t.T/Echo", false);

        assert_int_equal(outcome.code, STATUS_OK);
        stop_server(fixture);
        channel_server_start(&fixture->peer, &fixture->loop);
        outcome = call_and_wait(fixture, "/t.T/Echo", false);
        assert_int_equal(outcome.code, STATUS_OK);
}

static void lost_connection_ends_a_call_that_is_not_safe(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = {};
        bool stopped = false;

        start(fixture, &outcome, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = uv_hrtime() + LIMIT_NS });
        while (server_stats(fixture->peer.server).calls == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        server_free(fixture->peer.server, gone, &stopped);
        fixture->peer.server = NULL;
        wait_for(fixture, &outcome.ended);
        wait_for(fixture, &stopped);
        assert_true(outcome.code == STATUS_UNAVAILABLE || outcome.code == STATUS_CANCELLED);
}

/* Has a call answered whose messages are not read, and loses the connection, on which another call waits. */
static ChannelCall *start_and_lose(Fixture *fixture, Outcome *poured, uint64_t deadline) {
        Outcome hung = {};
        ChannelCall *call;

        start(fixture, &hung, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });
        poured->slow = true;
        call = start(fixture, poured, &(ChannelRequest){ .path = "/t.T/Pour", .deadline = deadline });
        while (poured->n_messages == 0 || server_stats(fixture->peer.server).streams > 1)
                uv_run(&fixture->loop, UV_RUN_ONCE);

        stop_server(fixture);
        wait_for(fixture, &hung.ended);
        assert_int_equal(hung.code, STATUS_UNAVAILABLE);
        assert_true(hung.lost);
        assert_true(str_has_prefix(hung.reason, "CONNECTION_")); /* closed, or reset with what we said last */
        assert_false(poured->ended);
        return call;
}

static void complete_answer_is_read_after_the_connection_was_lost(void **state) {
        Fixture *fixture = *state;
        Outcome poured = {};
        ChannelCall *call = start_and_lose(fixture, &poured, DEADLINE_NONE);

        /* Meanwhile others go on. */
        channel_server_start(&fixture->peer, &fixture->loop);
        assert_int_equal(call_and_wait(fixture, "/t.T/Echo", false).code, STATUS_OK);
        assert_int_equal(poured.n_messages, 1);

        for (size_t i = 2; i < CHANNEL_SERVER_POURS; i++) {
                channel_call_read(call);
                while (poured.n_messages < i)
                        uv_run(&fixture->loop, UV_RUN_ONCE);
        }
        assert_false(poured.ended);
        channel_call_read(call);
        wait_for(fixture, &poured.ended);
        assert_int_equal(poured.n_messages, CHANNEL_SERVER_POURS);
        assert_int_equal(poured.code, STATUS_OK);
        assert_true(poured.from_server);
}

static void deadline_ends_a_call_whose_connection_was_lost(void **state) {
        Fixture *fixture = *state;
        Outcome poured = {};

        start_and_lose(fixture, &poured, uv_hrtime() + 3 * NSEC_PER_SEC);
        wait_for(fixture, &poured.ended);
        assert_int_equal(poured.code, STATUS_DEADLINE_EXCEEDED);
        assert_false(poured.lost);
}

static void freeing_the_channel_ends_calls_whose_connection_was_lost(void **state) {
        Fixture *fixture = *state;
        Outcome poured = {};
        bool freed = false;

        start_and_lose(fixture, &poured, DEADLINE_NONE);
        channel_free(fixture->channel, gone, &freed);
        fixture->channel = NULL;
        assert_true(poured.ended);
        assert_int_equal(poured.code, STATUS_CANCELLED);
        wait_for(fixture, &freed);
}

static void cancel_ends_a_call_whose_connection_was_lost(void **state) {
        Fixture *fixture = *state;
        Outcome poured = {};

        channel_call_cancel(start_and_lose(fixture, &poured, DEADLINE_NONE));
        wait_for(fixture, &poured.ended);
        assert_int_equal(poured.code, STATUS_CANCELLED);
        assert_int_equal(poured.n_messages, 1);
}

static void status_has_a_reason(void **state) {
        static const struct {
                const char *path;
                const char *reason;
        } cases[] = {
                { "/t.T/Fail", "SANDBOX_NOT_FOUND" },    /* the handler's */
                { "/t.T/None", "METHOD_UNIMPLEMENTED" }, /* the server's own */
                { "/t.T/Flaky", "UNAVAILABLE" },         /* none was given */
                { "/t.T/Echo", "OK" },
        };
        Fixture *fixture = *state;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                fixture->peer.failures = 1;
                assert_string_equal(call_and_wait(fixture, cases[i].path, false).reason, cases[i].reason);
        }
        stop_server(fixture);
        assert_string_equal(call_and_wait(fixture, "/t.T/Echo", false).reason, "DAEMON_UNREACHABLE");
}

static void drained_connection_is_replaced(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = call_and_wait(fixture, "/t.T/Echo", false);
        bool drained = false;

        assert_int_equal(outcome.code, STATUS_OK);
        server_drain(fixture->peer.server, NSEC_PER_SEC, gone, &drained);
        wait_for(fixture, &drained);
        stop_server(fixture);
        channel_server_start(&fixture->peer, &fixture->loop);
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
        assert_string_equal(outcome.reason, "DEADLINE_EXCEEDED");
}

static void cancel_ends_the_call(void **state) {
        Fixture *fixture = *state;
        Outcome outcome = {}, waiting = {};
        ChannelCall *call =
                start(fixture, &outcome, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });

        while (server_stats(fixture->peer.server).calls == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        channel_call_cancel(call);
        wait_for(fixture, &outcome.ended);
        assert_int_equal(outcome.code, STATUS_CANCELLED);
        assert_string_equal(outcome.reason, "CALL_CANCELLED");

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
        while (server_stats(fixture->peer.server).calls == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        start(fixture, &waiting, &(ChannelRequest){ .path = "/t.T/Hang", .deadline = DEADLINE_NONE });

        channel_free(fixture->channel, gone, &freed);
        fixture->channel = NULL;
        wait_for(fixture, &freed);
        assert_true(sent.ended);
        assert_int_equal(sent.code, STATUS_CANCELLED);
        assert_true(waiting.ended);
        assert_int_equal(waiting.code, STATUS_CANCELLED);
}

static void token_is_not_sent_in_clear_text(void **state) {
        Fixture *fixture = *state;
        ChannelOptions options = channel_options_default;
        _cleanup_(error_clear) HutchError err = {};
        Channel *channel = NULL;

        options.target = "127.0.0.1:1";
        options.token = "secret";
        assert_int_equal(channel_new(fixture->hub, &options, &channel, &err), -EPERM);
        assert_string_equal(err.reason, "TOKEN_IN_CLEAR_TEXT");
        assert_null(strstr(error_message(&err), "secret"));

        /* A Unix socket is no network. */
        channel_free(fixture->channel, NULL, NULL);
        options.target = channel_target;
        assert_int_equal(channel_new(fixture->hub, &options, &fixture->channel, &err), 0);
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

/* Bytes that are allocated now; 0 when a sanitizer counts for itself. */
static size_t allocated(void) {
        return mallinfo2().uordblks;
}

static void idle_channels_take_little_memory(void **state) {
        enum { N = 200, EACH_MAX = 32 << 10 }; /* of which nghttp2 takes 26 KiB */
        pid_t pid = channel_server_fork();
        ChannelOptions options = channel_options_default;
        Fixture fixture = {};
        Channel *channels[N];
        size_t before;

        (void) state;
        options.target = channel_target;
        options.retry = &(RetryPolicy){ .attempts = 50, .initial_ms = 5, .max_ms = 50 };
        assert_int_equal(uv_loop_init(&fixture.loop), 0);
        assert_int_equal(channel_hub_new(&fixture.loop, &fixture.hub), 0);
        before = allocated();
        for (size_t i = 0; i < N; i++) {
                assert_int_equal(channel_new(fixture.hub, &options, &channels[i], NULL), 0);
                fixture.channel = channels[i];
                assert_int_equal(call_and_wait(&fixture, "/t.T/Echo", false).code, STATUS_OK);
        }
        assert_true(allocated() - before < (size_t) N * EACH_MAX);

        for (size_t i = 0; i < N; i++)
                channel_free(channels[i], NULL, NULL);
        channel_hub_free(fixture.hub);
        assert_int_equal(uv_run(&fixture.loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&fixture.loop), 0);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(channel_socket);
}

typedef struct Taking {
        ChannelCall *call;
        size_t n_sent, n_received;
        bool ended;
} Taking;

enum { TAKEN_LEN = 300000, N_TAKEN = 40 };

/* Sends messages that are given away, as many as the peer keeps up with. */
static void send_taken(Taking *taking) {
        while (taking->n_sent < N_TAKEN && channel_call_is_writable(taking->call)) {
                uint8_t *message = malloc(TAKEN_LEN);

                assert_non_null(message);
                memset(message, (int) taking->n_sent++, TAKEN_LEN);
                assert_int_equal(channel_call_send_taken(taking->call, message, TAKEN_LEN), 0);
        }
        if (taking->n_sent == N_TAKEN)
                channel_call_end(taking->call);
}

static void on_taking_writable(ChannelCall *call) {
        send_taken(channel_call_user(call));
}

static void on_taking_message(ChannelCall *call, const uint8_t *message, size_t len) {
        Taking *taking = channel_call_user(call);
        _cleanup_free_ uint8_t *taken = channel_call_take_message(call);

        assert_ptr_equal(taken, message);
        assert_int_equal(len, TAKEN_LEN);
        assert_int_equal(taken[0], taking->n_received);
        assert_int_equal(taken[len - 1], taking->n_received++);
        channel_call_read(call);
}

static void on_taking_ended(ChannelCall *call, const ClientStatus *status) {
        Taking *taking = channel_call_user(call);

        assert_int_equal(status->code, STATUS_OK);
        taking->ended = true;
}

static void messages_change_hands_without_copies(void **state) {
        static const ChannelEvents taking_events = {
                .message = on_taking_message,
                .writable = on_taking_writable,
                .ended = on_taking_ended,
        };
        Fixture *fixture = *state;
        Taking taking = {};

        taking.call = channel_call_start(fixture->channel,
                                         &(ChannelRequest){ .path = "/t.T/Converse", .deadline = DEADLINE_NONE },
                                         &taking_events, &taking);
        assert_non_null(taking.call);
        channel_call_read(taking.call);
        send_taken(&taking);
        wait_for(fixture, &taking.ended);
        assert_int_equal(taking.n_received, N_TAKEN);

        /* After the end nobody wants it: it is freed. */
        taking = (Taking){ .n_sent = N_TAKEN };
        taking.call = channel_call_start(fixture->channel,
                                         &(ChannelRequest){ .path = "/t.T/Converse", .deadline = DEADLINE_NONE },
                                         &taking_events, &taking);
        channel_call_end(taking.call);
        assert_int_equal(channel_call_send_taken(taking.call, malloc(1), 1), -EPIPE);
        channel_call_read(taking.call);
        wait_for(fixture, &taking.ended);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(call_connects_and_is_answered, set_up, tear_down),
                cmocka_unit_test_setup_teardown(many_calls_share_one_connection, set_up, tear_down),
                cmocka_unit_test_setup_teardown(messages_change_hands_without_copies, set_up, tear_down),
                cmocka_unit_test_setup_teardown(calls_are_made_in_the_order_they_were_started, set_up, tear_down),
                cmocka_unit_test_setup_teardown(unavailable_is_tried_again_when_that_is_safe, set_up, tear_down),
                cmocka_unit_test_setup_teardown(tries_are_used_up, set_up, tear_down),
                cmocka_unit_test_setup_teardown(unsafe_call_is_not_repeated, set_up, tear_down),
                cmocka_unit_test_setup_teardown(nobody_there_is_unavailable_and_says_where, set_up, tear_down),
                cmocka_unit_test_setup_teardown(refused_connection_says_so, set_up, tear_down),
                cmocka_unit_test_setup_teardown(connects_anew_after_the_server_came_back, set_up, tear_down),
                cmocka_unit_test_setup_teardown(lost_connection_ends_a_call_that_is_not_safe, set_up, tear_down),
                cmocka_unit_test_setup_teardown(complete_answer_is_read_after_the_connection_was_lost, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(deadline_ends_a_call_whose_connection_was_lost, set_up, tear_down),
                cmocka_unit_test_setup_teardown(cancel_ends_a_call_whose_connection_was_lost, set_up, tear_down),
                cmocka_unit_test_setup_teardown(freeing_the_channel_ends_calls_whose_connection_was_lost, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(status_has_a_reason, set_up, tear_down),
                cmocka_unit_test_setup_teardown(drained_connection_is_replaced, set_up, tear_down),
                cmocka_unit_test_setup_teardown(deadline_ends_the_wait, set_up, tear_down),
                cmocka_unit_test_setup_teardown(cancel_ends_the_call, set_up, tear_down),
                cmocka_unit_test_setup_teardown(freeing_the_channel_ends_its_calls, set_up, tear_down),
                cmocka_unit_test_setup_teardown(token_is_not_sent_in_clear_text, set_up, tear_down),
                cmocka_unit_test(targets_are_read),
                cmocka_unit_test(idle_channels_take_little_memory),
        };

        return cmocka_run_group_tests_name("channel", tests, channel_server_set_up, channel_server_tear_down);
}
