/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: `run --once`: a command by SandboxExecService, as remote runners call it. What does not: `run` by
 * itself, which passes on stdin and signals and so takes more than one call (run.c). */

#include "cli/run-once.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/report.h"
#include "cli/sandbox-commands.h"
#include "cli/session.h"
#include "cli/signals.h"
#include "cli/spec-options.h"
#include "pbtext/pbtext.h"

/* Whether the call has what an option says. */
static bool has_option(const ProtobufCMessageDescriptor *type, const Option *option) {
        static const char *const others[] = { "file", "name", "keep", "interactive", "tty" };
        char field[64] = "";

        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                if (str_equal(option->name, others[i]))
                        return false;
        if (!option->field)
                return true;

        (void) snprintf(field, sizeof(field), "%.*s", (int) strcspn(option->field->path, "."), option->field->path);
        return protobuf_c_message_descriptor_get_field_by_name(type, field);
}

/* Makes the request of the options, of which it has not all. */
static int read_request(const Arguments *arguments, ProtobufCMessage **ret_request, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("ExecRequest");
        const char *timeout = arguments_get(arguments, "timeout");
        uint64_t duration;
        int r;

        for (size_t i = 0; i < arguments->n_options; i++)
                if (!has_option(request->descriptor, arguments->options[i].option)) {
                        (void) error_set(err, -EINVAL, "USAGE", "--once and --%s exclude each other",
                                         arguments->options[i].option->name);
                        return -EINVAL;
                }

        r = fields_from_arguments(arguments, request, err);
        if (r == 0)
                r = arguments_get_timeout(arguments, &duration, err);
        if (r == 0 && timeout)
                r = message_set(request, "timeout", timeout, err);
        for (size_t i = 0; i < arguments->n_operands && r == 0; i++)
                r = message_set(request, "argv", arguments->operands[i], err);
        if (r < 0)
                return r;

        *ret_request = TAKE_PTR(request);
        return 0;
}

/* @user: the request. */
static void note_limits_of_request(const void *bytes, size_t len, void *user) {
        _cleanup_(message_freep) ProtobufCMessage *effective = NULL;

        if (message_decode(hutch_message_descriptor("EffectiveLimits"), bytes, len, &effective, NULL) == 0)
                note_effective(effective, "clamped", "not_enforced", user);
}

int run_in_one_call(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(message_freep) ProtobufCMessage *request = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ void *bytes = NULL;
        Session session = {};
        Signals signals;
        int r, exit_code;

        if (read_request(arguments, &request, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_HUTCH_FAILED);
        r = signals_open(&signals);
        if (r < 0) {
                report_note("cannot listen to signals: %s", strerror(-r));
                return EXIT_HUTCH_FAILED;
        }

        message_encode(request, &bytes, &session.once_len);
        session.client = client;
        session.once = bytes;
        session.user = request;
        if (!arguments_have(arguments, "quiet"))
                session.note_limits = note_limits_of_request;
        r = session_run(&session, &signals, &exit_code, &error);
        if (r == -EPIPE && !error)
                signals_end_by_pipe();
        return r < 0 ? session_report(r, error, &signals) : exit_code;
}
