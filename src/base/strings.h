/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Strings: comparison, ASCII classes that ignore the locale, and a buffer that grows. */

/* Tells whether @a and @b are equal. NULL equals NULL only. */
bool str_equal(const char *a, const char *b);

bool str_has_prefix(const char *text, const char *prefix) __attribute__((nonnull));
bool str_has_suffix(const char *text, const char *suffix) __attribute__((nonnull));

static inline bool ascii_is_digit(char c) {
        return c >= '0' && c <= '9';
}

static inline bool ascii_is_lower(char c) {
        return c >= 'a' && c <= 'z';
}

static inline bool ascii_is_upper(char c) {
        return c >= 'A' && c <= 'Z';
}

static inline bool ascii_is_alpha(char c) {
        return ascii_is_lower(c) || ascii_is_upper(c);
}

static inline bool ascii_is_alnum(char c) {
        return ascii_is_alpha(c) || ascii_is_digit(c);
}

/* C0 controls and DEL. */
static inline bool ascii_is_control(char c) {
        return (unsigned char) c < 0x20 || c == 0x7f;
}

static inline char ascii_lower(char c) {
        return ascii_is_upper(c) ? (char) (c - 'A' + 'a') : c;
}

/* Replaces whatever a terminal would not print but obey, by '?'. */
void str_make_printable(char *text) __attribute__((nonnull));

/* Frees a list of strings that ends with NULL, or is NULL. Returns NULL. */
char **strv_free(char **list);

/* A string being built:
 *
 *         _cleanup_(string_builder_clear) StringBuilder builder = {};
 *         string_builder_append(&builder, "uid ");
 *         string_builder_appendf(&builder, "%u", uid);
 *         return string_builder_take(&builder);
 *
 * Aborts when memory is out: not for text whose size a peer chose. */
typedef struct StringBuilder {
        char *text; /* @len bytes and a NUL; NULL while nothing was appended */
        size_t len;
        size_t size;
} StringBuilder;

void string_builder_append(StringBuilder *builder, const char *text) __attribute__((nonnull));
void string_builder_append_bytes(StringBuilder *builder, const char *bytes, size_t len) __attribute__((nonnull(1)));
void string_builder_appendf(StringBuilder *builder, const char *format, ...)
        __attribute__((format(printf, 2, 3), nonnull));

/* Hands over the string, never NULL, and leaves @builder empty. The caller frees it. */
char *string_builder_take(StringBuilder *builder) __attribute__((nonnull, returns_nonnull));

/* Frees what was built and leaves @builder empty. */
void string_builder_clear(StringBuilder *builder) __attribute__((nonnull));
