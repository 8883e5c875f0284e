/* SPDX-License-Identifier: Apache-2.0 */

/* Runs a command in a sandbox that is there, with this program's stdin, stdout and stderr.
 *
 *         cc stream.c $(pkg-config --cflags --libs hutch) -o stream
 *         echo some text | ./stream SANDBOX tr a-z A-Z */

#include <errno.h>
#include <hutch/hutch.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static int fail(HutchError *error) {
        fprintf(stderr, "%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        hutch_error_free(error);
        return 1;
}

/* Feeds the command with what there is. Returns whether there may be more. */
static bool feed(HutchExecStream *stream) {
        char buffer[65536];
        ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));

        if (n > 0)
                return hutch_exec_stream_write(stream, false, buffer, (size_t) n, NULL) == 0;
        hutch_exec_stream_close_input(stream, NULL);
        return false;
}

/* Prints what there is. As hutch_exec_stream_next(). */
static int print(HutchExecStream *stream, HutchError **ret_error) {
        HutchChunk chunk;
        int r;

        while ((r = hutch_exec_stream_next(stream, false, &chunk, ret_error)) > 0)
                fwrite(chunk.data, 1, chunk.len, chunk.stream == 1 ? stdout : stderr);
        return r;
}

static int run(HutchClient *client, HutchExecStream *stream) {
        const HutchExec *exec;
        HutchError *error = NULL;
        bool open = true;
        int r;

        while ((r = print(stream, &error)) == -EAGAIN) {
                struct pollfd fds[] = {
                        { .fd = hutch_client_fd(client), .events = POLLIN },
                        /* Nothing is read that the command would not take. */
                        { .fd = open && hutch_exec_stream_is_writable(stream) ? STDIN_FILENO : -1, .events = POLLIN },
                };

                fflush(stdout);
                poll(fds, 2, hutch_client_timeout(client));
                hutch_client_dispatch(client);
                if (fds[1].revents)
                        open = feed(stream);
        }
        if (r < 0)
                return fail(error);

        exec = hutch_exec_stream_exec(stream);
        return exec->has_exit_code ? exec->exit_code : 1;
}

int main(int argc, char **argv) {
        const HutchExecSpec spec = { .argv = (const char *const *) argv + 2, .stdin_stream = true };
        HutchClient *client = NULL;
        HutchExecStream *stream = NULL;
        HutchError *error = NULL;
        int status;

        if (argc < 3) {
                fprintf(stderr, "usage: stream SANDBOX COMMAND…\n");
                return 2;
        }

        if (hutch_client_new(NULL, &client, &error) < 0 ||
            hutch_exec_start(client, argv[1], &spec, NULL, &stream, &error) < 0)
                status = fail(error);
        else
                status = run(client, stream);
        hutch_exec_stream_free(stream);
        hutch_client_free(client);
        return status;
}
