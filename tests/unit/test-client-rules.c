/* SPDX-License-Identifier: Apache-2.0 */

/* The rules that bind clients, as far as callers of libhutch can see them: what is malformed is refused before anything
 * is sent, with the reason and the field; what is well formed is not refused. Nobody listens here, and the time is up
 * before anybody could. */

#include <errno.h>
#include <hutch/hutch.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/strings.h"

#include "test.h"

static const char *const run_true[] = { "true", NULL };

static int set_up(void **state) {
        const HutchClientOptions options = { .address = "unix:/nonexistent/socket", .timeout = 1 };
        HutchClient *client = NULL;

        assert_int_equal(hutch_client_new(&options, &client, NULL), 0);
        *state = client;
        return 0;
}

static int tear_down(void **state) {
        hutch_client_free(*state);
        return 0;
}

/* Checks that a call ended with @error as the case expects: with its reason in @field, or because nobody listens. */
static void check(Vector *v, HutchError *error, const char *field) {
        const char *expected = vector_expects_error(v);
        HutchViolation violation = {};

        if (!vector_check(v, error, "it was no error")) {
                return;
        } else if (!expected) {
                vector_check(v, !hutch_error_violation(error, 0, &violation), "refused: %s",
                             hutch_error_message(error));
        } else {
                vector_check(v, str_equal(hutch_error_reason(error), expected), "the reason is %s",
                             hutch_error_reason(error));
                vector_check(v, hutch_error_code(error) == HUTCH_INVALID_ARGUMENT, "the code is %s",
                             hutch_error_code_name(error));
                vector_check(v, hutch_error_violation(error, 0, &violation) && str_equal(violation.field, field),
                             "the field is %s", violation.field);
        }
        hutch_error_free(error);
}

/* Texts in C have no NUL: what has one cannot be given. */
static bool can_be_given(Vector *v, const char *text, size_t len) {
        return !memchr(text, '\0', len) ||
               !vector_check(v, vector_expects_error(v), "a NUL is expected to be accepted");
}

static void ids_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "ids.json") {
                const char *kind = vector_string(v, "kind");
                HutchError *error = NULL;
                size_t len;
                const char *text = vector_bytes(v, "text", &len);

                /* An empty request id is one that is made; names are in no request of this library. */
                if (str_equal(kind, "name") || (str_equal(kind, "request-id") && len == 0) ||
                    !can_be_given(v, text, len)) {
                        vector_check(v, true, "-");
                        continue;
                }
                if (str_equal(kind, "id") && len == 0) {
                        (void) hutch_sandbox_get(*state, text, NULL, &error);
                        vector_check(v, str_equal(hutch_error_reason(error), "FIELD_REQUIRED"), "not required");
                        hutch_error_free(error);
                } else if (str_equal(kind, "id")) {
                        (void) hutch_sandbox_get(*state, text, NULL, &error);
                        check(v, error, "sandbox_id");
                } else {
                        (void) hutch_sandbox_create(*state, &(HutchSandboxSpec){ .request_id = text }, NULL, &error);
                        check(v, error, "request_id");
                }
        }
}

/* "KEY=VALUE", and the field's name with the key in it. */
static void make_pair(const char *key, const char *value, const char *field, char **ret_pair, char **ret_field) {
        assert_true(asprintf(ret_pair, "%s=%s", key, value) >= 0);
        assert_true(asprintf(ret_field, "%s[%.64s]", field, key) >= 0);
}

static void labels_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "labels.json") {
                _cleanup_free_ char *pair = NULL, *field = NULL;
                HutchError *error = NULL;
                size_t key_len, value_len;
                const char *key = vector_bytes(v, "key", &key_len), *value = vector_bytes(v, "value", &value_len);

                /* The name of a pair ends at its first '='. */
                if (memchr(key, '=', key_len) || !can_be_given(v, key, key_len) || !can_be_given(v, value, value_len)) {
                        vector_check(v, vector_expects_error(v), "-");
                        continue;
                }
                make_pair(key, value, "spec.labels", &pair, &field);
                (void) hutch_sandbox_set_labels(*state, "sandbox-0", (const char *const[]){ pair, NULL }, NULL, &error);
                if (vector_has(v, "key_base64")) {
                        vector_check(v, str_equal(hutch_error_reason(error), vector_expects_error(v)), "not refused");
                        hutch_error_free(error);
                } else {
                        check(v, error, field);
                }
        }
}

static int ignore(const HutchSandbox *sandbox, void *user) {
        (void) sandbox, (void) user;
        return 0;
}

static void selectors_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "selectors.json") {
                HutchError *error = NULL;
                size_t len;
                const char *text = vector_bytes(v, "selector", &len);

                if (!can_be_given(v, text, len)) {
                        vector_check(v, true, "-");
                        continue;
                }
                (void) hutch_sandbox_list(*state, text, 0, ignore, NULL, &error);
                check(v, error, "selector");
        }
}

static void paths_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "paths.json") {
                const char *use = vector_has(v, "use") ? vector_string(v, "use") : "any";
                HutchError *error = NULL;
                size_t len;
                const char *text = vector_bytes(v, "path", &len);

                /* Working directories are the only paths here: an empty one is none, none is removed, and relative ones
                 * stand below the sandbox's, which only the daemon knows. */
                if (len == 0 || str_equal(use, "remove") || vector_has(v, "working_directory") ||
                    (text[0] != '/' && len > 4000) || !can_be_given(v, text, len)) {
                        vector_check(v, true, "-");
                        continue;
                }
                if (str_equal(use, "absolute"))
                        (void) hutch_sandbox_create(*state, &(HutchSandboxSpec){ .working_directory = text }, NULL,
                                                    &error);
                else
                        (void) hutch_exec_create(*state, "sandbox-0",
                                                 &(HutchExecSpec){ .argv = run_true, .working_directory = text }, NULL,
                                                 &error);
                check(v, error, "spec.working_directory");
        }
}

static void env_vectors_hold(void **state) {
        VECTOR_FOREACH(v, "env.json") {
                json_t *in = vector_json(v, "in"), *layers = json_object_get(in, "layers");
                json_t *unset = json_object_get(in, "unset"), *value;
                const char *texts[64] = {}, *unset_env[64] = {}, *key;
                size_t n_texts = 0, i, j;
                bool can = true;
                json_t *layer;
                HutchError *error = NULL;

                json_array_foreach(layers, i, layer) json_object_foreach(layer, key, value) {
                        char *text = NULL;

                        can &= !strchr(key, '=') && strlen(json_string_value(value)) == json_string_length(value);
                        assert_true(asprintf(&text, "%s=%s", key, json_string_value(value)) >= 0);
                        if (n_texts < 63)
                                texts[n_texts++] = text;
                        else
                                free(text);
                }
                json_array_foreach(unset, j, value) if (j < 63) unset_env[j] = json_string_value(value);

                /* As above. How layers become one is the daemon's business; all are of one here. */
                if (can)
                        (void) hutch_exec_create(
                                *state, "sandbox-0",
                                &(HutchExecSpec){ .argv = run_true, .env = texts, .unset_env = unset_env }, NULL,
                                &error);
                if (!can || !vector_expects_error(v))
                        vector_check(v,
                                     !error || hutch_error_code(error) != HUTCH_INVALID_ARGUMENT ||
                                             vector_expects_error(v),
                                     "refused: %s", hutch_error_message(error));
                else if (str_equal(vector_expects_error(v), "ARGUMENTS_TOO_LARGE"))
                        vector_check(v, true, "-"); /* the daemon's */
                else
                        vector_check(v, str_equal(hutch_error_reason(error), vector_expects_error(v)),
                                     "the reason is %s", hutch_error_reason(error));
                hutch_error_free(error);
                for (i = 0; i < n_texts; i++)
                        free((char *) texts[i]);
        }
}

/* Expects that a call was refused for @reason in @field, and frees @error. */
static void assert_refused(HutchError *error, const char *reason, const char *field) {
        HutchViolation violation;

        assert_non_null(error);
        assert_string_equal(hutch_error_reason(error), reason);
        assert_int_equal(hutch_error_code(error), HUTCH_INVALID_ARGUMENT);
        assert_true(hutch_error_violation(error, 0, &violation));
        assert_string_equal(violation.field, field);
        assert_string_equal(violation.reason, reason);
        assert_true(strlen(violation.message) > 0);
        hutch_error_free(error);
}

static void there_must_be_something_to_run(void **state) {
        const HutchExecSpec nothing = {}, empty = { .argv = (const char *const[]){ "", NULL } };
        HutchExecStream *stream;
        HutchError *error = NULL;

        assert_int_equal(hutch_exec_run(*state, "sandbox-0", &nothing, NULL, 0, NULL, &error), -EINVAL);
        assert_refused(error, "ARGV_EMPTY", "spec.argv");
        assert_int_equal(hutch_exec_create(*state, "sandbox-0", &empty, NULL, &error), -EINVAL);
        assert_refused(error, "ARGV_EMPTY", "spec.argv");
        assert_int_equal(hutch_exec_start(*state, "sandbox-0", &nothing, NULL, &stream, &error), -EINVAL);
        assert_refused(error, "ARGV_EMPTY", "create.spec.argv");
}

static void everything_wrong_is_told_at_once(void **state) {
        const HutchSandboxSpec spec = {
                .id = "x",
                .request_id = "?",
                .labels = (const char *const[]){ "no value", NULL },
                .env = (const char *const[]){ "=nothing", "A", NULL },
                .exec_timeout = UINT64_C(315576001) * 1000000000,
        };
        HutchError *error = NULL;
        HutchViolation violation;
        size_t n = 0;

        assert_int_equal(hutch_sandbox_create(*state, &spec, NULL, &error), -EINVAL);
        while (hutch_error_violation(error, n, &violation))
                n++;
        assert_int_equal(n, 5);
        assert_refused(error, "ID_MALFORMED", "sandbox_id");
}

static void other_rules_hold(void **state) {
        HutchError *error = NULL;
        HutchExecStream *stream;
        HutchWatch *watch;

        assert_int_equal(hutch_sandboxes_delete(*state, " ", NULL, &error), -EINVAL);
        assert_refused(error, "SELECTOR_EMPTY", "selector");
        assert_int_equal(hutch_sandbox_get(*state, NULL, NULL, &error), -EINVAL);
        assert_refused(error, "FIELD_REQUIRED", "sandbox_id");
        assert_int_equal(
                hutch_sandbox_set_labels(*state, "sandbox-0", (const char *const[]){ "a\xff=1", NULL }, NULL, &error),
                -EINVAL);
        assert_refused(error, "LABEL_MALFORMED", "spec.labels[a?]");
        assert_int_equal(hutch_exec_get(*state, "sandbox-0", "-", NULL, &error), -EINVAL);
        assert_refused(error, "ID_MALFORMED", "exec_id");
        assert_int_equal(hutch_exec_attach(*state, "sandbox-0", "-", 0, 0, NULL, &stream, &error), -EINVAL);
        assert_refused(error, "ID_MALFORMED", "attach.exec_id");
        assert_int_equal(hutch_exec_read(*state, "-", "exec-0", NULL, NULL, &stream, &error), -EINVAL);
        assert_refused(error, "ID_MALFORMED", "sandbox_id");
        assert_int_equal(
                hutch_watch_new(*state,
                                &(HutchWatchOptions){ .sandbox_ids = (const char *const[]){ "sandbox-0", "-", NULL } },
                                &watch, &error),
                -EINVAL);
        assert_refused(error, "ID_MALFORMED", "sandbox_ids[1]");
        assert_int_equal(hutch_exec_create(*state, "sandbox-0",
                                           &(HutchExecSpec){
                                                   .argv = run_true,
                                                   .env = (const char *const[]){ "A=secret://Not/A/Name", NULL },
                                           },
                                           NULL, &error),
                         -EINVAL);
        assert_refused(error, "NAME_MALFORMED", "spec.env[A]");
        assert_int_equal(hutch_sandbox_create_encoded(*state, NULL, NULL, "\x2a\3a/b", 5, NULL, &error), -EINVAL);
        assert_refused(error, "PATH_NOT_ABSOLUTE", "spec.working_directory");
        assert_int_equal(hutch_sandbox_create_encoded(*state, NULL, NULL, "\xff", 1, NULL, &error), -EINVAL);
        assert_string_equal(hutch_error_reason(error), "FIELD_INVALID");
        hutch_error_free(error);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ids_vectors_hold),
                cmocka_unit_test(labels_vectors_hold),
                cmocka_unit_test(selectors_vectors_hold),
                cmocka_unit_test(paths_vectors_hold),
                cmocka_unit_test(env_vectors_hold),
                cmocka_unit_test(there_must_be_something_to_run),
                cmocka_unit_test(everything_wrong_is_told_at_once),
                cmocka_unit_test(other_rules_hold),
        };

        return cmocka_run_group_tests(tests, set_up, tear_down);
}
