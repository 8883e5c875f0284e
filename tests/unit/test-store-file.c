/* SPDX-License-Identifier: Apache-2.0 */

/* The store's file: making it, refusing what is none, finding damage, surviving a kill, copying it. */

#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/file.h"
#include "store/schema.h"

#include "store-fixture.h"
#include "test.h"

/* Runs SQL on a file as an operator would. */
static void run_sql(const char *name, const char *sql) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;

        assert_int_equal(sqlite3_open(store_path(name), &db), SQLITE_OK);
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
                fail_msg("%s: %s", sql, sqlite3_errmsg(db));
}

static mode_t mode_of(const char *name) {
        struct stat st;

        assert_int_equal(stat(store_path(name), &st), 0);
        return st.st_mode & 07777;
}

static bool exists(const char *name) {
        return access(store_path(name), F_OK) == 0;
}

/* Opening it fails with @expected and a sentence with @hint, and leaves the file as it is. */
static void assert_refused(const char *name, int expected, const char *hint) {
        _cleanup_(error_clear) HutchError err = {};
        size_t before_len, after_len;
        _cleanup_free_ char *before = read_whole(store_path(name), &before_len);
        Store *store = NULL;

        assert_int_equal(store_open(store_path(name), &store, &err), expected);
        assert_null(store);
        assert_string_equal(err.reason, "STORE_UNAVAILABLE");
        if (!strstr(error_message(&err), hint))
                fail_msg("not the sentence: %s", error_message(&err));

        _cleanup_free_ char *after = read_whole(store_path(name), &after_len);
        assert_int_equal(after_len, before_len);
        assert_memory_equal(after, before, after_len);
}

static void fill_store(const char *name) {
        _cleanup_(store_closep) Store *store = open_store(name);

        for (uint64_t serial = 1; serial <= 40; serial++) {
                put_sandbox(store, serial, serial % 2 == 0 ? SANDBOX_DELETED : SANDBOX_READY);
                put_exec(store, serial, 1, EXEC_PENDING);
                add_event(store, serial, serial, 1);
        }
        commit(store);
}

static void a_new_store_is_private_and_leaves_nothing_else(void **state) {
        _cleanup_(store_closep) Store *store = NULL;

        (void) umask(0);
        store = open_store("db");
        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        assert_int_equal(mode_of("db"), 0600);
        assert_int_equal(mode_of("db-wal"), 0600);
        assert_int_equal(mode_of("db-shm"), 0600);
        assert_false(exists("db.new"));

        store_close(store);
        assert_false(exists("db-wal"));
        assert_int_equal(chmod(store_path("db"), 0644), 0);
        store = open_store("db");
        assert_int_equal(mode_of("db"), 0600);
        assert_counts(store, 1, 0, 0, 0);
}

static void a_store_that_was_not_finished_is_made_again(void **state) {
        _cleanup_(store_closep) Store *store = NULL;

        write_whole(store_path("db.new"), "half of it", 10);
        store = open_store("db");
        assert_counts(store, 0, 0, 0, 0);
        assert_false(exists("db.new"));
}

static void no_store_is_made_beside_the_log_of_another(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        Store *store = NULL;

        write_whole(store_path("db-wal"), "log", 3);
        assert_int_equal(store_open(store_path("db"), &store, &err), -EBADMSG);
        assert_non_null(strstr(error_message(&err), "move it away"));
        assert_false(exists("db"));
        assert_true(exists("db-wal"));
}

static void a_folder_that_is_missing_or_in_the_way_is_told(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        Store *store = NULL;

        assert_int_equal(store_open(store_path("none/db"), &store, &err), -ENOENT);
        assert_non_null(strstr(error_message(&err), "No such file"));
        assert_int_equal(mkdir(store_path("folder"), 0700), 0);
        assert_int_equal(store_open(store_path("folder"), &store, &err), -EBADMSG);
        assert_non_null(strstr(error_message(&err), "no store"));
}

static void what_is_no_store_is_refused(void **state) {
        char zeros[8192] = {};

        write_whole(store_path("empty"), "", 0);
        assert_refused("empty", -EBADMSG, "is damaged");
        write_whole(store_path("text"), "this is no database", 19);
        assert_refused("text", -EBADMSG, "is damaged");
        write_whole(store_path("zeros"), zeros, sizeof(zeros));
        assert_refused("zeros", -EBADMSG, "--backup");
        run_sql("foreign", "CREATE TABLE t (x); PRAGMA user_version = 1");
        assert_refused("foreign", -EBADMSG, "no store of hutchd");
}

static void a_later_version_is_refused(void **state) {
        fill_store("db");
        run_sql("db", "PRAGMA user_version = 3");
        assert_refused("db", -EPROTONOSUPPORT, "later version");

        /* Also when only the log says so. */
        fill_store("other");
        pid_t pid = fork();
        if (pid == 0) {
                run_sql("other", "PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 9");
                _exit(0);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_refused("other", -EPROTONOSUPPORT, "later version");
}

static void an_earlier_version_is_brought_up_to_date(void **state) {
        _cleanup_(store_closep) Store *store = NULL;

        fill_store("db");
        run_sql("db", "DROP INDEX execs_with_output; ALTER TABLE sandboxes DROP COLUMN output_kept;"
                      "PRAGMA user_version = 1");
        assert_int_equal(store_open(store_path("db"), &store, NULL), 0);
        assert_int_equal(store_id_is_used(store, "sandbox-1", NULL), 1);
}

static void a_store_without_its_tables_is_damaged(void **state) {
        fill_store("db");
        run_sql("db", "PRAGMA foreign_keys = OFF; DROP TABLE requests");
        assert_refused("db", -EBADMSG, "is damaged");

        fill_store("other");
        run_sql("other", "ALTER TABLE execs DROP COLUMN cpu_time");
        assert_refused("other", -EBADMSG, "is damaged");

        fill_store("zero");
        run_sql("zero", "PRAGMA user_version = 0");
        assert_refused("zero", -EBADMSG, "is damaged");
}

static int see_number(void *user, int n_columns, char **values, char **names) {
        *(int *) user = atoi(values[0]);
        return 0;
}

static int ask(sqlite3 *db, const char *sql) {
        int number = -1;

        assert_int_equal(sqlite3_exec(db, sql, see_number, &number, NULL), SQLITE_OK);
        return number;
}

static void migrations_run_from_where_the_file_is_and_stop_where_one_fails(void **state) {
        static const char *const scripts[] = {
                "CREATE TABLE a (x); INSERT INTO a VALUES (1)",
                "ALTER TABLE a ADD COLUMN y; UPDATE a SET y = x + 1",
                "UPDATE a SET y = 9; SELECT nonsense",
        };
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;

        assert_int_equal(sqlite3_open(store_path("db"), &db), SQLITE_OK);
        assert_int_equal(schema_migrate(db, scripts, 1, 0), SQLITE_OK);
        assert_int_equal(ask(db, "PRAGMA user_version"), 1);
        assert_int_equal(schema_migrate(db, scripts, 2, 1), SQLITE_OK);
        assert_int_equal(ask(db, "PRAGMA user_version"), 2);
        assert_int_equal(schema_migrate(db, scripts, 2, 2), SQLITE_OK);
        assert_int_equal(schema_migrate(db, scripts, 3, 2), SQLITE_ERROR);
        assert_int_equal(ask(db, "PRAGMA user_version"), 2);
        assert_int_equal(ask(db, "SELECT y FROM a"), 2);
}

/* The store opens or is refused as damaged, and all that can be read of it is read; nothing crashes. Returns whether it
 * opened. */
static bool survives(const char *name) {
        Store *store = NULL;
        StoreCounts counts;
        uint64_t number;
        int r = store_open(store_path(name), &store, NULL);

        if (r < 0) {
                assert_int_equal(r, -EBADMSG);
                return false;
        }

        (void) store_count(store, &counts);
        (void) store_last_serial(store, &number, NULL);
        (void) store_last_cursor(store, &number, NULL);
        (void) store_purge_sandboxes(store, UINT64_MAX, 2, NULL);
        (void) store_commit(store, NULL);
        store_close(store);
        return true;
}

static void a_file_that_was_cut_short_is_refused_or_has_lost_nothing(void **state) {
        _cleanup_free_ char *content = NULL;
        size_t len;

        fill_store("db");
        content = read_whole(store_path("db"), &len);
        for (size_t cut = 0; cut <= len - 4096; cut += cut < 1024 ? 97 : 1013) {
                write_whole(store_path("cut"), content, cut);
                assert_refused("cut", -EBADMSG, "is damaged");
        }

        /* The last page may be empty but for its beginning, and is read as if it went on with zeros. */
        for (size_t cut = len - 4095; cut < len; cut += 31) {
                _cleanup_(store_closep) Store *store = NULL;
                int r;

                write_whole(store_path("cut"), content, cut);
                r = store_open(store_path("cut"), &store, NULL);
                if (r != -EBADMSG)
                        assert_int_equal(r, 0);
                if (r == 0)
                        assert_counts(store, 20, 20, 40, 40);
        }
}

static void garbage_in_the_file_is_found_or_does_no_harm(void **state) {
        _cleanup_free_ char *content = NULL;
        size_t len;
        int n_opened = 0, n_refused = 0;

        fill_store("db");
        content = read_whole(store_path("db"), &len);
        srandom(1);
        for (size_t offset = 0; offset + 8 <= len; offset += 509) {
                _cleanup_free_ char *garbled = xcalloc(len, 1);

                memcpy(garbled, content, len);
                for (size_t i = 0; i < 8; i++)
                        garbled[offset + i] = (char) random();
                write_whole(store_path("garbled"), garbled, len);
                (void) unlink(store_path("garbled-wal"));
                (void) unlink(store_path("garbled-shm"));
                if (survives("garbled"))
                        n_opened++;
                else
                        n_refused++;
        }

        /* Some of it hits what nobody uses. */
        assert_true(n_opened > 0);
        assert_true(n_refused > 0);

        /* A whole page is always missed. */
        for (size_t page = 0; page < len / 4096; page++) {
                _cleanup_free_ char *garbled = xcalloc(len, 1);

                memcpy(garbled, content, len);
                memset(garbled + page * 4096, 0xa5, 4096);
                write_whole(store_path("page"), garbled, len);
                assert_refused("page", -EBADMSG, "is damaged");
        }
}

/* Starts a child that opens "db", writes @serial in a transaction of its own again and again, from 1 on, and says so
 * with a byte each; it never closes. */
static pid_t start_writer(int *ret_fd) {
        int fds[2];
        pid_t pid;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                Store *store = NULL;

                if (store_open(store_path("db"), &store, NULL) < 0)
                        _exit(1);
                for (uint64_t serial = 1;; serial++) {
                        put_sandbox(store, serial, SANDBOX_READY);
                        put_exec(store, serial, 1, EXEC_PENDING);
                        add_event(store, serial, serial, 1);
                        if (store_commit(store, NULL) < 0 || fd_write_all(fds[1], "x", 1) < 0)
                                _exit(1);
                }
        }

        fd_close(fds[1]);
        *ret_fd = fds[0];
        return pid;
}

/* Kills the child once it has committed @n times. Returns how often it said that it had. */
static int kill_writer(pid_t pid, int fd, int n) {
        char byte;
        int status, n_said = 0;

        for (; n_said < n; n_said++)
                assert_int_equal(read(fd, &byte, 1), 1);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        while (read(fd, &byte, 1) == 1)
                n_said++;
        fd_close(fd);
        return n_said;
}

static void what_was_committed_survives_a_kill(void **state) {
        for (int n = 0; n < 12; n++) {
                int fd, n_said;
                pid_t pid = start_writer(&fd);

                n_said = kill_writer(pid, fd, n * n);

                Store *store = open_store("db");
                StoreCounts counts;
                uint64_t serial;
                assert_int_equal(store_count(store, &counts), 0);
                /* The last commit may have come before it was told. */
                assert_in_range(counts.sandboxes, n_said, n_said + 1);
                assert_int_equal(counts.execs, counts.sandboxes);
                assert_int_equal(counts.events, counts.sandboxes);
                assert_int_equal(store_last_serial(store, &serial, NULL), 0);
                assert_int_equal(serial, counts.sandboxes);

                store_close(store);
                assert_int_equal(unlink(store_path("db")), 0);
        }
}

static void what_was_not_committed_does_not_survive_a_kill(void **state) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                Store *store = open_store("db");

                put_sandbox(store, 1, SANDBOX_READY);
                commit(store);
                put_sandbox(store, 1, SANDBOX_DELETED);
                put_sandbox(store, 2, SANDBOX_READY);
                (void) kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));

        _cleanup_(store_closep) Store *store = open_store("db");
        assert_counts(store, 1, 0, 0, 0);
        assert_int_equal(store_id_is_used(store, "sandbox-2", NULL), 0);
}

static void a_log_with_garbage_gives_what_came_before_it(void **state) {
        _cleanup_free_ char *content = NULL, *log = NULL;
        size_t len, log_len, used_len;
        int fd, n_said, last = 0;

        pid_t pid = start_writer(&fd);
        n_said = kill_writer(pid, fd, 20);
        content = read_whole(store_path("db"), &len);
        log = read_whole(store_path("db-wal"), &log_len);
        for (used_len = log_len; used_len > 0 && log[used_len - 1] == 0;)
                used_len--;

        for (size_t offset = 40; offset < used_len; offset += 4099) {
                StoreCounts counts;

                write_whole(store_path("copy"), content, len);
                log[offset] ^= 0x55;
                write_whole(store_path("copy-wal"), log, log_len);
                log[offset] ^= 0x55;

                _cleanup_(store_closep) Store *store = open_store("copy");
                assert_int_equal(store_count(store, &counts), 0);
                assert_in_range(counts.sandboxes, last, n_said + 1); /* one may be there that was not said yet */
                assert_int_equal(counts.events, counts.sandboxes);
                last = counts.sandboxes;
        }
}

static void a_damaged_store_keeps_its_log(void **state) {
        size_t len, log_len, log_len_after;
        int fd;
        pid_t pid;

        /* A page that the log does not hold. */
        fill_store("full");
        pid = start_writer(&fd);
        (void) kill_writer(pid, fd, 3);

        _cleanup_free_ char *log = read_whole(store_path("db-wal"), &log_len);
        _cleanup_free_ char *content = read_whole(store_path("full"), &len);
        memset(content + 4096, 0xa5, len - 4096);
        write_whole(store_path("db"), content, len);
        write_whole(store_path("db-wal"), log, log_len);
        assert_refused("db", -EBADMSG, "is damaged");
        _cleanup_free_ char *log_after = read_whole(store_path("db-wal"), &log_len_after);
        assert_int_equal(log_len_after, log_len);
        assert_memory_equal(log_after, log, log_len);
}

static void a_store_that_is_locked_by_another_program_is_told(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(sqlite3_closep) sqlite3 *other = NULL;

        assert_int_equal(sqlite3_open(store_path("db"), &other), SQLITE_OK);
        assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(store_set_fact(store, "a", "b", &err), -EBUSY);
        assert_string_equal(err.reason, "STORE_UNAVAILABLE");
        assert_true(store_is_dirty(store));
        assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(store_commit(store, NULL), -EBUSY);
        assert_int_equal(store_set_fact(store, "a", "b", NULL), 0);
        commit(store);
}

static void a_backup_is_a_store(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db"), *copy = NULL;
        _cleanup_(error_clear) HutchError err = {};

        (void) umask(0);
        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        put_sandbox(store, 2, SANDBOX_READY);

        /* In the middle of a transaction it is what was committed. */
        assert_int_equal(store_backup(store_path("db"), store_path("backup"), NULL), 0);
        commit(store);
        assert_int_equal(mode_of("backup"), 0600);
        copy = open_store("backup");
        assert_counts(copy, 1, 0, 0, 0);
        assert_counts(store, 2, 0, 0, 0);

        assert_int_equal(store_backup(store_path("db"), store_path("backup"), &err), -EEXIST);
        assert_counts(copy, 1, 0, 0, 0);
        assert_int_equal(store_backup(store_path("none"), store_path("other"), &err), -ENOENT);
        assert_int_equal(store_backup(store_path("db"), store_path("none/backup"), &err), -ENOENT);
        assert_non_null(strstr(error_message(&err), "none/backup"));

        write_whole(store_path("text"), "this is no database", 19);
        assert_int_equal(store_backup(store_path("text"), store_path("other"), &err), -EBADMSG);
        run_sql("foreign", "CREATE TABLE t (x)");
        assert_int_equal(store_backup(store_path("foreign"), store_path("other"), &err), -EBADMSG);
        assert_false(exists("other"));
}

static off_t size_of(const char *name) {
        struct stat st;

        assert_int_equal(stat(store_path(name), &st), 0);
        return st.st_size;
}

static void a_log_is_as_long_as_it_gets_from_the_beginning(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");
        off_t before = size_of("db-wal");

        for (uint64_t serial = 1; serial <= 20; serial++) {
                put_sandbox(store, serial, SANDBOX_READY);
                commit(store);
        }
        assert_int_equal(size_of("db-wal"), before);
        /* A copy is what a kill would have left. */
        size_t len, wal_len;
        _cleanup_free_ char *bytes = read_whole(store_path("db"), &len),
                            *wal = read_whole(store_path("db-wal"), &wal_len);
        write_whole(store_path("copy"), bytes, len);
        write_whole(store_path("copy-wal"), wal, wal_len);
        _cleanup_(store_closep) Store *copy = open_store("copy");
        assert_counts(copy, 20, 0, 0, 0);
        assert_int_equal(size_of("copy-wal"), before);
}

static void a_log_without_room_for_that_is_left_as_it_is(void **state) {
        struct rlimit before, limit;
        _cleanup_(store_closep) Store *store = NULL;

        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        limit = (struct rlimit){ .rlim_cur = 1 << 20, .rlim_max = before.rlim_max };
        (void) signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        store = open_store("db");
        assert_true(size_of("db-wal") < 1 << 16);
        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        (void) signal(SIGXFSZ, SIG_DFL);
}

static void backups_during_writes_are_whole(void **state) {
        int fd, last = 0;
        pid_t pid = start_writer(&fd);
        char byte;

        assert_int_equal(read(fd, &byte, 1), 1);
        for (int i = 0; i < 20; i++) {
                _cleanup_(store_closep) Store *copy = NULL;
                char name[16];
                StoreCounts counts;

                snprintf(name, sizeof(name), "backup-%d", i);
                assert_int_equal(store_backup(store_path("db"), store_path(name), NULL), 0);
                copy = open_store(name);
                assert_int_equal(store_count(copy, &counts), 0);
                assert_true(counts.sandboxes >= last);
                assert_int_equal(counts.execs, counts.sandboxes);
                assert_int_equal(counts.events, counts.sandboxes);
                last = counts.sandboxes;
        }
        assert_true(last > 0);
        /* One byte was read before, and one commit may not have been told. */
        assert_true(kill_writer(pid, fd, 1) >= last - 2);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, store_folder_setup, store_folder_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                STORE_TEST(a_new_store_is_private_and_leaves_nothing_else),
                STORE_TEST(a_store_that_was_not_finished_is_made_again),
                STORE_TEST(no_store_is_made_beside_the_log_of_another),
                STORE_TEST(a_folder_that_is_missing_or_in_the_way_is_told),
                STORE_TEST(what_is_no_store_is_refused),
                STORE_TEST(a_later_version_is_refused),
                STORE_TEST(an_earlier_version_is_brought_up_to_date),
                STORE_TEST(a_store_without_its_tables_is_damaged),
                STORE_TEST(migrations_run_from_where_the_file_is_and_stop_where_one_fails),
                STORE_TEST(a_file_that_was_cut_short_is_refused_or_has_lost_nothing),
                STORE_TEST(garbage_in_the_file_is_found_or_does_no_harm),
                STORE_TEST(what_was_committed_survives_a_kill),
                STORE_TEST(what_was_not_committed_does_not_survive_a_kill),
                STORE_TEST(a_log_with_garbage_gives_what_came_before_it),
                STORE_TEST(a_damaged_store_keeps_its_log),
                STORE_TEST(a_store_that_is_locked_by_another_program_is_told),
                STORE_TEST(a_log_is_as_long_as_it_gets_from_the_beginning),
                STORE_TEST(a_log_without_room_for_that_is_left_as_it_is),
                STORE_TEST(a_backup_is_a_store),
                STORE_TEST(backups_during_writes_are_whole),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
