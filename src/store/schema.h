/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sqlite3.h>
#include <stddef.h>

/* The tables of a store, as the scripts that make them. Script n brings a store from version n to version n + 1, which
 * is SQLite's `user_version`; a new store gets them all. A script that was ever released does not change. */

#define SCHEMA_APPLICATION_ID 0x68746368 /* "htch"; tells our files from other SQLite files */

extern const char *const schema_scripts[];
extern const size_t schema_scripts_n; /* the version that this program knows */

/* Runs those of the @n scripts that the database at @version lacks, each in a transaction of its own, so that it stands
 * at a version in between when one fails. Returns an SQLite result code. */
int schema_migrate(sqlite3 *db, const char *const scripts[], size_t n, size_t version) __attribute__((nonnull));
