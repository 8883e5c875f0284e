/* SPDX-License-Identifier: Apache-2.0 */

/* Clients and their calls: waiting, threads, loops of others, errors. */

#include <errno.h>
#include <hutch/hutch.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"

#include "fail-alloc.h"
#include "fake-daemon.h"
#include "test.h"

#define N_THREADS 16
#define N_CALLS 50 /* of each thread */
#define IDS_SIZE 100

static HutchClient *connect_client(void) {
        HutchClient *client = NULL;
        const HutchClientOptions options = { .address = fake_daemon_address, .timeout = 10 * NSEC_PER_SEC };

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        return client;
}

static int ping(HutchClient *client, HutchError **ret_error) {
        HutchBuffer reply = {};
        int r = hutch_call_unary(client, "SystemService/Ping", NULL, 0, 0, &reply, ret_error);

        hutch_buffer_clear(&reply);
        return r;
}

static void calls_return_with_the_answer(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchSandbox *sandbox = NULL;

        assert_string_equal(hutch_client_address(client), fake_daemon_address);
        assert_false(hutch_client_started_daemon(client));
        assert_int_equal(ping(client, NULL), 0);
        assert_int_equal(hutch_sandbox_get(client, "sandbox-0", &sandbox, NULL), 0);
        assert_string_equal(sandbox->id, "sandbox-0");
        assert_int_equal(sandbox->state, HUTCH_SANDBOX_READY);
        assert_string_equal(hutch_sandbox_state_name(sandbox->state), "READY");
        assert_string_equal(sandbox->state_reason, "");
        assert_null(sandbox->labels[0]);
        assert_int_equal(sandbox->sequence, 7);
        assert_true(sandbox->encoded_len > 0);
        hutch_sandbox_free(sandbox);

        assert_int_equal(daemon->n_calls, 2);
        assert_true(daemon->calls[0].has_deadline);
        hutch_client_free(client);
}

static void errors_tell_everything(void **state) {
        HutchClient *client = connect_client();
        HutchError *error = NULL;
        HutchViolation violation;
        const char *key, *value;

        (void) state;
        assert_int_equal(hutch_sandbox_get(client, "no-such-sandbox", NULL, &error), -ENOENT);
        assert_int_equal(hutch_error_code(error), HUTCH_NOT_FOUND);
        assert_string_equal(hutch_error_code_name(error), "NOT_FOUND");
        assert_string_equal(hutch_error_reason(error), "SANDBOX_NOT_FOUND");
        assert_string_equal(hutch_error_message(error), "there is no such sandbox");
        assert_string_equal(hutch_error_get(error, "third"), "3");
        assert_null(hutch_error_get(error, "fourth"));
        assert_true(hutch_error_pair(error, 0, &key, &value));
        assert_false(hutch_error_pair(error, 3, &key, &value));
        assert_false(hutch_error_violation(error, 0, &violation));
        hutch_error_free(error);

        /* Who does not want to know is not told. */
        assert_int_equal(hutch_sandbox_get(client, "no-such-sandbox", NULL, NULL), -ENOENT);
        hutch_client_free(client);
}

static void no_error_is_no_trouble(void **state) {
        (void) state;
        hutch_error_free(NULL);
        hutch_client_free(NULL);
        hutch_sandbox_free(NULL);
        hutch_exec_free(NULL);
        hutch_output_free(NULL);
        hutch_exec_stream_free(NULL);
        hutch_watch_free(NULL);
        hutch_call_free(NULL);
        assert_int_equal(hutch_error_code(NULL), HUTCH_OK);
        assert_string_equal(hutch_error_reason(NULL), "");
        assert_null(hutch_error_get(NULL, "key"));
}

static void reads_and_calls_with_a_request_id_are_tried_again(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        daemon->failures = 1;
        assert_int_equal(ping(client, NULL), 0);
        assert_int_equal(daemon->n_calls, 2);

        daemon->failures = 1;
        assert_int_equal(hutch_sandbox_create(client, NULL, NULL, NULL), 0);
        assert_int_equal(daemon->n_calls, 4);
        assert_string_equal(daemon->calls[2].request_id, daemon->calls[3].request_id);
        hutch_client_free(client);
}

static void a_deadline_covers_all_tries(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = NULL;
        const HutchClientOptions options = { .address = fake_daemon_address, .timeout = 2500 * NSEC_PER_MSEC };
        HutchError *error = NULL;
        uint64_t begun = clock_monotonic_ns();

        /* At once, after half a second, after one more, and then not again: two more would outlast the deadline. */
        daemon->failures = 100;
        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, &error), -ECONNREFUSED);
        assert_string_equal(hutch_error_reason(error), "STARTING");
        assert_true(clock_monotonic_ns() - begun < 2500 * NSEC_PER_MSEC);
        assert_in_range(daemon->n_calls, 3, 4);
        assert_in_range(daemon->calls[0].timeout_ms, 500, 2500);
        assert_in_range(daemon->calls[2].timeout_ms, 0, daemon->calls[0].timeout_ms - 300);
        hutch_error_free(error);
        hutch_client_free(client);
        rule_holds(__func__, "DEADLINE-002");
}

static void calls_have_deadlines_and_streams_have_none(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = NULL;
        HutchWatch *watch = NULL;
        HutchEvent event;

        assert_int_equal(hutch_client_new(&(HutchClientOptions){ .address = fake_daemon_address }, &client, NULL), 0);
        assert_int_equal(ping(client, NULL), 0);
        assert_in_range(daemon->calls[0].timeout_ms, 50000, 60000);

        /* It waits for STOPPED, and hears that it is stopped only after it has asked. */
        daemon->sandbox_state = HUTCH_SANDBOX_STOPPING;
        daemon->changes_state = true;
        assert_int_equal(hutch_sandbox_wait(client, "sandbox-0", 1U << HUTCH_SANDBOX_STOPPED, 0, NULL, NULL), 0);
        assert_string_equal(daemon->calls[2].method, "WatchEvents");
        assert_in_range(daemon->calls[2].timeout_ms, 170000, 180000);

        assert_int_equal(hutch_watch_new(client, NULL, &watch, NULL), 0);
        assert_int_equal(hutch_watch_next(watch, true, &event, NULL), 1);
        assert_false(daemon->calls[4].has_deadline);
        hutch_watch_free(watch);
        hutch_client_free(client);
        rule_holds(__func__, "DEADLINE-001");
}

static void requests_get_an_id_of_their_own(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchBuffer reply = {};

        assert_int_equal(hutch_sandbox_create(client, NULL, NULL, NULL), 0);
        assert_int_equal(hutch_sandbox_create(client, NULL, NULL, NULL), 0);
        assert_int_equal(strlen(daemon->calls[0].request_id), 32);
        assert_string_not_equal(daemon->calls[0].request_id, daemon->calls[1].request_id);

        assert_int_equal(hutch_sandbox_create(client, &(HutchSandboxSpec){ .request_id = "mine" }, NULL, NULL), 0);
        assert_string_equal(daemon->calls[2].request_id, "mine");

        /* Also where the caller encodes the message: one without an id, one with an id, one with an empty one. */
        assert_int_equal(
                hutch_call_unary(client, "AgentSandboxService/CreateSandbox", "\x0a\4sb-1", 6, 0, &reply, NULL), 0);
        hutch_buffer_clear(&reply);
        assert_string_equal(daemon->calls[3].id, "sb-1");
        assert_int_equal(strlen(daemon->calls[3].request_id), 32);
        assert_int_equal(
                hutch_call_unary(client, "AgentSandboxService/CreateSandbox", "\x1a\4mine", 6, 0, &reply, NULL), 0);
        hutch_buffer_clear(&reply);
        assert_string_equal(daemon->calls[4].request_id, "mine");
        assert_int_equal(hutch_call_unary(client, "AgentSandboxService/CreateSandbox", "\x1a\0", 2, 0, &reply, NULL),
                         0);
        hutch_buffer_clear(&reply);
        assert_int_equal(strlen(daemon->calls[5].request_id), 32);
        hutch_client_free(client);
        rule_holds(__func__, "RETRY-005");
}

static void deadlines_end_calls(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = NULL;
        const HutchClientOptions options = { .address = fake_daemon_address, .timeout = NSEC_PER_SEC };
        HutchError *error = NULL;

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(hutch_sandbox_delete(client, "sandbox-0", NULL, &error), -ETIMEDOUT);
        assert_int_equal(hutch_error_code(error), HUTCH_DEADLINE_EXCEEDED);
        hutch_error_free(error);
        assert_int_equal(fake_daemon_count(daemon, "DeleteSandbox"), 1); /* it is not safe to repeat */
        hutch_client_free(client);
}

static void nobody_there_is_told(void **state) {
        HutchClient *client = NULL;
        const HutchClientOptions options = { .address = "unix:/nonexistent/socket", .timeout = 100 * NSEC_PER_MSEC };
        HutchError *error = NULL;

        (void) state;
        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, &error), -ECONNREFUSED);
        assert_int_equal(hutch_error_code(error), HUTCH_UNAVAILABLE);
        assert_string_equal(hutch_error_reason(error), "DAEMON_UNREACHABLE");
        hutch_error_free(error);
        hutch_client_free(client);
}

static void addresses_and_tokens_are_checked_before_connecting(void **state) {
        static const char *const good[] = { "unix:/a", "a:1", "dns:a:1", "dns:///a:1", "[::1]:1", "127.0.0.1:65535" };
        static const char *const bad[] = {
                "nowhere", "",      "unix:",      "a:",    ":1",   "a:0",    "a:65536",
                "a:b",     "::1:1", "http://a:1", "[::1]", "a:-1", "unix:a",
        };
        HutchClient *client = NULL;
        HutchError *error = NULL;

        (void) state;
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                assert_int_equal(hutch_client_new(&(HutchClientOptions){ .address = good[i] }, &client, NULL), 0);
                hutch_client_free(client);
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                if (hutch_client_new(&(HutchClientOptions){ .address = bad[i] }, &client, &error) != -EINVAL)
                        fail_msg("'%s' is an address", bad[i]);
                assert_string_equal(hutch_error_reason(error), "ADDRESS_MALFORMED");
                hutch_error_free(error);
        }
        assert_int_equal(
                hutch_client_new(
                        &(HutchClientOptions){ .address = "dns:127.0.0.1:1", .clear_text = true, .token = "secret" },
                        &client, &error),
                -EPERM);
        assert_string_equal(hutch_error_reason(error), "TOKEN_IN_CLEAR_TEXT");
        hutch_error_free(error);
        rule_holds(__func__, "AUTH-004");
        rule_holds(__func__, "CONN-002");
}

static void methods_are_those_of_the_contract(void **state) {
        const struct ProtobufCMessageDescriptor *request, *reply;
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchBuffer buffer = {};
        HutchError *error = NULL;

        assert_true(hutch_method_descriptors("FileService/UploadFile", &request, &reply));
        assert_ptr_equal(request, hutch_message_descriptor("UploadFileRequest"));
        assert_non_null(hutch_message_descriptor("Sandbox"));
        assert_non_null(hutch_message_descriptor("EgressDenied"));
        assert_null(hutch_message_descriptor("Nothing"));
        assert_false(hutch_method_descriptors("FileService/Nothing", &request, &reply));
        assert_false(hutch_method_descriptors("Nothing", &request, &reply));
        assert_int_equal(hutch_call_unary(client, "SystemService/Fly", NULL, 0, 0, &buffer, &error), -EOPNOTSUPP);
        assert_string_equal(hutch_error_reason(error), "METHOD_UNIMPLEMENTED");
        hutch_error_free(error);
        assert_int_equal(daemon->n_calls, 0);
        hutch_client_free(client);
}

static void messages_are_as_large_as_the_daemon_says(void **state) {
        const char *const pour[] = { "pour", NULL };
        static uint8_t large[(5 << 20) + 5] = { 0x1a }; /* the input of a command */
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchOutput *output = NULL;
        HutchBuffer reply = {};
        HutchError *error = NULL;
        HutchCall *call = NULL;

        for (size_t i = 1, n = sizeof(large) - 5; i < 5; i++, n >>= 7)
                large[i] = (uint8_t) (i < 4 ? n | 0x80 : n);

        assert_int_equal(hutch_call_new(client, "ExecService/RunCommand", 0, NULL, &call, NULL), 0);
        assert_int_equal(hutch_call_send(call, true, large, sizeof(large), &error), -EMSGSIZE);
        assert_string_equal(hutch_error_reason(error), "MESSAGE_TOO_LARGE");
        assert_string_equal(hutch_error_get(error, "value"), "4194304");
        hutch_error_free(error);
        hutch_call_free(call);

        /* A daemon that takes more is asked for its limit, once. */
        daemon->max_request = 8 << 20;
        assert_int_equal(hutch_call_unary(client, "ExecService/RunCommand", large, sizeof(large), 0, &reply, NULL), 0);
        assert_true(reply.len > sizeof(large));
        hutch_buffer_clear(&reply);
        assert_int_equal(fake_daemon_count(daemon, "GetInfo"), 1);
        assert_int_equal(fake_daemon_count(daemon, "RunCommand"), 1);

        assert_int_equal(hutch_exec_run(client, "sandbox-0", &(HutchExecSpec){ .argv = pour }, NULL, 0, &output, NULL),
                         0);
        assert_int_equal(output->stdout_len, FAKE_POUR);
        hutch_output_free(output);
        hutch_client_free(client);
        rule_holds(__func__, "SIZE-003");
}

static int collect(const HutchSandbox *sandbox, void *user) {
        char *ids = user;
        size_t len = strlen(ids);

        snprintf(ids + len, IDS_SIZE - len, "%s", sandbox->id + strlen("sandbox-"));
        return 0;
}

static int stop_at_the_third(const HutchSandbox *sandbox, void *user) {
        (void) user;
        return str_equal(sandbox->id, "sandbox-2") ? 42 : 0;
}

static void lists_are_handed_out_page_by_page(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        char ids[IDS_SIZE] = "";

        assert_int_equal(hutch_sandbox_list(client, NULL, 0, collect, ids, NULL), 0);
        assert_string_equal(ids, "01234");
        assert_int_equal(daemon->n_calls, 3);
        assert_int_equal(hutch_sandbox_list(client, NULL, 0, stop_at_the_third, NULL, NULL), 42);
        assert_int_equal(daemon->n_calls, 5);
        hutch_client_free(client);
}

static char *next_token(void *user) {
        int *n = user;
        char *text = NULL;

        if (++*n > 2)
                return NULL;
        if (asprintf(&text, "number-%d", *n) < 0)
                return NULL;
        return text;
}

static void a_function_gives_the_token_of_each_call(void **state) {
        const FakeDaemon *daemon = *state;
        int n = 0;
        HutchClientOptions options = {
                .address = fake_daemon_address,
                .ca_file = fake_daemon_file("ca", ".pem"),
                .certificate_file = fake_daemon_file("client", ".pem"),
                .key_file = fake_daemon_file("client", ".key"),
                .get_token = next_token,
                .token_user = &n,
        };
        HutchClient *client = NULL;
        HutchError *error = NULL;

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, NULL), 0);
        assert_int_equal(ping(client, NULL), 0);
        assert_string_equal(daemon->calls[0].authorization, "Bearer number-1");
        assert_string_equal(daemon->calls[1].authorization, "Bearer number-2");
        assert_int_equal(ping(client, &error), -EACCES);
        assert_string_equal(hutch_error_reason(error), "CREDENTIALS_MISSING");
        assert_int_equal(hutch_error_code(error), HUTCH_UNAUTHENTICATED);
        assert_int_equal(daemon->n_calls, 2);
        hutch_error_free(error);
        hutch_client_free(client);

        options.clear_text = true;
        assert_int_equal(hutch_client_new(&options, &client, &error), -EPERM);
        assert_string_equal(hutch_error_reason(error), "TOKEN_IN_CLEAR_TEXT");
        hutch_error_free(error);
        rule_holds(__func__, "CONN-007");
}

static void a_unix_socket_gets_no_token(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = NULL;
        int n = 0;
        const HutchClientOptions options = {
                .address = fake_daemon_address,
                .token = "secret",
                .get_token = next_token,
                .token_user = &n,
        };

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, NULL), 0);
        assert_string_equal(daemon->calls[0].authorization, "");
        assert_int_equal(n, 0);
        hutch_client_free(client);
        rule_holds(__func__, "CONN-007");
}

static void tcp_is_encrypted_and_certificates_are_checked(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClientOptions options = {
                .address = fake_daemon_address,
                .ca_file = fake_daemon_file("ca", ".pem"),
                .certificate_file = fake_daemon_file("client", ".pem"),
                .key_file = fake_daemon_file("client", ".key"),
                .token = "secret",
        };
        HutchClient *client = NULL;
        HutchError *error = NULL;

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, NULL), 0);
        assert_string_equal(daemon->calls[0].authorization, "Bearer secret");
        hutch_client_free(client);

        options.address = NULL;
        assert_int_equal(setenv("HUTCH_ADDRESS", fake_daemon_address, 1), 0);
        options.ca_file = NULL;
        options.timeout = 100 * NSEC_PER_MSEC;
        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, &error), -ECONNREFUSED);
        assert_string_equal(hutch_error_reason(error), "TLS_CERTIFICATE_UNTRUSTED");
        hutch_error_free(error);
        hutch_client_free(client);
        assert_int_equal(unsetenv("HUTCH_ADDRESS"), 0);

        options.address = fake_daemon_address;
        options.ca_file = fake_daemon_file("ca", ".pem");
        options.server_name = "elsewhere";
        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        assert_int_equal(ping(client, &error), -ECONNREFUSED);
        assert_string_equal(hutch_error_reason(error), "TLS_CERTIFICATE_NAME");
        hutch_error_free(error);
        hutch_client_free(client);

        options.ca_file = "/nonexistent/ca.pem";
        assert_int_equal(hutch_client_new(&options, &client, &error), -ENOENT);
        assert_string_equal(hutch_error_reason(error), "TLS_FILE");
        hutch_error_free(error);
        rule_holds(__func__, "CONN-003");
}

/* ---- Calls of their own, and loops of others ---- */

static void calls_stream_both_ways(void **state) {
        HutchClient *client = connect_client();
        HutchBuffer message = {};
        HutchCall *call = NULL;
        HutchError *error = NULL;

        (void) state;
        assert_int_equal(hutch_call_new(client, "SystemService/Ping", 0, NULL, &call, NULL), 0);
        assert_true(hutch_call_is_writable(call));
        assert_int_equal(hutch_call_receive(call, false, &message, &error), -EAGAIN);
        assert_null(error);
        assert_int_equal(hutch_call_send(call, true, NULL, 0, NULL), 0);
        hutch_call_end(call);
        assert_int_equal(hutch_call_receive(call, true, &message, NULL), 1);
        hutch_buffer_clear(&message);
        assert_int_equal(hutch_call_receive(call, true, &message, NULL), 0);
        assert_int_equal(hutch_call_receive(call, true, &message, NULL), 0); /* and so it stays */
        assert_int_equal(hutch_call_send(call, true, NULL, 0, &error), -EPIPE);
        assert_null(error);
        hutch_call_free(call);

        /* One that nobody waits for. */
        assert_int_equal(hutch_call_new(client, "AgentSandboxService/DeleteSandbox", 0, NULL, &call, NULL), 0);
        assert_int_equal(hutch_call_send(call, true, NULL, 0, NULL), 0);
        hutch_call_free(call);
        hutch_client_free(client);
}

static void a_loop_of_its_own_is_told_what_is_ready(void **state) {
        HutchClient *client = connect_client();
        int names[3], n_done = 0;
        HutchCall *calls[3] = {};
        HutchBuffer message = {};
        void *user = NULL;

        (void) state;
        assert_false(hutch_client_next(client, &user));
        for (size_t i = 0; i < 3; i++) {
                assert_int_equal(hutch_call_new(client, "SystemService/Ping", 0, &names[i], &calls[i], NULL), 0);
                assert_int_equal(hutch_call_send(calls[i], false, NULL, 0, NULL), 0);
                hutch_call_end(calls[i]);
        }

        while (n_done < 3) {
                struct pollfd fd = { .fd = hutch_client_fd(client), .events = POLLIN };

                (void) poll(&fd, 1, hutch_client_timeout(client));
                hutch_client_dispatch(client);
                while (hutch_client_next(client, &user)) {
                        ptrdiff_t i = (int *) user - names;
                        int r;

                        assert_in_range(i, 0, 2);
                        if (!calls[i])
                                continue;
                        while ((r = hutch_call_receive(calls[i], false, &message, NULL)) == 1)
                                hutch_buffer_clear(&message);
                        if (r == -EAGAIN)
                                continue;
                        assert_int_equal(r, 0);
                        hutch_call_free(calls[i]);
                        calls[i] = NULL;
                        n_done++;
                }
        }
        hutch_client_free(client);
}

typedef struct Mixed {
        HutchClient *client;
        atomic_bool done;
        int r;
} Mixed;

static void *ping_many_times(void *user) {
        Mixed *mixed = user;

        for (int i = 0; i < 300 && mixed->r == 0; i++)
                mixed->r = ping(mixed->client, NULL);
        atomic_store(&mixed->done, true);
        return NULL;
}

/* Makes a call in a loop of its own, and sees it end well. */
static void call_in_a_loop(HutchClient *client) {
        struct pollfd fd = { .fd = hutch_client_fd(client), .events = POLLIN };
        HutchBuffer message = {};
        HutchCall *call = NULL;
        void *user = NULL;
        int r = -EAGAIN;

        assert_int_equal(hutch_call_new(client, "SystemService/Ping", 0, &fd, &call, NULL), 0);
        assert_int_equal(hutch_call_send(call, false, NULL, 0, NULL), 0);
        hutch_call_end(call);
        while (r == -EAGAIN) {
                (void) poll(&fd, 1, hutch_client_timeout(client));
                hutch_client_dispatch(client);
                if (!hutch_client_next(client, &user))
                        continue;
                assert_ptr_equal(user, &fd);
                while ((r = hutch_call_receive(call, false, &message, NULL)) == 1)
                        hutch_buffer_clear(&message);
        }
        assert_int_equal(r, 0);
        hutch_call_free(call);
}

static void a_loop_is_told_what_others_took_from_the_client(void **state) {
        HutchClient *client = connect_client();
        uint64_t begun = clock_monotonic_ns();
        Mixed mixed = { .client = client };
        pthread_t thread;

        (void) state;
        assert_int_equal(pthread_create(&thread, NULL, ping_many_times, &mixed), 0);
        while (!atomic_load(&mixed.done))
                call_in_a_loop(client);
        call_in_a_loop(client);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(mixed.r, 0);
        assert_true(clock_monotonic_ns() - begun < 50 * NSEC_PER_SEC); /* less than a deadline */
        hutch_client_free(client);
}

/* ---- Threads and processes ---- */

static void *call_again_and_again(void *user) {
        HutchClient *client = user;

        for (int i = 0; i < N_CALLS; i++) {
                HutchSandbox *sandbox = NULL;

                if (ping(client, NULL) < 0 || hutch_sandbox_get(client, "sandbox-0", &sandbox, NULL) < 0)
                        return client;
                hutch_sandbox_free(sandbox);
        }
        return NULL;
}

static void threads_share_a_client(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        pthread_t threads[N_THREADS];
        void *failed = NULL;
        int n_begun = 0;

        while (n_begun < N_THREADS && pthread_create(&threads[n_begun], NULL, call_again_and_again, client) == 0)
                n_begun++;
        for (int i = 0; i < n_begun; i++) {
                void *result;

                assert_int_equal(pthread_join(threads[i], &result), 0);
                failed = result ? result : failed;
        }
        assert_int_equal(n_begun, N_THREADS);
        assert_null(failed);
        assert_int_equal(daemon->n_calls, N_THREADS * N_CALLS * 2);
        hutch_client_free(client);
}

typedef struct Delayed {
        HutchClient *client;
        uint64_t timeout; /* 0: half a second */
        int r;
} Delayed;

static void *wait_in_vain(void *user) {
        Delayed *delayed = user;
        HutchBuffer reply = {};

        delayed->r = hutch_call_unary(delayed->client, "AgentSandboxService/DeleteSandbox", NULL, 0,
                                      delayed->timeout ? delayed->timeout : 500 * NSEC_PER_MSEC, &reply, NULL);
        return NULL;
}

/* The leader waits for long; one that comes later has a shorter time. Nobody answers: the client alone keeps it. */
static void a_shorter_deadline_is_kept(void **state) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char target[64];
        const HutchClientOptions options = { .address = target };
        Delayed delayed = { .timeout = 3 * NSEC_PER_SEC };
        HutchBuffer reply = {};
        pthread_t thread;
        uint64_t begun;

        (void) state;
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake_daemon_file("mute", ".s"));
        assert_int_equal(bind(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 5), 0);
        snprintf(target, sizeof(target), "unix:%.40s", address.sun_path);
        assert_int_equal(hutch_client_new(&options, &delayed.client, NULL), 0);

        assert_int_equal(pthread_create(&thread, NULL, wait_in_vain, &delayed), 0);
        (void) nanosleep(&(struct timespec){ .tv_nsec = 50 * (long) NSEC_PER_MSEC }, NULL);
        begun = clock_monotonic_ns();
        assert_int_equal(
                hutch_call_unary(delayed.client, "SystemService/Ping", NULL, 0, 10 * NSEC_PER_MSEC, &reply, NULL),
                -ETIMEDOUT);
        assert_true(clock_monotonic_ns() - begun < 2 * NSEC_PER_SEC);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(delayed.r, -ETIMEDOUT);
        hutch_client_free(delayed.client);
        assert_int_equal(close(fd), 0);
}

/* What the leader waits for is taken from the loop by somebody else. */
static void who_leads_is_told_by_others(void **state) {
        HutchClient *client = connect_client();
        Mixed mixed = { .client = client };
        uint64_t begun = clock_monotonic_ns();
        pthread_t thread;

        (void) state;
        assert_int_equal(pthread_create(&thread, NULL, ping_many_times, &mixed), 0);
        while (!atomic_load(&mixed.done)) {
                hutch_client_dispatch(client);
                (void) usleep(20); /* mutexes are not fair */
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(mixed.r, 0);
        assert_true(clock_monotonic_ns() - begun < 50 * NSEC_PER_SEC); /* less than its deadline */
        hutch_client_free(client);
}

/* The leader has its answer while another waits for one. */
static void somebody_else_leads_then(void **state) {
        HutchClient *client = connect_client();
        Delayed delayed[2] = { { .client = client }, { .client = client } };
        pthread_t threads[2];

        (void) state;
        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(pthread_create(&threads[i], NULL, wait_in_vain, &delayed[i]), 0);
                (void) nanosleep(&(struct timespec){ .tv_nsec = 50 * (long) NSEC_PER_MSEC }, NULL);
        }
        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(pthread_join(threads[i], NULL), 0);
                assert_int_equal(delayed[i].r, -ETIMEDOUT);
        }
        hutch_client_free(client);
}

static void on_signal(int number) {
        (void) number;
}

static void signals_disturb_nobody(void **state) {
        const struct sigaction action = { .sa_handler = on_signal };
        struct timespec pause = { .tv_nsec = 20 * (long) NSEC_PER_MSEC };
        HutchClient *client = connect_client();
        Delayed delayed = { .client = client };
        pthread_t thread;

        (void) state;
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        assert_int_equal(pthread_create(&thread, NULL, wait_in_vain, &delayed), 0);
        for (int i = 0; i < 5; i++) {
                (void) nanosleep(&pause, NULL);
                (void) pthread_kill(thread, SIGUSR1);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(delayed.r, -ETIMEDOUT);
        hutch_client_free(client);
}

static void a_child_leaves_its_parents_client_alone(void **state) {
        HutchClient *client = connect_client();
        int status;
        pid_t pid;

        (void) state;
        assert_int_equal(ping(client, NULL), 0);
        pid = fork();
        assert_int_not_equal(pid, -1);
        if (pid == 0) {
                HutchError *error = NULL;
                int r = ping(client, &error);
                bool told = error && str_equal(hutch_error_reason(error), "CLIENT_FORKED");

                hutch_client_free(client);
                _exit(r == -ESTALE && told ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(ping(client, NULL), 0);
        hutch_client_free(client);
}

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, fake_daemon_set_up, fake_daemon_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                WITH_DAEMON(calls_return_with_the_answer),
                WITH_DAEMON(errors_tell_everything),
                cmocka_unit_test(no_error_is_no_trouble),
                WITH_DAEMON(reads_and_calls_with_a_request_id_are_tried_again),
                WITH_DAEMON(a_deadline_covers_all_tries),
                WITH_DAEMON(calls_have_deadlines_and_streams_have_none),
                WITH_DAEMON(requests_get_an_id_of_their_own),
                WITH_DAEMON(deadlines_end_calls),
                cmocka_unit_test(nobody_there_is_told),
                cmocka_unit_test(addresses_and_tokens_are_checked_before_connecting),
                cmocka_unit_test_setup_teardown(tcp_is_encrypted_and_certificates_are_checked, fake_daemon_set_up_tls,
                                                fake_daemon_tear_down),
                cmocka_unit_test_setup_teardown(a_function_gives_the_token_of_each_call, fake_daemon_set_up_tls,
                                                fake_daemon_tear_down),
                WITH_DAEMON(a_unix_socket_gets_no_token),
                WITH_DAEMON(methods_are_those_of_the_contract),
                WITH_DAEMON(messages_are_as_large_as_the_daemon_says),
                WITH_DAEMON(lists_are_handed_out_page_by_page),
                WITH_DAEMON(calls_stream_both_ways),
                WITH_DAEMON(a_loop_of_its_own_is_told_what_is_ready),
                WITH_DAEMON(a_loop_is_told_what_others_took_from_the_client),
                WITH_DAEMON(threads_share_a_client),
                WITH_DAEMON(a_shorter_deadline_is_kept),
                WITH_DAEMON(who_leads_is_told_by_others),
                WITH_DAEMON(somebody_else_leads_then),
                WITH_DAEMON(signals_disturb_nobody),
                WITH_DAEMON(a_child_leaves_its_parents_client_alone),
        };

        fail_alloc_set_waits_count(); /* every call has a deadline */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
