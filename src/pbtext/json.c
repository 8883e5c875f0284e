/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: JSON to nodes and back. What does not: YAML (yaml-read.c, yaml-write.c).
 *
 * JSON is read by hand because the errors of a message's fields name the line too, and because a number of 64 bits must
 * not lose a digit: libraries keep neither. */

#include "pbtext/json.h"

#include <errno.h>
#include <string.h>

#include "base/utf8.h"
#include "pbtext/place.h"

typedef struct JsonReader {
        const char *at;
        const char *end;
        unsigned line;
        unsigned depth;
        HutchError *err;
} JsonReader;

static int refuse(JsonReader *reader, const char *what) {
        (void) error_set(reader->err, -EINVAL, "FIELD_INVALID", "line %u: %s", reader->line, what);
        return -EINVAL;
}

static void skip_space(JsonReader *reader) {
        for (; reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at != '\0'; reader->at++)
                reader->line += *reader->at == '\n';
}

/* Takes @c when it comes next, behind spaces. */
static bool take(JsonReader *reader, char c) {
        skip_space(reader);
        if (reader->at == reader->end || *reader->at != c)
                return false;

        reader->at++;
        return true;
}

static bool take_word(JsonReader *reader, const char *word) {
        size_t len = strlen(word);

        if ((size_t) (reader->end - reader->at) < len || memcmp(reader->at, word, len) != 0)
                return false;

        reader->at += len;
        return true;
}

static size_t digits_len(const char *text, size_t len) {
        size_t n = 0;

        while (n < len && ascii_is_digit(text[n]))
                n++;
        return n;
}

size_t json_number_len(const char *text, size_t len) {
        size_t at = len > 0 && text[0] == '-', n = digits_len(text + at, len - at);

        if (n == 0 || (n > 1 && text[at] == '0'))
                return 0;
        at += n;

        if (at < len && text[at] == '.') {
                n = digits_len(text + at + 1, len - at - 1);
                if (n == 0)
                        return 0;
                at += 1 + n;
        }
        if (at < len && (text[at] == 'e' || text[at] == 'E')) {
                at++;
                at += at < len && (text[at] == '+' || text[at] == '-');
                n = digits_len(text + at, len - at);
                if (n == 0)
                        return 0;
                at += n;
        }

        return at;
}

static int read_hex4(JsonReader *reader, uint32_t *ret_number) {
        uint32_t number = 0;

        for (unsigned i = 0; i < 4; i++, reader->at++) {
                char c = reader->at < reader->end ? ascii_lower(*reader->at) : '\0';

                if (ascii_is_digit(c))
                        number = number << 4 | (uint32_t) (c - '0');
                else if (c >= 'a' && c <= 'f')
                        number = number << 4 | (uint32_t) (c - 'a' + 10);
                else
                        return refuse(reader, "expected four hexadecimal digits behind '\\u'");
        }

        *ret_number = number;
        return 0;
}

static void append_code_point(StringBuilder *text, uint32_t c) {
        char bytes[4];
        size_t len = 0;

        if (c < 0x80)
                bytes[len++] = (char) c;
        else if (c < 0x800)
                bytes[len++] = (char) (0xc0 | c >> 6);
        else if (c < 0x10000)
                bytes[len++] = (char) (0xe0 | c >> 12);
        else {
                bytes[len++] = (char) (0xf0 | c >> 18);
                bytes[len++] = (char) (0x80 | (c >> 12 & 0x3f));
        }
        if (c >= 0x800)
                bytes[len++] = (char) (0x80 | (c >> 6 & 0x3f));
        if (c >= 0x80)
                bytes[len++] = (char) (0x80 | (c & 0x3f));

        string_builder_append_bytes(text, bytes, len);
}

/* Reads what stands behind "\u": one code, or two that make up a character of the upper planes. */
static int read_unicode(JsonReader *reader, StringBuilder *text) {
        uint32_t c, low;
        int r;

        r = read_hex4(reader, &c);
        if (r < 0)
                return r;
        if (c == 0)
                return refuse(reader, "a text contains NUL");

        if (c >= 0xd800 && c <= 0xdfff) {
                if (c >= 0xdc00 || !take_word(reader, "\\u"))
                        return refuse(reader, "a text contains half of a surrogate pair");
                r = read_hex4(reader, &low);
                if (r < 0)
                        return r;
                if (low < 0xdc00 || low > 0xdfff)
                        return refuse(reader, "a text contains half of a surrogate pair");
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }

        append_code_point(text, c);
        return 0;
}

static int read_escape(JsonReader *reader, StringBuilder *text) {
        static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
        char c = reader->at < reader->end ? *reader->at : '\0';
        const char *escape = c != '\0' ? strchr(escapes, c) : NULL;

        if (escape) {
                string_builder_append_bytes(text, &meanings[escape - escapes], 1);
                reader->at++;
                return 0;
        }
        if (take_word(reader, "u"))
                return read_unicode(reader, text);

        return refuse(reader, "a text contains an unknown escape");
}

/* Reads a text whose first quote was taken. */
static int read_text(JsonReader *reader, char **ret_text) {
        _cleanup_(string_builder_clear) StringBuilder text = {};

        for (;;) {
                const char *from = reader->at;
                int r;

                while (reader->at < reader->end && *reader->at != '"' && *reader->at != '\\' &&
                       (unsigned char) *reader->at >= 0x20)
                        reader->at++;
                string_builder_append_bytes(&text, from, (size_t) (reader->at - from));

                if (take_word(reader, "\""))
                        break;
                if (!take_word(reader, "\\"))
                        return refuse(reader, reader->at == reader->end ? "a text has no end"
                                                                        : "a text contains a control character");
                r = read_escape(reader, &text);
                if (r < 0)
                        return r;
        }

        *ret_text = string_builder_take(&text);
        return 0;
}

static int read_value(JsonReader *reader, Node **ret_node);

/* Reads a key and the colon behind it. */
static int read_key(JsonReader *reader, char **ret_key) {
        _cleanup_free_ char *key = NULL;
        int r;

        if (!take(reader, '"'))
                return refuse(reader, "expected a key in quotes");
        r = read_text(reader, &key);
        if (r < 0)
                return r;
        if (!take(reader, ':'))
                return refuse(reader, "expected ':' behind a key");

        *ret_key = TAKE_PTR(key);
        return 0;
}

/* Reads what stands in a list or map whose bracket was taken, up to the closing one. */
static int read_children(JsonReader *reader, Node *parent) {
        bool is_map = parent->kind == NODE_MAP;
        char end = is_map ? '}' : ']';

        if (take(reader, end))
                return 0;

        for (;;) {
                _cleanup_free_ char *key = NULL;
                Node *child;
                int r = is_map ? read_key(reader, &key) : 0;

                if (r < 0)
                        return r;
                r = read_value(reader, &child);
                if (r < 0)
                        return r;
                node_append(parent, TAKE_PTR(key), child);

                if (take(reader, end))
                        return 0;
                if (!take(reader, ','))
                        return refuse(reader, is_map ? "expected ',' or '}'" : "expected ',' or ']'");
        }
}

static int read_scalar(JsonReader *reader, Node **ret_node) {
        size_t len = json_number_len(reader->at, (size_t) (reader->end - reader->at));
        const char *from = reader->at;
        NodeKind kind;

        if (len > 0) {
                reader->at += len;
                kind = NODE_NUMBER;
        } else if (take_word(reader, "true") || take_word(reader, "false"))
                kind = NODE_BOOL;
        else if (take_word(reader, "null"))
                kind = NODE_NULL;
        else
                return refuse(reader, "expected a value");

        *ret_node = node_new_scalar(kind, reader->line, xstrndup(from, (size_t) (reader->at - from)));
        return 0;
}

static int read_value(JsonReader *reader, Node **ret_node) {
        _cleanup_(node_freep) Node *node = NULL;
        char *text;
        int r;

        if (take(reader, '"')) {
                r = read_text(reader, &text);
                if (r < 0)
                        return r;
                *ret_node = node_new_scalar(NODE_TEXT, reader->line, text);
                return 0;
        }
        if (!take(reader, '{') && !take(reader, '['))
                return read_scalar(reader, ret_node);

        if (++reader->depth > NODE_DEPTH_MAX)
                return refuse(reader, "this is nested too deeply");
        node = node_new(reader->at[-1] == '{' ? NODE_MAP : NODE_LIST, reader->line);
        r = read_children(reader, node);
        if (r < 0)
                return r;

        reader->depth--;
        *ret_node = TAKE_PTR(node);
        return 0;
}

int json_read(const char *text, size_t len, Node **ret_node, HutchError *err) {
        JsonReader reader = { .at = text, .end = text + len, .line = 1, .err = err };
        _cleanup_(node_freep) Node *node = NULL;
        int r;

        r = text_check_utf8(text, len, err);
        if (r < 0)
                return r;
        r = read_value(&reader, &node);
        if (r < 0)
                return r;
        skip_space(&reader);
        if (reader.at < reader.end)
                return refuse(&reader, "expected nothing behind the value");

        *ret_node = TAKE_PTR(node);
        return 0;
}

bool character_is_printable(uint32_t c) {
        return (c >= 0x20 && c <= 0x7e) || (c >= 0xa0 && c <= 0xd7ff && c != 0x2028 && c != 0x2029) ||
               (c >= 0xe000 && c <= 0xfffd && c != 0xfeff) || c >= 0x10000;
}

void json_write_text(StringBuilder *out, const char *text) {
        static const char named[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
        size_t len = strlen(text), n;
        uint32_t c;

        string_builder_append(out, "\"");
        for (; len > 0; text += n, len -= n) {
                const char *escape = strchr(named, *text);

                n = utf8_next(text, len, &c);
                if (n == 0) {
                        string_builder_append(out, "\\ufffd");
                        n = 1;
                } else if (escape)
                        string_builder_appendf(out, "\\%c", escapes[escape - named]);
                else if (character_is_printable(c))
                        string_builder_append_bytes(out, text, n);
                else
                        string_builder_appendf(out, "\\u%04x", c);
        }
        string_builder_append(out, "\"");
}

static void start_line(StringBuilder *out, bool indented, unsigned depth) {
        if (indented)
                string_builder_appendf(out, "\n%*s", (int) (2 * depth), "");
}

static void write_value(StringBuilder *out, const Node *node, bool indented, unsigned depth) {
        bool is_map = node->kind == NODE_MAP;

        if (node->kind == NODE_TEXT) {
                json_write_text(out, node->text);
                return;
        }
        if (!is_map && node->kind != NODE_LIST) {
                string_builder_append(out, node->text);
                return;
        }

        string_builder_append(out, is_map ? "{" : "[");
        for (const Node *child = node->first; child; child = child->next) {
                start_line(out, indented, depth + 1);
                if (is_map) {
                        json_write_text(out, child->key);
                        string_builder_append(out, indented ? ": " : ":");
                }
                write_value(out, child, indented, depth + 1);
                if (child->next)
                        string_builder_append(out, ",");
        }
        if (node->first)
                start_line(out, indented, depth);
        string_builder_append(out, is_map ? "}" : "]");
}

void json_write(StringBuilder *out, const Node *node, bool indented) {
        write_value(out, node, indented, 0);
}
