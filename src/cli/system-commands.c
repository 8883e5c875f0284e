/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what the daemon is, and starting and ending it. What does not: whether this machine can run it
 * (doctor.c). */

#include "cli/system-commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "pbtext/pbtext.h"

#define VERSION_TIMEOUT (2 * NSEC_PER_SEC) /* for a daemon that may not be there */

/* ---- info, version ---- */

static int get_info(HutchClient *client, ProtobufCMessage **ret_info, HutchError **ret_error) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("GetInfoRequest");

        return connection_call(client, "SystemService/GetInfo", request, ret_info, ret_error);
}

/* The values of a field of each element, one after the other. The caller frees it. */
static char *join(const ProtobufCMessage *message, const char *list, const char *field) {
        StringBuilder builder = {};

        for (size_t i = 0; i < message_count(message, list); i++) {
                _cleanup_free_ char *value = message_get(message_at(message, list, i), field);

                string_builder_appendf(&builder, "%s%s", i > 0 ? ", " : "", value);
        }
        return string_builder_take(&builder);
}

/* Why, and what helps, once for all limits that have it in common, which come one after the other. */
static void add_unenforced(Printer *printer, const ProtobufCMessage *runtime) {
        _cleanup_free_ char *told = xstrdup("");

        for (size_t i = 0; i < message_count(runtime, "unenforced"); i++) {
                const ProtobufCMessage *one = message_at(runtime, "unenforced", i);
                _cleanup_free_ char *why = message_get(one, "why"), *fix = message_get(one, "fix");

                if (str_equal(why, told))
                        continue;
                printer_add_detail(printer, "    because", why);
                printer_add_detail(printer, "    to fix", fix);
                free(told);
                told = TAKE_PTR(why);
        }
}

/* How disk limits are kept, in words. */
static const char *disk_limits_of(const char *features) {
        if (strstr(features, "disk-quota"))
                return "by quotas: writing beyond them fails";
        return strstr(features, "disk-accounting") ? "by measuring: whoever writes beyond them is killed" : "";
}

static void add_runtimes(Printer *printer, const ProtobufCMessage *info) {
        for (size_t i = 0; i < message_count(info, "runtimes"); i++) {
                const ProtobufCMessage *runtime = message_at(info, "runtimes", i);
                _cleanup_free_ char *name = message_get(runtime, "name"), *message = message_get(runtime, "message"),
                                    *features = message_get(runtime, "features"),
                                    *not_enforced = message_get(runtime, "not_enforced");
                bool available = message_has(runtime, "available");

                printer_add_cell(printer, TONE_HEADER, i == 0 ? "Runtimes:" : "");
                printer_add_cellf(printer, available ? TONE_GOOD : TONE_BAD, "%s (%s)%s%s", name,
                                  available ? "available" : "not available", *message ? ": " : "", message);
                printer_add_detail(printer, "  it can", features);
                printer_add_detail(printer, "  disk limits", disk_limits_of(features));
                printer_add_detail(printer, "  it does not enforce", not_enforced);
                add_unenforced(printer, runtime);
        }
}

static void print_info(const ProtobufCMessage *info, const char *address) {
        static const struct {
                const char *name, *path;
        } fields[] = {
                { "Version", "version" },
                { "Started", "start_time" },
                { "You are", "caller" },
                { "Sandboxes", "sandboxes" },
                { "Running execs", "active_execs" },
                { "Kernel", "host.kernel" },
                { "Architecture", "host.architecture" },
                { "Cores", "host.cpus" },
                { "Cgroups", "host.cgroups" },
                { "Without root", "host.rootless" },
        };
        _cleanup_free_ char *profiles = join(info, "profiles", "name"), *tools = message_join(info, "tools", ", "),
                            *memory = message_get(info, "host.memory_bytes");
        Printer printer = printer_new_details();
        char bytes[BYTES_SIZE];

        printer_add_detail(&printer, "Address", address);
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                _cleanup_free_ char *value = message_get(info, fields[i].path);

                printer_add_detail(&printer, fields[i].name, value);
        }
        bytes_format(strtoull(memory, NULL, 10), bytes);
        printer_add_detail(&printer, "Memory", bytes);
        printer_add_detail(&printer, "Profiles", profiles);
        printer_add_detail(&printer, "Tools", tools);
        add_runtimes(&printer, info);
        printer_end(&printer);
}

int command_info(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(message_freep) ProtobufCMessage *info = NULL;
        Format format = output_format(arguments);

        if (connection_open(arguments, &client, &error) < 0 || get_info(client, &info, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        if (format == FORMAT_TABLE)
                print_info(info, hutch_client_address(client));
        else
                print_message(format, info);
        return EXIT_SUCCESS;
}

int command_version(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(message_freep) ProtobufCMessage *info = NULL;
        _cleanup_free_ char *daemon = NULL, *quoted = NULL;
        Format format = output_format(arguments);

        /* No daemon is started for that, and one that does not answer is no failure. */
        if (connection_open_running(arguments, VERSION_TIMEOUT, &client, NULL) == 0 &&
            get_info(client, &info, NULL) == 0)
                daemon = message_get(info, "version");

        if (format == FORMAT_TABLE) {
                (void) printf("hutch %s\n", hutch_version());
                if (daemon)
                        (void) printf("hutchd %s\n", daemon);
                return EXIT_SUCCESS;
        }

        quoted = json_quote(daemon ? daemon : "");
        (void) printf(format == FORMAT_JSON ? "{\n  \"client\": \"%s\",\n  \"daemon\": %s\n}\n"
                                            : "client: \"%s\"\ndaemon: %s\n",
                      hutch_version(), quoted);
        return EXIT_SUCCESS;
}

/* ---- daemon start, stop, status ---- */

int command_daemon_start(const Arguments *arguments) {
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *socket = connection_socket(arguments, &err);
        int r;

        if (!socket)
                return usage_error(arguments, "%s", error_message(&err));

        r = hutch_daemon_start(socket, &error);
        if (r < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        (void) printf("%s on %s\n", r > 0 ? "started a daemon" : "a daemon is there already", socket);
        return EXIT_SUCCESS;
}

int command_daemon_stop(const Arguments *arguments) {
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *socket = connection_socket(arguments, &err);
        uint64_t timeout;
        int r;

        if (!socket || arguments_get_timeout(arguments, &timeout, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));

        r = hutch_daemon_stop(socket, timeout > 0 ? timeout : 30 * NSEC_PER_SEC, &error);
        if (r < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        (void) printf("%s on %s\n", r > 0 ? "stopped the daemon" : "there was no daemon", socket);
        return EXIT_SUCCESS;
}

int command_daemon_status(const Arguments *arguments) {
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *socket = connection_socket(arguments, &err), *quoted = NULL;
        Format format = output_format(arguments);
        int pid;

        if (!socket)
                return usage_error(arguments, "%s", error_message(&err));
        if (hutch_daemon_pid(socket, &pid, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        quoted = json_quote(socket);
        if (format == FORMAT_JSON)
                (void) printf("{\n  \"running\": %s,\n  \"pid\": %d,\n  \"socket\": %s\n}\n",
                              pid > 0 ? "true" : "false", pid, quoted);
        else if (format == FORMAT_YAML)
                (void) printf("running: %s\npid: %d\nsocket: %s\n", pid > 0 ? "true" : "false", pid, quoted);
        else if (pid > 0)
                (void) printf("a daemon runs on %s, with the pid %d\n", socket, pid);
        else
                (void) printf("no daemon runs on %s\n", socket);
        return pid > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
