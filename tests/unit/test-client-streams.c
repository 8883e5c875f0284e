/* SPDX-License-Identifier: Apache-2.0 */

/* Streams of execs, watches, and waiting for a state: also when the connection is lost. */

#include <errno.h>
#include <hutch/hutch.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "client/client.h"

#include "fail-alloc.h"
#include "fake-daemon.h"
#include "test.h"

static HutchClient *connect_client(void) {
        HutchClient *client = NULL;
        const HutchClientOptions options = { .address = fake_daemon_address, .timeout = 10 * NSEC_PER_SEC };

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        return client;
}

static const char *const cat[] = { "cat", NULL };

/* ---- Commands ---- */

static void a_command_is_fed_and_read(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;
        HutchChunk chunk;
        int r;

        assert_int_equal(hutch_exec_start(client, "sandbox-0", &(HutchExecSpec){ .argv = cat, .stdin_stream = true },
                                          NULL, &stream, NULL),
                         0);
        assert_null(hutch_exec_stream_exec(stream));
        assert_int_equal(hutch_exec_stream_write(stream, true, "hello", 5, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 1);
        assert_int_equal(chunk.stream, 1);
        assert_int_equal(chunk.len, 5);
        assert_memory_equal(chunk.data, "hello", 5);
        assert_int_equal(hutch_exec_stream_exec(stream)->state, HUTCH_EXEC_RUNNING);
        assert_true(hutch_exec_stream_is_writable(stream));

        while ((r = hutch_exec_stream_next(stream, false, &chunk, NULL)) == 1)
                ;
        assert_int_equal(r, -EAGAIN);
        assert_int_equal(hutch_exec_stream_resize(stream, 30, 100, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 1);
        assert_memory_equal(chunk.data, "size 30x100", chunk.len);
        assert_int_equal(hutch_exec_stream_signal(stream, 15, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 1);
        assert_memory_equal(chunk.data, "signal 15", chunk.len);

        assert_int_equal(hutch_exec_stream_close_input(stream, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 0);
        assert_int_equal(hutch_exec_stream_exec(stream)->state, HUTCH_EXEC_EXITED);
        assert_true(hutch_exec_stream_exec(stream)->has_exit_code);
        assert_int_equal(hutch_exec_stream_exec(stream)->exit_code, 3);
        assert_string_equal(hutch_exec_stream_exec(stream)->end_reason, "EXITED");
        assert_string_equal(hutch_exec_stream_exec(stream)->failure, "");

        /* After the end input goes nowhere. */
        assert_int_equal(hutch_exec_stream_write(stream, true, "more", 4, NULL), 0);
        assert_int_equal(hutch_exec_stream_write(stream, false, "more", 4, NULL), 0);
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
        assert_int_equal(fake_daemon_count(daemon, "CancelExec"), 0);
        assert_int_equal(strlen(daemon->calls[0].request_id), 32);
        assert_false(daemon->calls[0].has_deadline);
}

static void much_input_arrives_whole(void **state) {
        static const char much[3 << 20];
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;
        size_t received = 0;
        HutchChunk chunk;
        int r;

        assert_int_equal(hutch_exec_start(client, "sandbox-0", &(HutchExecSpec){ .argv = cat, .stdin_stream = true },
                                          NULL, &stream, NULL),
                         0);
        /* Nothing is taken before the daemon has answered: it could have to be sent again. */
        assert_false(hutch_exec_stream_is_writable(stream));
        assert_int_equal(hutch_exec_stream_write(stream, false, much, sizeof(much), NULL), -EAGAIN);
        assert_int_equal(hutch_exec_stream_write(stream, true, much, sizeof(much), NULL), 0);
        assert_int_equal(hutch_exec_stream_close_input(stream, NULL), 0);
        while ((r = hutch_exec_stream_next(stream, true, &chunk, NULL)) == 1)
                received += chunk.len;
        assert_int_equal(r, 0);
        assert_int_equal(received, sizeof(much));
        assert_int_equal(daemon->n_input, sizeof(much));
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
}

static void a_command_ends_with_its_stream(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;

        assert_int_equal(hutch_exec_start(client, "sandbox-0", &(HutchExecSpec){ .argv = cat, .stdin_stream = true },
                                          NULL, &stream, NULL),
                         0);
        assert_int_equal(hutch_exec_stream_write(stream, true, "hello", 5, NULL), 0);
        hutch_exec_stream_free(stream);
        hutch_client_free(client); /* waits until that is told */
        assert_int_equal(fake_daemon_count(daemon, "CancelExec"), 1);
        assert_string_equal(daemon->calls[1].id, daemon->calls[0].id);
}

static void a_child_frees_its_parents_stream_without_waiting(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;
        HutchChunk chunk;
        int status;
        pid_t pid;

        assert_int_equal(hutch_exec_start(client, "sandbox-0", &(HutchExecSpec){ .argv = cat, .stdin_stream = true },
                                          NULL, &stream, NULL),
                         0);
        /* As when another thread was in the library at the fork: the child does not have that thread. */
        client_lock(client);
        pid = fork();
        if (pid == 0) {
                (void) alarm(10);
                hutch_exec_stream_free(stream);
                hutch_client_free(client);
                _exit(0);
        }
        client_unlock(client);
        assert_int_not_equal(pid, -1);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);

        assert_int_equal(hutch_exec_stream_write(stream, true, "hello", 5, NULL), 0);
        assert_int_equal(hutch_exec_stream_close_input(stream, NULL), 0);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 1);
        assert_int_equal(hutch_exec_stream_next(stream, true, &chunk, NULL), 0);
        assert_int_equal(daemon->n_calls, 1);
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
}

static void one_that_is_attached_to_goes_on(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchExecStream *stream = NULL;

        assert_int_equal(hutch_exec_attach(client, "sandbox-0", "exec-0", 0, 0, NULL, &stream, NULL), 0);
        assert_int_equal(hutch_exec_stream_write(stream, true, "hello", 5, NULL), 0);
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
        assert_int_equal(fake_daemon_count(daemon, "CancelExec"), 0);
}

/* What a stream of @program fails with. */
static void assert_fails(HutchClient *client, const char *program, HutchCode code, const char *reason) {
        const char *const argv[] = { program, NULL };
        HutchExecStream *stream = NULL;
        HutchError *error = NULL;
        HutchChunk chunk;

        assert_int_equal(hutch_exec_start(client, "sandbox-0", &(HutchExecSpec){ .argv = argv }, NULL, &stream, NULL),
                         0);
        assert_true(hutch_exec_stream_next(stream, true, &chunk, &error) < 0);
        assert_int_equal(hutch_error_code(error), code);
        if (reason)
                assert_string_equal(hutch_error_reason(error), reason);
        hutch_error_free(error);
        hutch_exec_stream_free(stream);
}

static void a_stream_without_an_end_is_an_error(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        assert_fails(client, "vanish", HUTCH_DATA_LOSS, "STREAM_INCOMPLETE");
        assert_fails(client, "refuse", HUTCH_NOT_FOUND, "SANDBOX_NOT_FOUND");
        assert_fails(client, "break", HUTCH_UNAVAILABLE, NULL);
        hutch_client_free(client);
        assert_int_equal(fake_daemon_count(daemon, "AttachExec"), 3); /* none is tried again after its first answer */
        rule_holds(__func__, "EXEC-013");
}

static void a_command_runs_to_its_end(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchOutput *output = NULL;

        assert_int_equal(hutch_exec_run(client, "sandbox-0", &(HutchExecSpec){ .argv = cat }, "in", 2, &output, NULL),
                         0);
        assert_int_equal(output->stdout_len, 2);
        assert_string_equal(output->stdout_data, "in");
        assert_string_equal(output->stderr_data, "");
        assert_false(output->truncated);
        assert_string_equal(output->exec->id, "exec-0");
        assert_false(output->exec->has_exit_code);
        hutch_output_free(output);
        assert_int_equal(strlen(daemon->calls[0].request_id), 32);

        /* The time that a command has is the daemon's to keep, and the call has more. */
        assert_int_equal(hutch_exec_run(client, "sandbox-0",
                                        &(HutchExecSpec){ .argv = cat, .timeout = 100 * NSEC_PER_SEC }, NULL, 0, NULL,
                                        NULL),
                         0);
        assert_int_equal(daemon->calls[1].exec_timeout, 100);
        assert_in_range(daemon->calls[1].timeout_ms, 105000, 115000);
        hutch_client_free(client);
        rule_holds(__func__, "EXEC-014");
}

/* ---- Output ---- */

/* Reads all output and sees that it is whole. */
static void read_all(HutchClient *client, const HutchReadOptions *options) {
        HutchExecStream *stream = NULL;
        uint64_t offsets[3] = {};
        HutchChunk chunk;
        int r;

        assert_int_equal(hutch_exec_read(client, "sandbox-0", "exec-0", options, NULL, &stream, NULL), 0);
        while ((r = hutch_exec_stream_next(stream, true, &chunk, NULL)) == 1) {
                assert_int_equal(chunk.offset, offsets[chunk.stream]);
                assert_int_equal(chunk.data[0], 'a' + chunk.offset % 26);
                offsets[chunk.stream] += chunk.len;
        }
        assert_int_equal(r, 0);
        assert_int_equal(offsets[1], FAKE_OUTPUT);
        assert_int_equal(offsets[2], FAKE_OUTPUT);
        assert_string_equal(hutch_exec_stream_exec(stream)->id, "exec-0");
        assert_int_equal(hutch_exec_stream_write(stream, true, "x", 1, NULL), -EBADF);
        hutch_exec_stream_free(stream);
}

static void output_is_read_on_where_the_connection_broke(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        read_all(client, NULL);
        assert_int_equal(daemon->n_calls, 1);
        daemon->break_after = 7;
        read_all(client, NULL);
        assert_int_equal(daemon->n_calls, 4);
        assert_int_equal(daemon->calls[2].stdout_offset, 40);
        assert_int_equal(daemon->calls[2].stderr_offset, 30);
        hutch_client_free(client);
}

/* Downloads a file and sees that it is whole. */
static void download_all(HutchClient *client) {
        HutchDownload *download = NULL;
        const void *data;
        size_t len, offset = 0;
        int r;

        assert_int_equal(hutch_download_new(client, "sandbox-0", "file", NULL, &download, NULL), 0);
        while ((r = hutch_download_next(download, true, &data, &len, NULL)) == 1)
                for (size_t i = 0; i < len; i++)
                        assert_int_equal(((const char *) data)[i], 'a' + offset++ % 26);
        assert_int_equal(r, 0);
        assert_int_equal(offset, FAKE_OUTPUT);
        assert_string_equal(hutch_download_file(download)->version, "1");
        hutch_download_free(download);
}

static void a_file_comes_whole_however_its_messages_look(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        download_all(client);
        assert_int_equal(daemon->n_calls, 1);
        daemon->break_after = 4;
        download_all(client);
        assert_int_equal(daemon->n_calls, 4);
        assert_int_equal(daemon->calls[2].stdout_offset, 40);
        assert_int_equal(daemon->calls[3].stdout_offset, 80);
        hutch_client_free(client);
}

static void the_last_lines_are_not_asked_for_again(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        daemon->break_after = 12;
        read_all(client, &(HutchReadOptions){ .has_tail_lines = true, .tail_lines = 10 });
        assert_int_equal(daemon->n_calls, 2);
        assert_true(daemon->calls[0].has_tail);
        assert_false(daemon->calls[1].has_tail);
        hutch_client_free(client);
}

/* ---- Events ---- */

/* Takes all events after @cursor, and sees that each comes once. */
static void take_events(HutchWatch *watch, uint64_t cursor) {
        HutchEvent event;

        while (cursor < FAKE_EVENTS) {
                assert_int_equal(hutch_watch_next(watch, true, &event, NULL), 1);
                assert_null(event.sandbox);
                assert_int_equal(event.cursor, ++cursor);
                assert_string_equal(event.type, "SANDBOX_STATE_CHANGED");
                assert_string_equal(event.from_state, "");
                assert_string_equal(event.to_state, "READY");
                assert_int_equal(hutch_watch_cursor(watch), cursor);
                assert_true(hutch_watch_has_started(watch));
        }
        assert_int_equal(hutch_watch_next(watch, false, &event, NULL), -EAGAIN);
}

static void a_watch_goes_on_from_its_cursor(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchWatch *watch = NULL;

        daemon->break_after = 8;
        assert_int_equal(hutch_watch_new(client, NULL, &watch, NULL), 0);
        assert_false(hutch_watch_has_started(watch));
        take_events(watch, 0);
        assert_true(daemon->n_calls >= 3);
        assert_false(daemon->calls[0].has_cursor);
        assert_false(daemon->calls[0].has_deadline);
        /* What was on its way when the connection broke may be lost, and is told again. */
        assert_in_range(daemon->calls[1].cursor, 1, 8);
        assert_in_range(daemon->calls[2].cursor, daemon->calls[1].cursor + 1, daemon->calls[1].cursor + 8);
        hutch_watch_free(watch);

        assert_int_equal(hutch_watch_new(client, &(HutchWatchOptions){ .has_after_cursor = true, .after_cursor = 15 },
                                         &watch, NULL),
                         0);
        assert_int_equal(hutch_watch_cursor(watch), 15);
        take_events(watch, 15);
        hutch_watch_free(watch);
        hutch_client_free(client);
}

static void a_watch_that_lagged_goes_on_too(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchWatch *watch = NULL;
        HutchEvent event;

        daemon->break_after = 9;
        daemon->lags = true;
        assert_int_equal(hutch_watch_new(client, &(HutchWatchOptions){ .snapshot = true }, &watch, NULL), 0);
        assert_int_equal(hutch_watch_next(watch, true, &event, NULL), 1);
        assert_string_equal(event.sandbox->id, "sandbox-0");
        assert_int_equal(event.sandbox->state, HUTCH_SANDBOX_READY);
        take_events(watch, 0);
        assert_int_equal(daemon->calls[1].cursor, 9);
        hutch_watch_free(watch);
        hutch_client_free(client);
}

static void a_watch_gives_up_when_nothing_comes_any_more(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchWatch *watch = NULL;
        HutchError *error = NULL;
        HutchEvent event;

        daemon->lags = true;
        daemon->break_after = 1;
        assert_int_equal(hutch_watch_new(client, NULL, &watch, NULL), 0);
        assert_int_equal(hutch_watch_next(watch, true, &event, NULL), 1);
        daemon->break_after = -1; /* breaks at once from now on */
        while (hutch_watch_next(watch, true, &event, &error) == 1)
                ;
        assert_string_equal(hutch_error_reason(error), "WATCHER_LAGGED");
        assert_in_range(daemon->n_calls, 7, 9);
        hutch_error_free(error);
        hutch_watch_free(watch);
        hutch_client_free(client);
}

/* ---- Waiting ---- */

#define BIT(state) (UINT32_C(1) << HUTCH_SANDBOX_##state)

static void a_state_that_is_there_is_not_waited_for(void **state) {
        const FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchSandbox *sandbox = NULL;

        assert_int_equal(hutch_sandbox_wait(client, "sandbox-0", BIT(READY), 0, &sandbox, NULL), 0);
        assert_int_equal(sandbox->state, HUTCH_SANDBOX_READY);
        hutch_sandbox_free(sandbox);
        assert_int_equal(daemon->n_calls, 1);
        hutch_client_free(client);
}

static void a_waiter_watches_from_the_sequence(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();

        daemon->sandbox_state = HUTCH_SANDBOX_PAUSED;
        assert_int_equal(
                hutch_sandbox_wait(client, "sandbox-0", BIT(READY) | BIT(STOPPED), 2 * NSEC_PER_SEC, NULL, NULL),
                -ETIMEDOUT);
        assert_string_equal(daemon->calls[1].method, "WatchEvents");
        assert_true(daemon->calls[1].has_sequence);
        assert_int_equal(daemon->calls[1].sequence, 7);
        assert_true(daemon->calls[1].has_deadline);
        assert_int_equal(daemon->n_calls, 2);
        hutch_client_free(client);
        rule_holds(__func__, "LIFE-013");
}

static void a_state_that_cannot_come_is_an_error(void **state) {
        FakeDaemon *daemon = *state;
        HutchClient *client = connect_client();
        HutchError *error = NULL;

        daemon->sandbox_state = HUTCH_SANDBOX_STOPPED;
        assert_int_equal(hutch_sandbox_wait(client, "sandbox-0", BIT(READY), 0, NULL, &error), -EBUSY);
        assert_int_equal(hutch_error_code(error), HUTCH_FAILED_PRECONDITION);
        assert_string_equal(hutch_error_reason(error), "SANDBOX_WRONG_STATE");
        assert_string_equal(hutch_error_get(error, "state"), "STOPPED");
        hutch_error_free(error);
        assert_int_equal(daemon->n_calls, 1);
        hutch_client_free(client);
}

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, fake_daemon_set_up, fake_daemon_tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                WITH_DAEMON(a_command_is_fed_and_read),
                WITH_DAEMON(much_input_arrives_whole),
                WITH_DAEMON(a_command_ends_with_its_stream),
                WITH_DAEMON(a_child_frees_its_parents_stream_without_waiting),
                WITH_DAEMON(one_that_is_attached_to_goes_on),
                WITH_DAEMON(a_stream_without_an_end_is_an_error),
                WITH_DAEMON(a_command_runs_to_its_end),
                WITH_DAEMON(output_is_read_on_where_the_connection_broke),
                WITH_DAEMON(a_file_comes_whole_however_its_messages_look),
                WITH_DAEMON(the_last_lines_are_not_asked_for_again),
                WITH_DAEMON(a_watch_goes_on_from_its_cursor),
                WITH_DAEMON(a_watch_that_lagged_goes_on_too),
                WITH_DAEMON(a_watch_gives_up_when_nothing_comes_any_more),
                WITH_DAEMON(a_state_that_is_there_is_not_waited_for),
                WITH_DAEMON(a_waiter_watches_from_the_sequence),
                WITH_DAEMON(a_state_that_cannot_come_is_an_error),
        };

        fail_alloc_set_waits_count(); /* every call has a deadline */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
