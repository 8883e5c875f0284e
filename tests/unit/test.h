/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What every unit test includes, after the header it tests: cmocka, the cleanup attributes, and the reader of the
 * vectors in spec/vectors.
 *
 *         static void vectors_hold(void **state) {
 *                 VECTOR_FOREACH(v, "host-patterns.json") {
 *                         _cleanup_(host_pattern_freep) HostPattern *pattern = NULL;
 *                         _cleanup_(error_clear) HutchError err = {};
 *                         int r = host_pattern_parse(vector_string(v, "pattern"), &pattern, &err);
 *
 *                         if (!vector_assert_result(v, r, &err) || r < 0)
 *                                 continue;
 *                         vector_assert_bool(v, "covers", host_pattern_covers(pattern, vector_string(v, "name")));
 *                 }
 *         }
 *
 * A check that does not hold fails its case and goes on; the end of the loop fails the test, naming all cases that
 * failed. A case in which nothing was checked fails, as does a file without cases, and a loop left early.
 *
 * Files are sought in the folder that the environment variable HUTCH_VECTORS_DIR names, or else in the VECTORS_DIR that
 * the build defines. When HUTCH_CONFORMANCE_DIR is set, each case appends a line for each requirement it checks to
 * c-SUITE.tsv there: `REQUIREMENT<TAB>pass|fail<TAB>suite/case`. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"

/* Most tests have no use for the state that cmocka hands them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef struct Vector Vector; /* one case; valid until the loop goes on to the next */
typedef struct json_t json_t;

/* Runs the block that follows once for each case of @file. */
#define VECTOR_FOREACH(v, file) for (_cleanup_(vector_leave) Vector *v = vector_first(file); (v); (v) = vector_next(v))

Vector *vector_first(const char *file);
Vector *vector_next(Vector *v);
void vector_leave(Vector **v);

const char *vector_name(const Vector *v);

/* The input of the case: the members of its "in". One that is missing or of another type fails the test at once,
 * naming it. Ask vector_has() first for what may be missing; a boolean that is missing is false. */
bool vector_has(const Vector *v, const char *key);
const char *vector_string(const Vector *v, const char *key);                 /* without NUL bytes */
const char *vector_bytes(const Vector *v, const char *key, size_t *ret_len); /* @key, or @key with "_base64" */
int64_t vector_int(const Vector *v, const char *key);
bool vector_bool(const Vector *v, const char *key);

/* Raw JSON of a member of the case itself: "in", "out", "error" or "requires"; NULL when it has none. Borrowed. */
json_t *vector_json(const Vector *v, const char *member);

/* The reason of the error that the case expects; NULL when it expects a result. */
const char *vector_expects_error(const Vector *v);

/* Fails the case, saying @format, unless @condition holds. Returns @condition. */
bool vector_check(Vector *v, bool condition, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Holds when the case has "out" and @r is no error, or has "error" and @r is one, with the expected reason in @err. */
bool vector_assert_result(Vector *v, int r, const HutchError *err);

/* Compare with the members of "out"; NULL equals null. Bytes may stand under @key with "_base64". */
bool vector_assert_string(Vector *v, const char *key, const char *actual);
bool vector_assert_bytes(Vector *v, const char *key, const void *actual, size_t len);
bool vector_assert_int(Vector *v, const char *key, int64_t actual);
bool vector_assert_bool(Vector *v, const char *key, bool actual);
