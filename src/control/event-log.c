/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the making of events, and the ring of the latest ones that all watchers share. What does not: who
 * reads them (watches.c). */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"

#define RING_SIZE_MIN 16

static int compare_labels(const void *a, const void *b) {
        return strcmp(((const Label *) a)->key, ((const Label *) b)->key);
}

/* "key=value,key=value" in the order of the keys. */
static char *labels_text(const SandboxSpec *spec) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        Label sorted[LABELS_MAX];
        size_t n = spec->n_labels < LABELS_MAX ? spec->n_labels : LABELS_MAX;

        if (n > 0)
                memcpy(sorted, spec->labels, n * sizeof(Label));
        qsort(sorted, n, sizeof(Label), compare_labels);
        for (size_t i = 0; i < n; i++)
                string_builder_appendf(&text, "%s%s=%s", i > 0 ? "," : "", sorted[i].key, sorted[i].value);
        return string_builder_take(&text);
}

void event_log_init(EventLog *log, uint64_t last_cursor) {
        log->last_cursor = log->durable_cursor = last_cursor;
        log->ring_first = last_cursor + 1;
}

static EventItem *item_new(const Event *event, const uint8_t *encoded, size_t encoded_len) {
        _cleanup_free_ char *labels = labels_text(event->sandbox->spec);
        size_t id_size = strlen(event->sandbox->id) + 1, owner_size = strlen(event->sandbox->owner) + 1;
        size_t labels_size = strlen(labels) + 1;
        EventItem *item = xcalloc(1, sizeof(EventItem) + id_size + owner_size + labels_size + encoded_len);
        char *at = (char *) (item + 1);

        item->row = (EventRow){
                .cursor = event->cursor,
                .sandbox_serial = event->sandbox->serial,
                .sequence = event->sequence,
                .time = event->time,
                .type = event->type,
                .encoded_len = encoded_len,
        };
        item->row.sandbox_id = memcpy(at, event->sandbox->id, id_size);
        item->row.owner = memcpy(at + id_size, event->sandbox->owner, owner_size);
        item->row.labels = memcpy(at + id_size + owner_size, labels, labels_size);
        item->row.encoded = (const uint8_t *) at + id_size + owner_size + labels_size;
        if (encoded_len > 0)
                memcpy(at + id_size + owner_size + labels_size, encoded, encoded_len);
        return item;
}

void event_add(Sandbox *sandbox, Event *event, const Caller *caller) {
        EventLog *log = &sandbox->control->events;
        _cleanup_free_ uint8_t *encoded = NULL;
        EventItem *item;
        size_t len = 0;

        sandbox_change(sandbox);
        event->cursor = ++log->last_cursor;
        event->sequence = ++sandbox->record.sequence;
        event->time = clock_realtime_ns();
        event->sandbox = &sandbox->record;
        if (caller) {
                event->actor = caller->name;
                event->traceparent = caller->traceparent;
                event->tracestate = caller->tracestate;
        }

        /* Memory is out: as with any other small thing, the daemon starts again and recovers. */
        if (sandbox->control->options.codec->encode_event(event, &encoded, &len) < 0)
                abort();

        item = item_new(event, encoded, len);
        *log->pending_end = item;
        log->pending_end = &item->next;
}

int event_log_write(EventLog *log, Store *store, HutchError *err) {
        for (; *log->unwritten; log->unwritten = &(*log->unwritten)->next) {
                int r = store_add_event(store, &(*log->unwritten)->row, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

static EventItem *take_pending(EventLog *log) {
        EventItem *item = TAKE_PTR(log->pending);

        log->pending_end = log->unwritten = &log->pending;
        return item;
}

void event_log_publish(Control *control) {
        EventLog *log = &control->events;

        for (EventItem *item = take_pending(log), *next; item; item = next) {
                EventItem **place = &log->ring[item->row.cursor % log->ring_size];

                next = item->next;
                if (*place) {
                        log->ring_first = (*place)->row.cursor + 1;
                        free(*place);
                }
                *place = item;
                log->durable_cursor = item->row.cursor;
                watches_tell(control, &item->row);
        }
}

void event_log_drop(EventLog *log) {
        for (EventItem *item = take_pending(log), *next; item; item = next) {
                next = item->next;
                free(item);
        }
        log->last_cursor = log->durable_cursor;
}

void event_log_resize(EventLog *log, size_t size) {
        EventItem **old = log->ring;
        size_t old_size = log->ring_size;
        uint64_t first = log->ring_first;

        size = size > RING_SIZE_MIN ? size : RING_SIZE_MIN;
        if (size == old_size)
                return;

        log->ring = new0(EventItem *, size);
        log->ring_size = size;
        if (log->durable_cursor >= first + size)
                log->ring_first = log->durable_cursor - size + 1;
        for (uint64_t cursor = first; old && cursor <= log->durable_cursor; cursor++) {
                EventItem *item = TAKE_PTR(old[cursor % old_size]);

                if (cursor < log->ring_first)
                        free(item);
                else
                        log->ring[cursor % size] = item;
        }
        free(old);
}

void event_log_free(EventLog *log) {
        event_log_drop(log);
        for (size_t i = 0; i < log->ring_size; i++)
                free(log->ring[i]);
        free(log->ring);
}
