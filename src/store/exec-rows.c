/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: execs as rows. What does not: their purge, which is their sandbox's. */

#include <errno.h>

#include "store/query.h"
#include "store/store.h"

/* Runs the statement that updates or inserts the row. */
static int write_row(Store *store, Statement statement, const ExecRecord *record, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, statement);
        const ExecResult *result = &record->result;

        query_bind_ordinal(&query, record->sandbox_serial);
        query_bind_ordinal(&query, record->serial);
        query_bind_text(&query, record->id);
        query_bind_ordinal(&query, record->create_time);
        query_bind_uint(&query, record->bound);
        query_bind_text(&query, exec_state_name(record->state));
        query_bind_ordinal(&query, record->start_time);
        query_bind_ordinal(&query, record->end_time);
        query_bind_ordinal(&query, record->cancel_time);
        query_bind_uint(&query, record->cancel_grace);
        query_bind_text(&query, exec_end_reason_name(result->end_reason));
        if (result->has_exit_code)
                query_bind_int(&query, result->exit_code);
        else
                query_bind_null(&query);
        query_bind_uint(&query, result->signal);
        query_bind_text(&query, result->failure ? reason_name(result->failure) : NULL);
        query_bind_text(&query, result->message);
        query_bind_uint(&query, result->out.total);
        query_bind_uint(&query, result->out.dropped);
        query_bind_uint(&query, result->err.total);
        query_bind_uint(&query, result->err.dropped);
        query_bind_uint(&query, result->cpu_time);
        query_bind_uint(&query, result->peak_memory);
        return query_write(&query, err);
}

static int write_spec(Store *store, const ExecRecord *record, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EXEC_SPEC_PUT);
        const ExecSpec *spec = record->spec;

        query_bind_ordinal(&query, record->sandbox_serial);
        query_bind_ordinal(&query, record->serial);
        query_bind_bytes(&query, spec->encoded, spec->encoded_len);
        if (record->state == EXEC_PENDING && spec->input_len > 0)
                query_bind_bytes(&query, spec->input, spec->input_len);
        else
                query_bind_null(&query);
        return query_write(&query, err);
}

int store_put_exec(Store *store, const ExecRecord *record, HutchError *err) {
        int r = write_row(store, STATEMENT_EXEC_UPDATE, record, err);
        bool is_new = r == 0;

        if (is_new)
                r = write_row(store, STATEMENT_EXEC_INSERT, record, err);
        if (r >= 0 && (is_new || record->spec->input_len > 0))
                r = write_spec(store, record, err);

        return r < 0 ? r : 0;
}

static void read_result(Query *query, ExecResult *ret_result) {
        ExecResult *result = ret_result;

        result->end_reason = query_read_word_or_null(query, exec_end_reason_from_name);
        result->has_exit_code = !query_next_is_null(query);
        if (result->has_exit_code)
                result->exit_code = (int32_t) query_read_int(query, INT32_MIN, INT32_MAX);
        result->signal = (uint32_t) query_read_int(query, 0, UINT32_MAX);
        result->failure = query_read_reason(query);
        query_copy_text(query, result->message, sizeof(result->message));
        result->out.total = query_read_uint(query);
        result->out.dropped = query_read_uint(query);
        result->err.total = query_read_uint(query);
        result->err.dropped = query_read_uint(query);
        result->cpu_time = query_read_uint(query);
        result->peak_memory = query_read_uint(query);
}

static int read_row(Query *query, ExecRecord *ret_record, StoredSpec *ret_spec, HutchError *err) {
        ExecRecord *record = ret_record;

        *record = (ExecRecord){};
        *ret_spec = (StoredSpec){};
        record->sandbox_serial = query_read_ordinal(query);
        record->serial = query_read_ordinal(query);
        query_copy_id(query, record->id);
        record->create_time = query_read_ordinal(query);
        record->bound = query_read_bool(query);
        record->state = query_read_word(query, exec_state_from_name);
        record->start_time = query_read_ordinal(query);
        record->end_time = query_read_ordinal(query);
        record->cancel_time = query_read_ordinal(query);
        record->cancel_grace = query_read_uint(query);
        read_result(query, &record->result);
        ret_spec->encoded = query_read_bytes(query, &ret_spec->encoded_len);
        ret_spec->input = query_read_bytes_or_null(query, &ret_spec->input_len);
        return query_check_row(query, err);
}

/* Hands all rows to @callback. Returns how many there were. */
static int read_rows(Query *query, StoreExecCallback callback, void *user, HutchError *err) {
        ExecRecord record;
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

int store_each_exec(Store *store, uint64_t sandbox_serial, uint64_t after_serial, size_t max,
                    StoreExecCallback callback, void *user, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EXECS_OF_SANDBOX);
        int r;

        query_bind_ordinal(&query, sandbox_serial);
        query_bind_ordinal(&query, after_serial);
        query_bind_ordinal(&query, max);
        r = read_rows(&query, callback, user, err);
        return r < 0 ? r : 0;
}

int store_each_active_exec(Store *store, StoreExecCallback callback, void *user, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EXECS_ACTIVE);
        int r = read_rows(&query, callback, user, err);

        return r < 0 ? r : 0;
}

int store_find_exec(Store *store, uint64_t sandbox_serial, const char *id, StoreExecCallback callback, void *user,
                    HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_EXEC_BY_ID);
        int r;

        query_bind_ordinal(&query, sandbox_serial);
        query_bind_text(&query, id);
        r = read_rows(&query, callback, user, err);
        if (r == 0)
                return reason_set(err, -ENOENT, REASON_EXEC_NOT_FOUND, "there is no exec %s", id);
        return r < 0 ? r : 0;
}

int store_kept_outputs(Store *store, uint64_t sandbox_serial, uint64_t after_serial, KeptOutput *ret_outputs,
                       size_t max, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_OUTPUTS_KEPT);
        int n = 0;

        query_bind_ordinal(&query, sandbox_serial);
        query_bind_ordinal(&query, after_serial);
        query_bind_ordinal(&query, max);
        for (;; n++) {
                int r = query_step(&query, err);

                if (r == 0)
                        return n;
                if (r > 0) {
                        ret_outputs[n].exec_serial = query_read_ordinal(&query);
                        query_copy_id(&query, ret_outputs[n].exec_id);
                        ret_outputs[n].bytes = query_read_uint(&query);
                        r = query_check_row(&query, err);
                }
                if (r < 0)
                        return r;
        }
}

int store_drop_output(Store *store, uint64_t sandbox_serial, uint64_t exec_serial, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_OUTPUT_DROP);
        int r;

        query_bind_ordinal(&query, sandbox_serial);
        query_bind_ordinal(&query, exec_serial);
        r = query_write(&query, err);
        return r < 0 ? r : 0;
}
