/* SPDX-License-Identifier: Apache-2.0 */

/* Input: two selectors, each ended by a newline, then labels, one KEY=VALUE on each line. */

#include "model/selector.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/strings.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Object {
        Label labels[LABELS_MAX];
        size_t n_labels;
} Object;

static bool has_key(const Object *object, const char *key) {
        for (size_t i = 0; i < object->n_labels; i++)
                if (str_equal(object->labels[i].key, key))
                        return true;

        return false;
}

/* Cuts @text into labels. Each line that is a label and has a key of its own is one. */
static void object_read(Object *object, char *text) {
        for (char *line = strtok(text, "\n"); line && object->n_labels < LABELS_MAX; line = strtok(NULL, "\n")) {
                char *value = strchr(line, '=');

                if (!value)
                        continue;
                *value++ = '\0';

                if (label_key_check(line, strlen(line), NULL) == 0 &&
                    label_value_check(value, strlen(value), NULL) == 0 && !has_key(object, line))
                        object->labels[object->n_labels++] = (Label){ line, value };
        }
}

static Selector *parse(const char *text, size_t len) {
        _cleanup_(error_clear) HutchError err = {};
        Selector *selector = NULL;
        int r = selector_parse(text, len, &selector, &err);

        assert((r == 0) == (selector != NULL));
        if (r < 0) {
                assert(r == -EINVAL && err.code == STATUS_INVALID_ARGUMENT);
                assert(str_equal(err.reason, "SELECTOR_MALFORMED"));
                assert(utf8_valid(error_message(&err), strlen(error_message(&err))));
        } else
                assert((selector_check_not_empty(selector, NULL) < 0) == selector_is_empty(selector));

        return selector;
}

static bool matches(const Selector *selector, const Object *object) {
        return selector_matches(selector, object->labels, object->n_labels);
}

/* Spaces stand between tokens only, so that twice as many change nothing. */
static void check_spaces(const char *text, const Selector *selector, const Object *object) {
        _cleanup_(string_builder_clear) StringBuilder spaced = {};
        _cleanup_(selector_freep) Selector *again = NULL;

        string_builder_append(&spaced, " ");
        for (const char *c = text; *c; c++)
                string_builder_append_bytes(&spaced, *c == ' ' ? "  " : c, *c == ' ' ? 2 : 1);
        string_builder_append(&spaced, " ");

        again = parse(spaced.text, spaced.len);
        if (spaced.len > SELECTOR_LEN_MAX) {
                assert(!again);
                return;
        }

        assert(again);
        assert(selector_is_empty(again) == selector_is_empty(selector));
        assert(matches(again, object) == matches(selector, object));
}

/* How many requirements there are in a selector that is well formed. */
static size_t count_requirements(const char *text) {
        size_t n = 1;
        bool in_list = false;

        for (const char *c = text; *c; c++) {
                in_list = *c == '(' || (in_list && *c != ')');
                n += *c == ',' && !in_list;
        }

        return n;
}

/* Two selectors with a comma between them select what both do, unless they are too long for one. */
static void check_joined(const char *a_text, const Selector *a, const char *b_text, const Selector *b,
                         const Object *object) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        _cleanup_(selector_freep) Selector *both = NULL;

        if (selector_is_empty(a) || selector_is_empty(b))
                return;

        string_builder_appendf(&text, "%s,%s", a_text, b_text);
        both = parse(text.text, text.len);
        assert((both != NULL) ==
               (text.len <= SELECTOR_LEN_MAX && count_requirements(text.text) <= SELECTOR_REQUIREMENTS_MAX));
        if (both)
                assert(matches(both, object) == (matches(a, object) && matches(b, object)));
}

static void check_form(const Object *object, const char *before, const Label *label, const char *between,
                       const char *after, bool expected) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        _cleanup_(selector_freep) Selector *selector = NULL;

        string_builder_appendf(&text, "%s%s%s%s%s", before, label->key, between, *between ? label->value : "", after);
        selector = parse(text.text, text.len);
        assert(selector);
        assert(matches(selector, object) == expected);
}

/* Each label is found by all the forms that name it, and hidden by their opposites. */
static void check_forms(const Object *object) {
        for (size_t i = 0; i < object->n_labels; i++) {
                const Label *label = &object->labels[i];

                check_form(object, "", label, "", "", true);
                check_form(object, "!", label, "", "", false);
                check_form(object, "", label, "=", "", true);
                check_form(object, "", label, "==", "", true);
                check_form(object, "", label, "!=", "", false);
                if (strlen(label->value) < 63) {
                        check_form(object, "", label, "!=", "x", true);
                        check_form(object, "", label, "=", "x", false);
                }
                if (*label->value) {
                        check_form(object, "", label, " in (x,", ")", true);
                        check_form(object, "", label, " notin (", ",x)", false);
                }
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = new0(char, size + 1);
        _cleanup_(selector_freep) Selector *a = NULL, *b = NULL;
        char *rest = text, *a_text, *b_text;
        size_t a_len;
        Object object = {};

        if (size > 0)
                memcpy(text, data, size);

        /* NUL is no token; the first line may have some, the others end there. */
        a_len = (size_t) ((char *) memchr(text, size > 0 && memchr(text, '\n', size) ? '\n' : '\0', size + 1) - text);
        a = parse(text, a_len);
        if (memchr(text, '\0', a_len)) {
                assert(!a);
                return 0;
        }

        a_text = strsep(&rest, "\n");
        b_text = rest ? strsep(&rest, "\n") : text + size;
        if (rest)
                object_read(&object, rest);

        check_forms(&object);
        if (!a)
                return 0;

        check_spaces(a_text, a, &object);
        b = parse(b_text, strlen(b_text));
        if (b)
                check_joined(a_text, a, b_text, b, &object);

        return 0;
}
