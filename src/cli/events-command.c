/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: printing events. What does not: getting each of them once (libhutch). */

#include "cli/events-command.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "pbtext/pbtext.h"

DEFINE_CLEANUP(HutchWatch *, hutch_watch_free);

typedef struct Events {
        Format format;
        bool follow;
        uint64_t not_before; /* events of an earlier time are left out */
        const char **types;  /* that are printed, ends with NULL; none: all */
        Printer printer;     /* when they are not followed */
} Events;

/* --since: a cursor, or how long ago. */
static int read_since(const Arguments *arguments, HutchWatchOptions *options, uint64_t *ret_not_before,
                      HutchError *err) {
        const char *since = arguments_get(arguments, "since");
        Duration ago;
        char *end;

        /* Without it, all that is kept; when they are followed, what comes. */
        options->has_after_cursor = since || !arguments_have(arguments, "follow");
        if (!since)
                return 0;

        errno = 0;
        options->after_cursor = strtoull(since, &end, 10);
        if (ascii_is_digit(since[0]) && *end == '\0' && errno == 0)
                return 0;

        options->after_cursor = 0;
        if (duration_parse(since, strlen(since), &ago, NULL) < 0)
                return error_set(err, -EINVAL, "USAGE",
                                 "--since cannot be '%s'; it is a cursor, or a duration as in 10m", since);
        *ret_not_before = clock_realtime_ns() - ((uint64_t) ago.seconds * NSEC_PER_SEC + (uint64_t) ago.nanos);
        return 0;
}

/* A type that there is none of would never come. */
static int check_types(const char *const *types, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *event = contract_message("Event");
        _cleanup_(error_clear) HutchError why = {};

        for (; *types; types++)
                if (message_set(event, "type", *types, &why) < 0)
                        return error_set(err, -EINVAL, "USAGE", "--type: %s", error_message(&why));
        return 0;
}

static bool is_wanted(const Events *events, const HutchEvent *event) {
        if (event->time < events->not_before)
                return false;
        for (const char **type = events->types; *type; type++)
                if (strcasecmp(*type, event->type) == 0)
                        return true;
        return !events->types[0];
}

/* A line for people: when, what, from where to where, why. */
static void print_line(const HutchEvent *event) {
        _cleanup_free_ char *message = text_printable(event->message);
        time_t seconds = (time_t) (event->time / NSEC_PER_SEC);
        char time[sizeof("2026-01-01 00:00:00")] = "";
        struct tm local;

        if (localtime_r(&seconds, &local))
                (void) strftime(time, sizeof(time), "%F %T", &local);
        (void) printf("%8" PRIu64 "  %-23s  %s  %-22s  %s", event->cursor, event->sandbox_id, time, event->type,
                      event->exec_id);
        if (*event->to_state)
                (void) printf("%s%s -> %s", *event->exec_id ? "  " : "",
                              *event->from_state ? event->from_state : "(new)", event->to_state);
        (void) printf("%s%s%s%s\n", *event->reason ? "  " : "", event->reason, *message ? "  " : "", message);
}

static void print_followed(const Events *events, const ProtobufCMessage *message) {
        _cleanup_free_ char *text =
                events->format == FORMAT_JSON ? message_to_json(message, false) : message_to_yaml(message);

        (void) printf("%s%s", events->format == FORMAT_YAML ? "---\n" : "", text);
}

static void print_event(Events *events, const HutchEvent *event) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;

        if (events->format == FORMAT_TABLE) {
                print_line(event);
        } else {
                message = contract_decode("Event", event->encoded, event->encoded_len);
                if (events->follow)
                        print_followed(events, message);
                else
                        (void) printer_add_message(&events->printer, message);
        }
        if (events->follow)
                (void) fflush(stdout);
}

static int follow(Events *events, HutchWatch *watch, HutchError **ret_error) {
        HutchEvent event;
        int r = 0;

        /* Who cannot write any more has nobody to go on for; why, is told at the end. */
        while (!ferror(stdout) && (r = hutch_watch_next(watch, true, &event, ret_error)) > 0)
                if (!event.sandbox && is_wanted(events, &event))
                        print_event(events, &event);
        return ferror(stdout) ? 0 : r;
}

/* The cursor of the last event that there is now. */
static int find_end(HutchClient *client, uint64_t *ret_cursor, HutchError **ret_error) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("ListSandboxesRequest"), *reply = NULL;
        _cleanup_free_ char *cursor = NULL;
        int r;

        (void) message_set(request, "page_size", "1", NULL);
        r = connection_call(client, "AgentSandboxService/ListSandboxes", request, &reply, ret_error);
        if (r < 0)
                return r;

        cursor = message_get(reply, "cursor");
        *ret_cursor = strtoull(cursor, NULL, 10);
        return 0;
}

/* Prints what is there, and ends: the daemon says how far it has told all. */
static int print_past(Events *events, HutchClient *client, HutchWatch *watch, uint64_t end, HutchError **ret_error) {
        for (;;) {
                HutchEvent event;
                int r = hutch_watch_next(watch, false, &event, ret_error);

                if (r < 0 && r != -EAGAIN)
                        return r;
                if (r > 0 && event.cursor <= end && is_wanted(events, &event))
                        print_event(events, &event);
                if (hutch_watch_has_started(watch) && hutch_watch_cursor(watch) >= end)
                        return 0;
                if (r > 0)
                        continue;

                (void) poll(&(struct pollfd){ .fd = hutch_client_fd(client), .events = POLLIN }, 1,
                            hutch_client_timeout(client));
                hutch_client_dispatch(client);
        }
}

static int run(const Arguments *arguments, Events *events, HutchWatchOptions *options, HutchError **ret_error) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_watch_freep) HutchWatch *watch = NULL;
        uint64_t end = 0;
        int r;

        r = connection_open(arguments, &client, ret_error);
        if (r == 0 && !events->follow)
                r = find_end(client, &end, ret_error);
        if (r == 0)
                r = hutch_watch_new(client, options, &watch, ret_error);
        if (r < 0)
                return r;
        return events->follow ? follow(events, watch, ret_error) : print_past(events, client, watch, end, ret_error);
}

static void events_clear(Events *events) {
        printer_clear(&events->printer);
}

int command_events(const Arguments *arguments) {
        HutchWatchOptions options = {
                .sandbox_ids = arguments->n_operands > 0 ? (const char *const *) arguments->operands : NULL,
                .selector = arguments_get(arguments, "selector"),
        };
        _cleanup_free_ const char **types = arguments_get_all(arguments, "type");
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(events_clear) Events events = {
                .format = output_format(arguments),
                .follow = arguments_have(arguments, "follow"),
                .types = types,
                .printer = { .format = output_format(arguments), .n_columns = 1 },
        };

        if (read_since(arguments, &options, &events.not_before, &err) < 0 || check_types(types, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (run(arguments, &events, &options, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        if (!events.follow)
                printer_end(&events.printer);
        return EXIT_SUCCESS;
}
