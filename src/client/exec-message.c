/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: from HutchExecSpec to hutch.v1.ExecSpec. What does not: the calls that it is for (exec.c,
 * exec-stream.c). */

#include "client/exec-message.h"

#include <stdlib.h>

#include "base/memory.h"
#include "client/views.h"

void exec_message_clear(ExecMessage *message) {
        free(message->env);
        *message = (ExecMessage){};
}

static void fill(ExecMessage *message, const HutchExecSpec *spec) {
        Hutch__V1__ExecSpec *made = &message->spec;

        *made = (Hutch__V1__ExecSpec) HUTCH__V1__EXEC_SPEC__INIT;
        made->argv = (char **) spec->argv;
        made->n_argv = texts_count(spec->argv);
        made->unset_env = (char **) spec->unset_env;
        made->n_unset_env = texts_count(spec->unset_env);
        if (spec->working_directory)
                made->working_directory = (char *) spec->working_directory;
        if (spec->user)
                made->user = (char *) spec->user;
        if (spec->timeout > 0)
                made->timeout = duration_from_ns(spec->timeout, &message->timeout);
        if (spec->kill_grace > 0)
                made->kill_grace = duration_from_ns(spec->kill_grace, &message->kill_grace);
        if (spec->stdin_stream)
                made->stdin = HUTCH__V1__STDIN_MODE__STDIN_MODE_STREAM;
        if (spec->terminal) {
                message->terminal = (Hutch__V1__TerminalSize) HUTCH__V1__TERMINAL_SIZE__INIT;
                message->terminal.rows = spec->rows;
                message->terminal.columns = spec->columns;
                made->terminal = &message->terminal;
        }
        made->output_limit_bytes = spec->output_limit;
}

int exec_message_fill(ExecMessage *message, const char *sandbox_id, const HutchExecSpec *spec, const char *above,
                      Failure *failure) {
        _cleanup_(checks_clear) Checks checks = { .above = above };
        int r;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_new_id(&checks, "exec_id", spec->id);
        checks_request_id(&checks, spec->request_id);
        checks_duration(&checks, "spec.timeout", spec->timeout);
        checks_duration(&checks, "spec.kill_grace", spec->kill_grace);
        checks_pairs(&checks, "spec.env", "ENV_NAME_MALFORMED", spec->env);
        r = checks_result(&checks, failure);
        if (r < 0)
                return r;

        fill(message, spec);
        r = pairs_from_texts(spec->env, &hutch__v1__exec_spec__env_entry__descriptor, &message->env,
                             &message->spec.n_env);
        if (r < 0)
                return r;

        message->spec.env = (Hutch__V1__ExecSpec__EnvEntry **) message->env;
        checks_exec_spec(&checks, &message->spec);
        return checks_result(&checks, failure);
}
