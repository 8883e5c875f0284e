/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: `run`, `exec` and `shell`, and that a one-shot's sandbox is deleted however it ends. What does not:
 * the streams while the command runs (session.c), and execs that nobody is attached to (exec-commands.c). */

#include "cli/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exec-commands.h"
#include "cli/exit-codes.h"
#include "cli/report.h"
#include "cli/run-once.h"
#include "cli/sandbox-commands.h"
#include "cli/session.h"
#include "cli/signals.h"
#include "cli/spec-options.h"
#include "pbtext/pbtext.h"

/* How long a one-shot's sandbox stays when hutch itself is killed. */
#define ONE_SHOT_IDLE_TTL "1m"

DEFINE_CLEANUP(char **, strv_free);

static const char *const *texts(char **list) {
        return (const char *const *) list;
}

/* Adds the terminal's type to @env, unless --env says something else. */
static void add_terminal_type(const Arguments *arguments, char ***env) {
        _cleanup_free_ const char **given = arguments_get_all(arguments, "env");
        const char *type = getenv("TERM");
        StringBuilder variable = {};
        size_t n = 0;

        for (size_t i = 0; given[i]; i++)
                if (str_equal(given[i], "TERM") || str_has_prefix(given[i], "TERM="))
                        return;
        if (!type || *type == '\0')
                return;

        while (*env && (*env)[n])
                n++;
        string_builder_appendf(&variable, "TERM=%s", type);
        *env = xreallocarray(*env, n + 2, sizeof(char *));
        (*env)[n] = string_builder_take(&variable);
        (*env)[n + 1] = NULL;
}

/* ---- run ---- */

typedef struct OneShot {
        HutchClient *client;
        const char *name; /* NULL: none was given */
        void *spec;
        size_t spec_len;
        HutchSandbox *sandbox;
        HutchError *error;
} OneShot;

static void one_shot_clear(OneShot *one_shot) {
        hutch_sandbox_free(one_shot->sandbox);
        hutch_error_free(one_shot->error);
        hutch_client_free(one_shot->client);
        free(one_shot->spec);
}

static int create_sandbox(void *user) {
        OneShot *one_shot = user;

        return hutch_sandbox_create_encoded(one_shot->client, one_shot->name, NULL, one_shot->spec, one_shot->spec_len,
                                            &one_shot->sandbox, &one_shot->error);
}

static int delete_sandbox(void *user) {
        OneShot *one_shot = user;

        return hutch_sandbox_delete(one_shot->client, one_shot->sandbox->id, NULL, &one_shot->error);
}

/* Ends at once, with a call still under way. */
static void __attribute__((noreturn)) give_up(const OneShot *one_shot, const Signals *signals) {
        if (one_shot->sandbox)
                report_note("gave up waiting for the daemon; 'hutch delete %s' deletes what is left",
                            one_shot->sandbox->id);
        else
                report_note("gave up waiting for the daemon; 'hutch list' shows whether a sandbox is left");
        _exit(EXIT_SIGNAL + signals->end);
}

static int read_run(const Arguments *arguments, OneShot *one_shot, HutchExecSpec *exec, ProtobufCMessage **ret_spec,
                    HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *spec = NULL;
        bool keep = arguments_have(arguments, "keep");
        int r = spec_from_arguments(arguments, &spec, err);

        if (r == 0)
                r = arguments_get_timeout(arguments, &exec->timeout, err);
        if (r == 0 && !keep && !message_has(spec, "idle_ttl"))
                r = message_set(spec, "idle_ttl", ONE_SHOT_IDLE_TTL, err);
        if (r == 0 && !keep && !message_has(spec, "idle_action"))
                r = message_set(spec, "idle_action", "DELETE", err);
        if (r == 0 && !keep && !message_has(spec, "lifetime_action"))
                r = message_set(spec, "lifetime_action", "DELETE", err);
        if (r < 0)
                return r;

        one_shot->name = arguments_get(arguments, "name");
        message_encode(spec, &one_shot->spec, &one_shot->spec_len);
        *ret_spec = TAKE_PTR(spec);
        return 0;
}

/* Says why nothing could run, where the sandbox itself is to blame. */
static int explain_failure(void *user) {
        const OneShot *one_shot = user;
        _cleanup_(hutch_sandbox_freep) HutchSandbox *sandbox = NULL;

        if (hutch_sandbox_get(one_shot->client, one_shot->sandbox->id, &sandbox, NULL) == 0 &&
            sandbox->state == HUTCH_SANDBOX_FAILED)
                report_note("the sandbox failed: %s; 'hutch doctor' says what to change", sandbox->state_message);
        return 0;
}

/* Runs the command in the sandbox that is there. Returns the exit code. */
static int run_in(OneShot *one_shot, const Arguments *arguments, HutchExecSpec exec, Signals *signals,
                  bool *ret_pipe_broke) {
        Session session = { .client = one_shot->client, .sandbox_id = one_shot->sandbox->id, .exec = exec };
        _cleanup_(strv_freep) char **env = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        int r, exit_code = EXIT_HUTCH_FAILED;

        session_choose_input(&session, arguments, true);
        if (session.exec.terminal)
                add_terminal_type(arguments, &env);
        session.exec.env = texts(env);
        session.exec.bound = !arguments_have(arguments, "keep");

        r = session_run(&session, signals, &exit_code, &error);
        *ret_pipe_broke = r == -EPIPE && !error;
        if (r < 0)
                exit_code = session_report(r, error, signals);
        if (exit_code == EXIT_HUTCH_FAILED && !*ret_pipe_broke &&
            signals_call(signals, explain_failure, one_shot) == -EINTR)
                give_up(one_shot, signals);
        return exit_code;
}

/* Deletes the sandbox, or tells that it stays. Returns the exit code. */
static int finish(OneShot *one_shot, const Arguments *arguments, Signals *signals, int exit_code) {
        int r;

        if (arguments_have(arguments, "keep")) {
                if (!arguments_have(arguments, "quiet"))
                        report_note("kept the sandbox %s", one_shot->sandbox->id);
                return exit_code;
        }

        r = signals_call(signals, delete_sandbox, one_shot);
        if (r == -EINTR && !one_shot->error)
                give_up(one_shot, signals);
        if (r < 0 && !str_equal(hutch_error_reason(one_shot->error), "SANDBOX_NOT_FOUND"))
                return report_error(one_shot->error, one_shot->sandbox->id, EXIT_HUTCH_FAILED);
        return exit_code;
}

int command_run(const Arguments *arguments) {
        HutchExecSpec exec = { .argv = texts(arguments->operands) };
        _cleanup_(one_shot_clear) OneShot one_shot = {};
        _cleanup_(message_freep) ProtobufCMessage *spec = NULL;
        _cleanup_(error_clear) HutchError err = {};
        bool pipe_broke = false;
        int r, exit_code;
        Signals signals;

        if (arguments_have(arguments, "once"))
                return run_in_one_call(arguments);
        if (arguments_have(arguments, "keep") && arguments_have(arguments, "rm"))
                return usage_error(arguments, "--keep and --rm exclude each other");
        if (read_run(arguments, &one_shot, &exec, &spec, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &one_shot.client, &one_shot.error) < 0)
                return report_error(one_shot.error, NULL, EXIT_HUTCH_FAILED);

        /* From here on there may be a sandbox to delete. */
        r = signals_open(&signals);
        if (r < 0) {
                report_note("cannot listen to signals: %s", strerror(-r));
                return EXIT_HUTCH_FAILED;
        }
        r = signals_call(&signals, create_sandbox, &one_shot);
        if (r == -EINTR && !one_shot.error)
                give_up(&one_shot, &signals);
        if (r < 0)
                return report_error(one_shot.error, NULL, EXIT_HUTCH_FAILED);

        if (!arguments_have(arguments, "quiet"))
                note_limits(one_shot.sandbox, spec);
        exit_code = signals.end ? EXIT_SIGNAL + signals.end : run_in(&one_shot, arguments, exec, &signals, &pipe_broke);
        exit_code = finish(&one_shot, arguments, &signals, exit_code);
        if (pipe_broke)
                signals_end_by_pipe();
        return exit_code;
}

/* ---- exec, shell ---- */

/* Runs @exec in the sandbox of the first operand. @input: with a stdin that is no terminal, too. */
static int run_attached(const Arguments *arguments, HutchExecSpec exec, bool input) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(strv_freep) char **env = NULL;
        Session session = { .sandbox_id = arguments->operands[0], .exec = exec };
        Signals signals;
        int r, exit_code;

        if (exec_spec_from_arguments(arguments, &session.exec, &env, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_HUTCH_FAILED);
        r = signals_open(&signals);
        if (r < 0) {
                report_note("cannot listen to signals: %s", strerror(-r));
                return EXIT_HUTCH_FAILED;
        }

        session.client = client;
        session_choose_input(&session, arguments, input);
        if (session.exec.terminal)
                add_terminal_type(arguments, &env);
        session.exec.env = texts(env);
        r = session_run(&session, &signals, &exit_code, &error);
        if (r == -EPIPE && !error)
                signals_end_by_pipe();
        return r < 0 ? session_report(r, error, &signals) : exit_code;
}

int command_exec(const Arguments *arguments) {
        HutchExecSpec exec = { .argv = texts(arguments->operands + 1) };

        if (arguments_have(arguments, "detach"))
                return exec_detached(arguments, &exec);
        return run_attached(arguments, exec, false);
}

int command_shell(const Arguments *arguments) {
        static const char *const argv[] = { "/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh", NULL };

        return run_attached(arguments, (HutchExecSpec){ .argv = argv }, true);
}
