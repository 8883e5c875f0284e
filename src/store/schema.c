/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the tables, and bringing them up to date. What does not: the statements that use them
 * (statements.c).
 *
 * Operators read these tables with the sqlite3 shell: states, types and reasons are words, times and durations are
 * nanoseconds, NULL is what does not apply. A number of 2^63 or more is kept as the negative one with the same bits. */

#include "store/schema.h"

#include <stdio.h>

const char *const schema_scripts[] = {
        "CREATE TABLE facts ("
        " name TEXT NOT NULL PRIMARY KEY,"
        " value TEXT NOT NULL"
        ") STRICT, WITHOUT ROWID;"

        /* Ids are reserved for ever: nothing removes a row of this table. */
        "CREATE TABLE used_ids ("
        " id TEXT NOT NULL PRIMARY KEY"
        ") STRICT, WITHOUT ROWID;"

        "CREATE TABLE sandboxes ("
        " serial INTEGER NOT NULL PRIMARY KEY,"
        " id TEXT NOT NULL UNIQUE REFERENCES used_ids,"
        " owner TEXT NOT NULL,"
        " create_time INTEGER NOT NULL,"
        " state TEXT NOT NULL,"
        " state_reason TEXT,"
        " state_message TEXT NOT NULL,"
        " state_time INTEGER NOT NULL,"
        " sequence INTEGER NOT NULL,"
        " pause_wanted TEXT,"
        " uid_slot INTEGER NOT NULL,"
        " stop_grace INTEGER NOT NULL,"
        " expired INTEGER NOT NULL,"
        " idle_since INTEGER NOT NULL,"
        " lifetime_left INTEGER NOT NULL,"
        " lifetime_as_of INTEGER NOT NULL,"
        " next_exec_serial INTEGER NOT NULL"
        ") STRICT;"
        "CREATE INDEX sandboxes_alive ON sandboxes (serial) WHERE state <> 'DELETED';"
        "CREATE INDEX sandboxes_deleted ON sandboxes (serial) WHERE state = 'DELETED';"
        "CREATE INDEX sandboxes_deleted_by_owner ON sandboxes (owner, serial) WHERE state = 'DELETED';"
        "CREATE INDEX sandboxes_deleted_by_time ON sandboxes (state_time) WHERE state = 'DELETED';"

        "CREATE TABLE sandbox_specs ("
        " sandbox_serial INTEGER NOT NULL PRIMARY KEY REFERENCES sandboxes DEFERRABLE INITIALLY DEFERRED,"
        " labels TEXT NOT NULL,"
        " spec BLOB NOT NULL,"
        " effective BLOB NOT NULL"
        ") STRICT;"

        "CREATE TABLE execs ("
        " sandbox_serial INTEGER NOT NULL REFERENCES sandboxes DEFERRABLE INITIALLY DEFERRED,"
        " serial INTEGER NOT NULL,"
        " id TEXT NOT NULL,"
        " create_time INTEGER NOT NULL,"
        " bound INTEGER NOT NULL,"
        " state TEXT NOT NULL,"
        " start_time INTEGER NOT NULL,"
        " end_time INTEGER NOT NULL,"
        " cancel_time INTEGER NOT NULL,"
        " cancel_grace INTEGER NOT NULL,"
        " end_reason TEXT,"
        " exit_code INTEGER,"
        " signal INTEGER NOT NULL,"
        " failure TEXT,"
        " message TEXT NOT NULL,"
        " stdout_total INTEGER NOT NULL,"
        " stdout_dropped INTEGER NOT NULL,"
        " stderr_total INTEGER NOT NULL,"
        " stderr_dropped INTEGER NOT NULL,"
        " cpu_time INTEGER NOT NULL,"
        " peak_memory INTEGER NOT NULL,"
        " PRIMARY KEY (sandbox_serial, serial),"
        " UNIQUE (sandbox_serial, id)"
        ") STRICT, WITHOUT ROWID;"
        "CREATE INDEX execs_active ON execs (sandbox_serial, serial) WHERE state IN ('PENDING', 'RUNNING');"

        "CREATE TABLE exec_specs ("
        " sandbox_serial INTEGER NOT NULL,"
        " serial INTEGER NOT NULL,"
        " spec BLOB NOT NULL,"
        " input BLOB,"
        " PRIMARY KEY (sandbox_serial, serial),"
        " FOREIGN KEY (sandbox_serial, serial) REFERENCES execs DEFERRABLE INITIALLY DEFERRED"
        ") STRICT, WITHOUT ROWID;"

        "CREATE TABLE events ("
        " cursor INTEGER NOT NULL PRIMARY KEY,"
        " sandbox_serial INTEGER NOT NULL REFERENCES sandboxes DEFERRABLE INITIALLY DEFERRED,"
        " sequence INTEGER NOT NULL,"
        " time INTEGER NOT NULL,"
        " type TEXT NOT NULL,"
        " sandbox_id TEXT NOT NULL,"
        " owner TEXT NOT NULL,"
        " labels TEXT NOT NULL,"
        " event BLOB NOT NULL,"
        " UNIQUE (sandbox_serial, sequence)"
        ") STRICT;"

        "CREATE TABLE requests ("
        " caller TEXT NOT NULL,"
        " method TEXT NOT NULL,"
        " request_id TEXT NOT NULL,"
        " fingerprint BLOB NOT NULL,"
        " time INTEGER NOT NULL,"
        " sandbox_id TEXT NOT NULL,"
        " exec_id TEXT,"
        " PRIMARY KEY (caller, method, request_id)"
        ") STRICT, WITHOUT ROWID;"
        "CREATE INDEX requests_by_time ON requests (time);"

        /* The largest serial ('sandboxes') and cursor ('events') among what was purged. */
        "CREATE TABLE purged ("
        " what TEXT NOT NULL PRIMARY KEY,"
        " upto INTEGER NOT NULL"
        ") STRICT, WITHOUT ROWID;",

        "ALTER TABLE sandboxes ADD COLUMN output_kept INTEGER NOT NULL DEFAULT 0;"
        "CREATE INDEX execs_with_output ON execs (sandbox_serial, serial)"
        " WHERE stdout_total + stderr_total > stdout_dropped + stderr_dropped;",
};

const size_t schema_scripts_n = sizeof(schema_scripts) / sizeof(schema_scripts[0]);

static int run_script(sqlite3 *db, const char *script, size_t version) {
        char set_version[64];
        int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

        if (rc != SQLITE_OK)
                return rc;

        snprintf(set_version, sizeof(set_version), "PRAGMA user_version = %zu", version);
        rc = sqlite3_exec(db, script, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, set_version, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
        if (rc != SQLITE_OK)
                (void) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);

        return rc;
}

int schema_migrate(sqlite3 *db, const char *const scripts[], size_t n, size_t version) {
        for (size_t i = version; i < n; i++) {
                int rc = run_script(db, scripts[i], i + 1);

                if (rc != SQLITE_OK)
                        return rc;
        }

        return SQLITE_OK;
}
