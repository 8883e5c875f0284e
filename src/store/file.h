/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sqlite3.h>

#include "base/error.h"
#include "base/memory.h"

/* The store's file: making it, telling whether it is sound, and connecting to it. */

DEFINE_CLEANUP(sqlite3 *, sqlite3_close);

/* Connects to @path, with the SQLITE_OPEN_ flags @flags. SQLite reads nothing of it yet. */
int file_connect(const char *path, int flags, sqlite3 **ret_db, HutchError *err) __attribute__((nonnull(1, 3)));

/* Connects to the store at @path for reading and writing, after having made it, or checked it and brought its schema up
 * to date. As store_open(). */
int file_open(const char *path, sqlite3 **ret_db, HutchError *err) __attribute__((nonnull(1, 2)));

/* As sqlite_error(), for those who named @path: damage is told with what to do about that file. */
int file_error(sqlite3 *db, int rc, const char *path, HutchError *err) __attribute__((nonnull(1, 3)));

/* An integer that "PRAGMA name" tells. Returns an SQLite result code. */
int file_pragma(sqlite3 *db, const char *pragma, int64_t *ret_value) __attribute__((nonnull));

/* Gives the finished file @temporary the name @path, durably. -EEXIST: that is taken, and both stay as they are. */
int file_publish(const char *temporary, const char *path) __attribute__((nonnull));
