/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: errors of readers, with the line and the field. What does not: what is an error (json.c,
 * yaml-read.c for the form, convert.c and value.c for the meaning). */

#include "pbtext/place.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/strings.h"
#include "base/utf8.h"

static void append_place(StringBuilder *text, const Place *place) {
        if (!place)
                return;

        append_place(text, place->above);
        if (place->name)
                string_builder_appendf(text, "%s%s", place->above ? "." : "", place->name);
        else if (place->key)
                string_builder_appendf(text, "[%s]", place->key);
        else
                string_builder_appendf(text, "[%zu]", place->index);
}

__attribute__((format(printf, 5, 0))) static int set_error(const Place *place, const Node *node, HutchError *err,
                                                           const char *reason, const char *format, va_list args) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        char problem[ERROR_MESSAGE_MAX + 1];

        if (node->line > 0)
                string_builder_appendf(&text, "line %u: ", node->line);
        append_place(&text, place);
        if (place)
                string_builder_append(&text, ": ");
        (void) vsnprintf(problem, sizeof(problem), format, args);
        string_builder_append(&text, problem);

        return error_set(err, -EINVAL, reason, "%s", text.text);
}

int place_error(const Place *place, const Node *node, HutchError *err, const char *reason, const char *format, ...) {
        va_list args;
        int r;

        va_start(args, format);
        r = set_error(place, node, err, reason, format, args);
        va_end(args);
        return r;
}

int place_expected(const Place *place, const Node *node, HutchError *err, const char *format, ...) {
        char what[128];
        va_list args;

        va_start(args, format);
        (void) vsnprintf(what, sizeof(what), format, args);
        va_end(args);

        if (node->kind & (NODE_NULL | NODE_LIST | NODE_MAP))
                return place_error(place, node, err, "FIELD_INVALID", "expected %s, not %s", what,
                                   node->kind == NODE_NULL   ? "null"
                                   : node->kind == NODE_LIST ? "a list"
                                                             : "keys with values");

        return place_error(place, node, err, "FIELD_INVALID", "expected %s, not '%s'", what, node->text);
}

unsigned text_line(const char *text, size_t len) {
        unsigned line = 1;

        for (size_t i = 0; i < len; i++)
                line += text[i] == '\n';
        return line;
}

int text_check_utf8(const char *text, size_t len, HutchError *err) {
        uint32_t code_point;
        size_t at = 0, n;

        do {
                n = utf8_next(text + at, len - at, &code_point);
                at += n;
        } while (n > 0);

        return at == len ? 0
                         : error_set(err, -EINVAL, "FIELD_NOT_UTF8", "line %u: this is not UTF-8", text_line(text, at));
}
