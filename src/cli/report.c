/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how errors are told, and what can be done about them. What does not: usage errors (options.c). */

#include "cli/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strings.h"
#include "cli/output.h"

static const struct {
        const char *reason;
        const char *what_to_do;
} hints[] = {
        { "DAEMON_UNREACHABLE", "start one by 'hutch daemon start', or see what 'hutch doctor' says" },
        { "RUNTIME_UNAVAILABLE", "'hutch doctor' says what to change" },
        { "KEEPER_UNAVAILABLE", "'hutch get' tells more about the sandbox" },
        { "SANDBOX_NOT_FOUND", "'hutch list' shows those that are there" },
        { "EXEC_NOT_FOUND", "'hutch exec list' shows those that are there" },
        { "SANDBOX_WRONG_STATE",
          "'hutch get' tells more; 'hutch resume' starts a stopped one, 'hutch unpause' a paused one" },
        { "ID_TAKEN", "an id is never used twice: choose another --name, or none" },
        { "CALLER_NOT_ALLOWED", "the daemon's owner can let a group in by 'socket_group'" },
        { "QUOTA_EXCEEDED", "delete what is not needed by 'hutch delete', or have the operator raise the limit" },
        { "LIMIT_NOT_ENFORCEABLE", "'hutch info' lists what this host cannot enforce" },
        { "PROFILE_UNKNOWN", "'hutch info' lists the profiles" },
        { "RUNTIME_UNKNOWN", "'hutch info' lists the runtimes" },
        { "TOOL_UNKNOWN", "'hutch info' lists the tools" },
        { "CONTEXT_NOT_FOUND", "'hutch context list' shows those that are there" },
        { "CURSOR_GONE", "begin with the oldest that is kept: --since 0" },
        { "STORE_UNAVAILABLE", "look whether the disk is full, and into the daemon's log" },
        { "HOST_EXHAUSTED", "'hutch doctor' shows the limits of this host" },
        { "CONNECTION_LOST", "'hutch daemon status' tells whether it runs" },
        { "CONNECTION_CLOSED", "'hutch daemon status' tells whether it runs" },
        { "STARTING", "try again in a moment" },
        { "DRAINING", "try again in a moment" },
        { "INTERNAL", "the daemon's log has the details" },
};

static const char *find_hint(const char *reason) {
        for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
                if (str_equal(hints[i].reason, reason))
                        return hints[i].what_to_do;
        return NULL;
}

static void print_line(const char *what, const char *message, const char *reason) {
        _cleanup_free_ char *about = text_printable(what ? what : ""), *printable = text_printable(message);
        const char *hint = find_hint(reason);

        (void) fprintf(stderr, "hutch: %s%s%s%s%s\n", about, what ? ": " : "", printable, hint ? "; " : "",
                       hint ? hint : "");
}

int report_error(const HutchError *error, const char *what, int exit_code) {
        HutchViolation violation;

        if (!error) {
                print_line(what, "the daemon's answer cannot be read; is it of another version?", "");
                return exit_code;
        }

        print_line(what, hutch_error_message(error), hutch_error_reason(error));
        /* One alone stands in the message. */
        for (size_t i = 0; hutch_error_violation(error, 1, &violation) && hutch_error_violation(error, i, &violation);
             i++) {
                _cleanup_free_ char *field = text_printable(violation.field),
                                    *message = text_printable(violation.message);

                (void) fprintf(stderr, "  %s: %s\n", field, message);
        }
        return exit_code;
}

void report_note(const char *format, ...) {
        _cleanup_free_ char *text = NULL, *printable = NULL;
        va_list list;
        int n;

        va_start(list, format);
        n = vasprintf(&text, format, list);
        va_end(list);
        if (n < 0)
                abort();
        printable = text_printable(text);
        (void) fprintf(stderr, "hutch: %s\n", printable);
}
