/* SPDX-License-Identifier: Apache-2.0 */

/* Runs several commands at once in a sandbox that is there, on a poll loop without threads. Each line that they print
 * is told as it comes.
 *
 *         cc loop.c $(pkg-config --cflags --libs hutch) -o loop
 *         ./loop SANDBOX 'sleep 1; echo one' 'echo two' */

#include <errno.h>
#include <hutch/hutch.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Job {
        int number;
        HutchExecStream *stream; /* NULL: it has ended */
} Job;

static void fail(HutchError *error) {
        fprintf(stderr, "%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        hutch_error_free(error);
}

static int start(HutchClient *client, const char *sandbox_id, const char *script, Job *job) {
        const char *const argv[] = { "sh", "-c", script, NULL };
        HutchError *error = NULL;
        int r = hutch_exec_start(client, sandbox_id, &(HutchExecSpec){ .argv = argv }, job, &job->stream, &error);

        if (r < 0)
                fail(error);
        return r;
}

/* Takes all that there is of @job now. Returns whether it has ended. */
static bool take(Job *job) {
        HutchError *error = NULL;
        HutchChunk chunk;
        int r;

        while ((r = hutch_exec_stream_next(job->stream, false, &chunk, &error)) > 0)
                printf("%d: %.*s", job->number, (int) chunk.len, chunk.data);
        fflush(stdout);
        if (r == -EAGAIN)
                return false;

        if (r < 0)
                fail(error);
        else
                printf("%d: ended with %d\n", job->number, hutch_exec_stream_exec(job->stream)->exit_code);
        hutch_exec_stream_free(job->stream);
        job->stream = NULL;
        return true;
}

static void run(HutchClient *client, int n_running) {
        struct pollfd loop_fd = { .fd = hutch_client_fd(client), .events = POLLIN }; /* and the program's own */
        void *user;

        while (n_running > 0) {
                poll(&loop_fd, 1, hutch_client_timeout(client));
                hutch_client_dispatch(client);
                while (hutch_client_next(client, &user)) {
                        Job *job = user;

                        if (job->stream && take(job))
                                n_running--;
                }
        }
}

int main(int argc, char **argv) {
        int n_jobs = argc - 2, n_running = 0;
        HutchClient *client = NULL;
        HutchError *error = NULL;
        Job *jobs;

        if (n_jobs < 1) {
                fprintf(stderr, "usage: loop SANDBOX SCRIPT…\n");
                return 2;
        }
        if (hutch_client_new(NULL, &client, &error) < 0) {
                fail(error);
                return 1;
        }

        jobs = calloc((size_t) n_jobs, sizeof(*jobs));
        for (int i = 0; jobs && i < n_jobs; i++) {
                jobs[i].number = i + 1;
                n_running += start(client, argv[1], argv[i + 2], &jobs[i]) == 0;
        }
        run(client, n_running);
        free(jobs);
        hutch_client_free(client);
        return 0;
}
