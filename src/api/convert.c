/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the model's objects as messages. What does not: specs, which are kept as the bytes that are shown
 * (sandbox-spec.c, exec-spec.c). */

#include "api/convert.h"

#include <errno.h>
#include <string.h>

#include "api/times.h"
#include "base/clock.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"

#define SANDBOX_SPEC_FIELD 2
#define SANDBOX_EFFECTIVE_FIELD 13
#define EXEC_SPEC_FIELD 3
#define UPDATED_FIELDS_MAX 16

_Static_assert((int) SANDBOX_DELETED + 1 == (int) HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_DELETED,
               "the contract's states are the model's, from 1");
_Static_assert((int) EXEC_LOST + 1 == (int) HUTCH__V1__EXEC_STATE__EXEC_STATE_LOST,
               "the contract's states are the model's, from 1");

static Hutch__V1__SandboxState sandbox_state(SandboxState state) {
        return (Hutch__V1__SandboxState) (state + 1);
}

static Hutch__V1__ExecState exec_state(ExecState state) {
        return (Hutch__V1__ExecState) (state + 1);
}

int sandbox_state_from_message(int number, SandboxState *ret_state) {
        if (number < 1 || number > SANDBOX_STATES_N)
                return -EINVAL;

        *ret_state = (SandboxState) (number - 1);
        return 0;
}

int exec_state_from_message(int number, ExecState *ret_state) {
        if (number < 1 || number > EXEC_STATES_N)
                return -EINVAL;

        *ret_state = (ExecState) (number - 1);
        return 0;
}

/* Sets a time in a message that is there; 0 is none. */
static void set_time(uint64_t ns, Google__Protobuf__Timestamp *storage, Google__Protobuf__Timestamp **field) {
        *storage = timestamp_message(ns);
        *field = ns > 0 ? storage : NULL;
}

static void put_usage(WireBuffer *buffer, unsigned field, const RuntimeUsage *usage) {
        Hutch__V1__SandboxUsage message = HUTCH__V1__SANDBOX_USAGE__INIT;
        Google__Protobuf__Duration cpu_time = duration_message(usage->cpu_time);
        Google__Protobuf__Timestamp now = timestamp_message(clock_realtime_ns());

        message.memory_bytes = usage->memory_bytes;
        message.memory_peak_bytes = usage->memory_peak_bytes;
        message.cpu_time = &cpu_time;
        message.processes = usage->processes;
        message.disk_bytes = usage->disk_bytes;
        message.disk_inodes = usage->disk_inodes;
        message.measure_time = &now;
        wire_put_message(buffer, field, &message.base);
}

void put_sandbox(WireBuffer *buffer, unsigned field, const SandboxView *view, const RuntimeUsage *usage) {
        const SandboxRecord *record = view->record;
        Hutch__V1__Sandbox message = HUTCH__V1__SANDBOX__INIT;
        Google__Protobuf__Timestamp times[4];
        size_t begun = wire_begin(buffer, field);

        message.id = (char *) record->id;
        message.state = sandbox_state(record->state);
        message.state_reason = (Hutch__V1__Reason) record->state_reason;
        message.state_message = (char *) record->state_message;
        message.owner = (char *) record->owner;
        set_time(record->create_time, &times[0], &message.create_time);
        set_time(record->state_time, &times[1], &message.state_time);
        set_time(view->idle_deadline, &times[2], &message.idle_deadline);
        set_time(view->lifetime_deadline, &times[3], &message.lifetime_deadline);
        message.sequence = record->sequence;
        message.runtime = record->spec->runtime;
        message.active_execs = view->active_execs;

        wire_put_fields(buffer, &message.base);
        wire_put_bytes(buffer, SANDBOX_SPEC_FIELD, record->spec->encoded, record->spec->encoded_len);
        wire_put_bytes(buffer, SANDBOX_EFFECTIVE_FIELD, record->spec->effective, record->spec->effective_len);
        if (usage)
                put_usage(buffer, 15, usage);
        wire_end(buffer, begun);
}

/* A result, and what it points to. */
typedef struct ResultMessage {
        Hutch__V1__ExecResult message;
        Hutch__V1__StreamSummary out, err;
        Google__Protobuf__Duration cpu_time;
} ResultMessage;

static Hutch__V1__StreamSummary summary_message(StreamSummary summary) {
        Hutch__V1__StreamSummary message = HUTCH__V1__STREAM_SUMMARY__INIT;

        message.total_bytes = summary.total;
        message.dropped_bytes = summary.dropped;
        message.truncated = summary.dropped > 0;
        return message;
}

static void result_message_init(ResultMessage *storage, const ExecResult *result) {
        Hutch__V1__ExecResult *message = &storage->message;

        *message = (Hutch__V1__ExecResult) HUTCH__V1__EXEC_RESULT__INIT;
        if (result->has_exit_code) {
                message->opt_exit_code_case = HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE;
                message->exit_code = result->exit_code;
        }
        message->signal = result->signal;
        message->end_reason = (Hutch__V1__ExecEndReason) result->end_reason;
        message->failure = (Hutch__V1__Reason) result->failure;
        message->message = (char *) result->message;
        storage->out = summary_message(result->out);
        storage->err = summary_message(result->err);
        message->stdout = &storage->out;
        message->stderr = &storage->err;
        storage->cpu_time = duration_message(result->cpu_time);
        message->cpu_time = &storage->cpu_time;
        message->peak_memory_bytes = result->peak_memory;
}

void put_exec_result(WireBuffer *buffer, unsigned field, const ExecResult *result) {
        ResultMessage storage;

        result_message_init(&storage, result);
        wire_put_message(buffer, field, &storage.message.base);
}

static bool has_ended(const ExecRecord *record) {
        return record->state != EXEC_PENDING && record->state != EXEC_RUNNING;
}

void put_exec(WireBuffer *buffer, unsigned field, const ExecView *view) {
        const ExecRecord *record = view->record;
        Hutch__V1__Exec message = HUTCH__V1__EXEC__INIT;
        Google__Protobuf__Timestamp times[4];
        ResultMessage result;
        size_t begun = wire_begin(buffer, field);

        message.id = (char *) record->id;
        message.sandbox_id = (char *) view->sandbox_id;
        message.state = exec_state(record->state);
        set_time(record->create_time, &times[0], &message.create_time);
        set_time(record->start_time, &times[1], &message.start_time);
        set_time(record->end_time, &times[2], &message.end_time);
        set_time(record->cancel_time, &times[3], &message.cancel_time);
        message.stdout_bytes = view->stdout_bytes;
        message.stderr_bytes = view->stderr_bytes;
        if (has_ended(record)) {
                result_message_init(&result, &record->result);
                message.result = &result.message;
        }

        wire_put_fields(buffer, &message.base);
        wire_put_bytes(buffer, EXEC_SPEC_FIELD, record->spec->encoded, record->spec->encoded_len);
        wire_end(buffer, begun);
}

/* What an event says by its type, and what that points to. */
typedef struct ChangeMessage {
        Hutch__V1__SandboxStateChange sandbox_state;
        Hutch__V1__SandboxUpdate update;
        Hutch__V1__SandboxUpdate__LabelsEntry labels[LABELS_MAX], *label_list[LABELS_MAX];
        char *fields[UPDATED_FIELDS_MAX];
        Hutch__V1__ExecStateChange exec_state;
        ResultMessage result;
        Hutch__V1__LimitHit limit_hit;
} ChangeMessage;

static void set_update(const Event *event, ChangeMessage *change, Hutch__V1__Event *message) {
        const SandboxSpec *spec = event->sandbox->spec;
        Hutch__V1__SandboxUpdate *update = &change->update;

        *update = (Hutch__V1__SandboxUpdate) HUTCH__V1__SANDBOX_UPDATE__INIT;
        for (const char *const *field = event->fields; field && *field && update->n_fields < UPDATED_FIELDS_MAX;
             field++)
                change->fields[update->n_fields++] = (char *) *field;
        update->fields = change->fields;

        for (size_t i = 0; i < spec->n_labels && i < LABELS_MAX; i++) {
                Hutch__V1__SandboxUpdate__LabelsEntry *entry = &change->labels[i];

                *entry = (Hutch__V1__SandboxUpdate__LabelsEntry) HUTCH__V1__SANDBOX_UPDATE__LABELS_ENTRY__INIT;
                entry->key = (char *) spec->labels[i].key;
                entry->value = (char *) spec->labels[i].value;
                change->label_list[update->n_labels++] = entry;
        }
        update->labels = change->label_list;
        message->change_case = HUTCH__V1__EVENT__CHANGE_SANDBOX_UPDATE;
        message->sandbox_update = update;
}

static void set_change(const Event *event, ChangeMessage *change, Hutch__V1__Event *message) {
        switch (event->type) {
        case EVENT_SANDBOX_CREATED:
        case EVENT_SANDBOX_STATE_CHANGED:
                change->sandbox_state = (Hutch__V1__SandboxStateChange) HUTCH__V1__SANDBOX_STATE_CHANGE__INIT;
                if (!event->is_new)
                        change->sandbox_state.from_state = sandbox_state(event->from_state);
                change->sandbox_state.to_state = sandbox_state(event->sandbox->state);
                message->change_case = HUTCH__V1__EVENT__CHANGE_SANDBOX_STATE;
                message->sandbox_state = &change->sandbox_state;
                break;
        case EVENT_SANDBOX_UPDATED:
                set_update(event, change, message);
                break;
        case EVENT_EXEC_CREATED:
        case EVENT_EXEC_STATE_CHANGED:
                change->exec_state = (Hutch__V1__ExecStateChange) HUTCH__V1__EXEC_STATE_CHANGE__INIT;
                change->exec_state.exec_id = (char *) event->exec->id;
                if (!event->is_new)
                        change->exec_state.from_state = exec_state(event->exec_from);
                change->exec_state.to_state = exec_state(event->exec->state);
                if (has_ended(event->exec)) {
                        result_message_init(&change->result, &event->exec->result);
                        change->exec_state.result = &change->result.message;
                }
                message->change_case = HUTCH__V1__EVENT__CHANGE_EXEC_STATE;
                message->exec_state = &change->exec_state;
                break;
        case EVENT_LIMIT_HIT:
                change->limit_hit = (Hutch__V1__LimitHit) HUTCH__V1__LIMIT_HIT__INIT;
                change->limit_hit.limit = (char *) event->limit;
                change->limit_hit.value = event->limit_value;
                change->limit_hit.count = event->limit_count;
                if (event->exec)
                        change->limit_hit.exec_id = (char *) event->exec->id;
                message->change_case = HUTCH__V1__EVENT__CHANGE_LIMIT_HIT;
                message->limit_hit = &change->limit_hit;
                break;
        }
}

static char *text_or_empty(const char *text) {
        return (char *) (text ? text : protobuf_c_empty_string);
}

int event_encode(const Event *event, uint8_t **ret_bytes, size_t *ret_len) {
        Hutch__V1__Event message = HUTCH__V1__EVENT__INIT;
        Google__Protobuf__Timestamp time = timestamp_message(event->time);
        ChangeMessage change;

        message.cursor = event->cursor;
        message.sandbox_id = (char *) event->sandbox->id;
        message.sequence = event->sequence;
        message.time = &time;
        message.type = (Hutch__V1__EventType) event->type;
        message.reason = (Hutch__V1__Reason) event->reason;
        message.message = text_or_empty(event->message);
        message.traceparent = text_or_empty(event->traceparent);
        message.tracestate = text_or_empty(event->tracestate);
        message.actor = text_or_empty(event->actor);
        set_change(event, &change, &message);
        return protobuf_pack(&message.base, ret_bytes, ret_len);
}
