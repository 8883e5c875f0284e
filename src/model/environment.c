/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules for environments and their merging. What does not: what is in the layers (control), and
 * resolving secrets (keeper). */

#include "model/environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "model/reason.h"

/* C0, DEL and C1: as in paths. Bytes that are not UTF-8 are no characters at all. */
static bool has_control_character(const char *text, size_t len) {
        for (size_t i = 0, step; i < len; i += step) {
                uint32_t c;

                step = utf8_next(text + i, len - i, &c);
                if (step == 0)
                        step = 1;
                else if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
                        return true;
        }

        return false;
}

int env_name_check(const char *name, size_t len, HutchError *err) {
        if (len >= 1 && len <= ENV_NAME_LEN_MAX && !memchr(name, '=', len) && !has_control_character(name, len))
                return 0;

        return reason_set(err, -EINVAL, REASON_ENV_NAME_MALFORMED,
                          "the name of an environment variable has 1 to %d bytes, without '=' and control characters",
                          ENV_NAME_LEN_MAX);
}

int env_value_check(const char *value, size_t len, HutchError *err) {
        if (!memchr(value, '\0', len))
                return 0;

        return reason_set(err, -EINVAL, REASON_ENV_VALUE_MALFORMED,
                          "the value of an environment variable contains no NUL");
}

/* Counts @len bytes and their NUL into @size. */
static int count_argument(size_t len, size_t *size, HutchError *err) {
        if (len > ARGUMENT_LEN_MAX)
                return reason_add_limit(
                        err, "argument_bytes", ARGUMENT_LEN_MAX,
                        reason_set(err, -E2BIG, REASON_ARGUMENTS_TOO_LARGE,
                                   "an argument or environment variable of %zu bytes is too large: at most %d", len,
                                   ARGUMENT_LEN_MAX));

        *size += len + 1;
        if (*size > ARGUMENTS_SIZE_MAX)
                return reason_add_limit(err, "arguments_bytes", ARGUMENTS_SIZE_MAX,
                                        reason_set(err, -E2BIG, REASON_ARGUMENTS_TOO_LARGE,
                                                   "arguments and environment are too large: at most %d bytes in all",
                                                   ARGUMENTS_SIZE_MAX));

        return 0;
}

int arguments_check_size(char *const argv[], char *const environment[], HutchError *err) {
        char *const *const lists[] = { argv, environment };
        size_t size = 0;
        int r;

        for (size_t i = 0; i < 2; i++)
                for (char *const *argument = lists[i]; *argument; argument++) {
                        r = count_argument(strlen(*argument), &size, err);
                        if (r < 0)
                                return r;
                }

        return 0;
}

/* What the layers, and then @unset, say about one name. */
typedef struct Change {
        const char *name;
        const char *value; /* NULL: unset */
        size_t order;      /* later ones win */
} Change;

static int change_compare(const void *a, const void *b) {
        const Change *x = a, *y = b;
        int by_name = strcmp(x->name, y->name);

        return by_name != 0 ? by_name : (x->order > y->order) - (x->order < y->order);
}

/* Keeps of the changes, which are in order, those that last; returns how many. */
static size_t changes_settle(Change changes[], size_t n_changes) {
        size_t n_kept = 0;

        for (size_t i = 0; i < n_changes; i++) {
                bool overridden = i + 1 < n_changes && strcmp(changes[i].name, changes[i + 1].name) == 0;

                if (!overridden && changes[i].value)
                        changes[n_kept++] = changes[i];
        }

        return n_kept;
}

/* Lists the layers and @unset in the order in which they apply. */
static void changes_collect(Change changes[], const EnvLayer layers[], size_t n_layers, const char *const unset[],
                            size_t n_unset) {
        size_t n = 0;

        for (size_t i = 0; i < n_layers; i++)
                for (size_t j = 0; j < layers[i].n_variables; j++, n++)
                        changes[n] = (Change){ layers[i].variables[j].name, layers[i].variables[j].value, n };

        for (size_t i = 0; i < n_unset; i++, n++)
                changes[n] = (Change){ unset[i], NULL, n };
}

/* Writes NAME=VALUE of each change behind the list of pointers to them. */
static int changes_write(const Change changes[], size_t n_changes, char ***ret_environment, HutchError *err) {
        size_t size = 0;
        char **environment, *next;
        int r;

        for (size_t i = 0; i < n_changes; i++) {
                r = count_argument(strlen(changes[i].name) + 1 + strlen(changes[i].value), &size, err);
                if (r < 0)
                        return r;
        }

        environment = malloc((n_changes + 1) * sizeof(char *) + size);
        if (!environment)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "out of memory");

        next = (char *) (environment + n_changes + 1);
        for (size_t i = 0; i < n_changes; i++) {
                environment[i] = next;
                next = stpcpy(stpcpy(stpcpy(next, changes[i].name), "="), changes[i].value) + 1;
        }

        environment[n_changes] = NULL;
        *ret_environment = environment;
        return 0;
}

int environment_merge(const EnvLayer layers[], size_t n_layers, const char *const unset[], size_t n_unset,
                      char ***ret_environment, HutchError *err) {
        _cleanup_free_ Change *changes = NULL;
        size_t n_changes = n_unset;

        for (size_t i = 0; i < n_layers; i++)
                n_changes += layers[i].n_variables;

        changes = try_new0(Change, n_changes + 1);
        if (!changes)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "out of memory");

        changes_collect(changes, layers, n_layers, unset, n_unset);
        qsort(changes, n_changes, sizeof(Change), change_compare);
        n_changes = changes_settle(changes, n_changes);

        return changes_write(changes, n_changes, ret_environment, err);
}

void env_variables_free(EnvVariable *variables, size_t n_variables) {
        for (size_t i = 0; i < n_variables; i++) {
                free((char *) variables[i].name);
                free((char *) variables[i].value);
        }
        free(variables);
}
