/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which fields of a request are checked by which rule, before it is sent. What does not: the rules
 * (model, policy). */

#include "client/checks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "client/pairs.h"
#include "model/environment.h"
#include "model/ids.h"
#include "model/labels.h"
#include "model/selector.h"
#include "policy/path-rules.h"

#define SECRET_PREFIX "secret://"
#define KEY_SHOWN_MAX 64 /* bytes of a map's key in a field's name */

void checks_clear(Checks *checks) {
        for (size_t i = 0; i < checks->n; i++)
                error_clear(&checks->list[i].error);
        *checks = (Checks){};
}

/* What is wrong may be that it is not UTF-8; what tells so must be. */
static void make_utf8(char *text) {
        uint32_t code_point;

        while (text && *text) {
                size_t n = utf8_next(text, strlen(text), &code_point);

                if (n == 0)
                        *text = '?';
                text += n > 0 ? n : 1;
        }
}

/* Takes over @error when @r says that there is one. */
__attribute__((format(printf, 4, 5))) static void note(Checks *checks, int r, HutchError *error, const char *format,
                                                       ...) {
        Violated *violated = &checks->list[checks->n];
        va_list args;
        size_t len;

        if (r >= 0)
                return;
        if (error->code != STATUS_INVALID_ARGUMENT || checks->n == CHECKS_MAX) {
                checks->no_memory |= error->code != STATUS_INVALID_ARGUMENT; /* nothing else keeps a rule from it */
                error_clear(error);
                return;
        }

        checks->n++;
        len = (size_t) snprintf(violated->field, sizeof(violated->field), "%s", checks->above ? checks->above : "");
        va_start(args, format);
        (void) vsnprintf(violated->field + len, sizeof(violated->field) - len, format, args);
        va_end(args);
        violated->error = *error;
        *error = (HutchError){};
        make_utf8(violated->field);
        make_utf8(violated->error.message);
}

int checks_result(const Checks *checks, Failure *failure) {
        StatusViolation violations[CHECKS_MAX];
        const StatusDetails details = { .violations = violations, .n_violations = checks->n };
        const Violated *first = &checks->list[0];
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r;

        if (checks->no_memory)
                return -ENOMEM;
        if (checks->n == 0)
                return 0;

        for (size_t i = 0; i < checks->n; i++)
                violations[i] = (StatusViolation){
                        .field = checks->list[i].field,
                        .reason = checks->list[i].error.reason,
                        .description = error_message(&checks->list[i].error),
                };
        /* So they are kept as those of the daemon are. */
        r = status_details_encode(STATUS_INVALID_ARGUMENT, NULL, &details, &bytes, &len);
        if (r == 0)
                r = status_details_decode(bytes, len, &failure->details);
        if (r < 0)
                return r;

        if (checks->n > 1)
                return error_set(&failure->error, -EINVAL, first->error.reason, "%s: %s (and %zu more)", first->field,
                                 error_message(&first->error), checks->n - 1);
        return error_set(&failure->error, -EINVAL, first->error.reason, "%s: %s", first->field,
                         error_message(&first->error));
}

void checks_new_id(Checks *checks, const char *field, const char *id) {
        HutchError error = {};

        if (id && *id)
                note(checks, id_check(id, strlen(id), &error), &error, "%s", field);
}

void checks_required(Checks *checks, const char *field, const char *text) {
        HutchError error = {};

        if (!text || !*text)
                note(checks, error_set(&error, -EINVAL, "FIELD_REQUIRED", "the field is required"), &error, "%s",
                     field);
}

void checks_id(Checks *checks, const char *field, const char *id) {
        checks_required(checks, field, id);
        checks_new_id(checks, field, id);
}

void checks_element_id(Checks *checks, const char *list, size_t i, const char *id) {
        HutchError error = {};

        note(checks, id_check(id, strlen(id), &error), &error, "%s[%zu]", list, i);
}

void checks_request_id(Checks *checks, const char *id) {
        HutchError error = {};

        if (id && *id)
                note(checks, request_id_check(id, strlen(id), &error), &error, "request_id");
}

void checks_selector(Checks *checks, const char *text, bool may_be_empty) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        HutchError error = {};
        int r;

        if (!text)
                text = "";
        r = selector_parse(text, strlen(text), &selector, &error);
        if (r == 0 && !may_be_empty)
                r = selector_check_not_empty(selector, &error);
        note(checks, r, &error, "selector");
}

void checks_duration(Checks *checks, const char *field, uint64_t duration) {
        const Duration parts = {
                .seconds = (int64_t) (duration / NSEC_PER_SEC),
                .nanos = (int32_t) (duration % NSEC_PER_SEC),
        };
        HutchError error = {};

        note(checks, duration_check(parts, &error), &error, "%s", field);
}

void checks_pairs(Checks *checks, const char *field, const char *reason, const char *const *pairs) {
        for (size_t i = 0; pairs && pairs[i]; i++) {
                HutchError error = {};

                if (!strchr(pairs[i], '='))
                        note(checks, error_set(&error, -EINVAL, reason, "it has the form NAME=VALUE"), &error,
                             "%s[%.*s]", field, KEY_SHOWN_MAX, pairs[i]);
        }
}

static void check_labels(Checks *checks, const char *field, const Pair *const *labels, size_t n) {
        HutchError error = {};

        note(checks, label_count_check(n, &error), &error, "%s", field);
        for (size_t i = 0; i < n; i++) {
                const char *key = labels[i]->key, *value = labels[i]->value;

                note(checks, label_key_check_caller(key, strlen(key), &error), &error, "%s[%.*s]", field, KEY_SHOWN_MAX,
                     key);
                note(checks, label_value_check(value, strlen(value), &error), &error, "%s[%.*s]", field, KEY_SHOWN_MAX,
                     key);
        }
}

static void check_environment(Checks *checks, const char *field, const Pair *const *env, size_t n) {
        for (size_t i = 0; i < n; i++) {
                const char *key = env[i]->key, *value = env[i]->value;
                HutchError error = {};

                note(checks, env_name_check(key, strlen(key), &error), &error, "%s[%.*s]", field, KEY_SHOWN_MAX, key);
                if (!str_has_prefix(value, SECRET_PREFIX))
                        continue;
                value += strlen(SECRET_PREFIX);
                note(checks, name_check(value, strlen(value), &error), &error, "%s[%.*s]", field, KEY_SHOWN_MAX, key);
        }
}

static void check_directory(Checks *checks, const char *field, const char *path, const PathContext *context) {
        _cleanup_free_ char *resolved = NULL;
        HutchError error = {};

        if (*path)
                note(checks, path_resolve(path, strlen(path), context, &resolved, NULL, &error), &error, "%s", field);
}

void checks_path(Checks *checks, const char *field, const char *path) {
        _cleanup_free_ char *resolved = NULL;
        HutchError error = {};

        path = path ? path : "";
        note(checks,
             path_resolve(path, strlen(path), &(PathContext){ .working_directory = "/" }, &resolved, NULL, &error),
             &error, "%s", field);
}

void checks_mode(Checks *checks, const char *field, uint32_t mode) {
        HutchError error = {};

        if (mode > 0777)
                note(checks, error_set(&error, -EINVAL, "FIELD_INVALID", "a mode is 0 to 0777"), &error, "%s", field);
}

static void check_program(Checks *checks, const char *field, char *const *argv, size_t n) {
        HutchError error = {};

        if (n == 0 || !*argv[0])
                note(checks, error_set(&error, -EINVAL, "ARGV_EMPTY", "there is no program to run"), &error, "%s",
                     field);
}

void checks_sandbox_spec(Checks *checks, const Hutch__V1__SandboxSpec *spec) {
        if (spec->n_command > 0)
                check_program(checks, "spec.command", spec->command, spec->n_command);
        check_environment(checks, "spec.env", (const Pair *const *) spec->env, spec->n_env);
        check_labels(checks, "spec.labels", (const Pair *const *) spec->labels, spec->n_labels);
        check_directory(checks, "spec.working_directory", spec->working_directory,
                        &(PathContext){ .use = PATH_USE_ABSOLUTE });
}

void checks_exec_spec(Checks *checks, const Hutch__V1__ExecSpec *spec) {
        check_program(checks, "spec.argv", spec->argv, spec->n_argv);
        check_environment(checks, "spec.env", (const Pair *const *) spec->env, spec->n_env);
        check_directory(checks, "spec.working_directory", spec->working_directory,
                        &(PathContext){ .working_directory = "/" });
        for (size_t i = 0; i < spec->n_unset_env; i++) {
                const char *name = spec->unset_env[i];
                HutchError error = {};

                note(checks, env_name_check(name, strlen(name), &error), &error, "spec.unset_env[%zu]", i);
        }
}

void checks_once(Checks *checks, const Hutch__V1__ExecRequest *request) {
        checks_request_id(checks, request->request_id);
        check_program(checks, "argv", request->argv, request->n_argv);
        check_environment(checks, "env", (const Pair *const *) request->env, request->n_env);
        check_directory(checks, "working_directory", request->working_directory,
                        &(PathContext){ .working_directory = "/" });
        check_labels(checks, "labels", (const Pair *const *) request->labels, request->n_labels);
}
