/* SPDX-License-Identifier: Apache-2.0 */

/* libhutch as a program, for tests/integration/test_libhutch.py: each command calls one or a few of its functions and
 * prints what they said, one fact on a line. Fails with the reason of the error on stderr. */

#include <hutch/hutch.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

static HutchClient *client;
static HutchError *error;

static int connect_client(void) {
        return hutch_client_new(NULL, &client, &error);
}

/* ---- The daemon ---- */

static int start_daemon(char **args) {
        int r = hutch_daemon_start(args[0], &error);

        if (r >= 0)
                printf("%d\n", r);
        return r;
}

static int stop_daemon(char **args) {
        int r = hutch_daemon_stop(args[0], 0, &error);

        if (r >= 0)
                printf("%d\n", r);
        return r;
}

static int print_pid(char **args) {
        int pid, r = hutch_daemon_pid(args[0], &pid, &error);

        if (r >= 0)
                printf("%d\n", pid);
        return r;
}

static int print_socket(char **args) {
        char *path = NULL;
        int r = hutch_daemon_socket(&path, &error);

        (void) args;
        if (r >= 0)
                printf("%s\n", path);
        free(path);
        return r;
}

/* A client that starts the daemon if there is none, and calls it. */
static int call_any(char **args) {
        HutchBuffer reply = { 0 };
        int r = hutch_client_new(&(HutchClientOptions){ .start_daemon = true }, &client, &error);

        (void) args;
        if (r == 0)
                r = hutch_call_unary(client, "SystemService/GetInfo", NULL, 0, 0, &reply, &error);
        if (r == 0)
                printf("%d\n", hutch_client_started_daemon(client));
        hutch_buffer_clear(&reply);
        return r;
}

/* ---- Sandboxes ---- */

/* A sandbox through all that can be done with one. */
static int lead_a_life(char **args) {
        const char *const labels[] = { "team=blue", "empty=", NULL }, *const env[] = { "COLOUR=a=b", NULL };
        const HutchSandboxSpec spec = {
                .id = args[0],
                .labels = labels,
                .env = env,
                .working_directory = "/tmp",
                .idle_ttl = HUTCH_FOREVER,
        };
        const char *const argv[] = { "sh", "-c", "echo $COLOUR; pwd; cat; echo oh >&2; exit 7", NULL };
        const HutchExecSpec command = { .argv = argv };
        const char *id = args[0];
        HutchSandbox *sandbox = NULL;
        HutchOutput *output = NULL;
        int r = connect_client();

#define STEP(name, call)                                                                                               \
        if (r == 0) {                                                                                                  \
                r = (call);                                                                                            \
                if (r == 0)                                                                                            \
                        printf("%s %s\n", name, hutch_sandbox_state_name(sandbox->state));                             \
                hutch_sandbox_free(sandbox);                                                                           \
                sandbox = NULL;                                                                                        \
        }

        STEP("create", hutch_sandbox_create(client, &spec, &sandbox, &error))
        STEP("wait", hutch_sandbox_wait(client, id, 1U << HUTCH_SANDBOX_READY, 0, &sandbox, &error))
        if (r == 0)
                r = hutch_exec_run(client, id, &command, "in\n", 3, &output, &error);
        if (r == 0)
                printf("%s%s%d %s\n", output->stdout_data, output->stderr_data, output->exec->exit_code,
                       output->exec->end_reason);
        STEP("set_labels", hutch_sandbox_set_labels(client, id, labels + 1, &sandbox, &error))
        STEP("set_idle_ttl", hutch_sandbox_set_idle_ttl(client, id, UINT64_C(60000000000), &sandbox, &error))
        STEP("pause", hutch_sandbox_pause(client, id, &sandbox, &error))
        STEP("wait", hutch_sandbox_wait(client, id, 1U << HUTCH_SANDBOX_PAUSED, 0, &sandbox, &error))
        STEP("unpause", hutch_sandbox_unpause(client, id, &sandbox, &error))
        STEP("wait", hutch_sandbox_wait(client, id, 1U << HUTCH_SANDBOX_READY, 0, &sandbox, &error))
        STEP("stop", hutch_sandbox_stop(client, id, 1, &sandbox, &error))
        STEP("wait", hutch_sandbox_wait(client, id, 1U << HUTCH_SANDBOX_STOPPED, 0, &sandbox, &error))
        STEP("resume", hutch_sandbox_resume(client, id, &sandbox, &error))
        STEP("wait", hutch_sandbox_wait(client, id, 1U << HUTCH_SANDBOX_READY, 0, &sandbox, &error))
        STEP("delete", hutch_sandbox_delete(client, id, &sandbox, &error))
        STEP("wait", hutch_sandbox_wait(client, id, 1U << HUTCH_SANDBOX_DELETED, 0, &sandbox, &error))
#undef STEP

        hutch_output_free(output);
        return r;
}

static int print_sandbox(const HutchSandbox *sandbox, void *user) {
        (void) user;
        printf("%s %s", sandbox->id, hutch_sandbox_state_name(sandbox->state));
        for (const char *const *label = sandbox->labels; *label; label++)
                printf(" %s", *label);
        printf("\n");
        return 0;
}

static int list_sandboxes(char **args) {
        int r = connect_client();

        return r < 0 ? r : hutch_sandbox_list(client, args[0], 0, print_sandbox, NULL, &error);
}

static int delete_sandboxes(char **args) {
        size_t n;
        int r = connect_client();

        if (r == 0)
                r = hutch_sandboxes_delete(client, args[0], &n, &error);
        if (r == 0)
                printf("%zu\n", n);
        return r;
}

/* Waits for the state with the number args[1]. */
static int wait_for_state(char **args) {
        int r = connect_client();

        printf("waiting\n");
        if (r == 0)
                r = hutch_sandbox_wait(client, args[0], 1U << atoi(args[1]), 0, NULL, &error);
        if (r == 0)
                printf("there\n");
        return r;
}

static int print_exec(const HutchExec *exec, void *user) {
        (void) user;
        printf("%s %s %d\n", exec->id, hutch_exec_state_name(exec->state), exec->exit_code);
        return 0;
}

static int list_execs(char **args) {
        int r = connect_client();

        return r < 0 ? r : hutch_exec_list(client, args[0], 0, print_exec, NULL, &error);
}

/* ---- Streams ---- */

static int print_stream(HutchExecStream *stream) {
        HutchChunk chunk;
        int r;

        while ((r = hutch_exec_stream_next(stream, true, &chunk, &error)) == 1)
                fwrite(chunk.data, 1, chunk.len, chunk.stream == 1 ? stdout : stderr);
        hutch_exec_stream_free(stream);
        return r;
}

static int follow_output(char **args) {
        HutchExecStream *stream = NULL;
        int r = connect_client();

        if (r == 0)
                r = hutch_exec_read(client, args[0], args[1], &(HutchReadOptions){ .follow = true }, NULL, &stream,
                                    &error);
        return r < 0 ? r : print_stream(stream);
}

static int attach(char **args) {
        HutchExecStream *stream = NULL;
        int r = connect_client();

        if (r == 0)
                r = hutch_exec_attach(client, args[0], args[1], 0, 0, NULL, &stream, &error);
        return r < 0 ? r : print_stream(stream);
}

/* Starts a command, reads its first words and leaves it. */
static int leave_command(char **args) {
        const char *const argv[] = { "sh", "-c", "echo here; exec sleep 100", NULL };
        HutchExecStream *stream = NULL;
        HutchChunk chunk;
        int r = connect_client();

        if (r == 0)
                r = hutch_exec_start(client, args[0], &(HutchExecSpec){ .argv = argv, .id = args[1] }, NULL, &stream,
                                     &error);
        if (r == 0)
                r = hutch_exec_stream_next(stream, true, &chunk, &error) < 0 ? -1 : 0;
        hutch_exec_stream_free(stream);
        return r;
}

/* Prints events until the sandbox of the last is DELETED. */
static int watch_events(char **args) {
        const char *const ids[] = { args[0], NULL };
        HutchWatch *watch = NULL;
        HutchEvent event = { 0 };
        int r = connect_client();

        if (r == 0)
                r = hutch_watch_new(client, &(HutchWatchOptions){ .sandbox_ids = ids, .has_after_cursor = true },
                                    &watch, &error);
        while (r >= 0 && !(event.to_state && strcmp(event.to_state, "DELETED") == 0)) {
                r = hutch_watch_next(watch, true, &event, &error);
                if (r == 1)
                        printf("%" PRIu64 " %s %s\n", event.sequence, event.type, event.to_state);
                fflush(stdout);
        }
        hutch_watch_free(watch);
        return r < 0 ? r : 0;
}

/* ---- Threads ---- */

typedef struct Job {
        const char *sandbox_id;
        unsigned n_calls;
        bool failed;
} Job;

/* Runs commands and reads what they say, in each of the two ways. */
static void *run_commands(void *user) {
        Job *job = user;

        for (unsigned i = 0; i < job->n_calls && !job->failed; i++) {
                char text[32];
                const char *const argv[] = { "echo", text, NULL };
                HutchExecStream *stream = NULL;
                HutchOutput *output = NULL;
                HutchChunk chunk;

                snprintf(text, sizeof(text), "%u", i);
                job->failed = hutch_exec_run(client, job->sandbox_id, &(HutchExecSpec){ .argv = argv }, NULL, 0,
                                             &output, NULL) < 0 ||
                              strtoul(output->stdout_data, NULL, 10) != i ||
                              hutch_exec_start(client, job->sandbox_id, &(HutchExecSpec){ .argv = argv }, NULL, &stream,
                                               NULL) < 0 ||
                              hutch_exec_stream_next(stream, true, &chunk, NULL) != 1 ||
                              strtoul(chunk.data, NULL, 10) != i ||
                              hutch_exec_stream_next(stream, true, &chunk, NULL) != 0;
                hutch_exec_stream_free(stream);
                hutch_output_free(output);
        }
        return NULL;
}

static int run_threads(char **args) {
        Job jobs[16];
        pthread_t threads[N_ELEMENTS(jobs)];
        unsigned n_failed = 0;
        int r = connect_client();

        if (r < 0)
                return r;

        for (size_t i = 0; i < N_ELEMENTS(jobs); i++) {
                jobs[i] = (Job){ .sandbox_id = args[0], .n_calls = (unsigned) atoi(args[1]) };
                if (pthread_create(&threads[i], NULL, run_commands, &jobs[i]) != 0)
                        abort();
        }
        for (size_t i = 0; i < N_ELEMENTS(jobs); i++) {
                (void) pthread_join(threads[i], NULL);
                n_failed += jobs[i].failed;
        }
        printf("%u failed\n", n_failed);
        return 0;
}

/* A one-shot in both ways. */
static int run_once(char **args) {
        const char *const argv[] = { "sh", "-c", args[0], NULL }, *const env[] = { "A=1", NULL };
        const HutchOnceSpec spec = { .argv = argv,
                                     .env = env,
                                     .profile = "strict",
                                     .working_directory = "/tmp",
                                     .input = "in",
                                     .input_len = 2 };
        HutchExecStream *stream = NULL;
        HutchOutput *output = NULL;
        HutchChunk chunk;
        size_t len;
        int r = connect_client();

        if (r < 0)
                return r;
        r = hutch_run_once(client, &spec, &output, &error);
        if (r < 0)
                return r;
        printf("%s%s%s %d\n", output->stdout_data, output->stderr_data, output->exec->end_reason,
               output->exec->exit_code);
        hutch_output_free(output);

        r = hutch_once_start(client, &spec, NULL, &stream, &error);
        while (r >= 0 && (r = hutch_exec_stream_next(stream, true, &chunk, &error)) == 1)
                printf("%d %.*s", chunk.stream, (int) chunk.len, chunk.data);
        if (r == 0)
                printf("%s %d %s\n", hutch_exec_stream_exec(stream)->sandbox_id,
                       hutch_exec_stream_exec(stream)->exit_code,
                       hutch_exec_stream_limits(stream, &len) ? "limits" : "");
        hutch_exec_stream_free(stream);
        return r;
}

int main(int argc, char **argv) {
        static const struct {
                const char *name;
                int n_args;
                int (*run)(char **args);
        } commands[] = {
                { "start-daemon", 1, start_daemon },
                { "stop-daemon", 1, stop_daemon },
                { "pid", 1, print_pid },
                { "socket", 0, print_socket },
                { "call", 0, call_any },
                { "life", 1, lead_a_life },
                { "list", 1, list_sandboxes },
                { "delete", 1, delete_sandboxes },
                { "wait", 2, wait_for_state },
                { "execs", 1, list_execs },
                { "follow", 2, follow_output },
                { "attach", 2, attach },
                { "leave", 2, leave_command },
                { "watch", 1, watch_events },
                { "threads", 2, run_threads },
                { "once", 1, run_once },
        };
        int r = -1;

        (void) setvbuf(stdout, NULL, _IOLBF, 0);
        for (size_t i = 0; i < N_ELEMENTS(commands); i++)
                if (argc == commands[i].n_args + 2 && strcmp(argv[1], commands[i].name) == 0)
                        r = commands[i].run(argv + 2);
        if (r < 0)
                fprintf(stderr, "%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        hutch_error_free(error);
        hutch_client_free(client);
        return r < 0;
}
