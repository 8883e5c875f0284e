/* SPDX-License-Identifier: Apache-2.0 */

/* Runs a command in a sandbox of its own and prints what it says.
 *
 *         cc hello.c $(pkg-config --cflags --libs hutch) -o hello
 *         ./hello uname -a */

#include <hutch/hutch.h>
#include <stdio.h>

int main(int argc, char **argv) {
        const char *const hello[] = { "echo", "hello from the hutch", NULL };
        HutchExecSpec spec = { .argv = argc > 1 ? (const char *const *) argv + 1 : hello };
        HutchClient *client = NULL;
        HutchSandbox *sandbox = NULL;
        HutchOutput *output = NULL;
        HutchError *error = NULL;
        int status = 1;

        if (hutch_client_new(&(HutchClientOptions){ .start_daemon = true }, &client, &error) < 0 ||
            hutch_sandbox_create(client, NULL, &sandbox, &error) < 0 ||
            hutch_exec_run(client, sandbox->id, &spec, NULL, 0, &output, &error) < 0) {
                fprintf(stderr, "%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        } else {
                fwrite(output->stdout_data, 1, output->stdout_len, stdout);
                fwrite(output->stderr_data, 1, output->stderr_len, stderr);
                status = output->exec->has_exit_code ? output->exec->exit_code : 1;
        }

        if (sandbox)
                hutch_sandbox_delete(client, sandbox->id, NULL, NULL);
        hutch_error_free(error);
        hutch_output_free(output);
        hutch_sandbox_free(sandbox);
        hutch_client_free(client);
        return status;
}
