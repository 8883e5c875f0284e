/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the grammar of path patterns and globs, and how they are compared with paths. What does not: where
 * patterns come from, and walking folders. Pure, and never aborts.
 *
 * Nothing is ever tried twice but for the last '*' of a component and the last "**" of a pattern: what stands before
 * either was found as early as possible, so that finding it later could not help. */

#include "policy/path-patterns.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"

/* Of the text of a pattern: what a '[' that is not the beginning of a class, and a '\', mean. */
typedef enum Grammar {
        GRAMMAR_IGNORE, /* classes and escapes, '?' is a byte */
        GRAMMAR_GLOB,   /* neither, '?' is a character */
} Grammar;

typedef struct Pattern {
        uint32_t at, len; /* in the list's text */
        bool is_negated : 1;
        bool is_for_folders : 1;
        bool is_for_names : 1; /* matches the last component, in whatever folder */
} Pattern;

struct PatternList {
        char *text; /* of all patterns */
        size_t len, size;
        Pattern *patterns;
        size_t n_patterns, n_allocated;
};

typedef struct Span {
        const char *at, *end;
} Span;

static bool span_is(Span span, const char *text) {
        size_t len = strlen(text);
        return (size_t) (span.end - span.at) == len && memcmp(span.at, text, len) == 0;
}

/* The classes of characters that a name in "[:name:]" stands for, in ASCII whatever the locale. */
static bool is_of_named_class(Span name, uint8_t byte, bool *ret_matches) {
        char c = (char) byte;
        bool is_print = byte >= 0x20 && byte < 0x7f, is_graph = is_print && c != ' ';
        const struct {
                const char *name;
                bool matches;
        } classes[] = {
                { "alnum", ascii_is_alnum(c) },
                { "alpha", ascii_is_alpha(c) },
                { "blank", c == ' ' || c == '\t' },
                { "cntrl", ascii_is_control(c) },
                { "digit", ascii_is_digit(c) },
                { "graph", is_graph },
                { "lower", ascii_is_lower(c) },
                { "print", is_print },
                { "punct", is_graph && !ascii_is_alnum(c) },
                { "space", c == ' ' || (c >= '\t' && c <= '\r') },
                { "upper", ascii_is_upper(c) },
                { "xdigit", ascii_is_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f') },
        };
        for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
                if (span_is(name, classes[i].name)) {
                        *ret_matches = classes[i].matches;
                        return true;
                }
        return false;
}

/* Takes a character of a class, which may be escaped. */
static bool take_class_byte(const char **at, const char *end, uint8_t *ret_byte) {
        if (*at < end && **at == '\\')
                (*at)++;
        if (*at == end)
                return false;
        *ret_byte = (uint8_t) (*at)[0];
        (*at)++;
        return true;
}

/* Takes "[:name:]" if that is what *@at begins with. Returns 1; 0 when it is not; -EINVAL when the name is none. */
static int take_named_class(const char **at, const char *end, uint8_t byte, bool *matches) {
        if (end - *at < 2 || (*at)[0] != '[' || (*at)[1] != ':')
                return 0;
        const char *name = *at + 2, *bracket = memchr(name, ']', (size_t) (end - name));
        if (!bracket)
                return -EINVAL;
        if (bracket == name || bracket[-1] != ':')
                return 0;
        bool is_of;
        if (!is_of_named_class((Span){ name, bracket - 1 }, byte, &is_of))
                return -EINVAL;
        *matches |= is_of;
        *at = bracket + 1;
        return 1;
}

/* Compares @byte with the class that begins at @at, after its '['. Returns where it ends, after its ']'; NULL when it
 * is none. */
static const char *class_match(const char *at, const char *end, uint8_t byte, bool *ret_matches) {
        bool is_negated = at < end && (*at == '!' || *at == '^'), matches = false;
        at += is_negated;

        /* A ']' that comes first is one of the characters. */
        for (bool is_first = true; at < end && (is_first || *at != ']'); is_first = false) {
                int r = take_named_class(&at, end, byte, &matches);
                if (r < 0)
                        return NULL;
                if (r > 0)
                        continue;

                uint8_t first, last;
                if (!take_class_byte(&at, end, &first))
                        return NULL;
                last = first;
                if (end - at >= 2 && at[0] == '-' && at[1] != ']') {
                        at++;
                        if (!take_class_byte(&at, end, &last))
                                return NULL;
                }
                matches |= byte == first || (byte >= first && byte <= last);
        }
        if (at == end)
                return NULL;
        *ret_matches = matches != is_negated;
        return at + 1;
}

/* Compares the first token of the pattern at @at, no '*', with what @text begins with, which is not empty. Returns
 * where the next token begins, and at @ret_taken how much it took of @text: nothing when it does not match. */
static const char *token_match(Grammar grammar, const char *at, const char *end, Span text, size_t *ret_taken) {
        uint32_t code_point;
        size_t taken = 1;
        bool matches = false;

        if (*at == '?') {
                if (grammar == GRAMMAR_GLOB)
                        taken = utf8_next(text.at, (size_t) (text.end - text.at), &code_point);
                *ret_taken = taken > 0 ? taken : 1;
                return at + 1;
        }
        if (*at == '[' && grammar == GRAMMAR_IGNORE) {
                at = class_match(at + 1, end, (uint8_t) *text.at, &matches);
        } else {
                at += *at == '\\' && grammar == GRAMMAR_IGNORE;
                matches = *at++ == *text.at;
        }
        *ret_taken = matches ? 1 : 0;
        return at;
}

/* Compares the part of a pattern between two slashes with a component of a path. */
static bool component_match(Grammar grammar, Span pattern, Span text) {
        const char *at = pattern.at, *after_star = NULL, *star_text = NULL;

        while (text.at < text.end) {
                if (at < pattern.end && *at == '*') {
                        after_star = ++at;
                        star_text = text.at;
                        continue;
                }
                if (at < pattern.end) {
                        size_t taken;
                        const char *next = token_match(grammar, at, pattern.end, text, &taken);
                        if (taken > 0) {
                                at = next;
                                text.at += taken;
                                continue;
                        }
                } else if (at == after_star)
                        return true;
                if (!after_star)
                        return false;
                at = after_star;
                text.at = ++star_text;
        }
        while (at < pattern.end && *at == '*')
                at++;
        return at == pattern.end;
}

/* Where the component at the beginning of @pattern ends. A slash within a class is one of its characters. */
static const char *pattern_component_end(Grammar grammar, Span pattern) {
        const char *at = pattern.at;

        while (at < pattern.end && *at != '/') {
                bool matches;
                if (*at == '[' && grammar == GRAMMAR_IGNORE)
                        at = class_match(at + 1, pattern.end, 0, &matches);
                else
                        at += *at == '\\' && grammar == GRAMMAR_IGNORE ? 2 : 1;
        }
        return at;
}

static const char *path_component_end(Span path) {
        const char *slash = memchr(path.at, '/', (size_t) (path.end - path.at));
        return slash ? slash : path.end;
}

/* "**", which stands for any number of components; more asterisks are no different. */
static bool is_any_components(Span component) {
        if (component.end - component.at < 2)
                return false;
        for (const char *at = component.at; at < component.end; at++)
                if (*at != '*')
                        return false;
        return true;
}

/* Goes on behind a component of @whole that ends at @end: behind its slash. NULL when it was the last. */
static const char *behind(Span whole, const char *end) {
        return end < whole.end ? end + 1 : NULL;
}

/* Compares a whole pattern with a whole path. Nothing is left of either when its `at` is NULL: an empty component is
 * one as well. */
static bool whole_match(Grammar grammar, Span pattern, Span path) {
        const char *after_stars = NULL, *stars_path = NULL;

        while (path.at) {
                if (pattern.at) {
                        Span component = { pattern.at, pattern_component_end(grammar, pattern) };
                        if (is_any_components(component)) {
                                pattern.at = behind(pattern, component.end);
                                if (!pattern.at)
                                        return true;
                                after_stars = pattern.at;
                                stars_path = path.at;
                                continue;
                        }
                        Span text = { path.at, path_component_end(path) };
                        if (component_match(grammar, component, text)) {
                                pattern.at = behind(pattern, component.end);
                                path.at = behind(path, text.end);
                                continue;
                        }
                }
                if (!after_stars)
                        return false;
                pattern.at = after_stars;
                stars_path = behind(path, path_component_end((Span){ stars_path, path.end }));
                path.at = stars_path;
        }
        return !pattern.at;
}

bool glob_match(const char *glob, size_t glob_len, const char *path, size_t len) {
        return whole_match(GRAMMAR_GLOB, (Span){ glob, glob + glob_len }, (Span){ path, path + len });
}

PatternList *pattern_list_new(void) {
        return try_new0(PatternList, 1);
}

PatternList *pattern_list_free(PatternList *list) {
        if (!list)
                return NULL;
        free(list->text);
        free(list->patterns);
        free(list);
        return NULL;
}

/* Makes room for @wanted elements of @size bytes in @array. Returns it; NULL when memory is out. */
static void *reserve(void *array, size_t *allocated, size_t wanted, size_t size) {
        if (array && *allocated >= wanted)
                return array;
        if (wanted < 2 * *allocated)
                wanted = 2 * *allocated;
        void *larger = reallocarray(array, wanted, size);
        if (larger)
                *allocated = wanted;
        return larger;
}

/* Takes off the blanks at the end, unless a '\' stands before them. */
static void trim_blanks(Span *line) {
        const char *end = line->at;
        for (const char *at = line->at; at < line->end; at++) {
                if (*at == '\\' && at + 1 < line->end)
                        at++;
                else if (*at == ' ')
                        continue;
                end = at + 1;
        }
        line->end = end;
}

/* Copies @pattern to @target with its escaped slashes as plain ones. Returns how much that is; 0 when the pattern can
 * match nothing. */
static size_t copy_pattern(Span pattern, char *target) {
        char *to = target;
        bool matches;

        for (const char *at = pattern.at, *next; at < pattern.end; at = next) {
                if (*at == '[') {
                        next = class_match(at + 1, pattern.end, 0, &matches);
                        if (!next)
                                return 0;
                } else if (*at == '\\') {
                        if (++at == pattern.end)
                                return 0;
                        if (*at != '/')
                                *to++ = '\\';
                        next = at + 1;
                } else
                        next = at + 1;
                to = mempcpy(to, at, (size_t) (next - at));
        }
        return (size_t) (to - target);
}

int pattern_list_add(PatternList *list, const char *line, size_t len) {
        Span text = { line, line + len };
        Pattern pattern = {};

        trim_blanks(&text);
        if (text.at == text.end || *text.at == '#')
                return 0;
        if (*text.at == '!') {
                pattern.is_negated = true;
                text.at++;
        }
        if (text.at < text.end && text.end[-1] == '/') {
                pattern.is_for_folders = true;
                text.end--;
        }
        size_t max = (size_t) (text.end - text.at);
        pattern.is_for_names = max > 0 && !memchr(text.at, '/', max);
        if (max > 0 && *text.at == '/') {
                text.at++;
                max--;
        }
        if (max == 0)
                return 0;

        if (max > PATTERN_LIST_BYTES_MAX - list->len)
                return -E2BIG;
        char *larger_text = reserve(list->text, &list->size, list->len + max, 1);
        if (!larger_text)
                return -ENOMEM;
        list->text = larger_text;
        Pattern *larger = reserve(list->patterns, &list->n_allocated, list->n_patterns + 1, sizeof(Pattern));
        if (!larger)
                return -ENOMEM;
        list->patterns = larger;
        pattern.at = (uint32_t) list->len;
        pattern.len = (uint32_t) copy_pattern(text, list->text + list->len);
        if (pattern.len == 0)
                return 0;
        list->len += pattern.len;
        list->patterns[list->n_patterns++] = pattern;
        return 0;
}

int pattern_list_add_lines(PatternList *list, const char *text, size_t len) {
        static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, as some editors write it */
        if (len >= 3 && memcmp(text, mark, 3) == 0) {
                text += 3;
                len -= 3;
        }
        while (len > 0) {
                const char *newline = memchr(text, '\n', len);
                size_t line = newline ? (size_t) (newline - text) : len, taken = newline ? line + 1 : line;
                int r = pattern_list_add(list, text, newline && line > 0 && text[line - 1] == '\r' ? line - 1 : line);
                if (r < 0)
                        return r;
                text += taken;
                len -= taken;
        }
        return 0;
}

bool pattern_list_is_empty(const PatternList *list) {
        return list->n_patterns == 0;
}

PatternVerdict pattern_list_match(const PatternList *list, const char *path, size_t len, bool is_directory) {
        const char *slash = memrchr(path, '/', len);
        Span whole = { path, path + len }, name = { slash ? slash + 1 : path, path + len };

        for (size_t i = list->n_patterns; i-- > 0;) {
                const Pattern *pattern = &list->patterns[i];
                const char *text = list->text + pattern->at;
                if (pattern->is_for_folders && !is_directory)
                        continue;
                if (whole_match(GRAMMAR_IGNORE, (Span){ text, text + pattern->len },
                                pattern->is_for_names ? name : whole))
                        return pattern->is_negated ? PATTERN_NEGATED : PATTERN_MATCHED;
        }
        return PATTERN_NONE;
}
