/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading the vectors, comparing with them, and reporting what passed. What does not: the rules of
 * their shape, which the schema beside them states; here a malformed file just fails its test. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/strings.h"

struct Vector {
        json_t *file;
        const char *suite;
        size_t index;
        json_t *test_case;
        const char *name;
        bool checked, failed;
        size_t n_failed;
        StringBuilder failures; /* a line for each check that did not hold */
};

static void vector_free(Vector *v) {
        string_builder_clear(&v->failures);
        json_decref(v->file);
        free(v);
}

/* Goes to the case at @index. */
static void vector_begin_case(Vector *v, size_t index) {
        v->index = index;
        v->test_case = json_array_get(json_object_get(v->file, "cases"), index);
        v->name = json_string_value(json_object_get(v->test_case, "name"));
        v->checked = v->failed = false;

        if (!v->name)
                fail_msg("%s: case %zu has no name", v->suite, index);
        if (!json_is_object(vector_json(v, "in")))
                fail_msg("%s/%s has no \"in\"", v->suite, v->name);
        if (!vector_json(v, "out") == !vector_expects_error(v))
                fail_msg("%s/%s needs either \"out\" or an \"error\" with a reason", v->suite, v->name);
}

/* Appends the result of the case to the conformance results, a line for each requirement that it checks. */
static void vector_report_case(const Vector *v) {
        _cleanup_(string_builder_clear) StringBuilder path = {}, lines = {};
        const char *dir = getenv("HUTCH_CONFORMANCE_DIR");
        _cleanup_close_ int fd = -1;
        json_t *requirement;
        size_t i;

        if (!dir)
                return;

        json_array_foreach(vector_json(v, "requires"), i, requirement)
                string_builder_appendf(&lines, "%s\t%s\t%s/%s\n", json_string_value(requirement),
                                       v->failed ? "fail" : "pass", v->suite, v->name);

        string_builder_appendf(&path, "%s/c-%s.tsv", dir, v->suite);
        fd = open(path.text, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || fd_write_all(fd, lines.text, lines.len) < 0)
                fail_msg("cannot write %s: %s", path.text, strerror(errno));
}

static void vector_end_case(Vector *v) {
        if (!v->checked)
                vector_check(v, false, "nothing was checked");

        v->n_failed += v->failed;
        vector_report_case(v);
}

Vector *vector_first(const char *file) {
        _cleanup_(string_builder_clear) StringBuilder path = {};
        const char *dir = getenv("HUTCH_VECTORS_DIR");
        Vector *v = new0(Vector, 1);
        json_error_t error;

        string_builder_appendf(&path, "%s/%s", dir ? dir : VECTORS_DIR, file);
        v->file = json_load_file(path.text, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
        if (!v->file)
                fail_msg("%s:%d: %s", path.text, error.line, error.text);

        v->suite = json_string_value(json_object_get(v->file, "suite"));
        if (!v->suite || !str_has_prefix(file, v->suite) || !str_equal(file + strlen(v->suite), ".json"))
                fail_msg("%s: \"suite\" is not the name of the file", path.text);
        if (json_array_size(json_object_get(v->file, "cases")) == 0)
                fail_msg("%s has no cases", path.text);

        vector_begin_case(v, 0);
        return v;
}

Vector *vector_next(Vector *v) {
        size_t n_cases = json_array_size(json_object_get(v->file, "cases"));
        bool failed;

        vector_end_case(v);
        if (v->index + 1 < n_cases) {
                vector_begin_case(v, v->index + 1);
                return v;
        }

        failed = v->n_failed > 0;
        if (failed)
                print_error("%s%zu of %zu cases of %s failed\n", v->failures.text, v->n_failed, n_cases, v->suite);

        vector_free(v);
        if (failed)
                fail();
        return NULL;
}

void vector_leave(Vector **v) {
        if (*v)
                fail_msg("the loop over %s was left at '%s'", (*v)->suite, (*v)->name);
}

const char *vector_name(const Vector *v) {
        return v->name;
}

json_t *vector_json(const Vector *v, const char *member) {
        return json_object_get(v->test_case, member);
}

const char *vector_expects_error(const Vector *v) {
        return json_string_value(json_object_get(vector_json(v, "error"), "reason"));
}

static int base64_digit(char c) {
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const char *digit = c ? strchr(digits, c) : NULL;

        return digit ? (int) (digit - digits) : -1;
}

/* Decodes padded base64 to a JSON string of any bytes; NULL when @text is not base64. */
static json_t *base64_decode(const char *text) {
        _cleanup_(string_builder_clear) StringBuilder bytes = {};
        size_t len = strlen(text);

        if (len % 4 != 0)
                return NULL;

        for (size_t i = 0; i < len; i += 4) {
                size_t n_digits = 4;
                uint32_t group = 0;

                while (i + 4 == len && n_digits > 2 && text[i + n_digits - 1] == '=')
                        n_digits--;

                for (size_t j = 0; j < 4; j++) {
                        int digit = j < n_digits ? base64_digit(text[i + j]) : 0;

                        if (digit < 0)
                                return NULL;
                        group = group << 6 | (uint32_t) digit;
                }

                string_builder_append_bytes(&bytes,
                                            (const char[]){ (char) (group >> 16), (char) (group >> 8), (char) group },
                                            n_digits - 1);
        }

        return json_stringn_nocheck(bytes.text ? bytes.text : "", bytes.len);
}

/* The member @key of @object; or the bytes of its @key with "_base64", kept in @object under @key from then on. */
static json_t *object_get(json_t *object, const char *key) {
        _cleanup_(string_builder_clear) StringBuilder base64_key = {};
        const char *base64;

        if (json_object_get(object, key))
                return json_object_get(object, key);

        string_builder_appendf(&base64_key, "%s_base64", key);
        base64 = json_string_value(json_object_get(object, base64_key.text));
        if (base64)
                json_object_set_new_nocheck(object, key, base64_decode(base64));

        return json_object_get(object, key);
}

bool vector_has(const Vector *v, const char *key) {
        return object_get(vector_json(v, "in"), key);
}

const char *vector_string(const Vector *v, const char *key) {
        size_t len;
        const char *text = vector_bytes(v, key, &len);

        if (strlen(text) != len)
                fail_msg("%s/%s: in.%s has NUL bytes: read it with vector_bytes()", v->suite, v->name, key);
        return text;
}

const char *vector_bytes(const Vector *v, const char *key, size_t *ret_len) {
        json_t *value = object_get(vector_json(v, "in"), key);

        if (!json_is_string(value))
                fail_msg("%s/%s: in.%s is no string", v->suite, v->name, key);

        *ret_len = json_string_length(value);
        return json_string_value(value);
}

int64_t vector_int(const Vector *v, const char *key) {
        json_t *value = json_object_get(vector_json(v, "in"), key);

        if (!json_is_integer(value))
                fail_msg("%s/%s: in.%s is no integer", v->suite, v->name, key);
        return json_integer_value(value);
}

bool vector_bool(const Vector *v, const char *key) {
        json_t *value = json_object_get(vector_json(v, "in"), key);

        if (value && !json_is_boolean(value))
                fail_msg("%s/%s: in.%s is no boolean", v->suite, v->name, key);
        return json_is_true(value);
}

bool vector_check(Vector *v, bool condition, const char *format, ...) {
        char text[2048];
        va_list args;

        v->checked = true;
        if (condition)
                return true;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);

        v->failed = true;
        string_builder_appendf(&v->failures, "%s/%s: %s\n", v->suite, v->name, text);
        return false;
}

bool vector_assert_result(Vector *v, int r, const HutchError *err) {
        const char *reason = vector_expects_error(v);

        if (!reason)
                return vector_check(v, r >= 0, "fails with %d, %s: %s", r, err->reason, error_message(err));
        if (r >= 0)
                return vector_check(v, false, "succeeds, but should fail with %s", reason);

        return vector_check(v, str_equal(err->reason, reason), "fails with %s (%s), but should with %s", err->reason,
                            error_message(err), reason);
}

/* The expected value of @key. When there is none the case fails, and it is NULL. */
static json_t *vector_expected(Vector *v, const char *key) {
        json_t *expected = object_get(vector_json(v, "out"), key);

        vector_check(v, expected, "has no out.%s", key);
        return expected;
}

/* Makes bytes readable in a message. */
static char *show_bytes(const char *bytes, size_t len) {
        _cleanup_(string_builder_clear) StringBuilder text = {};

        if (!bytes)
                return xstrdup("nothing");

        string_builder_append(&text, "\"");
        for (size_t i = 0; i < len; i++)
                string_builder_appendf(&text, bytes[i] >= ' ' && bytes[i] <= '~' ? "%c" : "\\x%02x",
                                       (unsigned char) bytes[i]);
        string_builder_append(&text, "\"");
        return string_builder_take(&text);
}

bool vector_assert_string(Vector *v, const char *key, const char *actual) {
        return vector_assert_bytes(v, key, actual, actual ? strlen(actual) : 0);
}

bool vector_assert_bytes(Vector *v, const char *key, const void *actual, size_t len) {
        _cleanup_free_ char *shown = NULL, *expected_shown = NULL;
        json_t *expected = vector_expected(v, key);
        const char *bytes = json_string_value(expected);
        size_t expected_len = json_string_length(expected);
        bool equal;

        if (!expected)
                return false;
        if (!bytes && !json_is_null(expected))
                return vector_check(v, false, "out.%s is no string", key);

        equal = bytes && actual ? len == expected_len && memcmp(bytes, actual, len) == 0 : !bytes && !actual;
        shown = show_bytes(actual, len);
        expected_shown = show_bytes(bytes, expected_len);
        return vector_check(v, equal, "%s is %s, but should be %s", key, shown, expected_shown);
}

bool vector_assert_int(Vector *v, const char *key, int64_t actual) {
        json_t *expected = vector_expected(v, key);

        if (!expected)
                return false;
        if (!json_is_integer(expected))
                return vector_check(v, false, "out.%s is no integer", key);

        return vector_check(v, actual == json_integer_value(expected), "%s is %jd, but should be %jd", key,
                            (intmax_t) actual, (intmax_t) json_integer_value(expected));
}

bool vector_assert_bool(Vector *v, const char *key, bool actual) {
        json_t *expected = vector_expected(v, key);

        if (!expected)
                return false;
        if (!json_is_boolean(expected))
                return vector_check(v, false, "out.%s is no boolean", key);

        return vector_check(v, actual == json_is_true(expected), "%s is %s, but should not be", key,
                            actual ? "true" : "false");
}
