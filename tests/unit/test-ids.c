/* SPDX-License-Identifier: Apache-2.0 */

#include "model/ids.h"

#include <errno.h>
#include <string.h>

#include "base/strings.h"
#include "test.h"

typedef int (*Check)(const char *text, size_t len, HutchError *err);

static void expect(Check check, const char *text, size_t len, const char *reason) {
        _cleanup_(error_clear) HutchError err = {};
        int r = check(text, len, &err);

        if (!reason && r != 0)
                fail_msg("'%s' is refused: %s", text, error_message(&err));
        if (reason && (r != -EINVAL || err.code != STATUS_INVALID_ARGUMENT || !str_equal(err.reason, reason)))
                fail_msg("'%s' gives %d %s instead of %s", text, r, err.reason, reason);
}

/* @n times "a", for texts at the edges of what is allowed. */
static const char *repeated(size_t n) {
        static char text[256];

        memset(text, 'a', n);
        text[n] = '\0';
        return text;
}

static void expect_lengths(Check check, size_t min, size_t max, const char *reason) {
        expect(check, "", 0, reason);
        expect(check, repeated(min - 1), min - 1, reason);
        expect(check, repeated(min), min, NULL);
        expect(check, repeated(max), max, NULL);
        expect(check, repeated(max + 1), max + 1, reason);
}

static void lengths_are_bounded(void **state) {
        expect_lengths(id_check, 4, 200, "ID_MALFORMED");
        expect_lengths(name_check, 1, 63, "NAME_MALFORMED");
        expect_lengths(request_id_check, 1, 128, "REQUEST_ID_MALFORMED");
}

/* Accepts every byte between two letters exactly when it is among @allowed. */
static void expect_alphabet(Check check, const char *allowed, const char *reason) {
        for (int c = 0; c < 256; c++) {
                const char text[] = { 'a', 'b', (char) c, 'c', 'd', '\0' };

                expect(check, text, 5, c != 0 && strchr(allowed, c) ? NULL : reason);
        }
}

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static void alphabets_are_ascii(void **state) {
        expect_alphabet(id_check, LOWER UPPER DIGITS "_-", "ID_MALFORMED");
        expect_alphabet(name_check, LOWER DIGITS "-", "NAME_MALFORMED");
        expect_alphabet(request_id_check, LOWER UPPER DIGITS "-_.:", "REQUEST_ID_MALFORMED");
}

static void ids_and_names_begin_and_end_with_a_letter_or_digit(void **state) {
        expect(id_check, "9abZ", 4, NULL);
        expect(id_check, "-abc", 4, "ID_MALFORMED");
        expect(id_check, "_abc", 4, "ID_MALFORMED");
        expect(id_check, "abc-", 4, "ID_MALFORMED");
        expect(id_check, "abc_", 4, "ID_MALFORMED");
        expect(name_check, "-", 1, "NAME_MALFORMED");
        expect(name_check, "-a", 2, "NAME_MALFORMED");
        expect(name_check, "a-", 2, "NAME_MALFORMED");
}

static void request_ids_begin_and_end_as_they_like(void **state) {
        expect(request_id_check, ":.-_", 4, NULL);
}

static Check check_of(const Vector *v) {
        const char *kind = vector_string(v, "kind");

        if (str_equal(kind, "id"))
                return id_check;
        if (str_equal(kind, "name"))
                return name_check;
        return str_equal(kind, "request-id") ? request_id_check : NULL;
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "ids.json") {
                _cleanup_(error_clear) HutchError err = {};
                Check check = check_of(v);
                size_t len;
                const char *text = vector_bytes(v, "text", &len);

                if (vector_check(v, check, "has an unknown kind"))
                        vector_assert_result(v, check(text, len, &err), &err);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lengths_are_bounded),
                cmocka_unit_test(alphabets_are_ascii),
                cmocka_unit_test(ids_and_names_begin_and_end_with_a_letter_or_digit),
                cmocka_unit_test(request_ids_begin_and_end_as_they_like),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
