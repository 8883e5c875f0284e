/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: opening and closing a store, its commits, and its facts. What does not: the file (file.c), and its
 * other rows (the files called *-rows.c). */

#include "store/store.h"

#include <errno.h>

#include "base/failpoint.h"
#include "model/reason.h"
#include "store/file.h"
#include "store/query.h"

#define FACT_LEN_MAX 4096

int store_open(const char *path, Store **ret_store, HutchError *err) {
        _cleanup_(store_closep) Store *store = new0(Store, 1);
        int r = file_open(path, &store->db, err);

        if (r < 0)
                return r;

        /* Also finds out whether all tables and columns are there. */
        for (Statement i = 0; i < STATEMENTS_N; i++) {
                int rc = sqlite3_prepare_v3(store->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                            &store->statements[i], NULL);

                if (rc != SQLITE_OK)
                        return file_error(store->db, rc, path, err);
        }

        *ret_store = TAKE_PTR(store);
        return 0;
}

static void roll_back(Store *store) {
        /* SQLite has rolled back on its own after some failures. */
        if (!sqlite3_get_autocommit(store->db))
                (void) sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
        store->in_transaction = false;
}

Store *store_close(Store *store) {
        if (!store)
                return NULL;

        (void) store_sync(store, NULL);
        for (Statement i = 0; i < STATEMENTS_N; i++)
                (void) sqlite3_finalize(store->statements[i]);
        (void) sqlite3_close(store->db);
        error_clear(&store->failure);
        free(store);
        return NULL;
}

bool store_is_dirty(const Store *store) {
        return store->in_transaction || store->failure.error != 0;
}

int store_commit(Store *store, HutchError *err) {
        int r = 0;

        if (!store_is_dirty(store))
                return 0;

        if (store->failure.error != 0) {
                r = error_set_code(err, store->failure.code, -store->failure.error, store->failure.reason, "%s",
                                   error_message(&store->failure));
                error_clear(&store->failure);
        } else {
                _cleanup_(query_end) Query query = query_start(store, STATEMENT_COMMIT);

                FAILPOINT("store.commit.before");
                r = query_step(&query, err);
        }

        roll_back(store);
        if (r >= 0) {
                store->is_unsynced = true;
                FAILPOINT("store.commit.after");
        }
        return r;
}

bool store_is_synced(const Store *store) {
        return !store->is_unsynced;
}

int store_sync(Store *store, HutchError *err) {
        sqlite3_file *log = NULL;
        int rc;

        if (store_is_synced(store))
                return 0;

        /* SQLite itself syncs the log only before it writes it back. Where the file system cannot have one, SQLite has
         * another way, in which what is committed is on the disk. */
        rc = sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
        if (rc == SQLITE_OK && log && log->pMethods)
                rc = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
        if (rc != SQLITE_OK)
                return sqlite_error(store->db, rc, err);

        store->is_unsynced = false;
        FAILPOINT("store.sync.after");
        return 0;
}

int store_get_fact(Store *store, const char *name, char **ret_value, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_FACT_GET);
        const char *value;
        int r;

        query_bind_text(&query, name);
        r = query_step(&query, err);
        if (r < 0)
                return r;
        if (r == 0)
                return reason_set(err, -ENOENT, REASON_INTERNAL, "the store has no fact '%s'", name);

        value = query_read_text(&query, FACT_LEN_MAX);
        r = query_check_row(&query, err);
        if (r < 0)
                return r;

        *ret_value = xstrdup(value);
        return 0;
}

int store_set_fact(Store *store, const char *name, const char *value, HutchError *err) {
        _cleanup_(query_end) Query query = query_start(store, STATEMENT_FACT_SET);
        int r;

        query_bind_text(&query, name);
        query_bind_text(&query, value);
        r = query_write(&query, err);
        return r < 0 ? r : 0;
}
