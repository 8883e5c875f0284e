/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the store's file as a whole. What does not: its tables (schema.c) and rows.
 *
 * A store is made under another name and gets its own when it is whole, so a file of that name always begins with a
 * header of ours. An existing file is looked at three times: its first bytes, without SQLite, which would take an empty
 * file for a new one; then through a connection that cannot write, so that a file that is refused stays as it is; and
 * then it is opened.
 *
 * How thorough the look is depends on the size. SQLite itself finds a file that was cut short. Up to QUICK_CHECK_MAX
 * bytes all pages are read and their structure is checked, which takes a fraction of a second; beyond that only the
 * small tables, and other damage is found when it is met. SQLite keeps no checksums of pages, so a value that was
 * changed to another possible one is found by nobody. */

#include "store/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "model/reason.h"
#include "store/query.h"
#include "store/schema.h"

#define QUICK_CHECK_MAX (64 << 20) /* bytes */
#define BUSY_TIMEOUT 250           /* milliseconds; the daemon does nothing else meanwhile */
#define WAL_KEPT_MAX "16777216"    /* bytes; a longer log is cut when it was written back */
#define WAL_ROOM                                                                                                       \
        (1100 * (4096 + 24)) /* bytes; what it grows to before that, with the heads of its pages, and some more */

/* SQLite's file header. */
#define HEADER_SIZE 100
#define HEADER_MAGIC "SQLite format 3" /* and a NUL */
#define HEADER_APPLICATION_ID 68       /* where it stands: four bytes, the first one first */

static int refuse_damaged(const char *path, HutchError *err) {
        (void) reason_set(
                err, -EBADMSG, REASON_STORE_UNAVAILABLE,
                "%s is damaged; restore a backup made by hutchd --backup, or move it away, in either case with "
                "%s-wal if there is one",
                path, path);
        return -EBADMSG;
}

static int refuse_foreign(const char *path, HutchError *err) {
        return reason_set(err, -EBADMSG, REASON_STORE_UNAVAILABLE,
                          "%s is no store of hutchd; move it away, or have hutchd use another folder", path);
}

static int refuse_errno(const char *path, int r, HutchError *err) {
        assert(r < 0);

        (void) reason_set(err, r, REASON_STORE_UNAVAILABLE, "%s cannot be used: %s", path, strerror(-r));
        return r;
}

int file_error(sqlite3 *db, int rc, const char *path, HutchError *err) {
        int r;

        switch (rc) {
        case SQLITE_ERROR:             /* a table is missing, or its columns are others */
        case SQLITE_READONLY_ROLLBACK: /* a journal that a store never has */
                return refuse_damaged(path, err);
        default:
                r = sqlite_error(db, rc, NULL);
                return r == -EBADMSG ? refuse_damaged(path, err) : refuse_errno(path, r, err);
        }
}

int file_connect(const char *path, int flags, sqlite3 **ret_db, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;
        int rc = sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);

        if (rc != SQLITE_OK)
                return refuse_errno(path, db && sqlite3_system_errno(db) > 0 ? -sqlite3_system_errno(db) : -ENOMEM,
                                    err);

        (void) sqlite3_busy_timeout(db, BUSY_TIMEOUT);
        *ret_db = TAKE_PTR(db);
        return 0;
}

int file_pragma(sqlite3 *db, const char *pragma, int64_t *ret_value) {
        char sql[64];
        sqlite3_stmt *statement = NULL;
        int rc;

        snprintf(sql, sizeof(sql), "PRAGMA %s", pragma);
        rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
        if (rc != SQLITE_OK)
                return rc;

        if (sqlite3_step(statement) == SQLITE_ROW)
                *ret_value = sqlite3_column_int64(statement, 0);
        return sqlite3_finalize(statement); /* also tells what the step said */
}

static int sync_folder_of(const char *path) {
        _cleanup_free_ char *copy = xstrdup(path);
        _cleanup_close_ int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int file_publish(const char *temporary, const char *path) {
        if (link(temporary, path) < 0 || unlink(temporary) < 0)
                return -errno;

        return sync_folder_of(path);
}

/* Refuses to make a store beside the write-ahead log of another: SQLite would take it for the new one's. */
static int check_nothing_left(const char *path, HutchError *err) {
        _cleanup_(string_builder_clear) StringBuilder wal = {};

        string_builder_appendf(&wal, "%s-wal", path);
        if (access(wal.text, F_OK) < 0)
                return 0;

        return reason_set(err, -EBADMSG, REASON_STORE_UNAVAILABLE,
                          "%s is there, but %s, which it is a part of, is gone; put that back, or move it away",
                          wal.text, path);
}

/* Fills the empty file at @path. */
static int fill(const char *path, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;
        char set_application_id[64];
        int r, rc;

        r = file_connect(path, SQLITE_OPEN_READWRITE, &db, err);
        if (r < 0)
                return r;

        snprintf(set_application_id, sizeof(set_application_id), "PRAGMA application_id = %d", SCHEMA_APPLICATION_ID);
        rc = sqlite3_exec(db, set_application_id, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = schema_migrate(db, schema_scripts, schema_scripts_n, 0);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);

        return rc == SQLITE_OK ? 0 : file_error(db, rc, path, err);
}

static int create(const char *path, HutchError *err) {
        _cleanup_(string_builder_clear) StringBuilder temporary = {};
        int fd, r;

        r = check_nothing_left(path, err);
        if (r < 0)
                return r;

        string_builder_appendf(&temporary, "%s.new", path);
        (void) unlink(temporary.text);
        fd = open(temporary.text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return refuse_errno(path, -errno, err);
        fd_close(fd);

        r = fill(temporary.text, err);
        if (r >= 0) {
                r = file_publish(temporary.text, path);
                if (r < 0)
                        (void) refuse_errno(path, r, err);
        }
        if (r < 0)
                (void) unlink(temporary.text);
        return r;
}

/* Reads the first bytes of the file. -ENOENT: there is none. */
static int check_header(const char *path, HutchError *err) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        uint8_t header[HEADER_SIZE];
        const uint8_t *id = header + HEADER_APPLICATION_ID;
        struct stat st;

        if (fd < 0 && errno == ENOENT)
                return -ENOENT;
        if (fd < 0 || fstat(fd, &st) < 0)
                return refuse_errno(path, -errno, err);
        if (!S_ISREG(st.st_mode))
                return refuse_foreign(path, err);
        if (pread(fd, header, sizeof(header), 0) != sizeof(header) ||
            memcmp(header, HEADER_MAGIC, sizeof(HEADER_MAGIC)) != 0)
                return refuse_damaged(path, err);
        if (((uint32_t) id[0] << 24 | (uint32_t) id[1] << 16 | (uint32_t) id[2] << 8 | id[3]) != SCHEMA_APPLICATION_ID)
                return refuse_foreign(path, err);

        /* A backup may have been restored for everybody to read. */
        if ((st.st_mode & 077) != 0 && fchmod(fd, 0600) < 0)
                return refuse_errno(path, -errno, err);

        return 0;
}

/* Runs one of SQLite's checks of structure. Returns an SQLite result code. */
static int check_structure(sqlite3 *db, const char *check) {
        sqlite3_stmt *statement = NULL;
        int rc = sqlite3_prepare_v2(db, check, -1, &statement, NULL);

        if (rc == SQLITE_OK)
                rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW)
                rc = strcmp((const char *) sqlite3_column_text(statement, 0) ?: "", "ok") == 0 ? SQLITE_OK
                                                                                               : SQLITE_CORRUPT;

        (void) sqlite3_finalize(statement);
        return rc;
}

static int check_content(sqlite3 *db) {
        int64_t page_size = 0, n_pages = 0;
        int rc = file_pragma(db, "page_size", &page_size);

        if (rc == SQLITE_OK)
                rc = file_pragma(db, "page_count", &n_pages);
        if (rc != SQLITE_OK)
                return rc;
        if (n_pages * page_size <= QUICK_CHECK_MAX)
                return check_structure(db, "PRAGMA quick_check(1)");

        rc = check_structure(db, "PRAGMA quick_check('facts')");
        return rc == SQLITE_OK ? check_structure(db, "PRAGMA quick_check('purged')") : rc;
}

/* Looks at the store without changing it, not even by writing back what its log holds. Tells the version of its
 * schema. */
static int check(const char *path, size_t *ret_version, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;
        int64_t application_id = 0, version = 0;
        int r, rc;

        r = file_connect(path, SQLITE_OPEN_READONLY, &db, err);
        if (r < 0)
                return r;

        rc = sqlite3_exec(db, "PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF", NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = file_pragma(db, "application_id", &application_id);
        if (rc == SQLITE_OK)
                rc = file_pragma(db, "user_version", &version);
        if (rc != SQLITE_OK)
                return file_error(db, rc, path, err);
        if (application_id != SCHEMA_APPLICATION_ID || version < 1)
                return refuse_damaged(path, err);
        if ((uint64_t) version > schema_scripts_n)
                return reason_set(
                        err, -EPROTONOSUPPORT, REASON_STORE_UNAVAILABLE,
                        "%s was written by a later version of hutchd (its schema is %lld, this one knows %zu); "
                        "install that version, or restore a backup of this one",
                        path, (long long) version, schema_scripts_n);

        rc = check_content(db);
        if (rc != SQLITE_OK)
                return file_error(db, rc, path, err);

        *ret_version = (size_t) version;
        return 0;
}

static const char pragmas[] = "PRAGMA journal_mode = WAL;"
                              "PRAGMA synchronous = NORMAL;" /* store_sync() does the rest */
                              "PRAGMA foreign_keys = ON;"
                              "PRAGMA cell_size_check = ON;"
                              "PRAGMA trusted_schema = OFF;"
                              /* No files elsewhere, which could fail when the store does not. */
                              "PRAGMA temp_store = MEMORY;"
                              "PRAGMA journal_size_limit = " WAL_KEPT_MAX;

/* Writes the log back, and has it begin anew. A daemon before this one may have ended because the disk did not take
 * some of it: what is read of that is in memory only, and the kernel does not try again. */
static void write_log_back(sqlite3 *db) {
        (void) sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
}

/* Has the write-ahead log be as long as it gets: a commit that has it grow waits for the disk twice, once for the bytes
 * and once for the inode. SQLite takes zeros for the end of what was logged. Where the disk has no room for them
 * nothing is changed. */
static void make_room_in_log(const char *path) {
        static const uint8_t zeros[65536];
        _cleanup_(string_builder_clear) StringBuilder wal = {};
        _cleanup_close_ int fd = -1;
        struct stat st;

        string_builder_appendf(&wal, "%s-wal", path);
        fd = open(wal.text, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return;
        for (off_t at = st.st_size; at < WAL_ROOM;) {
                size_t left = (size_t) (WAL_ROOM - at);
                ssize_t n = pwrite(fd, zeros, left < sizeof(zeros) ? left : sizeof(zeros), at);

                if (n <= 0) {
                        (void) !ftruncate(fd, st.st_size);
                        return;
                }
                at += n;
        }
        /* Written by the time of the first commit. */
        (void) sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

int file_open(const char *path, sqlite3 **ret_db, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;
        size_t version = 0;
        int r, rc;

        r = check_header(path, err);
        if (r == -ENOENT)
                r = create(path, err);
        if (r < 0)
                return r;

        r = check(path, &version, err);
        if (r < 0)
                return r;

        r = file_connect(path, SQLITE_OPEN_READWRITE, &db, err);
        if (r < 0)
                return r;

        rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = schema_migrate(db, schema_scripts, schema_scripts_n, version);
        if (rc != SQLITE_OK)
                return file_error(db, rc, path, err);

        write_log_back(db);
        /* Nobody else writes to it meanwhile. */
        if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK) {
                make_room_in_log(path);
                (void) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        }
        *ret_db = TAKE_PTR(db);
        return 0;
}
