/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: starting, showing and ending execs, and reading what they printed. What does not: execs with our
 * stdin and terminal (run.c). */

#include "cli/exec-commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/spec-options.h"
#include "pbtext/pbtext.h"

#define COMMAND_WIDTH ((size_t) 60) /* of a command line in a table */

DEFINE_CLEANUP(HutchExecStream *, hutch_exec_stream_free);
DEFINE_CLEANUP(char **, strv_free);

static ProtobufCMessage *message_of(const HutchExec *exec) {
        return contract_decode("Exec", exec->encoded, exec->encoded_len);
}

static void print_exec(const HutchExec *exec, Format format) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_of(exec);

        if (format == FORMAT_TABLE)
                (void) puts(exec->id);
        else
                print_message(format, message);
}

/* The command line, as far as a table has room. The caller frees it. */
static char *command_of(const ProtobufCMessage *exec) {
        char *command = message_join(exec, "spec.argv", " ");

        if (command[text_prefix(command, COMMAND_WIDTH)])
                memcpy(command + text_prefix(command, COMMAND_WIDTH - 3), "...", 4);
        return command;
}

int exec_spec_from_arguments(const Arguments *arguments, HutchExecSpec *exec, char ***ret_env, HutchError *err) {
        int r = arguments_get_timeout(arguments, &exec->timeout, err);

        exec->working_directory = arguments_get(arguments, "workdir");
        exec->user = arguments_get(arguments, "user");
        return r < 0 ? r : environment_from_arguments(arguments, ret_env, err);
}

int exec_detached(const Arguments *arguments, HutchExecSpec *exec) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(hutch_exec_freep) HutchExec *started = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(strv_freep) char **env = NULL;

        if (exec_spec_from_arguments(arguments, exec, &env, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (arguments_have(arguments, "interactive"))
                return usage_error(arguments, "--detach and --interactive exclude each other");

        exec->env = (const char **) env;
        exec->terminal = arguments_have(arguments, "tty");
        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_exec_create(client, arguments->operands[0], exec, &started, &error) < 0)
                return report_error(error, NULL, EXIT_HUTCH_FAILED);

        print_exec(started, output_format(arguments));
        return EXIT_SUCCESS;
}

/* ---- list, get, cancel ---- */

typedef struct Listing {
        Printer printer;
        uint64_t now;
} Listing;

static void listing_clear(Listing *listing) {
        printer_clear(&listing->printer);
}

static int list_exec(const HutchExec *exec, void *user) {
        Listing *listing = user;
        _cleanup_(message_freep) ProtobufCMessage *message = message_of(exec);
        const char *state = hutch_exec_state_name(exec->state);
        _cleanup_free_ char *command = NULL;
        char age[AGE_SIZE];

        if (printer_add_message(&listing->printer, message))
                return 0;

        command = command_of(message);
        age_format(exec->create_time, listing->now, age);
        printer_add_cell(&listing->printer, TONE_PLAIN, exec->id);
        printer_add_cell(&listing->printer, state_tone(state), state);
        if (exec->has_exit_code)
                printer_add_cellf(&listing->printer, TONE_PLAIN, "%d", exec->exit_code);
        else
                printer_add_cell(&listing->printer, TONE_PLAIN, "");
        printer_add_cell(&listing->printer, TONE_PLAIN, age);
        printer_add_cell(&listing->printer, TONE_PLAIN, command);
        return 0;
}

int command_exec_list(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(listing_clear) Listing listing = { .now = clock_realtime_ns() };

        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        listing.printer = printer_new(output_format(arguments), "ID", "STATE", "EXIT", "CREATED", "COMMAND");
        if (hutch_exec_list(client, arguments->operands[0], 0, list_exec, &listing, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        printer_end(&listing.printer);
        return EXIT_SUCCESS;
}

static void print_details(const HutchExec *exec) {
        static const struct {
                const char *name, *path;
        } fields[] = {
                { "Id", "id" },
                { "Sandbox", "sandbox_id" },
                { "State", "state" },
                { "Exit code", "result.exit_code" },
                { "Ended because", "result.end_reason" },
                { "Message", "result.message" },
                { "Working directory", "spec.working_directory" },
                { "User", "spec.user" },
                { "Timeout", "spec.timeout" },
                { "Created", "create_time" },
                { "Started", "start_time" },
                { "Ended", "end_time" },
                { "CPU time", "result.cpu_time" },
                { "Bytes on stdout", "stdout_bytes" },
                { "Bytes on stderr", "stderr_bytes" },
        };
        _cleanup_(message_freep) ProtobufCMessage *message = message_of(exec);
        _cleanup_free_ char *command = command_of(message);
        Printer printer = printer_new_details();

        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                _cleanup_free_ char *value = message_get(message, fields[i].path);

                printer_add_detail(&printer, fields[i].name, value);
        }
        printer_add_detail(&printer, "Command", command);
        printer_end(&printer);
}

int command_exec_get(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(hutch_exec_freep) HutchExec *exec = NULL;
        Format format = output_format(arguments);

        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_exec_get(client, arguments->operands[0], arguments->operands[1], &exec, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        if (format == FORMAT_TABLE)
                print_details(exec);
        else
                print_exec(exec, format);
        return EXIT_SUCCESS;
}

int command_exec_cancel(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(hutch_exec_freep) HutchExec *exec = NULL;
        _cleanup_(error_clear) HutchError err = {};
        uint64_t grace;

        if (arguments_get_duration(arguments, "grace", &grace, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (arguments_have(arguments, "grace") && grace == 0)
                grace = 1; /* at once; libhutch takes 0 for the exec's own */

        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_exec_cancel(client, arguments->operands[0], arguments->operands[1], grace, &exec, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        print_exec(exec, output_format(arguments));
        return EXIT_SUCCESS;
}

/* ---- logs ---- */

/* Writes a chunk, and tells what is missing before it. *@ret_next: where the next one begins; UINT64_MAX: unknown. */
static int write_log(const HutchChunk *chunk, uint64_t *ret_next) {
        int fd = chunk->stream == STDERR_FILENO ? STDERR_FILENO : STDOUT_FILENO;
        int r = fd_write_all(fd, chunk->data, chunk->len);

        if (*ret_next != UINT64_MAX && chunk->offset > *ret_next)
                report_note("%" PRIu64 " bytes before this were not kept", chunk->offset - *ret_next);
        *ret_next = chunk->offset + chunk->len;
        if (r < 0)
                report_note("cannot write: %s", strerror(-r));
        return r;
}

static int read_tail(const Arguments *arguments, HutchReadOptions *options, HutchError *err) {
        const char *tail = arguments_get(arguments, "tail");
        char *end;

        if (!tail || str_equal(tail, "all"))
                return 0;

        errno = 0;
        options->has_tail_lines = true;
        options->tail_lines = strtoull(tail, &end, 10);
        if (!ascii_is_digit(tail[0]) || *end || errno)
                return error_set(err, -EINVAL, "USAGE", "--tail cannot be '%s'; it is a number of lines, or all", tail);
        return 0;
}

int command_exec_logs(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(hutch_exec_stream_freep) HutchExecStream *stream = NULL;
        _cleanup_(error_clear) HutchError err = {};
        HutchReadOptions options = {
                .follow = arguments_have(arguments, "follow"),
                .only_stdout = arguments_have(arguments, "stdout") && !arguments_have(arguments, "stderr"),
                .only_stderr = arguments_have(arguments, "stderr") && !arguments_have(arguments, "stdout"),
        };
        uint64_t next[2] = {};
        const HutchExec *exec;
        HutchChunk chunk;
        int r;

        if (read_tail(arguments, &options, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (options.has_tail_lines)
                next[0] = next[1] = UINT64_MAX;

        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_exec_read(client, arguments->operands[0], arguments->operands[1], &options, NULL, &stream, &error) <
                    0)
                return report_error(error, NULL, EXIT_FAILURE);

        while ((r = hutch_exec_stream_next(stream, true, &chunk, &error)) > 0)
                if (write_log(&chunk, &next[chunk.stream == STDERR_FILENO]) < 0)
                        return EXIT_FAILURE;
        if (r < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        /* Newer output has taken the place of all of it. */
        exec = hutch_exec_stream_exec(stream);
        if (exec && exec->stdout_dropped + exec->stderr_dropped > 0 &&
            exec->stdout_dropped + exec->stderr_dropped == exec->stdout_bytes + exec->stderr_bytes)
                report_note("none of its output is kept any more");
        return EXIT_SUCCESS;
}
