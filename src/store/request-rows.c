/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: requests that must not be done twice, as rows. What does not: what a repeat gets (control). */

#include <errno.h>
#include <string.h>

#include "store/query.h"
#include "store/store.h"

int store_add_request(Store *store, const RequestRow *row, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_REQUEST_PUT);
        int r;

        query_bind_text(&query, row->caller);
        query_bind_text(&query, row->method);
        query_bind_text(&query, row->request_id);
        query_bind_bytes(&query, row->fingerprint, sizeof(row->fingerprint));
        query_bind_ordinal(&query, row->time);
        query_bind_text(&query, row->sandbox_id);
        query_bind_text(&query, row->exec_id[0] != '\0' ? row->exec_id : NULL);
        r = query_write(&query, err);
        return r < 0 ? r : 0;
}

/* Reads what is not the key of a row. */
static int read_row(Query *query, RequestRow *row, HutchError *err) {
        size_t len;
        const uint8_t *fingerprint = query_read_bytes(query, &len);

        if (len == sizeof(row->fingerprint))
                memcpy(row->fingerprint, fingerprint, len);
        else
                query->is_broken = true;
        row->time = query_read_ordinal(query);
        query_copy_id(query, row->sandbox_id);
        row->exec_id[0] = '\0';
        if (!query_next_is_null(query))
                query_copy_id(query, row->exec_id);
        return query_check_row(query, err);
}

int store_find_request(Store *store, RequestRow *row, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_REQUEST_FIND);
        RequestRow found = *row;
        int r;

        query_bind_text(&query, row->caller);
        query_bind_text(&query, row->method);
        query_bind_text(&query, row->request_id);
        r = query_step(&query, err);
        if (r == 0)
                return reason_set(err, -ENOENT, REASON_INTERNAL, "there was no such request");
        if (r > 0)
                r = read_row(&query, &found, err);
        if (r < 0)
                return r;

        *row = found;
        return 0;
}

int store_purge_requests(Store *store, uint64_t before, size_t max, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_REQUESTS_PURGE);

        query_bind_ordinal(&query, before);
        query_bind_ordinal(&query, max);
        return query_write(&query, err);
}
