/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: copying a store that may be in use. What does not: restoring one, which is putting it in place. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "model/reason.h"
#include "store/file.h"
#include "store/schema.h"
#include "store/store.h"

static int refuse_target(const char *target, int r, HutchError *err) {
        return error_set(err, r, reason_name(r == -EEXIST ? REASON_FILE_EXISTS : REASON_IO_ERROR),
                         "no backup can be made at %s: %s", target, strerror(-r));
}

/* Opens the store to be read, by way of SQLite only: closing a descriptor of its file would take away the locks of
 * whoever has it open in this process. */
static int open_source(const char *path, sqlite3 **ret_db, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;
        int64_t application_id = 0;
        int r, rc;

        r = file_connect(path, SQLITE_OPEN_READONLY, &db, err);
        if (r < 0)
                return r;

        rc = file_pragma(db, "application_id", &application_id);
        if (rc != SQLITE_OK)
                return file_error(db, rc, path, err);
        if (application_id != SCHEMA_APPLICATION_ID)
                return reason_set(err, -EBADMSG, REASON_STORE_UNAVAILABLE, "%s is no store of hutchd", path);

        *ret_db = TAKE_PTR(db);
        return 0;
}

/* Copies all of @source, as it is at one moment, into the empty file @temporary. */
static int copy(sqlite3 *source, const char *path, const char *temporary, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *db = NULL;
        sqlite3_backup *backup;
        int r, rc;

        r = file_connect(temporary, SQLITE_OPEN_READWRITE, &db, err);
        if (r < 0)
                return r;

        /* A copy that was not finished is thrown away. */
        rc = sqlite3_exec(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL);
        if (rc != SQLITE_OK)
                return file_error(db, rc, temporary, err);

        backup = sqlite3_backup_init(db, "main", source, "main");
        if (!backup)
                return file_error(db, sqlite3_extended_errcode(db), temporary, err);

        (void) sqlite3_backup_step(backup, -1);
        rc = sqlite3_backup_finish(backup);
        if (rc == SQLITE_OK)
                return 0;
        return file_error(db, rc, (rc & 0xff) == SQLITE_CORRUPT ? path : temporary, err);
}

int store_backup(const char *path, const char *target, HutchError *err) {
        _cleanup_(sqlite3_closep) sqlite3 *source = NULL;
        _cleanup_(string_builder_clear) StringBuilder temporary = {};
        _cleanup_close_ int fd = -1;
        int r;

        /* Before the work; what counts is the one at the end. */
        if (faccessat(AT_FDCWD, target, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return refuse_target(target, -EEXIST, err);

        r = open_source(path, &source, err);
        if (r < 0)
                return r;

        string_builder_appendf(&temporary, "%s.XXXXXX", target);
        fd = mkostemp(temporary.text, O_CLOEXEC); /* with mode 0600 */
        if (fd < 0)
                return refuse_target(target, -errno, err);

        r = copy(source, path, temporary.text, err);
        if (r >= 0) {
                r = fsync(fd) < 0 ? -errno : file_publish(temporary.text, target);
                if (r < 0)
                        (void) refuse_target(target, r, err);
        }
        if (r < 0)
                (void) unlink(temporary.text);
        return r;
}
