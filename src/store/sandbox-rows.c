/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sandboxes as rows, their ids, and their purge. What does not: their execs and events. */

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "store/query.h"
#include "store/store.h"

static int compare_labels(const void *a, const void *b) {
        return strcmp(((const Label *) a)->key, ((const Label *) b)->key);
}

/* "key=value,key=value" in the order of the keys, for people to read. */
static char *labels_format(const Label *labels, size_t n_labels) {
        _cleanup_free_ Label *sorted = new0(Label, n_labels + 1);
        _cleanup_(string_builder_clear) StringBuilder builder = {};

        for (size_t i = 0; i < n_labels; i++)
                sorted[i] = labels[i];
        qsort(sorted, n_labels, sizeof(sorted[0]), compare_labels);
        for (size_t i = 0; i < n_labels; i++)
                string_builder_appendf(&builder, "%s%s=%s", i > 0 ? "," : "", sorted[i].key, sorted[i].value);

        return string_builder_take(&builder);
}

/* Runs the statement that updates or inserts the row. */
static int write_row(Store *store, Statement statement, const SandboxRecord *record, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, statement);

        query_bind_ordinal(&query, record->serial);
        query_bind_text(&query, record->id);
        query_bind_text(&query, record->owner);
        query_bind_ordinal(&query, record->create_time);
        query_bind_text(&query, sandbox_state_name(record->state));
        query_bind_text(&query, record->state_reason ? reason_name(record->state_reason) : NULL);
        query_bind_text(&query, record->state_message);
        query_bind_ordinal(&query, record->state_time);
        query_bind_ordinal(&query, record->sequence);
        query_bind_text(&query, pause_wanted_name(record->pause_wanted));
        query_bind_uint(&query, record->uid_slot);
        query_bind_uint(&query, record->stop_grace);
        query_bind_uint(&query, record->expired);
        query_bind_ordinal(&query, record->idle_since);
        query_bind_uint(&query, record->lifetime_left);
        query_bind_ordinal(&query, record->lifetime_as_of);
        query_bind_ordinal(&query, record->next_exec_serial);
        query_bind_uint(&query, record->output_kept);
        return query_write(&query, err);
}

static int write_state(Store *store, const SandboxRecord *record, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_SANDBOX_STATE_UPDATE);

        query_bind_ordinal(&query, record->serial);
        query_bind_text(&query, sandbox_state_name(record->state));
        query_bind_ordinal(&query, record->state_time);
        return query_write(&query, err);
}

static int write_spec(Store *store, const SandboxRecord *record, HutchError *err) {
        const SandboxSpec *spec = record->spec;
        _cleanup_free_ char *labels = labels_format(spec->labels, spec->n_labels);
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_SANDBOX_SPEC_PUT);

        query_bind_ordinal(&query, record->serial);
        query_bind_text(&query, labels);
        query_bind_bytes(&query, spec->encoded, spec->encoded_len);
        query_bind_bytes(&query, spec->effective, spec->effective_len);
        return query_write(&query, err);
}

static int use_id(Store *store, const char *id, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_ID_USE);

        query_bind_text(&query, id);
        return query_write(&query, err);
}

int store_put_sandbox(Store *store, const SandboxRecord *record, HutchError *err) {
        int r = write_row(store, STATEMENT_SANDBOX_UPDATE, record, err);

        if (r > 0) {
                r = write_state(store, record, err);
        } else if (r == 0) {
                r = use_id(store, record->id, err);
                if (r >= 0)
                        r = write_row(store, STATEMENT_SANDBOX_INSERT, record, err);
        }
        if (r >= 0)
                r = write_spec(store, record, err);

        return r < 0 ? r : 0;
}

static int read_row(Query *query, SandboxRecord *ret_record, StoredSpec *ret_spec, HutchError *err) {
        SandboxRecord *record = ret_record;

        *record = (SandboxRecord){};
        *ret_spec = (StoredSpec){};
        record->serial = query_read_ordinal(query);
        query_copy_id(query, record->id);
        query_copy_text(query, record->owner, sizeof(record->owner));
        record->create_time = query_read_ordinal(query);
        record->state = query_read_word(query, sandbox_state_from_name);
        record->state_reason = query_read_reason(query);
        query_copy_text(query, record->state_message, sizeof(record->state_message));
        record->state_time = query_read_ordinal(query);
        record->sequence = query_read_ordinal(query);
        record->pause_wanted = query_read_word_or_null(query, pause_wanted_from_name);
        record->uid_slot = (uint32_t) query_read_int(query, 0, UINT32_MAX);
        record->stop_grace = query_read_uint(query);
        record->expired = query_read_bool(query);
        record->idle_since = query_read_ordinal(query);
        record->lifetime_left = query_read_uint(query);
        record->lifetime_as_of = query_read_ordinal(query);
        record->next_exec_serial = query_read_ordinal(query);
        record->output_kept = query_read_uint(query);
        ret_spec->encoded = query_read_bytes(query, &ret_spec->encoded_len);
        ret_spec->effective = query_read_bytes(query, &ret_spec->effective_len);
        return query_check_row(query, err);
}

/* Hands all rows to @callback. Returns how many there were. */
static int read_rows(Query *query, StoreSandboxCallback callback, void *user, HutchError *err) {
        SandboxRecord record;
        StoredSpec spec;
        int n = 0;

        for (;; n++) {
                int r = query_step(query, err);

                if (r == 0)
                        return n;
                if (r > 0)
                        r = read_row(query, &record, &spec, err);
                if (r >= 0)
                        r = callback(&record, &spec, user);
                if (r < 0)
                        return r;
        }
}

int store_each_sandbox(Store *store, StoreSandboxCallback callback, void *user, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_SANDBOXES_ALIVE);
        int r = read_rows(&query, callback, user, err);

        return r < 0 ? r : 0;
}

int store_find_sandbox(Store *store, const char *id, StoreSandboxCallback callback, void *user, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_SANDBOX_BY_ID);
        int r;

        query_bind_text(&query, id);
        r = read_rows(&query, callback, user, err);
        if (r == 0)
                return reason_set(err, -ENOENT, REASON_SANDBOX_NOT_FOUND, "there is no sandbox %s", id);
        return r < 0 ? r : 0;
}

int store_each_deleted(Store *store, const char *owner, uint64_t after_serial, size_t max,
                       StoreSandboxCallback callback, void *user, HutchError *err) {
        _cleanup_(query_end) Query query =
                query_start(store, owner ? STATEMENT_SANDBOXES_DELETED_OF_OWNER : STATEMENT_SANDBOXES_DELETED);
        int r;

        query_bind_ordinal(&query, after_serial);
        query_bind_ordinal(&query, max);
        if (owner)
                query_bind_text(&query, owner);
        r = read_rows(&query, callback, user, err);
        return r < 0 ? r : 0;
}

int store_id_is_used(Store *store, const char *id, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_ID_IS_USED);

        query_bind_text(&query, id);
        return query_step(&query, err);
}

int store_last_serial(Store *store, uint64_t *ret_serial, HutchError *err) {
        return query_number(store, STATEMENT_LAST_SERIAL, ret_serial, err);
}

/* The next DELETED sandbox that was so before @before: 1, or 0 when there is none. */
static int find_purgeable(Store *store, uint64_t before, uint64_t *ret_serial, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_PURGE_FIND);
        uint64_t serial;
        int r;

        query_bind_ordinal(&query, before);
        r = query_step(&query, err);
        if (r <= 0)
                return r;

        serial = query_read_ordinal(&query);
        r = query_check_row(&query, err);
        if (r < 0)
                return r;

        *ret_serial = serial;
        return 1;
}

static int purge(Store *store, uint64_t serial, HutchError *err) {
        static const Statement statements[] = {
                STATEMENT_PURGE_EVENTS_MARK, STATEMENT_PURGE_SANDBOXES_MARK, STATEMENT_PURGE_EVENTS,
                STATEMENT_PURGE_EXEC_SPECS,  STATEMENT_PURGE_EXECS,          STATEMENT_PURGE_SANDBOX_SPEC,
                STATEMENT_PURGE_SANDBOX,
        };

        for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
                _cleanup_(query_end) Query query = query_start(store, statements[i]);
                int r;

                query_bind_ordinal(&query, serial);
                r = query_write(&query, err);
                if (r < 0)
                        return r;
        }

        return 0;
}

int store_purge_sandboxes(Store *store, uint64_t before, size_t max, HutchError *err) {
        int n = 0;

        while ((size_t) n < max && n < INT_MAX) {
                uint64_t serial;
                int r = find_purgeable(store, before, &serial, err);

                if (r == 0)
                        break;
                if (r > 0)
                        r = purge(store, serial, err);
                if (r < 0)
                        return r;
                n++;
        }

        return n;
}
