/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: asking the daemon for sandboxes and what they use. What does not: how that is shown, and when
 * (top-command.c). */

#include "cli/top-rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/report.h"
#include "pbtext/pbtext.h"

#define CALLS_MAX 32 /* under way at a time: what the daemon and the keepers are asked for at once */
#define PAGE_SIZE "1000"

DEFINE_CLEANUP(HutchCall *, hutch_call_free);

static void row_clear(TopRow *row) {
        hutch_call_free(row->call);
        if (row->message)
                message_free(row->message);
        free(row->id);
        free(row->state);
        *row = (TopRow){};
}

void top_rows_clear(TopRows *rows) {
        for (size_t i = 0; i < rows->n; i++)
                row_clear(&rows->items[i]);
        free(rows->items);
        *rows = (TopRows){};
}

static TopRow *rows_add(TopRows *rows) {
        rows->items = xreallocarray(rows->items, rows->n + 1, sizeof(rows->items[0]));
        rows->items[rows->n] = (TopRow){ .cpu = -1 };
        return &rows->items[rows->n++];
}

TopRows top_rows_of(char *const ids[], size_t n) {
        TopRows rows = {};

        for (size_t i = 0; i < n; i++) {
                TopRow *row = rows_add(&rows);

                row->id = xstrdup(ids[i]);
                row->state = xstrdup("");
        }
        return rows;
}

/* ---- Reading answers ---- */

static uint64_t read_number(const ProtobufCMessage *message, const char *path) {
        _cleanup_free_ char *text = message_get(message, path);

        return strtoull(text, NULL, 10);
}

/* A time or a duration, in nanoseconds. */
static uint64_t read_time(const ProtobufCMessage *message, const char *seconds, const char *nanos) {
        return read_number(message, seconds) * NSEC_PER_SEC + read_number(message, nanos);
}

static void row_read(TopRow *row, const ProtobufCMessage *sandbox) {
        free(row->id);
        free(row->state);
        row->id = message_get(sandbox, "id");
        row->state = message_get(sandbox, "state");
        row->create_time = read_time(sandbox, "create_time.seconds", "create_time.nanos");
        row->execs = read_number(sandbox, "active_execs");
        row->memory_limit = read_number(sandbox, "effective.limits.memory_bytes");
        row->process_limit = read_number(sandbox, "effective.limits.max_processes");
        row->disk_limit = read_number(sandbox, "effective.limits.disk_bytes");
        row->is_measured = message_has(sandbox, "usage");
        if (!row->is_measured)
                return;

        row->memory = read_number(sandbox, "usage.memory_bytes");
        row->processes = read_number(sandbox, "usage.processes");
        row->disk = read_number(sandbox, "usage.disk_bytes");
        row->cpu_time = read_time(sandbox, "usage.cpu_time.seconds", "usage.cpu_time.nanos");
        row->measure_time = read_time(sandbox, "usage.measure_time.seconds", "usage.measure_time.nanos");
}

/* ---- Asking ---- */

/* Starts a call of @method with one message. */
static int ask(const TopAsker *asker, const char *method, const ProtobufCMessage *request, HutchCall **ret_call,
               HutchError **ret_error) {
        _cleanup_(hutch_call_freep) HutchCall *call = NULL;
        _cleanup_free_ void *bytes = NULL;
        size_t len;
        int r;

        message_encode(request, &bytes, &len);
        r = hutch_call_new(asker->client, method, 0, NULL, &call, ret_error);
        if (r >= 0)
                r = hutch_call_send(call, false, bytes, len, ret_error);
        /* When it is over already, the answer tells how. */
        if (r < 0 && r != -EPIPE)
                return r;

        hutch_call_end(call);
        *ret_call = TAKE_PTR(call);
        return 0;
}

/* Takes the answer to @call, if it is there; else -EAGAIN. */
static int take(HutchCall *call, const char *type, ProtobufCMessage **ret_reply, HutchError **ret_error) {
        _cleanup_(hutch_buffer_clear) HutchBuffer reply = {};
        int r = hutch_call_receive(call, false, &reply, ret_error);

        if (r <= 0)
                return r == 0 ? -EBADMSG : r;
        return message_decode(hutch_message_descriptor(type), reply.data, reply.len, ret_reply, NULL);
}

int top_rows_list(const TopAsker *asker, TopRows *ret_rows, HutchError **ret_error) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("ListSandboxesRequest");
        _cleanup_(top_rows_clear) TopRows rows = {};
        _cleanup_free_ char *token = NULL;

        (void) message_set(request, "page_size", PAGE_SIZE, NULL);
        do {
                _cleanup_(hutch_call_freep) HutchCall *call = NULL;
                _cleanup_(message_freep) ProtobufCMessage *reply = NULL;
                int r = ask(asker, "AgentSandboxService/ListSandboxes", request, &call, ret_error);

                while (r == 0 && (r = take(call, "ListSandboxesResponse", &reply, ret_error)) == -EAGAIN)
                        r = asker->wait(asker->user);
                if (!reply)
                        return r;

                for (size_t i = 0; i < message_count(reply, "sandboxes"); i++)
                        row_read(rows_add(&rows), message_at(reply, "sandboxes", i));
                free(token);
                token = message_get(reply, "next_page_token");
                (void) message_set(request, "page_token", token, NULL);
        } while (*token);

        *ret_rows = rows;
        rows = (TopRows){};
        return 0;
}

static int row_ask(const TopAsker *asker, TopRow *row, HutchError **ret_error) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("GetSandboxRequest");

        if (message_set(request, "sandbox_id", row->id, NULL) < 0)
                return -EINVAL;
        (void) message_set(request, "include_usage", "true", NULL);
        return ask(asker, "AgentSandboxService/GetSandbox", request, &row->call, ret_error);
}

/* Takes the answer about @row: 1. 0: it is not there yet. */
static int row_take(TopRow *row, HutchError **ret_error) {
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(message_freep) ProtobufCMessage *reply = NULL;
        int r = take(row->call, "GetSandboxResponse", &reply, &error);

        if (r == -EAGAIN)
                return 0;
        hutch_call_free(TAKE_PTR(row->call));
        /* It was there when it was listed. */
        if (r < 0 && error && hutch_error_code(error) == HUTCH_NOT_FOUND && *row->state)
                return 1;
        if (r < 0) {
                *ret_error = TAKE_PTR(error);
                return r;
        }

        row->message = contract_part(reply, "sandbox", "Sandbox");
        row_read(row, row->message);
        return 1;
}

int top_rows_measure(const TopAsker *asker, TopRow *rows, size_t n, HutchError **ret_error) {
        size_t begun = 0, answered = 0;

        while (answered < n) {
                size_t before = answered;
                int r = 0;

                for (; begun < n && begun < answered + CALLS_MAX && r >= 0; begun++)
                        r = row_ask(asker, &rows[begun], ret_error);
                /* Those that were answered out of turn wait for those before them. */
                while (r >= 0 && answered < begun && (r = row_take(&rows[answered], ret_error)) > 0)
                        answered++;
                if (r >= 0 && answered == before)
                        r = asker->wait(asker->user);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- What changed ---- */

static int compare_ids(const void *a, const void *b) {
        return strcmp(((const TopRow *) a)->id, ((const TopRow *) b)->id);
}

void top_rows_compare(const TopRows *rows, TopRows *before) {
        if (before->n == 0)
                return;

        qsort(before->items, before->n, sizeof(before->items[0]), compare_ids);
        for (size_t i = 0; i < rows->n; i++) {
                TopRow *row = &rows->items[i];
                const TopRow *then = bsearch(row, before->items, before->n, sizeof(before->items[0]), compare_ids);

                /* The time of a sandbox that was started anew begins anew. */
                if (then && then->is_measured && row->is_measured && row->measure_time > then->measure_time &&
                    row->cpu_time >= then->cpu_time)
                        row->cpu = 100.0 * (double) (row->cpu_time - then->cpu_time) /
                                   (double) (row->measure_time - then->measure_time);
        }
}
