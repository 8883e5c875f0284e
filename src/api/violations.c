/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the list of what is wrong with a request. What does not: the rules (model, policy, the specs), and
 * how it travels (request.c). */

#include "api/violations.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "base/utf8.h"

#define KEY_SHOWN_MAX 64 /* bytes of a map's key in a path */

/* Appends to the path; what does not fit is cut between characters. */
__attribute__((format(printf, 2, 3))) static size_t path_append(Violations *violations, const char *format, ...) {
        size_t above = violations->path_len, room = FIELD_PATH_MAX + 1 - above;
        va_list args;
        int len;

        va_start(args, format);
        len = vsnprintf(violations->path + above, room, format, args);
        va_end(args);

        violations->path_len += len < 0 ? 0 : (size_t) len < room ? (size_t) len : room - 1;
        while (violations->path_len > above && !utf8_valid(violations->path + above, violations->path_len - above))
                violations->path_len--;
        violations->path[violations->path_len] = '\0';
        return above;
}

static const char *separator(const Violations *violations) {
        return violations->path_len > 0 ? "." : "";
}

size_t violations_enter(Violations *violations, const char *name) {
        return path_append(violations, "%s%s", separator(violations), name);
}

size_t violations_enter_element(Violations *violations, const char *name, size_t index) {
        return path_append(violations, "%s%s[%zu]", separator(violations), name, index);
}

size_t violations_enter_member(Violations *violations, const char *name, const char *key, size_t key_len) {
        size_t shown = key_len < KEY_SHOWN_MAX ? key_len : KEY_SHOWN_MAX;

        while (shown > 0 && !utf8_valid(key, shown))
                shown--;
        return path_append(violations, "%s%s[%.*s%s]", separator(violations), name, (int) shown, shown ? key : "",
                           shown < key_len ? "…" : "");
}

void violations_leave(Violations *violations, size_t above) {
        violations->path_len = above;
        violations->path[above] = '\0';
}

size_t violations_kept(const Violations *violations) {
        return violations->n < VIOLATIONS_MAX ? violations->n : VIOLATIONS_MAX;
}

/* Whether the text of the field where we are cannot be read: what it says does not count. */
static bool is_unreadable(const Violations *violations) {
        size_t n = violations->n_texts < VIOLATIONS_MAX ? violations->n_texts : VIOLATIONS_MAX;

        for (size_t i = 0; i < n; i++)
                if (str_equal(violations->list[i].field, violations->path))
                        return true;
        return false;
}

/* Adds a violation of where we are, as @err says it. */
static void add(Violations *violations, const HutchError *err) {
        if (is_unreadable(violations))
                return;

        if (violations->n == 0) {
                memcpy(violations->pairs, err->pairs, sizeof(violations->pairs));
                violations->n_pairs = err->n_pairs;
        }
        if (violations->n < VIOLATIONS_MAX)
                violations->list[violations->n] = (Violation){
                        .field = xstrdup(violations->path),
                        .reason = reason_from_name(err->reason),
                        .description = xstrdup(error_message(err)),
                };
        violations->n++;
}

/* Keeps @err, which is taken over, unless there is a refusal already. */
static void refuse(Violations *violations, HutchError *err) {
        if (violations->refusal.error != 0)
                return;

        violations->refusal = *err;
        *err = (HutchError){};
}

int violations_note(Violations *violations, const char *field, int r) {
        HutchError *err = &violations->err;
        size_t above = violations->path_len;

        if (r >= 0)
                return r;

        if (field)
                (void) violations_enter(violations, field);
        if (err->code == STATUS_INVALID_ARGUMENT)
                add(violations, err);
        else
                refuse(violations, err);
        violations_leave(violations, above);
        error_clear(err);
        return r;
}

/* Adds a violation, or a refusal that names the field as well. @limit may be NULL. */
__attribute__((format(printf, 6, 0))) static void add_described(Violations *violations, const char *field,
                                                                Reason reason, const char *limit, uint64_t value,
                                                                const char *format, va_list args) {
        HutchError *err = &violations->err;
        size_t above = violations->path_len;
        char description[ERROR_MESSAGE_MAX];

        (void) vsnprintf(description, sizeof(description), format, args);
        if (field)
                (void) violations_enter(violations, field);
        if (reason_status_code(reason) == STATUS_INVALID_ARGUMENT)
                (void) reason_set(err, -EINVAL, reason, "%s", description);
        else
                (void) reason_set(err, -EINVAL, reason, "%s%s%s", violations->path, *violations->path ? ": " : "",
                                  description);
        if (limit)
                (void) reason_add_limit(err, limit, value, -EINVAL);
        else if (err->code != STATUS_INVALID_ARGUMENT)
                error_add_pair(err, "field", "%s", violations->path);
        (void) violations_note(violations, NULL, -EINVAL);
        violations_leave(violations, above);
}

void violations_add(Violations *violations, const char *field, Reason reason, const char *format, ...) {
        va_list args;

        va_start(args, format);
        add_described(violations, field, reason, NULL, 0, format, args);
        va_end(args);
}

void violations_add_limit(Violations *violations, const char *field, Reason reason, const char *limit, uint64_t value,
                          const char *format, ...) {
        va_list args;

        va_start(args, format);
        add_described(violations, field, reason, limit, value, format, args);
        va_end(args);
}

static void add_pairs(HutchError *err, const ErrorPair pairs[], unsigned n) {
        for (unsigned i = 0; i < n; i++)
                error_add_pair(err, pairs[i].key, "%s", pairs[i].value);
}

int violations_result(const Violations *violations, HutchError *err) {
        const HutchError *refusal = &violations->refusal;
        const Violation *first = &violations->list[0];

        if (violations->n == 0) {
                if (refusal->error == 0)
                        return 0;
                (void) error_set_code(err, refusal->code, -refusal->error, refusal->reason, "%s",
                                      error_message(refusal));
                add_pairs(err, refusal->pairs, refusal->n_pairs);
                return -refusal->error;
        }

        if (violations->n == 1)
                (void) reason_set(err, -EINVAL, first->reason, "%s%s%s", first->field, *first->field ? ": " : "",
                                  first->description);
        else
                (void) reason_set(err, -EINVAL, first->reason, "%s%s%s (and %zu more)", first->field,
                                  *first->field ? ": " : "", first->description, violations->n - 1);
        add_pairs(err, violations->pairs, violations->n_pairs);
        return -EINVAL;
}

void violations_clear(Violations *violations) {
        for (size_t i = 0; i < violations_kept(violations); i++) {
                free(violations->list[i].field);
                free(violations->list[i].description);
        }
        error_clear(&violations->refusal);
        error_clear(&violations->err);
        *violations = (Violations){};
}
