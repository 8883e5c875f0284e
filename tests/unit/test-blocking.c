/* SPDX-License-Identifier: Apache-2.0 */

/* Callers that block, against a real server in another process. */

#include "rpc/blocking.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"

#include "channel-server.h"
#include "test.h"

#define LIMIT_NS (60 * NSEC_PER_SEC) /* no test waits longer */

static Blocking *connect_blocking(void) {
        ChannelOptions options = channel_options_default;
        Blocking *blocking;

        options.target = channel_target;
        options.retry = &(RetryPolicy){ .attempts = 50, .initial_ms = 5, .max_ms = 50 }; /* until the child listens */
        assert_int_equal(blocking_new(&options, &blocking, NULL), 0);
        return blocking;
}

static void blocking_calls_return_when_done(void **state) {
        pid_t pid = channel_server_fork();
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
        assert_string_equal(err.reason, "METHOD_UNIMPLEMENTED");

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
        unlink(channel_socket);
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
        pid_t pid = channel_server_fork(); /* whose first answers are that it is not available */
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
        unlink(channel_socket);
}

static void blocking_call_tells_metadata(void **state) {
        pid_t pid = channel_server_fork();
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
        unlink(channel_socket);
}

static void blocking_call_tells_that_it_was_cancelled(void **state) {
        pid_t pid = channel_server_fork();
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
        unlink(channel_socket);
}

static void blocking_call_tells_that_the_server_died(void **state) {
        pid_t pid = channel_server_fork();
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
        assert_true(str_has_prefix(err.reason, "CONNECTION_"));
        assert_string_not_equal(error_message(&err), "the connection was lost"); /* it says how */
        blocking_call_free(call);

        blocking_free(blocking);
        unlink(channel_socket);
}

static void blocking_call_reads_the_answer_of_a_server_that_died(void **state) {
        pid_t pid = channel_server_fork();
        Blocking *blocking = connect_blocking();
        const ChannelRequest request = { .path = "/t.T/PourAndDie", .deadline = uv_hrtime() + LIMIT_NS };
        BlockingMessage message;
        BlockingCall *call;

        (void) state;
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        blocking_call_end(call);
        for (size_t i = 0; i < CHANNEL_SERVER_POURS; i++) {
                assert_int_equal(blocking_call_read(call, &message, NULL), 1);
                assert_int_equal(message.len, 1000);
                free(message.data);
                if (i == 0)
                        waitpid(pid, NULL, 0);
        }
        assert_int_equal(blocking_call_read(call, &message, NULL), 0);
        blocking_call_free(call);

        /* One that is left unread holds nothing up. */
        pid = channel_server_fork();
        assert_int_equal(blocking_call_new(blocking, &request, &call), 0);
        assert_int_equal(blocking_call_send(call, "", 0), 0);
        blocking_call_end(call);
        assert_int_equal(blocking_call_read(call, &message, NULL), 1);
        free(message.data);
        waitpid(pid, NULL, 0);
        assert_int_equal(blocking_call_read(call, &message, NULL), 1);
        free(message.data);
        blocking_call_free(call);

        blocking_free(blocking);
        unlink(channel_socket);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(blocking_calls_return_when_done),
                cmocka_unit_test(blocking_call_compresses_each_message_or_not),
                cmocka_unit_test(blocking_call_tells_metadata),
                cmocka_unit_test(blocking_call_tells_that_it_was_cancelled),
                cmocka_unit_test(blocking_call_tells_that_the_server_died),
                cmocka_unit_test(blocking_call_reads_the_answer_of_a_server_that_died),
        };

        return cmocka_run_group_tests_name("blocking", tests, channel_server_set_up, channel_server_tear_down);
}
