/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: commands about execs, and one-shots. */

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "driver.h"

static json_t *exec_to_value(const HutchExec *exec) {
        return message_to_value("Exec", exec->encoded, exec->encoded_len);
}

/* Answers with @exec, and frees it. */
static int answer(int r, HutchExec *exec, json_t *ok) {
        if (r >= 0)
                json_object_set_new(ok, "exec", exec_to_value(exec));
        hutch_exec_free(exec);
        return r;
}

static HutchExecSpec exec_spec_of(Command *command) {
        const json_t *spec = json_object_get(command->args, "spec"), *terminal = json_object_get(spec, "terminal");

        return (HutchExecSpec){
                .argv = texts_of(command, spec, "argv"),
                .id = arg_text(command, "exec_id"),
                .request_id = arg_text(command, "request_id"),
                .env = pairs_of(command, spec, "env"),
                .unset_env = texts_of(command, spec, "unset_env"),
                .working_directory = text_of(spec, "working_directory"),
                .user = text_of(spec, "user"),
                .timeout = duration_of(command, spec, "timeout"),
                .kill_grace = duration_of(command, spec, "kill_grace"),
                .stdin_stream = str_equal(text_of(spec, "stdin"), "STDIN_MODE_STREAM"),
                .terminal = terminal != NULL,
                .rows = (uint32_t) number_of(terminal, "rows"),
                .columns = (uint32_t) number_of(terminal, "columns"),
                .output_limit = number_of(spec, "output_limit_bytes"),
                .bound = arg_flag(command, "bound"),
        };
}

static int run(Command *command, json_t *ok, HutchError **ret_error) {
        HutchExecSpec spec = exec_spec_of(command);
        Bytes input = bytes_of(command, command->args, "input");
        HutchOutput *output = NULL;
        int r = hutch_exec_run(command->client, arg_text(command, "sandbox_id"), &spec, input.data, input.len, &output,
                               ret_error);

        if (r < 0)
                return r;

        json_object_set_new(ok, "exec", exec_to_value(output->exec));
        ok_bytes(ok, "stdout", output->stdout_data, output->stdout_len);
        ok_bytes(ok, "stderr", output->stderr_data, output->stderr_len);
        json_object_set_new(ok, "truncated", json_boolean(output->truncated));
        hutch_output_free(output);
        return 0;
}

static int create(Command *command, json_t *ok, HutchError **ret_error) {
        HutchExecSpec spec = exec_spec_of(command);
        HutchExec *exec = NULL;
        int r = hutch_exec_create(command->client, arg_text(command, "sandbox_id"), &spec, &exec, ret_error);

        return answer(r, exec, ok);
}

static int get(Command *command, json_t *ok, HutchError **ret_error) {
        HutchExec *exec = NULL;
        int r = hutch_exec_get(command->client, arg_text(command, "sandbox_id"), arg_text(command, "exec_id"), &exec,
                               ret_error);

        return answer(r, exec, ok);
}

static int cancel(Command *command, json_t *ok, HutchError **ret_error) {
        uint64_t grace = duration_of(command, command->args, "grace");
        HutchExec *exec = NULL;
        int r = hutch_exec_cancel(command->client, arg_text(command, "sandbox_id"), arg_text(command, "exec_id"), grace,
                                  &exec, ret_error);

        return answer(r, exec, ok);
}

static int add_exec(const HutchExec *exec, void *user) {
        return json_array_append_new(user, exec_to_value(exec));
}

static int list(Command *command, json_t *ok, HutchError **ret_error) {
        const json_t *names = json_object_get(command->args, "states"), *value;
        json_t *execs = json_array();
        uint32_t states = 0;
        size_t i;

        json_array_foreach(names, i,
                           value) for (unsigned state = HUTCH_EXEC_PENDING; state <= HUTCH_EXEC_LOST;
                                       state++) if (str_has_suffix(json_string_value(value),
                                                                   hutch_exec_state_name((HutchExecState) state)))
                states |= 1U << state;
        json_object_set_new(ok, "execs", execs);
        return hutch_exec_list(command->client, arg_text(command, "sandbox_id"), states, add_exec, execs, ret_error);
}

/* ---- Streams ---- */

static int take_step(Command *command, HutchExecStream *stream, const json_t *step, HutchError **ret_error) {
        const json_t *size = json_object_get(step, "resize");
        Bytes bytes;

        if (size)
                return hutch_exec_stream_resize(stream, (uint32_t) number_of(size, "rows"),
                                                (uint32_t) number_of(size, "columns"), ret_error);
        if (json_object_get(step, "signal"))
                return hutch_exec_stream_signal(stream, (int) number_of(step, "signal"), ret_error);
        if (json_object_get(step, "close"))
                return hutch_exec_stream_close_input(stream, ret_error);

        bytes = bytes_of(command, step, "stdin");
        return hutch_exec_stream_write(stream, true, bytes.data, bytes.len, ret_error);
}

/* Takes the steps of the input that can be taken now, from number *@at on. */
static int take_steps(Command *command, HutchExecStream *stream, const Collected *output, size_t *at,
                      HutchError **ret_error) {
        const json_t *steps = json_object_get(command->args, "input"), *step;
        int r = 0;

        while (r >= 0 && (step = json_array_get(steps, *at))) {
                const char *after = text_of(step, "after");

                if (after && (!output->data || !memmem(output->data, output->len, after, strlen(after))))
                        break;
                if (!after)
                        r = take_step(command, stream, step, ret_error);
                (*at)++;
        }
        return r;
}

/* Reads @stream to its end and answers with it. */
static int read_to_end(Command *command, HutchExecStream *stream, json_t *ok, HutchError **ret_error) {
        Collected output[2] = {};
        HutchChunk chunk;
        size_t at = 0;
        int r;

        do {
                r = take_steps(command, stream, &output[0], &at, ret_error);
                if (r < 0)
                        break;
                r = hutch_exec_stream_next(stream, false, &chunk, ret_error);
                if (r == 1) {
                        collected_add(&output[chunk.stream - 1], chunk.offset, chunk.data, chunk.len);
                        command_note(command);
                } else if (r == -EAGAIN) {
                        r = command_wait(command) < 0 ? -ECANCELED : 1;
                }
        } while (r == 1);
        if (r == 0) {
                json_object_set_new(ok, "exec", exec_to_value(hutch_exec_stream_exec(stream)));
                ok_output(ok, "stdout", &output[0]);
                ok_output(ok, "stderr", &output[1]);
        }
        collected_clear(&output[0]);
        collected_clear(&output[1]);
        return r;
}

/* The same with a stream that was begun, if @r is 0. Takes it over. */
static int collect(int r, Command *command, HutchExecStream *stream, json_t *ok, HutchError **ret_error) {
        if (r == 0)
                r = read_to_end(command, stream, ok, ret_error);
        hutch_exec_stream_free(stream);
        return r;
}

static int start(Command *command, json_t *ok, HutchError **ret_error) {
        HutchExecSpec spec = exec_spec_of(command);
        HutchExecStream *stream = NULL;
        int r = hutch_exec_start(command->client, arg_text(command, "sandbox_id"), &spec, NULL, &stream, ret_error);

        return collect(r, command, stream, ok, ret_error);
}

static int attach(Command *command, json_t *ok, HutchError **ret_error) {
        HutchExecStream *stream = NULL;
        int r = hutch_exec_attach(command->client, arg_text(command, "sandbox_id"), arg_text(command, "exec_id"),
                                  arg_number(command, "stdout_offset"), arg_number(command, "stderr_offset"), NULL,
                                  &stream, ret_error);

        return collect(r, command, stream, ok, ret_error);
}

static int read_output(Command *command, json_t *ok, HutchError **ret_error) {
        const json_t *streams = json_object_get(command->args, "streams");
        const char *only =
                json_array_size(streams) == 1 ? json_string_value(json_array_get(streams, 0)) : "OUTPUT_STREAM_BOTH";
        const HutchReadOptions options = {
                .stdout_offset = arg_number(command, "stdout_offset"),
                .stderr_offset = arg_number(command, "stderr_offset"),
                .only_stdout = str_has_suffix(only, "STDOUT"),
                .only_stderr = str_has_suffix(only, "STDERR"),
                .follow = arg_flag(command, "follow"),
                .has_tail_lines = arg_has(command, "tail_lines"),
                .tail_lines = arg_number(command, "tail_lines"),
        };
        HutchExecStream *stream = NULL;
        int r = hutch_exec_read(command->client, arg_text(command, "sandbox_id"), arg_text(command, "exec_id"),
                                &options, NULL, &stream, ret_error);

        return collect(r, command, stream, ok, ret_error);
}

/* ---- One-shots ---- */

/* Turns the exec of a one-shot into what the contract says of one. */
static void tell_once(HutchExecStream *stream, json_t *ok) {
        json_t *exec = json_object_get(ok, "exec"), *result = json_object_get(exec, "result");
        json_t *started = json_pack("{s:O}", "sandbox_id", json_object_get(exec, "sandbox_id"));
        json_t *end = json_pack("{s:O}", "result", result);
        size_t len = 0;
        const void *limits = hutch_exec_stream_limits(stream, &len);

        json_object_set_new(started, "effective", message_to_value("EffectiveLimits", limits, len));
        json_object_set(end, "exit_code", json_object_get(result, "exit_code"));
        json_object_set_new(ok, "started", started);
        json_object_set_new(ok, "exit", end);
        json_object_del(ok, "exec");
}

static int start_once(Command *command, json_t *ok, HutchError **ret_error) {
        const json_t *value = json_object_get(command->args, "request");
        Bytes request = encode_value(command, value, hutch_message_descriptor("ExecRequest"));
        HutchExecStream *stream = NULL;
        int r = hutch_once_start_encoded(command->client, request.data, request.len, NULL, &stream, ret_error);

        if (r == 0)
                r = read_to_end(command, stream, ok, ret_error);
        if (r == 0)
                tell_once(stream, ok);
        hutch_exec_stream_free(stream);
        return r;
}

static int run_once(Command *command, json_t *ok, HutchError **ret_error) {
        Bytes input = bytes_of(command, command->args, "input");
        const HutchOnceSpec spec = {
                .argv = texts_of(command, command->args, "argv"),
                .env = pairs_of(command, command->args, "env"),
                .labels = pairs_of(command, json_object_get(command->args, "spec"), "labels"),
                .input = input.data,
                .input_len = input.len,
                .timeout = duration_of(command, command->args, "timeout"),
        };
        HutchOutput *output = NULL;
        int r = hutch_run_once(command->client, &spec, &output, ret_error);

        if (r < 0)
                return r;

        json_object_set_new(ok, "exit_code", json_integer(output->exec->exit_code));
        ok_bytes(ok, "stdout", output->stdout_data, output->stdout_len);
        ok_bytes(ok, "stderr", output->stderr_data, output->stderr_len);
        json_object_set_new(ok, "truncated", json_boolean(output->truncated));
        hutch_output_free(output);
        return 0;
}

const NamedOperation exec_operations[] = {
        { "exec.run", run },
        { "exec.create", create },
        { "exec.get", get },
        { "exec.list", list },
        { "exec.cancel", cancel },
        { "exec.start", start },
        { "exec.attach", attach },
        { "exec.output", read_output },
        { "once.exec", start_once },
        { "once.run", run_once },
        { NULL, NULL },
};
