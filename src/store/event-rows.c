/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: events as rows. What does not: their purge, which is their sandbox's. */

#include <errno.h>
#include <limits.h>

#include "store/query.h"
#include "store/store.h"

#define LABELS_LEN_MAX INT_MAX /* bytes; whoever wrote them has limits */

int store_add_event(Store *store, const EventRow *row, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EVENT_INSERT);
        int r;

        query_bind_ordinal(&query, row->cursor);
        query_bind_ordinal(&query, row->sandbox_serial);
        query_bind_ordinal(&query, row->sequence);
        query_bind_ordinal(&query, row->time);
        query_bind_text(&query, event_type_name(row->type));
        query_bind_text(&query, row->sandbox_id);
        query_bind_text(&query, row->owner);
        query_bind_text(&query, row->labels);
        query_bind_bytes(&query, row->encoded, row->encoded_len);
        r = query_write(&query, err);
        return r < 0 ? r : 0;
}

static int read_row(Query *query, EventRow *ret_row, HutchError *err) {
        EventRow *row = ret_row;

        row->cursor = query_read_ordinal(query);
        row->sandbox_serial = query_read_ordinal(query);
        row->sequence = query_read_ordinal(query);
        row->time = query_read_ordinal(query);
        row->type = query_read_word(query, event_type_from_name);
        row->sandbox_id = query_read_text(query, ID_LEN_MAX);
        row->owner = query_read_text(query, OWNER_LEN_MAX);
        row->labels = query_read_text(query, LABELS_LEN_MAX);
        row->encoded = query_read_bytes(query, &row->encoded_len);
        return query_check_row(query, err);
}

int store_each_event(Store *store, uint64_t after_cursor, size_t max, StoreEventCallback callback, void *user,
                     HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EVENTS_AFTER);

        query_bind_ordinal(&query, after_cursor);
        query_bind_ordinal(&query, max);
        for (;;) {
                EventRow row;
                int r = query_step(&query, err);

                if (r == 0)
                        return 0;
                if (r > 0)
                        r = read_row(&query, &row, err);
                if (r >= 0)
                        r = callback(&row, user);
                if (r < 0)
                        return r;
        }
}

int store_event_cursor(Store *store, uint64_t sandbox_serial, uint64_t sequence, uint64_t *ret_cursor,
                       HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EVENT_CURSOR);
        uint64_t cursor;
        int r;

        query_bind_ordinal(&query, sandbox_serial);
        query_bind_ordinal(&query, sequence);
        r = query_step(&query, err);
        if (r == 0)
                return reason_set(err, -ENOENT, REASON_CURSOR_INVALID, "there is no event of that sequence");
        if (r < 0)
                return r;

        cursor = query_read_ordinal(&query);
        r = query_check_row(&query, err);
        if (r < 0)
                return r;

        *ret_cursor = cursor;
        return 0;
}

int store_last_cursor(Store *store, uint64_t *ret_cursor, HutchError *err) {
        return query_number(store, STATEMENT_LAST_CURSOR, ret_cursor, err);
}

int store_purged_cursor(Store *store, uint64_t *ret_cursor, HutchError *err) {
        return query_number(store, STATEMENT_PURGED_CURSOR, ret_cursor, err);
}
