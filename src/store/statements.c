/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the SQL of every statement. What does not: the tables (schema.c), and what is bound to statements
 * and read from them: each has its parameters and columns in the order of the code that uses it.
 *
 * INDEXED BY stands where SQLite would rather walk a whole table. Specs are joined from the left, so that a row whose
 * spec is missing is found to be damaged instead of not being found. */

#include "store/statements.h"

#define SANDBOX_COLUMNS                                                                                                \
        "SELECT s.serial, s.id, s.owner, s.create_time, s.state, s.state_reason, s.state_message, s.state_time,"       \
        " s.sequence, s.pause_wanted, s.uid_slot, s.stop_grace, s.expired, s.idle_since, s.lifetime_left, "            \
        "s.lifetime_as_of,"                                                                                            \
        " s.next_exec_serial, s.output_kept, p.spec, p.effective"

#define SANDBOX_SPECS " LEFT JOIN sandbox_specs AS p ON p.sandbox_serial = s.serial"

#define EXEC_COLUMNS                                                                                                   \
        "SELECT e.sandbox_serial, e.serial, e.id, e.create_time, e.bound, e.state, e.start_time, e.end_time,"          \
        " e.cancel_time, e.cancel_grace, e.end_reason, e.exit_code, e.signal, e.failure, e.message, e.stdout_total,"   \
        " e.stdout_dropped, e.stderr_total, e.stderr_dropped, e.cpu_time, e.peak_memory, p.spec, p.input"

#define EXEC_SPECS " LEFT JOIN exec_specs AS p ON p.sandbox_serial = e.sandbox_serial AND p.serial = e.serial"

#define WITH_OUTPUT "stdout_total + stderr_total > stdout_dropped + stderr_dropped"

const char *const statement_sql[STATEMENTS_N] = {
        [STATEMENT_BEGIN] = "BEGIN IMMEDIATE",
        [STATEMENT_COMMIT] = "COMMIT",

        [STATEMENT_FACT_GET] = "SELECT value FROM facts WHERE name = ?1",
        [STATEMENT_FACT_SET] = "INSERT INTO facts (name, value) VALUES (?1, ?2)"
                               " ON CONFLICT (name) DO UPDATE SET value = excluded.value",

        [STATEMENT_ID_USE] = "INSERT INTO used_ids (id) VALUES (?1)",
        [STATEMENT_ID_IS_USED] = "SELECT 1 FROM used_ids WHERE id = ?1",

        /* The same parameters as the one below, some without use. */
        [STATEMENT_SANDBOX_UPDATE] =
                "UPDATE sandboxes SET state_reason = ?6, state_message = ?7, sequence = ?9, pause_wanted = ?10, "
                "uid_slot = ?11, stop_grace = ?12, expired = ?13, idle_since = ?14,"
                " lifetime_left = ?15, lifetime_as_of = ?16, next_exec_serial = ?17, output_kept = ?18"
                " WHERE serial = ?1 AND id = ?2",
        /* What indices are made of: it is not written, nor are they, when it has not changed. */
        [STATEMENT_SANDBOX_STATE_UPDATE] = "UPDATE sandboxes SET state = ?2, state_time = ?3"
                                           " WHERE serial = ?1 AND (state <> ?2 OR state_time <> ?3)",
        [STATEMENT_SANDBOX_INSERT] =
                "INSERT INTO sandboxes (serial, id, owner, create_time, state, state_reason, state_message, state_time,"
                " sequence, pause_wanted, uid_slot, stop_grace, expired, idle_since, lifetime_left, lifetime_as_of,"
                " next_exec_serial, output_kept)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
        /* Specs are large and change rarely: one that has not changed is not written. */
        [STATEMENT_SANDBOX_SPEC_PUT] =
                "INSERT INTO sandbox_specs (sandbox_serial, labels, spec, effective) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (sandbox_serial) DO UPDATE"
                " SET labels = excluded.labels, spec = excluded.spec, effective = excluded.effective"
                " WHERE labels <> excluded.labels OR spec <> excluded.spec OR effective <> excluded.effective",
        [STATEMENT_SANDBOXES_ALIVE] = SANDBOX_COLUMNS " FROM sandboxes AS s INDEXED BY sandboxes_alive" SANDBOX_SPECS
                                                      " WHERE s.state <> 'DELETED' AND s.serial > 0 ORDER BY s.serial",
        [STATEMENT_SANDBOX_BY_ID] = SANDBOX_COLUMNS " FROM sandboxes AS s" SANDBOX_SPECS " WHERE s.id = ?1",
        [STATEMENT_SANDBOXES_DELETED] =
                SANDBOX_COLUMNS " FROM sandboxes AS s INDEXED BY sandboxes_deleted" SANDBOX_SPECS
                                " WHERE s.state = 'DELETED' AND s.serial > ?1 ORDER BY s.serial LIMIT ?2",
        [STATEMENT_SANDBOXES_DELETED_OF_OWNER] = SANDBOX_COLUMNS
        " FROM sandboxes AS s INDEXED BY sandboxes_deleted_by_owner" SANDBOX_SPECS
        " WHERE s.state = 'DELETED' AND s.owner = ?3 AND s.serial > ?1 ORDER BY s.serial LIMIT ?2",
        [STATEMENT_LAST_SERIAL] = "SELECT max(ifnull((SELECT max(serial) FROM sandboxes), 0),"
                                  " ifnull((SELECT upto FROM purged WHERE what = 'sandboxes'), 0))",

        /* The same parameters as the one below, some without use. */
        [STATEMENT_EXEC_UPDATE] =
                "UPDATE execs SET bound = ?5, state = ?6, start_time = ?7, end_time = ?8, cancel_time = ?9, "
                "cancel_grace = ?10,"
                " end_reason = ?11, exit_code = ?12, signal = ?13, failure = ?14, message = ?15, stdout_total = ?16,"
                " stdout_dropped = ?17, stderr_total = ?18, stderr_dropped = ?19, cpu_time = ?20, peak_memory = ?21"
                " WHERE sandbox_serial = ?1 AND serial = ?2 AND id = ?3",
        [STATEMENT_EXEC_INSERT] =
                "INSERT INTO execs (sandbox_serial, serial, id, create_time, bound, state, start_time, end_time,"
                " cancel_time, cancel_grace, end_reason, exit_code, signal, failure, message, stdout_total,"
                " stdout_dropped, stderr_total, stderr_dropped, cpu_time, peak_memory)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,"
                " ?21)",
        /* Of a spec that is there only the input changes: it goes. */
        [STATEMENT_EXEC_SPEC_PUT] = "INSERT INTO exec_specs (sandbox_serial, serial, spec, input)"
                                    " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (sandbox_serial, serial) DO UPDATE"
                                    " SET input = excluded.input WHERE input IS NOT excluded.input",
        [STATEMENT_EXECS_OF_SANDBOX] = EXEC_COLUMNS
        " FROM execs AS e" EXEC_SPECS " WHERE e.sandbox_serial = ?1 AND e.serial > ?2 ORDER BY e.serial LIMIT ?3",
        [STATEMENT_EXECS_ACTIVE] = EXEC_COLUMNS
        " FROM execs AS e INDEXED BY execs_active" EXEC_SPECS
        " WHERE e.state IN ('PENDING', 'RUNNING') AND e.sandbox_serial > 0 ORDER BY e.sandbox_serial, e.serial",
        [STATEMENT_EXEC_BY_ID] =
                EXEC_COLUMNS " FROM execs AS e" EXEC_SPECS " WHERE e.sandbox_serial = ?1 AND e.id = ?2",

        [STATEMENT_OUTPUTS_KEPT] =
                "SELECT serial, id, stdout_total - stdout_dropped + stderr_total - stderr_dropped"
                " FROM execs INDEXED BY execs_with_output WHERE " WITH_OUTPUT
                " AND sandbox_serial = ?1 AND serial > ?2 AND serial < (SELECT max(serial)"
                " FROM execs INDEXED BY execs_with_output WHERE " WITH_OUTPUT " AND sandbox_serial = ?1)"
                " ORDER BY serial LIMIT ?3",
        [STATEMENT_OUTPUT_DROP] = "UPDATE execs SET stdout_dropped = stdout_total, stderr_dropped = stderr_total"
                                  " WHERE sandbox_serial = ?1 AND serial = ?2",

        [STATEMENT_EVENT_INSERT] =
                "INSERT INTO events (cursor, sandbox_serial, sequence, time, type, sandbox_id, owner,"
                " labels, event) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        [STATEMENT_EVENTS_AFTER] =
                "SELECT cursor, sandbox_serial, sequence, time, type, sandbox_id, owner, labels, event"
                " FROM events WHERE cursor > ?1 ORDER BY cursor LIMIT ?2",
        [STATEMENT_EVENT_CURSOR] = "SELECT cursor FROM events WHERE sandbox_serial = ?1 AND sequence = ?2",
        [STATEMENT_LAST_CURSOR] = "SELECT max(ifnull((SELECT max(cursor) FROM events), 0),"
                                  " ifnull((SELECT upto FROM purged WHERE what = 'events'), 0))",
        [STATEMENT_PURGED_CURSOR] = "SELECT ifnull((SELECT upto FROM purged WHERE what = 'events'), 0)",

        [STATEMENT_REQUEST_PUT] =
                "INSERT INTO requests (caller, method, request_id, fingerprint, time, sandbox_id, exec_id)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (caller, method, request_id) DO UPDATE"
                " SET fingerprint = excluded.fingerprint, time = excluded.time, sandbox_id = excluded.sandbox_id,"
                " exec_id = excluded.exec_id",
        [STATEMENT_REQUEST_FIND] = "SELECT fingerprint, time, sandbox_id, exec_id FROM requests"
                                   " WHERE caller = ?1 AND method = ?2 AND request_id = ?3",
        [STATEMENT_REQUESTS_PURGE] =
                "DELETE FROM requests WHERE (caller, method, request_id) IN"
                " (SELECT caller, method, request_id FROM requests WHERE time < ?1 ORDER BY time LIMIT ?2)",

        [STATEMENT_PURGE_FIND] = "SELECT serial FROM sandboxes WHERE state = 'DELETED' AND state_time < ?1"
                                 " ORDER BY state_time LIMIT 1",
        [STATEMENT_PURGE_EVENTS_MARK] =
                "INSERT INTO purged (what, upto)"
                " SELECT 'events', max(cursor) FROM events WHERE sandbox_serial = ?1 HAVING max(cursor) IS NOT NULL"
                " ON CONFLICT (what) DO UPDATE SET upto = excluded.upto WHERE upto < excluded.upto",
        [STATEMENT_PURGE_SANDBOXES_MARK] =
                "INSERT INTO purged (what, upto) VALUES ('sandboxes', ?1)"
                " ON CONFLICT (what) DO UPDATE SET upto = excluded.upto WHERE upto < excluded.upto",
        [STATEMENT_PURGE_EVENTS] = "DELETE FROM events WHERE sandbox_serial = ?1",
        [STATEMENT_PURGE_EXEC_SPECS] = "DELETE FROM exec_specs WHERE sandbox_serial = ?1",
        [STATEMENT_PURGE_EXECS] = "DELETE FROM execs WHERE sandbox_serial = ?1",
        [STATEMENT_PURGE_SANDBOX_SPEC] = "DELETE FROM sandbox_specs WHERE sandbox_serial = ?1",
        [STATEMENT_PURGE_SANDBOX] = "DELETE FROM sandboxes WHERE serial = ?1",
};
