/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the commands about sandboxes as a whole. What does not: running something in them (run.c,
 * exec-commands.c), and what their specs are made of (spec-options.c). */

#include "cli/sandbox-commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/spec-options.h"
#include "cli/suggest.h"
#include "pbtext/pbtext.h"

int parse_sandbox_states(const char *text, uint32_t *ret_states, HutchError *err) {
        _cleanup_free_ char *copy = xstrdup(text);
        char *rest = copy, *word;
        uint32_t states = 0;

        while ((word = strsep(&rest, ","))) {
                Suggestion suggestion = { .typed = word };
                unsigned state = HUTCH_SANDBOX_PENDING;

                while (state <= HUTCH_SANDBOX_DELETED && strcasecmp(word, hutch_sandbox_state_name(state)) != 0)
                        state++;
                if (state <= HUTCH_SANDBOX_DELETED) {
                        states |= 1U << state;
                        continue;
                }

                for (char *c = word; *c; c++)
                        *c = ascii_is_lower(*c) ? (char) (*c - 'a' + 'A') : *c;
                for (state = HUTCH_SANDBOX_PENDING; state <= HUTCH_SANDBOX_DELETED; state++)
                        suggestion_consider(&suggestion, hutch_sandbox_state_name(state));
                return error_set(err, -EINVAL, "USAGE", "there is no state '%s'%s%s%s", word,
                                 suggestion.best ? " (did you mean " : "", suggestion.best ? suggestion.best : "",
                                 suggestion.best ? "?)" : "");
        }

        *ret_states = states;
        return 0;
}

static ProtobufCMessage *message_of(const HutchSandbox *sandbox) {
        return contract_decode("Sandbox", sandbox->encoded, sandbox->encoded_len);
}

static void print_sandbox(const HutchSandbox *sandbox, Format format) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_of(sandbox);

        if (format == FORMAT_TABLE)
                (void) puts(sandbox->id);
        else
                print_message(format, message);
}

/* ---- create ---- */

void note_limits(const HutchSandbox *sandbox, const ProtobufCMessage *spec) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_of(sandbox);

        note_effective(message, "effective.clamped", "effective.not_enforced", spec);
}

void note_effective(const ProtobufCMessage *message, const char *clamped_path, const char *not_enforced_path,
                    const ProtobufCMessage *spec) {
        _cleanup_free_ char *not_enforced = message_get(message, not_enforced_path);
        char *rest = not_enforced, *field;

        for (size_t i = 0; i < message_count(message, clamped_path); i++) {
                const ProtobufCMessage *clamped = message_at(message, clamped_path, i);
                _cleanup_free_ char *name = message_get(clamped, "field"), *by = message_get(clamped, "by"),
                                    *requested = message_get(clamped, "requested"),
                                    *effective = message_get(clamped, "effective");

                report_note("%s is %s instead of %s: the %s allows no more", name, effective, requested,
                            str_equal(by, "OPERATOR") ? "operator" : "profile");
        }

        while ((field = strsep(&rest, ","))) {
                _cleanup_(string_builder_clear) StringBuilder path = {};

                string_builder_appendf(&path, "limits.%s", field);
                if (*field && message_has(spec, path.text))
                        report_note("%s is not enforced on this host", field);
        }
}

static int read_create(const Arguments *arguments, ProtobufCMessage **ret_spec, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *spec = NULL;
        const char *timeout = arguments_get(arguments, "timeout");
        int r = spec_from_arguments(arguments, &spec, err);

        if (r < 0)
                return r;

        if (timeout)
                r = message_set(spec, "limits.exec_timeout", timeout, err);
        for (size_t i = 0; i < arguments->n_operands && r == 0; i++)
                r = message_set(spec, "command", arguments->operands[i], err);
        if (r < 0)
                return r;

        *ret_spec = TAKE_PTR(spec);
        return 0;
}

int command_create(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_sandbox_freep) HutchSandbox *sandbox = NULL, *ready = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(message_freep) ProtobufCMessage *spec = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ void *bytes = NULL;
        size_t len;

        if (read_create(arguments, &spec, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));

        message_encode(spec, &bytes, &len);
        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_sandbox_create_encoded(client, arguments_get(arguments, "name"), NULL, bytes, len, &sandbox, &error) <
                    0)
                return report_error(error, NULL, EXIT_FAILURE);

        if (!arguments_have(arguments, "quiet"))
                note_limits(sandbox, spec);
        if (arguments_have(arguments, "wait") &&
            hutch_sandbox_wait(client, sandbox->id, 1U << HUTCH_SANDBOX_READY, 0, &ready, &error) < 0)
                return report_error(error, sandbox->id, EXIT_FAILURE);

        print_sandbox(ready ? ready : sandbox, output_format(arguments));
        return EXIT_SUCCESS;
}

/* ---- list, get ---- */

typedef struct Listing {
        Printer printer;
        bool quiet;
        uint64_t now;
} Listing;

static void listing_clear(Listing *listing) {
        printer_clear(&listing->printer);
}

static int list_sandbox(const HutchSandbox *sandbox, void *user) {
        Listing *listing = user;
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(string_builder_clear) StringBuilder labels = {};
        const char *state = hutch_sandbox_state_name(sandbox->state);
        char age[AGE_SIZE];

        if (listing->quiet) {
                (void) puts(sandbox->id);
                return 0;
        }

        message = message_of(sandbox);
        if (printer_add_message(&listing->printer, message))
                return 0;

        for (const char *const *label = sandbox->labels; *label; label++)
                string_builder_appendf(&labels, "%s%s", labels.len > 0 ? "," : "", *label);
        age_format(sandbox->create_time, listing->now, age);
        printer_add_cell(&listing->printer, TONE_PLAIN, sandbox->id);
        printer_add_cell(&listing->printer, state_tone(state), state);
        printer_add_cell(&listing->printer, TONE_PLAIN, *sandbox->image ? sandbox->image : "default");
        printer_add_cellf(&listing->printer, TONE_PLAIN, "%u", sandbox->active_execs);
        printer_add_cell(&listing->printer, TONE_PLAIN, age);
        printer_add_cell(&listing->printer, TONE_PLAIN, labels.text ? labels.text : "");
        return 0;
}

int command_list(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        const char *states_text = arguments_get(arguments, "state");
        _cleanup_(listing_clear)
                Listing listing = { .quiet = arguments_have(arguments, "quiet"), .now = clock_realtime_ns() };
        uint32_t states = 0;

        if (states_text && parse_sandbox_states(states_text, &states, &err) < 0)
                return usage_error(arguments, "--state: %s", error_message(&err));
        if (arguments_have(arguments, "all"))
                for (unsigned state = HUTCH_SANDBOX_PENDING; state <= HUTCH_SANDBOX_DELETED; state++)
                        states |= 1U << state;

        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        if (!listing.quiet)
                listing.printer =
                        printer_new(output_format(arguments), "ID", "STATE", "IMAGE", "EXECS", "CREATED", "LABELS");
        if (hutch_sandbox_list(client, arguments_get(arguments, "selector"), states, list_sandbox, &listing, &error) <
            0)
                return report_error(error, NULL, EXIT_FAILURE);
        if (!listing.quiet)
                printer_end(&listing.printer);
        return EXIT_SUCCESS;
}

/* Adds the value of a field, made readable where it is a number of bytes. */
static void add_field(Printer *printer, const char *name, const ProtobufCMessage *message, const char *path) {
        _cleanup_free_ char *value = message_get(message, path);
        char bytes[BYTES_SIZE];

        if (!str_has_suffix(path, "_bytes")) {
                printer_add_detail(printer, name, value);
        } else if (*value) {
                bytes_format(strtoull(value, NULL, 10), bytes);
                printer_add_detail(printer, name, bytes);
        }
}

static void print_details(const ProtobufCMessage *sandbox) {
        static const struct {
                const char *name;
                const char *path;
        } fields[] = {
                { "Id", "id" },
                { "State", "state" },
                { "Reason", "state_reason" },
                { "Message", "state_message" },
                { "Image", "spec.image" },
                { "Labels", "spec.labels" },
                { "Owner", "owner" },
                { "Runtime", "runtime" },
                { "Created", "create_time" },
                { "In this state since", "state_time" },
                { "Idle until", "idle_deadline" },
                { "Ends", "lifetime_deadline" },
                { "Running execs", "active_execs" },
                { "Command", "spec.command" },
                { "Working directory", "spec.working_directory" },
                { "User", "spec.user" },
                { "Profile", "effective.profile" },
                { "Memory limit", "effective.limits.memory_bytes" },
                { "CPU limit (millis)", "effective.limits.cpu_millis" },
                { "Process limit", "effective.limits.max_processes" },
                { "Disk limit", "effective.limits.disk_bytes" },
                { "Exec timeout", "effective.limits.exec_timeout" },
                { "Not enforced here", "effective.not_enforced" },
                { "Memory now", "usage.memory_bytes" },
                { "Memory at most", "usage.memory_peak_bytes" },
                { "CPU time", "usage.cpu_time" },
                { "Processes now", "usage.processes" },
                { "Disk now", "usage.disk_bytes" },
                { "Measured", "usage.measure_time" },
        };
        Printer printer = printer_new_details();

        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
                add_field(&printer, fields[i].name, sandbox, fields[i].path);
        printer_end(&printer);
}

int command_get(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("GetSandboxRequest"), *reply = NULL;
        _cleanup_(message_freep) ProtobufCMessage *sandbox = NULL;
        Format format = output_format(arguments);

        if (message_set(request, "sandbox_id", arguments->operands[0], &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (arguments_have(arguments, "usage"))
                (void) message_set(request, "include_usage", "true", NULL);

        if (connection_open(arguments, &client, &error) < 0 ||
            connection_call(client, "AgentSandboxService/GetSandbox", request, &reply, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        sandbox = contract_part(reply, "sandbox", "Sandbox");
        if (format == FORMAT_TABLE)
                print_details(sandbox);
        else
                print_message(format, sandbox);
        return EXIT_SUCCESS;
}

/* ---- stop, resume, pause, unpause, delete ---- */

typedef struct Action {
        int (*act)(HutchClient *client, const char *id, HutchSandbox **ret_sandbox, HutchError **ret_error);
        HutchSandboxState awaited;
} Action;

/* The grace of `stop`, which needs a function of its own. */
static int act(const Action *action, HutchClient *client, const char *id, uint64_t grace, HutchSandbox **ret_sandbox,
               HutchError **ret_error) {
        return action->act ? action->act(client, id, ret_sandbox, ret_error)
                           : hutch_sandbox_stop(client, id, grace, ret_sandbox, ret_error);
}

static void print_acted(const Arguments *arguments, HutchSandbox *const sandboxes[], size_t n) {
        Format format = output_format(arguments);
        Printer printer = { .format = format, .n_columns = 1 };

        for (size_t i = 0; i < n; i++) {
                _cleanup_(message_freep) ProtobufCMessage *message = sandboxes[i] ? message_of(sandboxes[i]) : NULL;

                if (message && !printer_add_message(&printer, message))
                        printer_add_cell(&printer, TONE_PLAIN, sandboxes[i]->id);
        }
        printer_end(&printer);
}

/* Acts on each of @ids. With --wait it then waits for each: all were asked before the first is waited for. One that
 * fails does not keep the others. */
static int act_on(const Arguments *arguments, HutchClient *client, const Action *action, char *const ids[], size_t n,
                  uint64_t grace) {
        _cleanup_free_ HutchSandbox **sandboxes = new0(HutchSandbox *, n);
        int exit_code = EXIT_SUCCESS;

        for (size_t i = 0; i < n; i++) {
                _cleanup_(hutch_error_freep) HutchError *error = NULL;

                if (act(action, client, ids[i], grace, &sandboxes[i], &error) < 0)
                        exit_code = report_error(error, ids[i], EXIT_FAILURE);
        }
        for (size_t i = 0; i < n && arguments_have(arguments, "wait"); i++) {
                _cleanup_(hutch_error_freep) HutchError *error = NULL;
                HutchSandbox *waited = NULL;

                if (sandboxes[i] && hutch_sandbox_wait(client, ids[i], 1U << action->awaited, 0, &waited, &error) < 0)
                        exit_code = report_error(error, ids[i], EXIT_FAILURE);
                hutch_sandbox_free(sandboxes[i]);
                sandboxes[i] = waited;
        }

        print_acted(arguments, sandboxes, n);
        for (size_t i = 0; i < n; i++)
                hutch_sandbox_free(sandboxes[i]);
        return exit_code;
}

static int act_on_operands(const Arguments *arguments, const Action *action) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        uint64_t grace;

        if (arguments_get_duration(arguments, "grace", &grace, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (arguments_have(arguments, "grace") && grace == 0)
                grace = 1; /* at once; libhutch takes 0 for the daemon's default */

        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        return act_on(arguments, client, action, arguments->operands, arguments->n_operands, grace);
}

int command_stop(const Arguments *arguments) {
        return act_on_operands(arguments, &(Action){ NULL, HUTCH_SANDBOX_STOPPED });
}

int command_resume(const Arguments *arguments) {
        return act_on_operands(arguments, &(Action){ hutch_sandbox_resume, HUTCH_SANDBOX_READY });
}

int command_pause(const Arguments *arguments) {
        return act_on_operands(arguments, &(Action){ hutch_sandbox_pause, HUTCH_SANDBOX_PAUSED });
}

int command_unpause(const Arguments *arguments) {
        return act_on_operands(arguments, &(Action){ hutch_sandbox_unpause, HUTCH_SANDBOX_READY });
}

typedef struct Ids {
        char **list; /* ends with NULL */
        size_t n;
} Ids;

static void ids_clear(Ids *ids) {
        (void) strv_free(ids->list);
}

static int collect_id(const HutchSandbox *sandbox, void *user) {
        Ids *ids = user;

        ids->list = xreallocarray(ids->list, ids->n + 2, sizeof(char *));
        ids->list[ids->n++] = xstrdup(sandbox->id);
        ids->list[ids->n] = NULL;
        return 0;
}

/* Asks on the terminal. 0: yes. */
static int confirm_delete(size_t n) {
        char answer[8] = "";

        if (!isatty(STDIN_FILENO)) {
                report_note("nobody can be asked whether to delete %zu sandboxes; say --force", n);
                return -EPERM;
        }

        (void) fprintf(stderr, "Delete %zu sandbox%s? [y/N] ", n, n == 1 ? "" : "es");
        if (!fgets(answer, sizeof(answer), stdin) || ascii_lower(answer[0]) != 'y')
                return -EPERM;
        return 0;
}

int command_delete(const Arguments *arguments) {
        static const Action action = { hutch_sandbox_delete, HUTCH_SANDBOX_DELETED };
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(ids_clear) Ids ids = {};
        const char *selector = arguments_get(arguments, "selector");
        bool all = arguments_have(arguments, "all");

        if ((arguments->n_operands > 0) + (selector != NULL) + all != 1)
                return usage_error(arguments, "say which: ids, --selector or --all");
        if (selector && selector[strspn(selector, " ")] == '\0')
                return usage_error(arguments, "an empty selector selects everything; say --all");
        if (arguments->n_operands > 0)
                return act_on_operands(arguments, &action);

        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_sandbox_list(client, selector, 0, collect_id, &ids, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        if (ids.n > 0 && !arguments_have(arguments, "force") && confirm_delete(ids.n) < 0)
                return EXIT_FAILURE;
        return act_on(arguments, client, &action, ids.list, ids.n, 0);
}

/* ---- update, wait ---- */

static bool names_label(const char *label, const char *name) {
        size_t len = strcspn(label, "=");

        return strlen(name) == len && memcmp(label, name, len) == 0;
}

static bool is_removed(const char *label, const char *const removed[]) {
        for (; *removed; removed++)
                if (names_label(label, *removed))
                        return true;
        return str_has_prefix(label, "hutch/"); /* the daemon's own, which nobody gives */
}

/* Puts the labels that the sandbox shall have into @request: those it has, without those to remove, and the new ones.
 */
static int update_labels(const Arguments *arguments, HutchClient *client, ProtobufCMessage *request,
                         HutchError **ret_error, HutchError *err) {
        _cleanup_free_ const char **added = arguments_get_all(arguments, "label");
        _cleanup_free_ const char **removed = arguments_get_all(arguments, "remove-label");
        _cleanup_(hutch_sandbox_freep) HutchSandbox *sandbox = NULL;
        int r;

        if (!added[0] && !removed[0])
                return 0;

        r = hutch_sandbox_get(client, arguments->operands[0], &sandbox, ret_error);
        if (r < 0)
                return r;

        r = message_set(request, "update_mask.paths", "labels", err);
        for (const char *const *label = sandbox->labels; r == 0 && *label; label++)
                if (!is_removed(*label, removed))
                        r = message_set(request, "spec.labels", *label, err);
        for (const char **label = added; r == 0 && *label; label++) {
                _cleanup_(string_builder_clear) StringBuilder text = {};

                string_builder_appendf(&text, "%s%s", *label, strchr(*label, '=') ? "" : "=");
                r = message_set(request, "spec.labels", text.text, err);
        }
        return r;
}

static int update_times(const Arguments *arguments, ProtobufCMessage *request, HutchError *err) {
        static const struct {
                const char *option, *path, *field;
        } times[] = {
                { "idle-ttl", "spec.idle_ttl", "idle_ttl" },
                { "idle-action", "spec.idle_action", "idle_action" },
                { "max-lifetime", "spec.max_lifetime", "max_lifetime" },
        };

        for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
                const char *value = arguments_get(arguments, times[i].option);
                int r = 0;

                if (value)
                        r = message_set(request, times[i].path, value, err);
                if (r == 0 && value)
                        r = message_set(request, "update_mask.paths", times[i].field, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

int command_update(const Arguments *arguments) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("UpdateSandboxRequest"), *reply = NULL;
        _cleanup_(message_freep) ProtobufCMessage *sandbox = NULL;
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        Format format = output_format(arguments);

        if (message_set(request, "sandbox_id", arguments->operands[0], &err) < 0 ||
            update_times(arguments, request, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        if (update_labels(arguments, client, request, &error, &err) < 0)
                return error ? report_error(error, NULL, EXIT_FAILURE)
                             : usage_error(arguments, "%s", error_message(&err));
        if (!message_has(request, "update_mask"))
                return usage_error(arguments, "nothing to change was given");
        if (connection_call(client, "AgentSandboxService/UpdateSandbox", request, &reply, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        sandbox = contract_part(reply, "sandbox", "Sandbox");
        if (format == FORMAT_TABLE)
                (void) puts(arguments->operands[0]);
        else
                print_message(format, sandbox);
        return EXIT_SUCCESS;
}

int command_wait(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_sandbox_freep) HutchSandbox *sandbox = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        const char *text = arguments_get(arguments, "for"), *id = arguments->operands[0];
        uint32_t states = 1U << HUTCH_SANDBOX_READY;
        Format format = output_format(arguments);
        uint64_t timeout;

        if (text && parse_sandbox_states(text, &states, &err) < 0)
                return usage_error(arguments, "--for: %s", error_message(&err));
        if (arguments_get_timeout(arguments, &timeout, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));

        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        if (hutch_sandbox_wait(client, id, states, timeout > 0 ? timeout : HUTCH_FOREVER, &sandbox, &error) < 0)
                return report_error(error, id,
                                    error && hutch_error_code(error) == HUTCH_DEADLINE_EXCEEDED ? EXIT_TIMED_OUT
                                                                                                : EXIT_FAILURE);

        if (format == FORMAT_TABLE)
                (void) puts(hutch_sandbox_state_name(sandbox->state));
        else
                print_sandbox(sandbox, format);
        return EXIT_SUCCESS;
}
