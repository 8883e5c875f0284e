/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/reason.h"

/* What is wrong with a request: every violated field, with its path, its reason and a sentence.
 *
 *         _cleanup_(violations_clear) Violations violations = {};
 *         size_t above = violations_enter(&violations, "spec");
 *
 *         violations_note(&violations, "user", user_check(spec->user, &violations.err));
 *         violations_add(&violations, "image", REASON_FIELD_TOO_LONG, "an image's name has at most 512 bytes");
 *         violations_leave(&violations, above);
 *
 *         r = violations_result(&violations, err);
 *
 * Reasons that are no INVALID_ARGUMENT do not speak of a field: the first of them is kept as what the request is
 * refused with when nothing is violated. */

#define VIOLATIONS_MAX 64 /* more are counted, and not kept */
#define FIELD_PATH_MAX 255

typedef struct Violation {
        char *field;
        Reason reason;
        char *description;
} Violation;

typedef struct Violations {
        Violation list[VIOLATIONS_MAX];
        size_t n;       /* of all, also of those that are not kept */
        size_t n_texts; /* the first ones, of texts that cannot be read: nothing else is said of these fields */
        HutchError refusal;
        ErrorPair pairs[ERROR_PAIRS_MAX]; /* of the first violation */
        unsigned n_pairs;
        HutchError err; /* scratch, for violations_note() */
        char path[FIELD_PATH_MAX + 1];
        size_t path_len;
} Violations;

/* Goes down to a field, an element of a list, or a member of a map. Returns where to come back to. */
size_t violations_enter(Violations *violations, const char *name) __attribute__((nonnull));
size_t violations_enter_element(Violations *violations, const char *name, size_t index) __attribute__((nonnull));
size_t violations_enter_member(Violations *violations, const char *name, const char *key, size_t key_len)
        __attribute__((nonnull(1, 2)));
void violations_leave(Violations *violations, size_t above) __attribute__((nonnull));

/* Adds a violation of @field below where we are; NULL: of where we are. */
void violations_add(Violations *violations, const char *field, Reason reason, const char *format, ...)
        __attribute__((format(printf, 4, 5), nonnull(1, 4)));

/* The same of a limit that was passed: the error tells its name and value, too. */
void violations_add_limit(Violations *violations, const char *field, Reason reason, const char *limit, uint64_t value,
                          const char *format, ...) __attribute__((format(printf, 6, 7), nonnull(1, 4, 6)));

/* The same with what @violations.err says, when @r is negative. Returns @r. */
int violations_note(Violations *violations, const char *field, int r) __attribute__((nonnull(1)));

/* How many are in the list. */
size_t violations_kept(const Violations *violations) __attribute__((nonnull));

/* 0 when the request may go on; else sets @err to the first violation, and how many more there are, or to the
 * refusal. */
int violations_result(const Violations *violations, HutchError *err) __attribute__((nonnull(1)));

void violations_clear(Violations *violations) __attribute__((nonnull));
