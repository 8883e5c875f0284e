/* SPDX-License-Identifier: Apache-2.0 */

/* Disks that are full or fail: a transaction is there whole or not at all, and the store goes on when the disk does.
 * Failures come from a shim beneath SQLite, from a limit on the size of files, and from a file system that is full. */

#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#include "store-fixture.h"
#include "test.h"

/* The shim: SQLite's own VFS, but for one operation that changes a file, which fails, and with it all that follow until
 * the disk is mended. */
static sqlite3_vfs *real_vfs;
static sqlite3_vfs shim_vfs;
static int until_failure = -1; /* operations; negative: none fails */
static int failure_code;
static bool is_synced; /* the last operation was no write */

typedef struct ShimFile {
        sqlite3_file file;
        sqlite3_file *real;
} ShimFile;

static sqlite3_file *real_file(sqlite3_file *file) {
        return ((ShimFile *) file)->real;
}

static bool fails(void) {
        if (until_failure > 0)
                until_failure--;
        return until_failure == 0;
}

static int shim_close(sqlite3_file *file) {
        return real_file(file)->pMethods->xClose(real_file(file));
}

static int shim_read(sqlite3_file *file, void *buffer, int n, sqlite3_int64 offset) {
        return real_file(file)->pMethods->xRead(real_file(file), buffer, n, offset);
}

static int shim_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 offset) {
        is_synced = false;
        /* A disk that fills up takes a part. */
        if (fails()) {
                (void) real_file(file)->pMethods->xWrite(real_file(file), bytes, n / 2, offset);
                return failure_code;
        }
        return real_file(file)->pMethods->xWrite(real_file(file), bytes, n, offset);
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size) {
        return fails() ? SQLITE_IOERR_TRUNCATE : real_file(file)->pMethods->xTruncate(real_file(file), size);
}

static int shim_sync(sqlite3_file *file, int flags) {
        is_synced = true;
        /* Nobody cuts the power here. */
        return fails() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

static int shim_size(sqlite3_file *file, sqlite3_int64 *ret_size) {
        return real_file(file)->pMethods->xFileSize(real_file(file), ret_size);
}

static int shim_lock(sqlite3_file *file, int lock) {
        return real_file(file)->pMethods->xLock(real_file(file), lock);
}

static int shim_unlock(sqlite3_file *file, int lock) {
        return real_file(file)->pMethods->xUnlock(real_file(file), lock);
}

static int shim_check_lock(sqlite3_file *file, int *ret_locked) {
        return real_file(file)->pMethods->xCheckReservedLock(real_file(file), ret_locked);
}

static int shim_control(sqlite3_file *file, int operation, void *argument) {
        return real_file(file)->pMethods->xFileControl(real_file(file), operation, argument);
}

static int shim_sector_size(sqlite3_file *file) {
        return real_file(file)->pMethods->xSectorSize(real_file(file));
}

static int shim_characteristics(sqlite3_file *file) {
        return real_file(file)->pMethods->xDeviceCharacteristics(real_file(file));
}

static int shim_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **ret_memory) {
        return real_file(file)->pMethods->xShmMap(real_file(file), page, size, extend, ret_memory);
}

static int shim_shm_lock(sqlite3_file *file, int offset, int n, int flags) {
        return real_file(file)->pMethods->xShmLock(real_file(file), offset, n, flags);
}

static void shim_shm_barrier(sqlite3_file *file) {
        real_file(file)->pMethods->xShmBarrier(real_file(file));
}

static int shim_shm_unmap(sqlite3_file *file, int delete) {
        return real_file(file)->pMethods->xShmUnmap(real_file(file), delete);
}

static const sqlite3_io_methods shim_methods = {
        .iVersion = 2,
        .xClose = shim_close,
        .xRead = shim_read,
        .xWrite = shim_write,
        .xTruncate = shim_truncate,
        .xSync = shim_sync,
        .xFileSize = shim_size,
        .xLock = shim_lock,
        .xUnlock = shim_unlock,
        .xCheckReservedLock = shim_check_lock,
        .xFileControl = shim_control,
        .xSectorSize = shim_sector_size,
        .xDeviceCharacteristics = shim_characteristics,
        .xShmMap = shim_shm_map,
        .xShmLock = shim_shm_lock,
        .xShmBarrier = shim_shm_barrier,
        .xShmUnmap = shim_shm_unmap,
};

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags) {
        ShimFile *shim = (ShimFile *) file;
        int rc;

        shim->real = (sqlite3_file *) (shim + 1);
        rc = real_vfs->xOpen(real_vfs, name, shim->real, flags, ret_flags);
        shim->file.pMethods = shim->real->pMethods ? &shim_methods : NULL;
        return rc;
}

static int shim_setup(void **state) {
        real_vfs = sqlite3_vfs_find(NULL);
        shim_vfs = *real_vfs;
        shim_vfs.zName = "shim";
        shim_vfs.szOsFile = real_vfs->szOsFile + (int) sizeof(ShimFile);
        shim_vfs.xOpen = shim_open;
        assert_int_equal(sqlite3_vfs_register(&shim_vfs, 1), SQLITE_OK);
        return store_folder_setup(state);
}

static int shim_teardown(void **state) {
        until_failure = -1;
        (void) sqlite3_vfs_unregister(&shim_vfs);
        return store_folder_teardown(state);
}

static void copy_file(const char *from, const char *to) {
        size_t len;
        _cleanup_free_ char *content = read_whole(store_path(from), &len);

        write_whole(store_path(to), content, len);
}

/* What a process would find that comes after this one was killed now. */
static void count_after_kill(StoreCounts *ret_counts) {
        Store *store;

        (void) unlink(store_path("copy-shm"));
        (void) unlink(store_path("copy-wal"));
        copy_file("db", "copy");
        if (access(store_path("db-wal"), F_OK) == 0)
                copy_file("db-wal", "copy-wal");
        store = open_store("copy");
        assert_int_equal(store_count(store, ret_counts), 0);
        assert_int_equal(store_id_is_used(store, "sandbox-3", NULL), ret_counts->sandboxes == 2);
        store_close(store);
}

/* A transaction that touches many pages, and overflows the cache into the log. */
static int write_much(Store *store, size_t spec_size) {
        _cleanup_free_ uint8_t *bytes = new0(uint8_t, spec_size);
        SandboxSpec spec = { .n_refs = 1, .encoded = bytes, .encoded_len = spec_size };
        SandboxRecord record = sample_sandbox(3);
        ExecRecord exec = sample_exec(3, 1);
        EventRow event = { .cursor = 3,
                           .sandbox_serial = 3,
                           .sequence = 1,
                           .type = EVENT_SANDBOX_CREATED,
                           .sandbox_id = "sandbox-3",
                           .owner = "o",
                           .labels = "",
                           .encoded = bytes,
                           .encoded_len = spec_size };

        record.spec = &spec;
        (void) store_put_sandbox(store, &record, NULL);
        (void) store_put_exec(store, &exec, NULL);
        (void) store_add_event(store, &event, NULL);
        return store_commit(store, NULL);
}

/* Fails the @n-th operation of a transaction and all that follow. Returns whether it got so far. */
static bool fail_at(int n, int code, size_t spec_size) {
        Store *store = open_store("db");
        StoreCounts counts;
        bool reached;
        int r;

        put_sandbox(store, 1, SANDBOX_READY);
        put_sandbox(store, 2, SANDBOX_DELETED);
        commit(store);

        failure_code = code;
        until_failure = n;
        r = write_much(store, spec_size);
        reached = until_failure == 0;
        if (r < 0) {
                /* Nothing of it is seen, and the disk still fails. */
                assert_true(r == -ENOSPC || r == -EIO);
                assert_counts(store, 1, 1, 0, 0);
                assert_true(write_much(store, spec_size) < 0);
        }
        until_failure = -1;

        count_after_kill(&counts);
        assert_true(counts.sandboxes == 1 || counts.sandboxes == 2);
        assert_int_equal(counts.execs, counts.sandboxes - 1);
        assert_int_equal(counts.events, counts.sandboxes - 1);
        if (r == 0)
                assert_int_equal(counts.sandboxes, 2);

        /* The disk is well again. */
        if (r < 0)
                assert_int_equal(write_much(store, spec_size), 0);
        assert_counts(store, 2, 1, 1, 1);
        store_close(store);
        store = open_store("db");
        assert_counts(store, 2, 1, 1, 1);
        store_close(store);
        assert_int_equal(unlink(store_path("db")), 0);
        return reached;
}

static void a_write_that_fails_anywhere_leaves_all_or_nothing(void **state) {
        static const int codes[] = { SQLITE_FULL, SQLITE_IOERR_WRITE };
        int n;

        for (size_t i = 0; i < 2; i++) {
                for (n = 1; fail_at(n, codes[i], 20000); n++)
                        ;
                assert_in_range(n, 10, 200);
        }

        /* With a checkpoint after the commit, and pages that go to the log before it. */
        for (n = 1; fail_at(n, SQLITE_FULL, 4 << 20); n = n * 5 / 4 + 1)
                ;
        assert_true(n > 1000);
}

static void a_commit_is_written_and_a_sync_syncs_it(void **state) {
        _cleanup_(store_closep) Store *store = open_store("db");

        assert_int_equal(store_sync(store, NULL), 0);
        for (uint64_t serial = 1; serial <= 20; serial++) {
                is_synced = false;
                put_sandbox(store, serial, SANDBOX_READY);
                assert_int_equal(store_sync(store, NULL), 0); /* of nothing */
                assert_false(is_synced);
                commit(store);
                assert_false(store_is_synced(store));
                assert_int_equal(store_sync(store, NULL), 0);
                assert_true(is_synced);
                assert_true(store_is_synced(store));
        }
}

static void a_sync_that_fails_says_so(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        Store *store = open_store("db");

        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        until_failure = 1;
        assert_int_equal(store_sync(store, &err), -EIO);
        assert_string_equal(err.reason, "STORE_UNAVAILABLE");
        assert_false(store_is_synced(store));
        until_failure = -1;
        store_close(store);

        store = open_store("db");
        assert_counts(store, 1, 0, 0, 0);
        store_close(store);
}

/* What the disk did not take is in memory only; it is written once more by whoever comes next. */
static void a_log_that_is_found_is_written_back(void **state) {
        Store *store = open_store("db"), *next;

        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        copy_file("db", "copy");
        copy_file("db-wal", "copy-wal");
        store_close(store);

        next = open_store("copy");
        (void) unlink(store_path("copy-wal"));
        copy_file("copy", "db");
        store = open_store("db");
        assert_counts(store, 1, 0, 0, 0);
        store_close(store);
        store_close(next);
}

static void a_store_that_cannot_be_made_leaves_nothing(void **state) {
        bool reached = true;

        for (int n = 1; reached; n++) {
                Store *store = NULL;
                int r;

                failure_code = SQLITE_FULL;
                until_failure = n;
                r = store_open(store_path("db"), &store, NULL);
                reached = until_failure == 0;
                until_failure = -1;
                if (r < 0) {
                        assert_true(r == -ENOSPC || r == -EIO);
                        assert_true(access(store_path("db.new"), F_OK) < 0);
                }
                store_close(store);

                store = open_store("db");
                assert_counts(store, 0, 0, 0, 0);
                store_close(store);
                assert_int_equal(unlink(store_path("db")), 0);
        }
}

static void a_backup_that_fails_leaves_nothing(void **state) {
        Store *store;
        bool reached = true;

        store = open_store("db");
        put_sandbox(store, 1, SANDBOX_READY);
        commit(store);
        for (int n = 1; reached; n++) {
                failure_code = SQLITE_FULL;
                until_failure = n;
                int r = store_backup(store_path("db"), store_path("backup"), NULL);
                reached = until_failure == 0;
                until_failure = -1;
                if (reached) {
                        assert_int_equal(r, -ENOSPC);
                        assert_true(access(store_path("backup"), F_OK) < 0);
                } else {
                        assert_int_equal(r, 0);
                }
        }
        store_close(store);
}

/* Runs @test in a process of its own, whose limits and mounts are nobody else's. 77: it cannot run here. */
static int run_apart(int (*test)(void)) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(test());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

#define CHECK(condition)                                                                                               \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
                        return 1;                                                                                      \
                }                                                                                                      \
        } while (0)

static int set_file_limit(rlim_t bytes) {
        return setrlimit(RLIMIT_FSIZE, &(struct rlimit){ bytes, RLIM_INFINITY });
}

/* Adds sandboxes, each in a transaction of its own, until one fails. Returns what it failed with. */
static int write_until_failure(Store *store, uint64_t *serial, HutchError *err) {
        for (;; (*serial)++) {
                SandboxRecord record = sample_sandbox(*serial);
                int r;

                (void) store_put_sandbox(store, &record, NULL);
                r = store_commit(store, err);
                if (r < 0)
                        return r;
        }
}

static int meet_the_file_limit(void) {
        HutchError err = {};
        Store *store = NULL;
        StoreCounts counts;
        uint64_t serial = 1;

        signal(SIGXFSZ, SIG_IGN);
        CHECK(store_open(store_path("db"), &store, NULL) == 0);
        CHECK(set_file_limit(200000) == 0);
        CHECK(write_until_failure(store, &serial, &err) == -EFBIG);
        CHECK(strcmp(err.reason, "STORE_UNAVAILABLE") == 0);
        CHECK(err.code == STATUS_UNAVAILABLE);
        CHECK(serial > 1);
        CHECK(store_count(store, &counts) == 0 && counts.sandboxes == (int) serial - 1);

        CHECK(set_file_limit(RLIM_INFINITY) == 0);
        CHECK(store_put_sandbox(store, &(SandboxRecord[]){ sample_sandbox(serial) }[0], NULL) == 0);
        CHECK(store_commit(store, NULL) == 0);
        CHECK(store_count(store, &counts) == 0 && counts.sandboxes == (int) serial);
        error_clear(&err);
        store_close(store);
        return 0;
}

static void a_limit_on_files_is_told_and_does_no_harm(void **state) {
        assert_int_equal(run_apart(meet_the_file_limit), 0);
}

static int write_file(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* Makes this process root of namespaces of its own. */
static int become_root(void) {
        char users[32], groups[32];

        snprintf(users, sizeof(users), "0 %u 1", getuid());
        snprintf(groups, sizeof(groups), "0 %u 1", getgid());
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
                return -errno;
        if (write_file("/proc/self/uid_map", users) < 0 || write_file("/proc/self/setgroups", "deny") < 0)
                return -EPERM;
        return write_file("/proc/self/gid_map", groups);
}

/* Has a small file system in the test's folder, for this process only. */
static int mount_small(const char *folder) {
        if (unshare(CLONE_NEWNS) < 0 && become_root() < 0)
                return -EPERM;
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return -errno;
        if (mkdir(folder, 0700) < 0 || mount("tmpfs", folder, "tmpfs", 0, "size=1m") < 0)
                return -errno;
        return 0;
}

/* Takes all the space that is left. */
static int fill_disk(const char *path) {
        static const char zeros[4096];
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        if (fd < 0)
                return -errno;
        while (write(fd, zeros, sizeof(zeros)) > 0)
                ;
        return errno == ENOSPC ? 0 : -errno;
}

static int meet_the_end_of_the_disk(void) {
        HutchError err = {};
        Store *store = NULL;
        StoreCounts counts;
        uint64_t serial = 1;

        if (mount_small(store_path("small")) < 0)
                return 77;

        /* First the log fills the disk; then somebody else does; then there is space for the log, but in the end none
         * to write it back. */
        CHECK(store_open(store_path("small/db"), &store, NULL) == 0);
        for (int round = 0; round < 3; round++) {
                CHECK(round != 1 || fill_disk(store_path("small/filler")) == 0);
                CHECK(write_until_failure(store, &serial, &err) == -ENOSPC);
                CHECK(strstr(error_message(&err), "free some") != NULL);
                CHECK(strstr(error_message(&err), "small") == NULL);
                CHECK(write_until_failure(store, &serial, &err) == -ENOSPC);
                CHECK(store_count(store, &counts) == 0 && counts.sandboxes == (int) serial - 1);

                (void) unlink(store_path("small/filler"));
                CHECK(mount(NULL, store_path("small"), NULL, MS_REMOUNT, round < 2 ? "size=6m" : "size=9m") == 0);
                CHECK(store_set_fact(store, "space", "is back", NULL) == 0);
                CHECK(store_commit(store, NULL) == 0);
        }
        CHECK(serial > 1000);
        store_close(store);

        CHECK(store_open(store_path("small/db"), &store, NULL) == 0);
        CHECK(store_count(store, &counts) == 0 && counts.sandboxes == (int) serial - 1);
        CHECK(fill_disk(store_path("small/filler")) == 0);
        CHECK(store_backup(store_path("small/db"), store_path("small/backup"), &err) == -ENOSPC);
        CHECK(access(store_path("small/backup"), F_OK) < 0);
        error_clear(&err);
        store_close(store);
        return 0;
}

static void a_full_disk_is_told_and_the_store_goes_on_when_there_is_space(void **state) {
        int r = run_apart(meet_the_end_of_the_disk);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

#define SHIM_TEST(name) cmocka_unit_test_setup_teardown(name, shim_setup, shim_teardown)
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, store_folder_setup, store_folder_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                SHIM_TEST(a_write_that_fails_anywhere_leaves_all_or_nothing),
                SHIM_TEST(a_commit_is_written_and_a_sync_syncs_it),
                SHIM_TEST(a_sync_that_fails_says_so),
                SHIM_TEST(a_log_that_is_found_is_written_back),
                SHIM_TEST(a_store_that_cannot_be_made_leaves_nothing),
                SHIM_TEST(a_backup_that_fails_leaves_nothing),
                STORE_TEST(a_limit_on_files_is_told_and_does_no_harm),
                STORE_TEST(a_full_disk_is_told_and_the_store_goes_on_when_there_is_space),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
