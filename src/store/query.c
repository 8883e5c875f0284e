/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: running statements, their transaction, and what SQLite's result codes mean to callers. What does
 * not: the statements themselves (statements.c), and what their rows mean (the files called *-rows.c). */

#include "store/query.h"

#include <errno.h>
#include <string.h>

#include "model/ids.h"
#include "model/reason.h"

/* The errno behind an error of input or output. */
static int last_errno(sqlite3 *db, int rc) {
        sqlite3_file *log = NULL;
        int error = 0;

        /* Of a commit that failed SQLite leaves it with the log only. */
        if (rc == SQLITE_IOERR_WRITE &&
            sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK && log && log->pMethods)
                (void) log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
        if (error == 0)
                error = sqlite3_system_errno(db);

        return error > 0 ? error : EIO;
}

static int errno_from_result(sqlite3 *db, int rc) {
        switch (rc & 0xff) {
        case SQLITE_FULL:
                return ENOSPC;
        case SQLITE_IOERR:
        case SQLITE_CANTOPEN:
                return rc == SQLITE_IOERR_NOMEM ? ENOMEM : last_errno(db, rc);
        case SQLITE_READONLY:
                return EROFS;
        case SQLITE_PERM:
        case SQLITE_AUTH:
                return EACCES;
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
        case SQLITE_PROTOCOL:
                return EBUSY;
        case SQLITE_NOMEM:
                return ENOMEM;
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
                return EBADMSG;
        case SQLITE_CONSTRAINT:
                return EEXIST;
        case SQLITE_TOOBIG:
                return EFBIG;
        default:
                return ENOTRECOVERABLE;
        }
}

int sqlite_error(sqlite3 *db, int rc, HutchError *err) {
        int error = errno_from_result(db, rc);

        switch (error) {
        case EEXIST:
        case ENOTRECOVERABLE:
                return reason_set(err, -error, REASON_INTERNAL, "the daemon misused its store: %s", sqlite3_errmsg(db));
        case ENOSPC:
        case EDQUOT:
                return reason_set(err, -error, REASON_STORE_UNAVAILABLE,
                                  "the daemon's store has no space left; free some on its file system, then try again");
        case EBADMSG:
                return reason_set(err, -error, REASON_STORE_UNAVAILABLE,
                                  "the daemon's store is damaged; stop the daemon and restore a backup");
        case EBUSY:
                return reason_set(err, -error, REASON_STORE_UNAVAILABLE,
                                  "another program has locked the daemon's store; end it, then try again");
        default:
                return reason_set(err, -error, REASON_STORE_UNAVAILABLE,
                                  "the daemon's store cannot be used: %s; see to its file system, then try again",
                                  strerror(error));
        }
}

Query query_start(Store *store, Statement statement) {
        Query query = { .store = store, .statement = statement, .prepared = store->statements[statement] };

        /* It is in use further up: this run gets one of its own. */
        if (!query.prepared)
                query.rc = sqlite3_prepare_v2(store->db, statement_sql[statement], -1, &query.prepared, NULL);

        store->statements[statement] = NULL;
        return query;
}

void query_end(Query *query) {
        sqlite3_stmt **kept = &query->store->statements[query->statement];

        if (!query->prepared)
                return;

        (void) sqlite3_reset(query->prepared);
        (void) sqlite3_clear_bindings(query->prepared);
        (void) sqlite3_finalize(*kept);
        *kept = query->prepared;
}

static void note(Query *query, int rc) {
        if (query->rc == SQLITE_OK)
                query->rc = rc;
}

void query_bind_text(Query *query, const char *text) {
        note(query, sqlite3_bind_text(query->prepared, ++query->n_bound, text, -1, SQLITE_STATIC));
}

void query_bind_bytes(Query *query, const void *bytes, size_t len) {
        note(query, sqlite3_bind_blob64(query->prepared, ++query->n_bound, len > 0 ? bytes : "", len, SQLITE_STATIC));
}

void query_bind_null(Query *query) {
        note(query, sqlite3_bind_null(query->prepared, ++query->n_bound));
}

void query_bind_int(Query *query, int64_t value) {
        note(query, sqlite3_bind_int64(query->prepared, ++query->n_bound, value));
}

void query_bind_uint(Query *query, uint64_t value) {
        query_bind_int(query, (int64_t) value);
}

void query_bind_ordinal(Query *query, uint64_t value) {
        query_bind_int(query, value < INT64_MAX ? (int64_t) value : INT64_MAX);
}

/* As sqlite3_step(), with the error of what was bound. */
static int step(Query *query) {
        int rc = query->rc == SQLITE_OK ? sqlite3_step(query->prepared) : query->rc;

        query->n_read = 0;
        query->is_broken = false;
        return rc;
}

int query_step(Query *query, HutchError *err) {
        int rc = step(query);

        return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : sqlite_error(query->store->db, rc, err);
}

/* The first failure of the transaction, again. */
static int repeat_failure(const Store *store, HutchError *err) {
        return error_set_code(err, store->failure.code, -store->failure.error, store->failure.reason, "%s",
                              error_message(&store->failure));
}

static int begin(Store *store) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_BEGIN);
        int rc = step(&query);

        if (rc == SQLITE_DONE)
                store->in_transaction = true;
        return rc;
}

int query_write(Query *query, HutchError *err) {
        Store *store = query->store;
        int rc = SQLITE_DONE;

        if (store->failure.error != 0)
                return repeat_failure(store, err);

        if (!store->in_transaction)
                rc = begin(store);
        if (rc == SQLITE_DONE)
                rc = step(query);
        if (rc == SQLITE_DONE)
                return sqlite3_changes(store->db);

        (void) sqlite_error(store->db, rc, &store->failure);
        return repeat_failure(store, err);
}

/* The text in the next column; NULL when it is none that may be there. */
static const char *next_text(Query *query, size_t max_len) {
        int column = query->n_read++;
        const char *text;
        size_t len;

        if (sqlite3_column_type(query->prepared, column) != SQLITE_TEXT)
                return NULL;

        text = (const char *) sqlite3_column_text(query->prepared, column);
        len = (size_t) sqlite3_column_bytes(query->prepared, column);
        return text && len <= max_len && strlen(text) == len ? text : NULL;
}

bool query_next_is_null(Query *query) {
        if (sqlite3_column_type(query->prepared, query->n_read) != SQLITE_NULL)
                return false;

        query->n_read++;
        return true;
}

const char *query_read_text(Query *query, size_t max_len) {
        const char *text = next_text(query, max_len);

        if (!text)
                query->is_broken = true;
        return text ? text : "";
}

const char *query_read_text_or_null(Query *query, size_t max_len) {
        return query_next_is_null(query) ? NULL : query_read_text(query, max_len);
}

void query_copy_text(Query *query, char *buffer, size_t size) {
        const char *text = query_read_text(query, size - 1);

        memcpy(buffer, text, strlen(text) + 1);
}

void query_copy_id(Query *query, char *buffer) {
        query_copy_text(query, buffer, ID_LEN_MAX + 1);
        if (id_check(buffer, strlen(buffer), NULL) < 0)
                query->is_broken = true;
}

const uint8_t *query_read_bytes(Query *query, size_t *ret_len) {
        int column = query->n_read++;

        *ret_len = 0;
        if (sqlite3_column_type(query->prepared, column) != SQLITE_BLOB) {
                query->is_broken = true;
                return NULL;
        }

        const uint8_t *bytes = sqlite3_column_blob(query->prepared, column);
        *ret_len = (size_t) sqlite3_column_bytes(query->prepared, column);
        /* Without memory SQLite gives nothing of what has a length. */
        if (!bytes && *ret_len > 0) {
                query->is_broken = true;
                *ret_len = 0;
        }
        return bytes;
}

const uint8_t *query_read_bytes_or_null(Query *query, size_t *ret_len) {
        *ret_len = 0;
        return query_next_is_null(query) ? NULL : query_read_bytes(query, ret_len);
}

int64_t query_read_int(Query *query, int64_t min, int64_t max) {
        int column = query->n_read++;
        int64_t value = sqlite3_column_int64(query->prepared, column);

        if (sqlite3_column_type(query->prepared, column) == SQLITE_INTEGER && value >= min && value <= max)
                return value;

        query->is_broken = true;
        return 0;
}

uint64_t query_read_uint(Query *query) {
        return (uint64_t) query_read_int(query, INT64_MIN, INT64_MAX);
}

uint64_t query_read_ordinal(Query *query) {
        return (uint64_t) query_read_int(query, 0, INT64_MAX);
}

bool query_read_bool(Query *query) {
        return query_read_int(query, 0, 1) == 1;
}

Reason query_read_reason(Query *query) {
        const char *name = query_read_text_or_null(query, QUERY_NAME_MAX);
        Reason reason = name ? reason_from_name(name) : REASON_UNSPECIFIED;

        if (name && reason == REASON_UNSPECIFIED)
                query->is_broken = true;
        return reason;
}

unsigned query_read_word(Query *query, WordFromName from_name) {
        unsigned word = 0;

        if (from_name(query_read_text(query, QUERY_NAME_MAX), &word) < 0)
                query->is_broken = true;
        return word;
}

unsigned query_read_word_or_null(Query *query, WordFromName from_name) {
        return query_next_is_null(query) ? 0 : query_read_word(query, from_name);
}

int query_check_row(Query *query, HutchError *err) {
        if (!query->is_broken)
                return 0;
        if (sqlite3_errcode(query->store->db) == SQLITE_NOMEM)
                return sqlite_error(query->store->db, SQLITE_NOMEM, err);

        return sqlite_error(query->store->db, SQLITE_CORRUPT, err);
}

int query_number(Store *store, Statement statement, uint64_t *ret_number, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, statement);
        uint64_t number;
        int r = query_step(&query, err);

        if (r < 0)
                return r;

        number = query_read_ordinal(&query);
        r = query_check_row(&query, err);
        if (r < 0)
                return r;

        *ret_number = number;
        return 0;
}
