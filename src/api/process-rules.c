/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: rules for what processes are started with, applied to messages. What does not: the rules for single
 * names and values (model). */

#include "api/process-rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "model/ids.h"

#define SECRET_PREFIX "secret://"
#define USER_PART_MAX 64
#define UID_MAX_VALUE UINT64_C(4294967294)

_Static_assert(sizeof(MapEntry) == sizeof(Hutch__V1__SandboxSpec__EnvEntry) &&
                       offsetof(MapEntry, value) == offsetof(Hutch__V1__SandboxSpec__EnvEntry, value) &&
                       offsetof(MapEntry, value) == offsetof(Hutch__V1__SandboxSpec__LabelsEntry, value) &&
                       offsetof(MapEntry, value) == offsetof(Hutch__V1__ExecSpec__EnvEntry, value),
               "maps have entries of one shape");

void check_arguments(char *const arguments[], size_t n, const char *field, Violations *violations) {
        if (n == 0) {
                violations_add(violations, field, REASON_ARGV_EMPTY, "there is no program to run");
        } else if (!*arguments[0]) {
                size_t above = violations_enter_element(violations, field, 0);

                violations_add(violations, NULL, REASON_ARGV_EMPTY, "the program to run has no name");
                violations_leave(violations, above);
        }
}

static void check_secret(const char *value, Violations *violations) {
        const char *name = value + strlen(SECRET_PREFIX);

        if (violations_note(violations, NULL, name_check(name, strlen(name), &violations->err)) == 0)
                violations_add(violations, NULL, REASON_FEATURE_UNSUPPORTED, "this daemon has no secrets");
}

void check_environment(MapEntry *const entries[], size_t n, const char *field, Violations *violations) {
        for (size_t i = 0; i < n; i++) {
                const MapEntry *entry = entries[i];
                size_t above = violations_enter_member(violations, field, entry->key, strlen(entry->key));

                (void) violations_note(violations, NULL,
                                       env_name_check(entry->key, strlen(entry->key), &violations->err));
                (void) violations_note(violations, NULL,
                                       env_value_check(entry->value, strlen(entry->value), &violations->err));
                if (str_has_prefix(entry->value, SECRET_PREFIX))
                        check_secret(entry->value, violations);
                violations_leave(violations, above);
        }
}

static void refuse_size(const char *limit, size_t value, Violations *violations) {
        violations_add_limit(violations, NULL, REASON_ARGUMENTS_TOO_LARGE, limit, value,
                             "arguments and environment are too large: one has at most %d bytes, all of them %d",
                             ARGUMENT_LEN_MAX, ARGUMENTS_SIZE_MAX);
}

void check_arguments_size(char *const arguments[], size_t n_arguments, MapEntry *const entries[], size_t n_entries,
                          Violations *violations) {
        size_t total = 0, largest = 0;

        for (size_t i = 0; i < n_arguments; i++) {
                size_t len = strlen(arguments[i]);

                total += len + 1;
                largest = len > largest ? len : largest;
        }
        for (size_t i = 0; i < n_entries; i++) {
                size_t len = strlen(entries[i]->key) + 1 + strlen(entries[i]->value);

                total += len + 1;
                largest = len > largest ? len : largest;
        }

        if (largest > ARGUMENT_LEN_MAX)
                refuse_size("argument_bytes", ARGUMENT_LEN_MAX, violations);
        else if (total > ARGUMENTS_SIZE_MAX)
                refuse_size("arguments_bytes", ARGUMENTS_SIZE_MAX, violations);
}

/* A number that is a uid or gid, or a name. */
static bool is_user_part(const char *text, size_t len) {
        uint64_t number = 0;
        size_t n_digits = 0;

        if (len < 1 || len > USER_PART_MAX || text[0] == '-')
                return false;

        for (size_t i = 0; i < len; i++) {
                char c = text[i];

                if (!ascii_is_alnum(c) && c != '_' && c != '-' && c != '.' && c != '$')
                        return false;
                if (ascii_is_digit(c) && number <= UID_MAX_VALUE) {
                        number = number * 10 + (uint64_t) (c - '0');
                        n_digits++;
                }
        }

        return n_digits < len || number <= UID_MAX_VALUE;
}

void check_user(const char *user, const char *field, Violations *violations) {
        const char *colon = strchr(user, ':');
        size_t len = colon ? (size_t) (colon - user) : strlen(user);

        if (!*user || (is_user_part(user, len) && (!colon || is_user_part(colon + 1, strlen(colon + 1)))))
                return;

        violations_add(violations, field, REASON_FIELD_INVALID,
                       "a user is a name, a uid or a uid and a gid with ':' between them");
}

void check_labels(MapEntry *const entries[], size_t n, const char *field, Violations *violations) {
        (void) violations_note(violations, field, label_count_check(n, &violations->err));

        for (size_t i = 0; i < n; i++) {
                const MapEntry *entry = entries[i];
                size_t above = violations_enter_member(violations, field, entry->key, strlen(entry->key));

                if (utf8_valid(entry->key, strlen(entry->key))) /* else it was told */
                        (void) violations_note(
                                violations, NULL,
                                label_key_check_caller(entry->key, strlen(entry->key), &violations->err));
                (void) violations_note(violations, NULL,
                                       label_value_check(entry->value, strlen(entry->value), &violations->err));
                violations_leave(violations, above);
        }
}

char **copy_texts(char *const texts[], size_t n) {
        char **copy = n > 0 ? new0(char *, n + 1) : NULL;

        for (size_t i = 0; i < n; i++)
                copy[i] = xstrdup(texts[i]);
        return copy;
}

EnvVariable *copy_environment(MapEntry *const entries[], size_t n) {
        EnvVariable *copy = n > 0 ? new0(EnvVariable, n) : NULL;

        for (size_t i = 0; i < n; i++)
                copy[i] = (EnvVariable){ xstrdup(entries[i]->key), xstrdup(entries[i]->value) };
        return copy;
}

Label *copy_labels(MapEntry *const entries[], size_t n) {
        Label *copy = n > 0 ? new0(Label, n) : NULL;

        for (size_t i = 0; i < n; i++)
                copy[i] = (Label){ xstrdup(entries[i]->key), xstrdup(entries[i]->value) };
        return copy;
}
