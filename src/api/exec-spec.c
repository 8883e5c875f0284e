/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules of hutch.v1.ExecSpec, and its way into the model and back. What does not: what sandboxes
 * and execs share (process-rules.c). */

#include "api/exec-spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/process-rules.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/strings.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "policy/path-rules.h"
#include "rpc/core/protobuf.h"

#define UNSET_ENV_MAX 256
#define TERMINAL_MAX 65535
#define KILL_GRACE_DEFAULT (5 * NSEC_PER_SEC)
#define STORED_MAX ((size_t) 64 << 20) /* bytes in memory of what the store kept */

typedef Hutch__V1__ExecSpec Message;

void terminal_check(const Hutch__V1__TerminalSize *size, const char *field, Violations *violations) {
        if (size->rows > TERMINAL_MAX || size->columns > TERMINAL_MAX)
                violations_add(violations, field, REASON_FIELD_OUT_OF_RANGE, "rows and columns are 1 to %d",
                               TERMINAL_MAX);
}

static int resolve(const char *path, const char *working_directory, Violations *violations, char **ret_path) {
        const PathContext context = { .working_directory = working_directory };

        return violations_note(violations, "working_directory",
                               path_resolve(path, strlen(path), &context, ret_path, NULL, &violations->err));
}

void exec_spec_check(const Message *message, const ExecRules *rules, Violations *violations) {
        _cleanup_free_ char *path = NULL;
        MapEntry *const *env;
        uint64_t ns;

        if (!message) {
                violations_add(violations, NULL, REASON_FIELD_REQUIRED, "say what to run");
                return;
        }

        env = (MapEntry *const *) message->env;
        check_arguments(message->argv, message->n_argv, "argv", violations);
        check_environment(env, message->n_env, "env", violations);
        check_user(message->user, "user", violations);
        if (*message->working_directory)
                (void) resolve(message->working_directory, "/", violations,
                               &path); /* again, once the sandbox is known */

        if (message->n_unset_env > UNSET_ENV_MAX)
                violations_add_limit(violations, "unset_env", REASON_FIELD_TOO_LONG, "unset_env", UNSET_ENV_MAX,
                                     "at most %d names", UNSET_ENV_MAX);
        for (size_t i = 0; i < message->n_unset_env && i < UNSET_ENV_MAX; i++) {
                size_t above = violations_enter_element(violations, "unset_env", i);
                const char *name = message->unset_env[i];

                (void) violations_note(violations, NULL, env_name_check(name, strlen(name), &violations->err));
                violations_leave(violations, above);
        }

        duration_read_bounded(message->timeout, "timeout", UINT64_MAX, 0, violations, &ns);
        duration_read_bounded(message->kill_grace, "kill_grace", KILL_GRACE_MAX, 0, violations, &ns);
        if (!protobuf_c_enum_descriptor_get_value(&hutch__v1__stdin_mode__descriptor, message->stdin))
                violations_add(violations, "stdin", REASON_FIELD_INVALID, "there is no such mode");
        if (message->terminal)
                terminal_check(message->terminal, "terminal", violations);
        if (rules->max_output > 0 && message->output_limit_bytes > rules->max_output)
                violations_add_limit(violations, "output_limit_bytes", REASON_FIELD_OUT_OF_RANGE,
                                     "max_exec_output_bytes", rules->max_output, "at most %" PRIu64 " bytes",
                                     rules->max_output);
        check_arguments_size(message->argv, message->n_argv, env, message->n_env, violations);
}

static uint64_t duration_or(const Google__Protobuf__Duration *duration, uint64_t otherwise) {
        return duration ? duration_ns(duration) : otherwise;
}

static bool is_duration(const Google__Protobuf__Duration *duration) {
        return !duration || (duration->seconds >= 0 && duration->seconds <= INT32_MAX && duration->nanos >= 0 &&
                             duration->nanos < (int32_t) NSEC_PER_SEC);
}

/* Copies bytes; NULL for none. */
static int copy_bytes(const uint8_t *bytes, size_t len, uint8_t **ret_bytes, size_t *ret_len) {
        if (len == 0)
                return 0;

        *ret_bytes = malloc(len);
        if (!*ret_bytes)
                return -ENOMEM;

        memcpy(*ret_bytes, bytes, len);
        *ret_len = len;
        return 0;
}

/* Makes a spec of @message and of the bytes, which are copied. */
static int build(const Message *message, const StoredSpec *stored, ExecSpec **ret_spec) {
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = exec_spec_new();
        int r;

        if (message->n_argv == 0 || !is_duration(message->timeout) || !is_duration(message->kill_grace))
                return -EBADMSG;

        spec->argv = copy_texts(message->argv, message->n_argv);
        spec->n_env = message->n_env;
        spec->env = copy_environment((MapEntry *const *) message->env, message->n_env);
        spec->unset_env = copy_texts(message->unset_env, message->n_unset_env);
        spec->working_directory = *message->working_directory ? xstrdup(message->working_directory) : NULL;
        spec->user = *message->user ? xstrdup(message->user) : NULL;
        spec->timeout = duration_or(message->timeout, 0);
        spec->kill_grace = duration_or(message->kill_grace, KILL_GRACE_DEFAULT);
        spec->stdin_stream = message->stdin == HUTCH__V1__STDIN_MODE__STDIN_MODE_STREAM;
        spec->output_limit = message->output_limit_bytes;
        if (message->terminal) {
                spec->terminal = true;
                spec->rows = message->terminal->rows ? message->terminal->rows : TERMINAL_ROWS;
                spec->columns = message->terminal->columns ? message->terminal->columns : TERMINAL_COLUMNS;
        }

        r = copy_bytes(stored->encoded, stored->encoded_len, &spec->encoded, &spec->encoded_len);
        if (r == 0)
                r = copy_bytes(stored->input, stored->input_len, &spec->input, &spec->input_len);
        if (r < 0)
                return r;

        *ret_spec = TAKE_PTR(spec);
        return 0;
}

int exec_spec_create(const Message *message, const ExecRules *rules, const SandboxSpec *sandbox, const void *input,
                     size_t input_len, Violations *violations, ExecSpec **ret_spec) {
        _cleanup_free_ char *working_directory = NULL;
        _cleanup_free_ uint8_t *encoded = NULL;
        StoredSpec stored = { .input = input, .input_len = input_len };
        Message filled = *message;
        int r;

        if (*filled.working_directory) {
                r = resolve(filled.working_directory, sandbox->working_directory, violations, &working_directory);
                if (r < 0)
                        return r;
                filled.working_directory = working_directory;
        }
        if (filled.output_limit_bytes == 0)
                filled.output_limit_bytes = rules->output;

        r = protobuf_pack(&filled.base, &encoded, &stored.encoded_len);
        if (r < 0)
                return r;
        stored.encoded = encoded;
        return build(&filled, &stored, ret_spec);
}

ExecSpec *exec_spec_make_main(const SandboxSpec *sandbox, uint64_t output) {
        Message message = HUTCH__V1__EXEC_SPEC__INIT;
        _cleanup_free_ uint8_t *encoded = NULL;
        ExecSpec *spec = NULL;
        StoredSpec stored = {};

        message.argv = sandbox->command;
        while (sandbox->command[message.n_argv])
                message.n_argv++;
        message.output_limit_bytes = output;

        /* As small as the sandbox's own spec, which has found its memory. */
        if (protobuf_pack(&message.base, &encoded, &stored.encoded_len) < 0)
                abort();
        stored.encoded = encoded;
        if (build(&message, &stored, &spec) < 0)
                abort();
        return spec;
}

int exec_spec_decode(const StoredSpec *stored, ExecSpec **ret_spec, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r;

        r = protobuf_unpack(&hutch__v1__exec_spec__descriptor, stored->encoded, stored->encoded_len, STORED_MAX,
                            &unpacked);
        if (r == 0)
                r = build((const Message *) unpacked, stored, ret_spec);
        if (r == -ENOMEM)
                return reason_set(err, r, REASON_HOST_EXHAUSTED, "out of memory");
        if (r < 0)
                return reason_set(err, -EBADMSG, REASON_INTERNAL, "the spec of an exec in the store cannot be read");
        return 0;
}
