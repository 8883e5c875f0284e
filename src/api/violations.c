/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the list of what is wrong with a request. What does not: the rules (model, policy, the specs), and
 * how it travels (reply.c). */

#include "api/violations.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
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

/* Adds @description, which is taken over. */
static void add(Violations *violations, const char *field, Reason reason, char *description) {
        size_t above = violations->path_len;

        if (violations->n == VIOLATIONS_MAX) {
                free(description);
                return;
        }

        if (field)
                above = violations_enter(violations, field);
        violations->list[violations->n++] = (Violation){
                .field = xstrdup(violations->path),
                .reason = reason,
                .description = description,
        };
        violations_leave(violations, above);
}

void violations_add(Violations *violations, const char *field, Reason reason, const char *format, ...) {
        char description[256];
        va_list args;

        va_start(args, format);
        (void) vsnprintf(description, sizeof(description), format, args);
        va_end(args);

        if (reason_status_code(reason) == STATUS_INVALID_ARGUMENT) {
                add(violations, field, reason, xstrdup(description));
        } else if (violations->refusal.error == 0) {
                size_t above = field ? violations_enter(violations, field) : violations->path_len;

                (void) reason_set(&violations->refusal, -EINVAL, reason, "%s%s%s", violations->path,
                                  *violations->path ? ": " : "", description);
                error_add_pair(&violations->refusal, "field", "%s", violations->path);
                violations_leave(violations, above);
        }
}

int violations_note(Violations *violations, const char *field, int r) {
        HutchError *err = &violations->err;

        if (r >= 0)
                return r;

        if (err->code == STATUS_INVALID_ARGUMENT)
                add(violations, field, reason_from_name(err->reason), xstrdup(error_message(err)));
        else if (violations->refusal.error == 0) {
                violations->refusal = *err; /* taken over */
                *err = (HutchError){};
        }
        error_clear(err);
        return r;
}

int violations_result(const Violations *violations, HutchError *err) {
        const Violation *first = &violations->list[0];

        if (violations->n == 0) {
                const HutchError *refusal = &violations->refusal;

                if (refusal->error == 0)
                        return 0;
                (void) error_set_code(err, refusal->code, -refusal->error, refusal->reason, "%s",
                                      error_message(refusal));
                for (unsigned i = 0; i < refusal->n_pairs; i++)
                        error_add_pair(err, refusal->pairs[i].key, "%s", refusal->pairs[i].value);
                return -refusal->error;
        }

        if (violations->n == 1)
                return reason_set(err, -EINVAL, first->reason, "%s%s%s", first->field, *first->field ? ": " : "",
                                  first->description);
        return reason_set(err, -EINVAL, first->reason, "%s%s%s (and %zu more)", first->field, *first->field ? ": " : "",
                          first->description, violations->n - 1);
}

void violations_clear(Violations *violations) {
        for (size_t i = 0; i < violations->n; i++) {
                free(violations->list[i].field);
                free(violations->list[i].description);
        }
        error_clear(&violations->refusal);
        error_clear(&violations->err);
        *violations = (Violations){};
}
