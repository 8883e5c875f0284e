/* SPDX-License-Identifier: Apache-2.0 */

/* What is written is read back, transactions are whole, purges keep what they must. The file itself: test-store-file.c;
 * disks that fail: test-store-disk.c. */

#include "store/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/strings.h"
#include "store/query.h"

#include "store-fixture.h"
#include "test.h"

/* What the last callback was given, and how often one was called. */
static struct {
        SandboxRecord sandbox;
        ExecRecord exec;
        char encoded[64], effective[64], input[64];
        size_t encoded_len, effective_len, input_len;
        uint64_t serials[16];
        int n;
} seen;

static void see_spec(const StoredSpec *spec) {
        seen.encoded_len = spec->encoded_len;
        seen.effective_len = spec->effective_len;
        seen.input_len = spec->input_len;
        if (spec->encoded_len > 0)
                memcpy(seen.encoded, spec->encoded, spec->encoded_len);
        if (spec->effective_len > 0)
                memcpy(seen.effective, spec->effective, spec->effective_len);
        if (spec->input_len > 0)
                memcpy(seen.input, spec->input, spec->input_len);
}

static int see_sandbox(const SandboxRecord *record, const StoredSpec *spec, void *user) {
        seen.sandbox = *record;
        see_spec(spec);
        seen.serials[seen.n++] = record->serial;
        return 0;
}

static int see_exec(const ExecRecord *record, const StoredSpec *spec, void *user) {
        seen.exec = *record;
        see_spec(spec);
        seen.serials[seen.n++] = record->serial;
        return 0;
}

static void assert_seen(int n, const uint64_t serials[]) {
        assert_int_equal(seen.n, n);
        for (int i = 0; i < n; i++)
                assert_int_equal(seen.serials[i], serials[i]);
        seen.n = 0;
}

#define ASSERT_SEEN(...)                                                                                               \
        assert_seen(sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t), (uint64_t[]){ __VA_ARGS__ })

static void assert_same_sandbox(const SandboxRecord *a, const SandboxRecord *b) {
        assert_string_equal(a->id, b->id);
        assert_int_equal(a->serial, b->serial);
        assert_string_equal(a->owner, b->owner);
        assert_int_equal(a->state, b->state);
        assert_int_equal(a->state_reason, b->state_reason);
        assert_string_equal(a->state_message, b->state_message);
        assert_int_equal(a->create_time, b->create_time);
        assert_int_equal(a->state_time, b->state_time);
        assert_int_equal(a->sequence, b->sequence);
        assert_int_equal(a->pause_wanted, b->pause_wanted);
        assert_int_equal(a->uid_slot, b->uid_slot);
        assert_int_equal(a->stop_grace, b->stop_grace);
        assert_int_equal(a->expired, b->expired);
        assert_int_equal(a->idle_since, b->idle_since);
        assert_int_equal(a->lifetime_left, b->lifetime_left);
        assert_int_equal(a->lifetime_as_of, b->lifetime_as_of);
        assert_int_equal(a->next_exec_serial, b->next_exec_serial);
        assert_int_equal(a->output_kept, b->output_kept);
}

static void assert_same_exec(const ExecRecord *a, const ExecRecord *b) {
        assert_string_equal(a->id, b->id);
        assert_int_equal(a->sandbox_serial, b->sandbox_serial);
        assert_int_equal(a->serial, b->serial);
        assert_int_equal(a->state, b->state);
        assert_int_equal(a->create_time, b->create_time);
        assert_int_equal(a->start_time, b->start_time);
        assert_int_equal(a->end_time, b->end_time);
        assert_int_equal(a->cancel_time, b->cancel_time);
        assert_int_equal(a->cancel_grace, b->cancel_grace);
        assert_int_equal(a->bound, b->bound);
        assert_int_equal(a->result.end_reason, b->result.end_reason);
        assert_int_equal(a->result.has_exit_code, b->result.has_exit_code);
        assert_int_equal(a->result.exit_code, b->result.exit_code);
        assert_int_equal(a->result.signal, b->result.signal);
        assert_int_equal(a->result.failure, b->result.failure);
        assert_string_equal(a->result.message, b->result.message);
        assert_memory_equal(&a->result.out, &b->result.out, sizeof(StreamSummary));
        assert_memory_equal(&a->result.err, &b->result.err, sizeof(StreamSummary));
        assert_int_equal(a->result.cpu_time, b->result.cpu_time);
        assert_int_equal(a->result.peak_memory, b->result.peak_memory);
}

static void find_sandbox(Store *store, const char *id, int expected) {
        assert_int_equal(store_find_sandbox(store, id, see_sandbox, NULL, NULL), expected);
        seen.n = 0;
}

static void find_exec(Store *store, uint64_t sandbox_serial, const char *id, int expected) {
        assert_int_equal(store_find_exec(store, sandbox_serial, id, see_exec, NULL, NULL), expected);
        seen.n = 0;
}

static void sandboxes_come_back_as_they_were_put(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        SandboxRecord record = sample_sandbox(3);

        memset(record.id, 'i', ID_LEN_MAX);
        memset(record.owner, 'o', OWNER_LEN_MAX);
        memset(record.state_message, 'm', STATE_MESSAGE_MAX);
        assert_int_equal(store_put_sandbox(store, &record, NULL), 0);
        find_sandbox(store, record.id, 0);
        assert_same_sandbox(&seen.sandbox, &record);
        assert_null(seen.sandbox.spec);
        assert_int_equal(seen.encoded_len, record.spec->encoded_len);
        assert_memory_equal(seen.encoded, record.spec->encoded, seen.encoded_len);
        assert_int_equal(seen.effective_len, record.spec->effective_len);
        assert_memory_equal(seen.effective, record.spec->effective, seen.effective_len);
        assert_int_equal(seen.input_len, 0);

        /* All that can change does, and does so after the store was opened again. */
        SandboxRecord changed = sample_sandbox(4);
        memcpy(changed.id, record.id, sizeof(changed.id));
        memcpy(changed.owner, record.owner, sizeof(changed.owner));
        changed.serial = record.serial;
        changed.create_time = record.create_time;
        changed.state_reason = REASON_KEEPER_UNAVAILABLE;
        changed.spec = &(SandboxSpec){ .n_refs = 1 };
        for (SandboxState s = 0; s < SANDBOX_STATES_N; s++) {
                changed.state = s;
                assert_int_equal(store_put_sandbox(store, &changed, NULL), 0);
                commit(store);
                store = reopen_store(store, "db");
                find_sandbox(store, record.id, 0);
                assert_same_sandbox(&seen.sandbox, &changed);
                assert_int_equal(seen.encoded_len, 0);
                assert_int_equal(seen.effective_len, 0);
        }

        find_sandbox(store, "another", -ENOENT);
}

static void execs_come_back_as_they_were_put(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        ExecRecord record = sample_exec(1, 2);

        put_sandbox(store, 1, SANDBOX_READY);
        put_sandbox(store, 2, SANDBOX_READY);
        for (ExecEndReason reason = EXEC_END_NONE; reason <= EXEC_END_DISK_FULL; reason++)
                for (ExecState s = 0; s < EXEC_STATES_N; s++) {
                        record.state = s;
                        record.bound = !record.bound;
                        record.result.end_reason = reason;
                        assert_int_equal(store_put_exec(store, &record, NULL), 0);
                        find_exec(store, 1, record.id, 0);
                        assert_same_exec(&seen.exec, &record);
                        assert_int_equal(seen.encoded_len, record.spec->encoded_len);
                        assert_memory_equal(seen.encoded, record.spec->encoded, seen.encoded_len);
                }

        record.result = (ExecResult){};
        record.bound = true;
        record.serial = 3;
        memset(record.id, 'e', ID_LEN_MAX);
        assert_int_equal(store_put_exec(store, &record, NULL), 0);
        commit(store);
        find_exec(store, 1, record.id, 0);
        assert_same_exec(&seen.exec, &record);
        find_exec(store, 2, record.id, -ENOENT);
        find_exec(store, 1, "another", -ENOENT);
}

static void the_input_is_kept_while_the_exec_is_pending(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        ExecRecord record = sample_exec(1, 2);

        put_sandbox(store, 1, SANDBOX_READY);
        put_exec(store, 1, 2, EXEC_PENDING);
        put_exec(store, 1, 2, EXEC_PENDING);
        find_exec(store, 1, record.id, 0);
        assert_int_equal(seen.input_len, record.spec->input_len);
        assert_memory_equal(seen.input, record.spec->input, seen.input_len);

        put_exec(store, 1, 2, EXEC_RUNNING);
        find_exec(store, 1, record.id, 0);
        assert_int_equal(seen.input_len, 0);
        assert_int_equal(seen.encoded_len, record.spec->encoded_len);
}

static int see_labels(void *user, int n_columns, char **values, char **names) {
        snprintf(user, 64, "%s", values[0]);
        return 0;
}

static void labels_can_be_read_and_follow_the_spec(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        SandboxRecord record = sample_sandbox(1);
        SandboxSpec spec = *record.spec;
        const char *query = "SELECT labels FROM sandbox_specs";
        char labels[64];

        put_sandbox(store, 1, SANDBOX_READY);
        assert_int_equal(sqlite3_exec(store->db, query, see_labels, labels, NULL), 0);
        assert_string_equal(labels, "app=web,zone=b");

        spec.n_labels = 1;
        record.spec = &spec;
        assert_int_equal(store_put_sandbox(store, &record, NULL), 0);
        assert_int_equal(sqlite3_exec(store->db, query, see_labels, labels, NULL), 0);
        assert_string_equal(labels, "zone=b");
}

static void lists_are_in_order_and_from_where_asked(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        SandboxRecord other = sample_sandbox(8);

        for (uint64_t serial = 6; serial > 0; serial--)
                put_sandbox(store, serial, serial % 2 == 0 ? SANDBOX_DELETED : SANDBOX_STOPPED);
        strcpy(other.owner, "uid:7");
        other.state = SANDBOX_DELETED;
        assert_int_equal(store_put_sandbox(store, &other, NULL), 0);

        assert_int_equal(store_each_sandbox(store, see_sandbox, NULL, NULL), 0);
        ASSERT_SEEN(1, 3, 5);
        assert_int_equal(store_each_deleted(store, NULL, 0, SIZE_MAX, see_sandbox, NULL, NULL), 0);
        ASSERT_SEEN(2, 4, 6, 8);
        assert_int_equal(store_each_deleted(store, NULL, 2, 2, see_sandbox, NULL, NULL), 0);
        ASSERT_SEEN(4, 6);
        assert_int_equal(store_each_deleted(store, "uid:1000", 2, 9, see_sandbox, NULL, NULL), 0);
        ASSERT_SEEN(4, 6);
        assert_int_equal(store_each_deleted(store, "uid:7", 0, 9, see_sandbox, NULL, NULL), 0);
        ASSERT_SEEN(8);
        assert_int_equal(store_each_deleted(store, NULL, UINT64_MAX, 9, see_sandbox, NULL, NULL), 0);
        assert_int_equal(store_each_deleted(store, NULL, 0, 0, see_sandbox, NULL, NULL), 0);
        assert_seen(0, NULL);

        for (uint64_t serial = 5; serial > 0; serial--) {
                put_exec(store, 1, serial, EXEC_EXITED);
                put_exec(store, 3, 10 + serial, EXEC_EXITED);
        }
        assert_int_equal(store_each_exec(store, 1, 2, 2, see_exec, NULL, NULL), 0);
        ASSERT_SEEN(3, 4);
        assert_int_equal(store_each_exec(store, 3, 0, SIZE_MAX, see_exec, NULL, NULL), 0);
        ASSERT_SEEN(11, 12, 13, 14, 15);
}

static int stop(const SandboxRecord *record, const StoredSpec *spec, void *user) {
        seen.n++;
        return -ECANCELED;
}

static int find_again(const SandboxRecord *record, const StoredSpec *spec, void *user) {
        StoreCounts counts;

        /* The same statement runs within itself. */
        assert_int_equal(store_count(user, &counts), 0);
        assert_int_equal(counts.sandboxes, 3);
        return see_sandbox(record, spec, NULL);
}

static void callbacks_may_end_a_list_and_use_the_store(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        for (uint64_t serial = 1; serial <= 3; serial++)
                put_sandbox(store, serial, SANDBOX_READY);

        assert_int_equal(store_each_sandbox(store, stop, NULL, NULL), -ECANCELED);
        assert_int_equal(seen.n, 1);
        seen.n = 0;
        assert_int_equal(store_each_sandbox(store, find_again, store, NULL), 0);
        ASSERT_SEEN(1, 2, 3);
        commit(store);
}

static EventRow last_event;
static char last_labels[64];

static int see_event(const EventRow *row, void *user) {
        last_event = *row;
        snprintf(last_labels, sizeof(last_labels), "%s", row->labels);
        assert_string_equal(row->owner, "uid:1000");
        assert_int_equal(row->encoded_len, 6);
        assert_memory_equal(row->encoded, "\0\1\2\xff\0x", 6);
        seen.serials[seen.n++] = row->cursor;
        return 0;
}

static void events_are_found_by_cursor_and_by_sequence(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        uint64_t cursor = 0;

        put_sandbox(store, 1, SANDBOX_READY);
        put_sandbox(store, 2, SANDBOX_READY);
        add_event(store, 1, 1, 1);
        add_event(store, 2, 2, 1);
        add_event(store, 3, 2, 2);
        add_event(store, 4, 1, 2);
        commit(store);

        assert_int_equal(store_each_event(store, 0, SIZE_MAX, see_event, NULL, NULL), 0);
        ASSERT_SEEN(1, 2, 3, 4);
        assert_int_equal(store_each_event(store, 1, 2, see_event, NULL, NULL), 0);
        ASSERT_SEEN(2, 3);
        assert_int_equal(last_event.sandbox_serial, 2);
        assert_int_equal(last_event.sequence, 2);
        assert_int_equal(last_event.time, 30);
        assert_int_equal(last_event.type, EVENT_SANDBOX_STATE_CHANGED);
        assert_string_equal(last_labels, "app=web,zone=b");
        assert_int_equal(store_each_event(store, UINT64_MAX, 9, see_event, NULL, NULL), 0);
        assert_seen(0, NULL);

        assert_int_equal(store_event_cursor(store, 2, 2, &cursor, NULL), 0);
        assert_int_equal(cursor, 3);
        assert_int_equal(store_event_cursor(store, 2, 3, &cursor, NULL), -ENOENT);
        assert_int_equal(cursor, 3);
}

static void every_type_of_event_comes_back(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        put_sandbox(store, 1, SANDBOX_READY);
        for (EventType type = EVENT_SANDBOX_CREATED; type <= EVENT_LIMIT_HIT; type++) {
                EventRow row = { .cursor = type,
                                 .sandbox_serial = 1,
                                 .sequence = type,
                                 .type = type,
                                 .sandbox_id = "sandbox-1",
                                 .owner = "uid:1000",
                                 .labels = "",
                                 .encoded = (const uint8_t *) "\0\1\2\xff\0x",
                                 .encoded_len = 6 };

                assert_int_equal(store_add_event(store, &row, NULL), 0);
                assert_int_equal(store_each_event(store, type - 1, 9, see_event, NULL, NULL), 0);
                assert_int_equal(last_event.type, type);
                ASSERT_SEEN(type);
        }
}

static void requests_are_found_by_their_whole_key(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        RequestRow row = { .caller = "uid:1",
                           .method = "CreateSandbox",
                           .request_id = "r",
                           .time = 5,
                           .fingerprint = { 1, 0, 255 },
                           .sandbox_id = "sandbox-1" };
        RequestRow exec = { .caller = "uid:1",
                            .method = "CreateExec",
                            .request_id = "r",
                            .time = 6,
                            .sandbox_id = "sandbox-2",
                            .exec_id = "exec-2" };
        RequestRow found = { .caller = "uid:1", .method = "CreateSandbox", .request_id = "r" };

        assert_int_equal(store_add_request(store, &row, NULL), 0);
        assert_int_equal(store_add_request(store, &exec, NULL), 0);
        commit(store);

        assert_int_equal(store_find_request(store, &found, NULL), 0);
        assert_memory_equal(found.fingerprint, row.fingerprint, FINGERPRINT_SIZE);
        assert_int_equal(found.time, 5);
        assert_string_equal(found.sandbox_id, "sandbox-1");
        assert_string_equal(found.exec_id, "");
        found.method = "CreateExec";
        assert_int_equal(store_find_request(store, &found, NULL), 0);
        assert_string_equal(found.sandbox_id, "sandbox-2");
        assert_string_equal(found.exec_id, "exec-2");
        found.caller = "uid:2";
        assert_int_equal(store_find_request(store, &found, NULL), -ENOENT);

        /* The newer one counts. */
        exec.time = 9;
        assert_int_equal(store_add_request(store, &exec, NULL), 0);
        found.caller = "uid:1";
        assert_int_equal(store_find_request(store, &found, NULL), 0);
        assert_int_equal(found.time, 9);
}

static void old_requests_are_purged_oldest_first(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        for (uint64_t time = 10; time > 0; time--) {
                char id[] = { (char) ('a' + time), '\0' };
                RequestRow row = {
                        .caller = "c", .method = "m", .request_id = id, .time = time, .sandbox_id = "sandbox-1"
                };

                assert_int_equal(store_add_request(store, &row, NULL), 0);
        }

        assert_int_equal(store_purge_requests(store, 7, 4, NULL), 4);
        RequestRow found = { .caller = "c", .method = "m", .request_id = "e" };
        assert_int_equal(store_find_request(store, &found, NULL), -ENOENT);
        found.request_id = "f";
        assert_int_equal(store_find_request(store, &found, NULL), 0);
        assert_int_equal(store_purge_requests(store, 7, SIZE_MAX, NULL), 2);
        assert_int_equal(store_purge_requests(store, 7, SIZE_MAX, NULL), 0);
        commit(store);
}

static void facts_are_kept_and_replaced(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        _cleanup_free_ char *value = NULL;
        char *unset = NULL;

        assert_int_equal(store_get_fact(store, "boot_id", &unset, NULL), -ENOENT);
        assert_null(unset);
        assert_int_equal(store_set_fact(store, "boot_id", "a", NULL), 0);
        assert_int_equal(store_set_fact(store, "boot_id", "b", NULL), 0);
        commit(store);
        store = reopen_store(store, "db");
        assert_int_equal(store_get_fact(store, "boot_id", &value, NULL), 0);
        assert_string_equal(value, "b");
}

static void a_purge_keeps_ids_and_moves_the_marks(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        uint64_t number = 99;

        assert_int_equal(store_last_serial(store, &number, NULL), 0);
        assert_int_equal(number, 0);
        assert_int_equal(store_last_cursor(store, &number, NULL), 0);
        assert_int_equal(number, 0);
        assert_int_equal(store_purged_cursor(store, &number, NULL), 0);
        assert_int_equal(number, 0);

        /* state_time is 1000 + serial. */
        for (uint64_t serial = 1; serial <= 4; serial++) {
                put_sandbox(store, serial, serial == 1 ? SANDBOX_STOPPED : SANDBOX_DELETED);
                put_exec(store, serial, 1, EXEC_EXITED);
                put_exec(store, serial, 2, EXEC_PENDING);
                add_event(store, 2 * serial, serial, 1);
                add_event(store, 2 * serial + 1, serial, 2);
        }
        commit(store);
        assert_counts(store, 1, 3, 8, 8);

        assert_int_equal(store_purge_sandboxes(store, 1004, 1, NULL), 1);
        commit(store);
        assert_counts(store, 1, 2, 6, 6);
        assert_int_equal(store_purged_cursor(store, &number, NULL), 0);
        assert_int_equal(number, 5);

        assert_int_equal(store_purge_sandboxes(store, 1004, SIZE_MAX, NULL), 1);
        assert_int_equal(store_purge_sandboxes(store, 1004, SIZE_MAX, NULL), 0);
        assert_int_equal(store_purge_sandboxes(store, UINT64_MAX, SIZE_MAX, NULL), 1);
        commit(store);
        assert_counts(store, 1, 0, 2, 2);
        store = reopen_store(store, "db");
        assert_int_equal(store_last_serial(store, &number, NULL), 0);
        assert_int_equal(number, 4);
        assert_int_equal(store_last_cursor(store, &number, NULL), 0);
        assert_int_equal(number, 9);
        assert_int_equal(store_purged_cursor(store, &number, NULL), 0);
        assert_int_equal(number, 9);

        /* A purge of what is older moves no mark back; one without events moves only the serial's. */
        put_sandbox(store, 7, SANDBOX_DELETED);
        assert_int_equal(store_purge_sandboxes(store, UINT64_MAX, 1, NULL), 1);
        assert_int_equal(store_last_serial(store, &number, NULL), 0);
        assert_int_equal(number, 7);
        put_sandbox(store, 1, SANDBOX_DELETED);
        assert_int_equal(store_purge_sandboxes(store, UINT64_MAX, 1, NULL), 1);
        assert_int_equal(store_last_serial(store, &number, NULL), 0);
        assert_int_equal(number, 7);
        assert_int_equal(store_purged_cursor(store, &number, NULL), 0);
        assert_int_equal(number, 9);

        find_sandbox(store, "sandbox-2", -ENOENT);
        assert_int_equal(store_id_is_used(store, "sandbox-2", NULL), 1);
        assert_int_equal(store_id_is_used(store, "sandbox-9", NULL), 0);
        assert_int_equal(store_id_is_used(store, "Sandbox-2", NULL), 0);
}

static void an_id_is_used_once(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        _cleanup_(error_clear) HutchError err = {};
        SandboxRecord record = sample_sandbox(2);

        put_sandbox(store, 2, SANDBOX_DELETED);
        commit(store);
        record.serial = 3;
        assert_int_equal(store_put_sandbox(store, &record, &err), -EEXIST);
        assert_string_equal(err.reason, "INTERNAL");
        assert_int_equal(store_commit(store, NULL), -EEXIST);

        assert_int_equal(store_purge_sandboxes(store, UINT64_MAX, 1, NULL), 1);
        commit(store);
        assert_int_equal(store_put_sandbox(store, &record, NULL), -EEXIST);
        assert_int_equal(store_commit(store, NULL), -EEXIST);
        assert_counts(store, 0, 0, 0, 0);

        /* Not even for the serial that had it. */
        record.serial = 2;
        assert_int_equal(store_put_sandbox(store, &record, NULL), -EEXIST);
        assert_int_equal(store_commit(store, NULL), -EEXIST);
}

static void nothing_is_committed_after_a_write_that_failed(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        _cleanup_(error_clear) HutchError err = {};

        put_sandbox(store, 1, SANDBOX_READY);
        add_event(store, 1, 1, 1);
        commit(store);
        assert_false(store_is_dirty(store));
        assert_int_equal(store_commit(store, NULL), 0);

        put_sandbox(store, 2, SANDBOX_READY);
        assert_true(store_is_dirty(store));
        EventRow again = { .cursor = 1,
                           .sandbox_serial = 2,
                           .sequence = 1,
                           .type = EVENT_LIMIT_HIT,
                           .sandbox_id = "sandbox-2",
                           .owner = "o",
                           .labels = "" };
        assert_int_equal(store_add_event(store, &again, NULL), -EEXIST);

        /* What would work alone fails now, with the first error. */
        assert_int_equal(store_set_fact(store, "a", "b", &err), -EEXIST);
        assert_non_null(strstr(error_message(&err), "events.cursor"));
        assert_int_equal(store_purge_requests(store, 1, 1, NULL), -EEXIST);
        assert_true(store_is_dirty(store));
        error_clear(&err);
        assert_int_equal(store_commit(store, &err), -EEXIST);
        assert_non_null(strstr(error_message(&err), "events.cursor"));

        assert_false(store_is_dirty(store));
        assert_counts(store, 1, 0, 0, 1);
        assert_int_equal(store_id_is_used(store, "sandbox-2", NULL), 0);

        put_sandbox(store, 2, SANDBOX_READY);
        commit(store);
        assert_counts(store, 2, 0, 0, 1);
}

static void rows_of_nothing_are_not_committed(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        add_event(store, 1, 1, 1);
        assert_int_equal(store_commit(store, NULL), -EEXIST);
        assert_false(store_is_dirty(store));
        put_exec(store, 1, 1, EXEC_PENDING);
        assert_int_equal(store_commit(store, NULL), -EEXIST);

        /* The order within a transaction does not matter. */
        add_event(store, 1, 1, 1);
        put_exec(store, 1, 1, EXEC_PENDING);
        put_sandbox(store, 1, SANDBOX_PENDING);
        commit(store);
        assert_counts(store, 1, 0, 1, 1);
}

static void closing_takes_back_what_was_not_committed(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        put_sandbox(store, 1, SANDBOX_DELETED);
        put_sandbox(store, 2, SANDBOX_READY);
        assert_counts(store, 1, 1, 0, 0);
        store = reopen_store(store, "db");
        assert_counts(store, 1, 0, 0, 0);
        assert_int_equal(store_id_is_used(store, "sandbox-2", NULL), 0);
}

static void values_that_cannot_be_are_not_trusted(void **state) {
        static const char *const damages[] = {
                "UPDATE sandboxes SET state = 'ASLEEP'",
                "UPDATE sandboxes SET state = ''",
                "UPDATE sandboxes SET state_reason = 'BECAUSE'",
                "UPDATE sandboxes SET state_reason = 'UNSPECIFIED'",
                "UPDATE sandboxes SET id = '../../etc'",
                "UPDATE sandboxes SET id = printf('%.201c', 'x')",
                "UPDATE sandboxes SET owner = printf('%.256c', 'x')",
                "UPDATE sandboxes SET owner = 'a' || char(0) || 'b'",
                "UPDATE sandboxes SET state_message = printf('%.256c', 'x')",
                "UPDATE sandboxes SET pause_wanted = 'MAYBE'",
                "UPDATE sandboxes SET pause_wanted = ''",
                "UPDATE sandboxes SET uid_slot = 4294967296",
                "UPDATE sandboxes SET uid_slot = -1",
                "UPDATE sandboxes SET expired = 2",
                "UPDATE sandboxes SET create_time = -1",
                "UPDATE sandboxes SET next_exec_serial = -1",
                "DELETE FROM sandbox_specs",
                "UPDATE execs SET state = 'READY'",
                "UPDATE execs SET end_reason = ''",
                "UPDATE execs SET exit_code = 2147483648",
                "UPDATE execs SET signal = -1",
                "UPDATE execs SET failure = 'BECAUSE'",
                "UPDATE execs SET message = printf('%.256c', 'x')",
                "UPDATE execs SET id = 'x'",
                "UPDATE execs SET bound = 3",
                "DELETE FROM exec_specs",
                "UPDATE events SET type = 'PARTY'",
                "UPDATE events SET time = -5",
                "UPDATE events SET sandbox_id = printf('%.201c', 'x')",
                "UPDATE events SET labels = char(0)",
        };
        _cleanup_(store_closep) Store *store = open_store("db");
        StoreCounts counts;

        put_sandbox(store, 1, SANDBOX_READY);
        put_exec(store, 1, 1, EXEC_EXITED);
        add_event(store, 1, 1, 1);
        commit(store);
        assert_int_equal(sqlite3_exec(store->db, "PRAGMA foreign_keys = OFF", NULL, NULL, NULL), 0);

        for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
                assert_int_equal(sqlite3_exec(store->db, "BEGIN", NULL, NULL, NULL), 0);
                assert_int_equal(sqlite3_exec(store->db, damages[i], NULL, NULL, NULL), 0);
                if (store_count(store, &counts) != -EBADMSG)
                        fail_msg("not found: %s", damages[i]);
                assert_int_equal(sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL), 0);
                assert_counts(store, 1, 0, 1, 1);
        }
}

static void active_execs_are_told_in_order_and_no_others(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        put_sandbox(store, 2, SANDBOX_READY);
        put_sandbox(store, 1, SANDBOX_READY);
        put_exec(store, 2, 10, EXEC_RUNNING);
        put_exec(store, 1, 12, EXEC_PENDING);
        put_exec(store, 1, 11, EXEC_RUNNING);
        for (ExecState ended = EXEC_EXITED; ended <= EXEC_LOST; ended++)
                put_exec(store, 1, 20 + ended, ended);
        commit(store);
        assert_int_equal(store_each_active_exec(store, see_exec, NULL, NULL), 0);
        ASSERT_SEEN(11, 12, 10);
        assert_int_equal(seen.exec.sandbox_serial, 2);

        /* One that has ended since is not among them. */
        put_exec(store, 1, 11, EXEC_EXITED);
        put_exec(store, 2, 13, EXEC_PENDING);
        assert_int_equal(store_each_active_exec(store, see_exec, NULL, NULL), 0);
        ASSERT_SEEN(12, 10, 13);
}

/* Fails the test unless the step of a plan is by an index. */
static int check_plan(void *user, int n_columns, char **values, char **names) {
        const char *step = values[3], *sql = user;

        if (str_has_prefix(step, "SCAN ") && !str_equal(step, "SCAN CONSTANT ROW"))
                fail_msg("walks a table: %s: %s", step, sql);
        if (str_has_prefix(step, "USE TEMP B-TREE") || strstr(step, "AUTOMATIC"))
                fail_msg("needs a better index: %s: %s", step, sql);
        return 0;
}

static void every_statement_finds_its_rows_by_an_index(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        for (Statement i = 0; i < STATEMENTS_N; i++) {
                _cleanup_(string_builder_clear) StringBuilder sql = {};

                string_builder_appendf(&sql, "EXPLAIN QUERY PLAN %s", statement_sql[i]);
                assert_int_equal(sqlite3_exec(store->db, sql.text, check_plan, sql.text, NULL), SQLITE_OK);
        }
}

static int note_plan(void *user, int n_columns, char **values, char **names) {
        string_builder_appendf(user, "%s; ", values[3]);
        return 0;
}

/* What has ended, which is nearly all after a while, is not even looked at. */
static void active_execs_are_found_by_an_index_of_their_own(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        _cleanup_(string_builder_clear) StringBuilder sql = {}, plan = {};

        string_builder_appendf(&sql, "EXPLAIN QUERY PLAN %s", statement_sql[STATEMENT_EXECS_ACTIVE]);
        assert_int_equal(sqlite3_exec(store->db, sql.text, note_plan, &plan, NULL), SQLITE_OK);
        assert_true(str_has_prefix(plan.text, "SEARCH e USING INDEX execs_active (sandbox_serial>?); "));
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, store_folder_setup, store_folder_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                STORE_TEST(sandboxes_come_back_as_they_were_put),
                STORE_TEST(execs_come_back_as_they_were_put),
                STORE_TEST(the_input_is_kept_while_the_exec_is_pending),
                STORE_TEST(labels_can_be_read_and_follow_the_spec),
                STORE_TEST(lists_are_in_order_and_from_where_asked),
                STORE_TEST(active_execs_are_told_in_order_and_no_others),
                STORE_TEST(callbacks_may_end_a_list_and_use_the_store),
                STORE_TEST(events_are_found_by_cursor_and_by_sequence),
                STORE_TEST(every_type_of_event_comes_back),
                STORE_TEST(requests_are_found_by_their_whole_key),
                STORE_TEST(old_requests_are_purged_oldest_first),
                STORE_TEST(facts_are_kept_and_replaced),
                STORE_TEST(a_purge_keeps_ids_and_moves_the_marks),
                STORE_TEST(an_id_is_used_once),
                STORE_TEST(nothing_is_committed_after_a_write_that_failed),
                STORE_TEST(rows_of_nothing_are_not_committed),
                STORE_TEST(closing_takes_back_what_was_not_committed),
                STORE_TEST(values_that_cannot_be_are_not_trusted),
                STORE_TEST(every_statement_finds_its_rows_by_an_index),
                STORE_TEST(active_execs_are_found_by_an_index_of_their_own),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
