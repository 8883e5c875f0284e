/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the command, and what it looks at of Hutch itself: its programs and its daemon. What does not: the
 * machine (doctor-host.c). */

#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/output.h"
#include "cli/program-line.h"
#include "cli/report.h"
#include "local/paths.h"
#include "local/program.h"
#include "pbtext/pbtext.h"

#define INSTALL "make install"
#define DAEMON_TIMEOUT (2 * NSEC_PER_SEC)

void findings_add(Findings *findings, const char *check, Verdict verdict, const char *mend, const char *format, ...) {
        struct Finding finding = { .check = check, .verdict = verdict, .mend = xstrdup(mend ? mend : "") };
        va_list list;
        int n;

        va_start(list, format);
        n = vasprintf(&finding.found, format, list);
        va_end(list);
        if (n < 0)
                abort();

        findings->list = xreallocarray(findings->list, findings->n + 1, sizeof(findings->list[0]));
        findings->list[findings->n++] = finding;
}

static void findings_clear(Findings *findings) {
        for (size_t i = 0; i < findings->n; i++) {
                free(findings->list[i].found);
                free(findings->list[i].mend);
        }
        free(findings->list);
}

/* ---- The programs ---- */

static void examine_program(Findings *findings, const char *name) {
        _cleanup_free_ char *path = program_find(name, HUTCH_LIBEXECDIR);
        char version[64] = "";
        const char *number;

        if (!path) {
                findings_add(findings, name, VERDICT_BAD, INSTALL, "it is not here");
                return;
        }
        if (program_line(path, "--version", version, sizeof(version)) < 0) {
                findings_add(findings, name, VERDICT_BAD, INSTALL, "%s does not run", path);
                return;
        }

        number = strrchr(version, ' ');
        if (number && str_equal(number + 1, hutch_version()))
                findings_add(findings, name, VERDICT_OK, NULL, "%s", path);
        else
                findings_add(findings, name, VERDICT_BAD, INSTALL, "%s is %s, and this is %s", path, version,
                             hutch_version());
}

/* ---- The daemon ---- */

/* The limits of @runtime that are not enforced for the reason @why, one after the other. */
static char *list_unenforced(const ProtobufCMessage *runtime, const char *why) {
        StringBuilder builder = {};

        for (size_t i = 0; i < message_count(runtime, "unenforced"); i++) {
                const ProtobufCMessage *one = message_at(runtime, "unenforced", i);
                _cleanup_free_ char *limit = message_get(one, "limit"), *its = message_get(one, "why");

                if (str_equal(its, why))
                        string_builder_appendf(&builder, "%s%s", builder.len > 0 ? ", " : "", limit);
        }
        return string_builder_take(&builder);
}

/* One line for each reason. That a disk has no weights is no reason to worry. */
static void examine_unenforced(Findings *findings, const ProtobufCMessage *runtime) {
        _cleanup_free_ char *told = xstrdup("");

        for (size_t i = 0; i < message_count(runtime, "unenforced"); i++) {
                const ProtobufCMessage *one = message_at(runtime, "unenforced", i);
                _cleanup_free_ char *why = message_get(one, "why"), *fix = message_get(one, "fix"),
                                    *limits = list_unenforced(runtime, why);
                Verdict verdict = str_equal(limits, "io_weight") ? VERDICT_OK : VERDICT_WARNING;

                if (str_equal(why, told))
                        continue;
                findings_add(findings, verdict == VERDICT_OK ? "io_weight" : "limits", verdict,
                             *fix || verdict == VERDICT_OK ? fix : "leave them out, or allow_unenforced_limits: true",
                             "the daemon does not enforce %s: %s", limits, why);
                free(told);
                told = TAKE_PTR(why);
        }
}

static void examine_runtimes(Findings *findings, const ProtobufCMessage *info) {
        for (size_t i = 0; i < message_count(info, "runtimes"); i++) {
                const ProtobufCMessage *runtime = message_at(info, "runtimes", i);
                _cleanup_free_ char *name = message_get(runtime, "name"), *message = message_get(runtime, "message");

                if (!message_has(runtime, "available"))
                        findings_add(findings, "runtime", VERDICT_BAD, NULL, "%s cannot start sandboxes: %s", name,
                                     message);
                else
                        findings_add(findings, "runtime", VERDICT_OK, NULL, "%s", name);
                examine_unenforced(findings, runtime);
        }
}

static void examine_daemon(Findings *findings, const Arguments *arguments, const char *socket) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("GetInfoRequest"), *info = NULL;
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(string_builder_clear) StringBuilder look = {};
        _cleanup_free_ char *version = NULL;
        int pid;

        if (hutch_daemon_pid(socket, &pid, &error) < 0) {
                string_builder_appendf(&look, "ls -ld %s", socket);
                findings_add(findings, "daemon", VERDICT_BAD, look.text, "%s", hutch_error_message(error));
                return;
        }
        if (pid == 0) {
                findings_add(findings, "daemon", VERDICT_OK, "hutch daemon start",
                             "none runs; one is started when needed");
                return;
        }
        if (connection_open_running(arguments, DAEMON_TIMEOUT, &client, &error) < 0 ||
            connection_call(client, "SystemService/GetInfo", request, &info, &error) < 0) {
                findings_add(findings, "daemon", VERDICT_BAD, "hutch daemon stop; hutch daemon start", "%s",
                             error ? hutch_error_message(error) : "its answer cannot be read");
                return;
        }

        version = message_get(info, "version");
        if (str_equal(version, hutch_version()))
                findings_add(findings, "daemon", VERDICT_OK, NULL, "%s answers on %s", version, socket);
        else
                findings_add(findings, "daemon", VERDICT_WARNING, "hutch daemon stop; hutch daemon start",
                             "it is %s, and this is %s", version, hutch_version());
        examine_runtimes(findings, info);
}

/* ---- Printing ---- */

static const char *const verdict_names[] = {
        [VERDICT_OK] = "ok",
        [VERDICT_WARNING] = "warning",
        [VERDICT_BAD] = "bad",
};

static void print_table(const Findings *findings) {
        static const Tone tones[] = {
                [VERDICT_OK] = TONE_GOOD,
                [VERDICT_WARNING] = TONE_WARNING,
                [VERDICT_BAD] = TONE_BAD,
        };
        Printer printer = printer_new(FORMAT_TABLE, "CHECK", "IS", "FOUND", "WHAT TO DO");

        for (size_t i = 0; i < findings->n; i++) {
                const struct Finding *finding = &findings->list[i];

                printer_add_cell(&printer, TONE_PLAIN, finding->check);
                printer_add_cell(&printer, tones[finding->verdict], verdict_names[finding->verdict]);
                printer_add_cell(&printer, TONE_PLAIN, finding->found);
                printer_add_cell(&printer, TONE_PLAIN, finding->mend);
        }
        printer_end(&printer);
}

/* JSON, and YAML that looks much like it. */
static void print_list(const Findings *findings, bool yaml) {
        const char *start = yaml ? "- " : "[\n";

        for (size_t i = 0; i < findings->n; i++) {
                _cleanup_free_ char *found = json_quote(findings->list[i].found);
                _cleanup_free_ char *mend = json_quote(findings->list[i].mend);

                (void) printf("%s{\"check\": \"%s\", \"is\": \"%s\", \"found\": %s, \"mend\": %s}", start,
                              findings->list[i].check, verdict_names[findings->list[i].verdict], found, mend);
                start = yaml ? "\n- " : ",\n";
        }
        (void) puts(yaml ? "" : "\n]");
}

int command_doctor(const Arguments *arguments) {
        _cleanup_(findings_clear) Findings findings = {};
        _cleanup_(error_clear) HutchError socket_err = {}, state_err = {};
        _cleanup_free_ char *socket = connection_socket(arguments, &socket_err);
        _cleanup_free_ char *state = path_of_state(NULL, NULL, &state_err);
        Format format = output_format(arguments);
        bool bad = false;

        examine_kernel(&findings);
        if (geteuid() != 0)
                examine_user(&findings);
        if (state)
                examine_state(&findings, state);
        else
                examine_cgroups(&findings, "");
        if (!state)
                findings_add(&findings, "state folder", VERDICT_BAD, "export HUTCH_STATE=/var/tmp/hutch-$(id -u)", "%s",
                             error_message(&state_err));
        if (socket)
                examine_socket(&findings, socket);
        else
                findings_add(&findings, "socket", VERDICT_BAD, "export HUTCH_SOCKET=/tmp/hutch-$(id -u)/hutchd.sock",
                             "%s", error_message(&socket_err));
        examine_program(&findings, "hutchd");
        examine_program(&findings, "hutch-keeper");
        if (socket)
                examine_daemon(&findings, arguments, socket);

        if (format == FORMAT_TABLE)
                print_table(&findings);
        else
                print_list(&findings, format == FORMAT_YAML);
        for (size_t i = 0; i < findings.n; i++)
                bad = bad || findings.list[i].verdict == VERDICT_BAD;
        return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
