/* SPDX-License-Identifier: Apache-2.0 */

/* One-shots: what is asked for, what comes, and how they end. */

#include <errno.h>
#include <hutch/hutch.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#include "fail-alloc.h"
#include "fake-daemon.h"
#include "test.h"

#define N_RACES 50

static HutchClient *connect_client(void) {
        HutchClient *client = NULL;
        const HutchClientOptions options = { .address = fake_daemon_address, .timeout = 10 * NSEC_PER_SEC };

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        return client;
}

static HutchExecStream *start(HutchClient *client, const char *program) {
        const char *const argv[] = { program, NULL };
        HutchExecStream *stream = NULL;

        assert_int_equal(hutch_once_start(client, &(HutchOnceSpec){ .argv = argv }, NULL, &stream, NULL), 0);
        return stream;
}

static void a_command_is_streamed_to_its_exit(void **state) {
        static const char *const argv[] = { "cat", NULL };
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;
        const HutchExec *exec;
        HutchChunk chunk;
        size_t len;

        assert_int_equal(hutch_once_start(client, &(HutchOnceSpec){ .argv = argv, .input = "hello", .input_len = 5 },
                                          NULL, &stream, NULL),
                         0);
        assert_null(hutch_exec_stream_exec(stream));
        assert_null(hutch_exec_stream_limits(stream, &len));
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 1);
        assert_int_equal(chunk.len, 5);
        assert_memory_equal(chunk.data, "hello", 5);
        exec = hutch_exec_stream_exec(stream);
        assert_string_equal(exec->sandbox_id, "sandbox-once");
        assert_false(exec->has_exit_code);
        assert_memory_equal(hutch_exec_stream_limits(stream, &len), "\x0a\x06strict", 8);
        assert_int_equal(len, 8);

        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 0);
        exec = hutch_exec_stream_exec(stream);
        assert_string_equal(exec->id, "");
        assert_string_equal(exec->sandbox_id, "sandbox-once");
        assert_int_equal(exec->state, HUTCH_EXEC_EXITED);
        assert_true(exec->has_exit_code);
        assert_int_equal(exec->exit_code, 7);
        assert_string_equal(exec->end_reason, "EXITED");
        assert_int_equal(exec->stdout_bytes, 5);
        assert_int_equal(strlen(daemon->calls[0].request_id), 32);
        assert_false(daemon->calls[0].has_deadline);
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
}

static void nothing_is_read_after_the_exit(void **state) {
        HutchClient *client = connect_client();
        HutchExecStream *stream = start(client, "babble");
        HutchChunk chunk;

        (void) state;
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 0);
        assert_int_equal(hutch_exec_stream_exec(stream)->exit_code, 7);
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
}

/* What one of @program fails with. */
static void assert_fails(HutchClient *client, const char *program, HutchCode code, const char *reason) {
        HutchExecStream *stream = start(client, program);
        HutchError *error = NULL;
        HutchChunk chunk;

        assert_true(hutch_exec_stream_next(stream, true, &chunk, &error) < 0);
        assert_int_equal(hutch_error_code(error), code);
        if (reason)
                assert_string_equal(hutch_error_reason(error), reason);
        hutch_error_free(error);
        hutch_exec_stream_free(stream);
}

static void one_without_an_exit_is_an_error(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        assert_fails(client, "vanish", HUTCH_DATA_LOSS, "STREAM_INCOMPLETE");
        assert_fails(client, "refuse", HUTCH_RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED");
        assert_fails(client, "break", HUTCH_UNAVAILABLE, NULL);
        hutch_client_free(client);
        assert_int_equal(fake_daemon_count(daemon, "Exec"), 3); /* none is tried again after its first answer */
}

static void what_is_wrong_is_told_before_any_call(void **state) {
        static const char *const none[] = { NULL }, *const empty[] = { "", NULL }, *const bad[] = { "A", NULL },
                                 *const cat[] = { "cat", NULL };
        const HutchOnceSpec specs[] = {
                { .argv = none },
                {},
                { .argv = empty },
                { .argv = cat, .env = bad },
                { .argv = cat, .labels = bad },
                { .argv = cat, .working_directory = "a/../b" },
                { .argv = cat, .request_id = "a b" },
        };
        const char *reasons[] = { "ARGV_EMPTY",      "ARGV_EMPTY",  "ARGV_EMPTY",          "ENV_NAME_MALFORMED",
                                  "LABEL_MALFORMED", "PATH_DOTDOT", "REQUEST_ID_MALFORMED" };
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;
        HutchError *error = NULL;

        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
                assert_int_equal(hutch_once_start(client, &specs[i], NULL, &stream, &error), -EINVAL);
                assert_string_equal(hutch_error_reason(error), reasons[i]);
                hutch_error_free(error);
                assert_int_equal(hutch_run_once(client, &specs[i], NULL, NULL), -EINVAL);
        }
        assert_int_equal(hutch_once_start_encoded(client, NULL, 0, NULL, &stream, &error), -EINVAL);
        assert_string_equal(hutch_error_reason(error), "ARGV_EMPTY");
        hutch_error_free(error);
        assert_int_equal(hutch_once_start_encoded(client, "\xff", 1, NULL, &stream, &error), -EINVAL);
        assert_string_equal(hutch_error_reason(error), "FIELD_INVALID");
        hutch_error_free(error);
        hutch_client_free(client);
        assert_int_equal(daemon->n_calls, 0);
        rule_holds(__func__, "REMOTE-002");
}

static void output_is_collected(void **state) {
        static const char *const cat[] = { "cat", NULL }, *const pour[] = { "pour", NULL };
        HutchClient *client = connect_client();
        HutchOutput *output = NULL;

        (void) state;
        assert_int_equal(
                hutch_run_once(client, &(HutchOnceSpec){ .argv = cat, .input = "in", .input_len = 2 }, &output, NULL),
                0);
        assert_int_equal(output->stdout_len, 2);
        assert_string_equal(output->stdout_data, "in");
        assert_string_equal(output->stderr_data, "");
        assert_false(output->truncated);
        assert_int_equal(output->exec->exit_code, 7);
        hutch_output_free(output);

        /* Beginning and end, and that something is missing. */
        assert_int_equal(hutch_run_once(client, &(HutchOnceSpec){ .argv = pour, .input = "first", .input_len = 5 },
                                        &output, NULL),
                         0);
        assert_int_equal(output->stdout_len, 8 << 20);
        assert_true(output->truncated);
        assert_memory_equal(output->stdout_data, "first", 5);
        assert_true(output->exec->stdout_bytes > output->stdout_len);
        hutch_output_free(output);
        hutch_client_free(client);
}

/* ---- Closing while it is read ---- */

typedef struct Reader {
        HutchExecStream *stream;
        HutchError *error;
        int r;
} Reader;

static void *read_on(void *user) {
        Reader *reader = user;
        HutchChunk chunk;

        while ((reader->r = hutch_exec_stream_next(reader->stream, true, &chunk, &reader->error)) == 1)
                ;
        return NULL;
}

static void one_that_is_read_can_be_cancelled_by_another_thread(void **state) {
        HutchClient *client = connect_client();

        (void) state;
        for (unsigned i = 0; i < N_RACES; i++) {
                Reader reader = { .stream = start(client, "hang") };
                pthread_t thread;

                assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
                (void) usleep(i * 100);
                hutch_exec_stream_cancel(reader.stream);
                hutch_exec_stream_cancel(reader.stream);
                (void) pthread_join(thread, NULL);
                assert_true(reader.r < 0);
                assert_int_equal(hutch_error_code(reader.error), HUTCH_CANCELLED);
                hutch_error_free(reader.error);
                hutch_exec_stream_free(reader.stream);
        }
        hutch_client_free(client);
        rule_holds(__func__, "REMOTE-003");
}

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, fake_daemon_set_up, fake_daemon_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                WITH_DAEMON(a_command_is_streamed_to_its_exit),
                WITH_DAEMON(nothing_is_read_after_the_exit),
                WITH_DAEMON(one_without_an_exit_is_an_error),
                WITH_DAEMON(what_is_wrong_is_told_before_any_call),
                WITH_DAEMON(output_is_collected),
                WITH_DAEMON(one_that_is_read_can_be_cancelled_by_another_thread),
        };

        fail_alloc_set_waits_count(); /* every call has a deadline */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
