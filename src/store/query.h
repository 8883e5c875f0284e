/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/reason.h"
#include "store/statements.h"
#include "store/store.h"

/* One run of a prepared statement. Parameters are bound one after the other, and columns are read one after the other;
 * what goes wrong on the way is told at the end:
 *
 *         _cleanup_(query_end) Query query = query_start(store, STATEMENT_FACT_GET);
 *         query_bind_text(&query, name);
 *         r = query_step(&query, err);           1: a row, 0: no more
 *         text = query_read_text(&query, FACT_LEN_MAX);
 *         r = query_check_row(&query, err);      before anything of the row is trusted
 *
 * Runs of the same statement may be nested. */

struct Store {
        sqlite3 *db;
        sqlite3_stmt *statements[STATEMENTS_N]; /* NULL: it is running */
        bool in_transaction;
        bool is_unsynced;   /* something was committed that may not be on the disk */
        HutchError failure; /* of the first write since the last commit that failed */
};

#define QUERY_NAME_MAX 64 /* bytes of the name of a state, type or reason */

typedef struct Query {
        Store *store;
        Statement statement;
        sqlite3_stmt *prepared;
        int rc;         /* of what was bound */
        int n_bound;    /* parameters */
        int n_read;     /* columns of the row */
        bool is_broken; /* a column of the row is not what was ever written */
} Query;

/* Makes an error of the SQLite result code @rc, and returns its negative errno. Clients may see it: it names no
 * file. */
int sqlite_error(sqlite3 *db, int rc, HutchError *err) __attribute__((nonnull(1)));

Query query_start(Store *store, Statement statement) __attribute__((nonnull));
void query_end(Query *query) __attribute__((nonnull));

/* What is bound stays the caller's, unchanged until the query ends. NULL is bound as NULL, bytes without length as
 * empty ones. An ordinal is what rows are ordered by: serials, cursors, times. */
void query_bind_text(Query *query, const char *text) __attribute__((nonnull(1)));
void query_bind_bytes(Query *query, const void *bytes, size_t len) __attribute__((nonnull(1)));
void query_bind_null(Query *query) __attribute__((nonnull));
void query_bind_int(Query *query, int64_t value) __attribute__((nonnull));
void query_bind_uint(Query *query, uint64_t value) __attribute__((nonnull));
void query_bind_ordinal(Query *query, uint64_t value) __attribute__((nonnull)); /* at most INT64_MAX, else that */

/* Goes to the next row: 1, or 0 when there is none. */
int query_step(Query *query, HutchError *err) __attribute__((nonnull(1)));

/* Runs a statement that writes, within the transaction, which it begins if need be. Returns how many rows changed. */
int query_write(Query *query, HutchError *err) __attribute__((nonnull(1)));

/* Read the next column. What it cannot be is remembered for query_check_row(), and is empty or 0. Texts and bytes are
 * valid until the next step. */
const char *query_read_text(Query *query, size_t max_len) __attribute__((nonnull, returns_nonnull));
const char *query_read_text_or_null(Query *query, size_t max_len) __attribute__((nonnull));
void query_copy_text(Query *query, char *buffer, size_t size) __attribute__((nonnull));
void query_copy_id(Query *query, char *buffer) __attribute__((nonnull)); /* ID_LEN_MAX + 1 bytes */
const uint8_t *query_read_bytes(Query *query, size_t *ret_len) __attribute__((nonnull));
const uint8_t *query_read_bytes_or_null(Query *query, size_t *ret_len) __attribute__((nonnull));
int64_t query_read_int(Query *query, int64_t min, int64_t max) __attribute__((nonnull));
bool query_next_is_null(Query *query) __attribute__((nonnull)); /* reads nothing unless it is */
uint64_t query_read_uint(Query *query) __attribute__((nonnull));
uint64_t query_read_ordinal(Query *query) __attribute__((nonnull));
bool query_read_bool(Query *query) __attribute__((nonnull));

Reason query_read_reason(Query *query) __attribute__((nonnull)); /* NULL: REASON_UNSPECIFIED */

/* The meaning of a word, as one of the model's functions tells it, sandbox_state_from_name() for instance; 0 for NULL,
 * where there may be none. To the compiler an enumeration is as good as an unsigned. */
typedef int (*WordFromName)(const char *name, unsigned *ret_word);
unsigned query_read_word(Query *query, WordFromName from_name) __attribute__((nonnull));
unsigned query_read_word_or_null(Query *query, WordFromName from_name) __attribute__((nonnull));

/* -EBADMSG when anything in the row was not as it must be. */
int query_check_row(Query *query, HutchError *err) __attribute__((nonnull(1)));

/* The number that a statement without parameters tells in its one row. */
int query_number(Store *store, Statement statement, uint64_t *ret_number, HutchError *err)
        __attribute__((nonnull(1, 3)));
