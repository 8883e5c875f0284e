/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: comparing and building strings. What does not: what bytes mean (utf8.c). */

#include "base/strings.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

bool str_equal(const char *a, const char *b) {
        if (!a || !b)
                return a == b;

        return strcmp(a, b) == 0;
}

bool str_has_prefix(const char *text, const char *prefix) {
        return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *text, const char *suffix) {
        size_t text_len = strlen(text), suffix_len = strlen(suffix);

        return text_len >= suffix_len && strcmp(text + text_len - suffix_len, suffix) == 0;
}

void str_make_printable(char *text) {
        for (char *c = text; *c; c++) {
                bool is_c1 =
                        (unsigned char) c[0] == 0xc2 && (unsigned char) c[1] >= 0x80 && (unsigned char) c[1] < 0xa0;

                if (ascii_is_control(*c))
                        *c = '?';
                else if (is_c1)
                        c[0] = c[1] = '?';
        }
}

char **strv_free(char **list) {
        for (char **text = list; text && *text; text++)
                free(*text);
        free(list);
        return NULL;
}

/* Makes room for @extra more bytes and a NUL. */
static void string_builder_reserve(StringBuilder *builder, size_t extra) {
        size_t size = builder->size > 0 ? builder->size : 64;

        /* No object is larger than PTRDIFF_MAX, so the sums below cannot overflow. */
        if (extra > PTRDIFF_MAX - builder->len - 1)
                abort();

        while (size < builder->len + extra + 1)
                size *= 2;
        if (size == builder->size)
                return;

        builder->text = xreallocarray(builder->text, size, 1);
        builder->size = size;
}

void string_builder_append(StringBuilder *builder, const char *text) {
        string_builder_append_bytes(builder, text, strlen(text));
}

void string_builder_append_bytes(StringBuilder *builder, const char *bytes, size_t len) {
        string_builder_reserve(builder, len);
        if (len > 0)
                memcpy(builder->text + builder->len, bytes, len);
        builder->len += len;
        builder->text[builder->len] = '\0';
}

void string_builder_appendf(StringBuilder *builder, const char *format, ...) {
        va_list args, again;
        int len;

        va_start(args, format);
        va_copy(again, args);

        len = vsnprintf(NULL, 0, format, args);
        assert(len >= 0);
        string_builder_reserve(builder, (size_t) len);
        vsnprintf(builder->text + builder->len, (size_t) len + 1, format, again);
        builder->len += (size_t) len;

        va_end(again);
        va_end(args);
}

char *string_builder_take(StringBuilder *builder) {
        char *text = builder->text ? TAKE_PTR(builder->text) : xstrdup("");

        *builder = (StringBuilder){};
        return text;
}

void string_builder_clear(StringBuilder *builder) {
        free(builder->text);
        *builder = (StringBuilder){};
}
