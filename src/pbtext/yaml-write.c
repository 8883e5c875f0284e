/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: nodes to YAML. What does not: reading it (yaml-read.c).
 *
 * Which texts need quotes is the larger part, and libyaml's emitter leaves that to its callers; the rest is
 * indentation. */

#include "pbtext/yaml.h"

#include <string.h>

#include "base/utf8.h"
#include "pbtext/json.h"

/* Readers take a key for one only when its colon is within 1024 characters. */
#define KEY_MAX 1000

/* What YAML of one version or the other, or a reader of its own mind, takes for something else than a text. */
static bool is_word(const char *text) {
        static const char *const words[] = { "true", "false", "yes",  "no",  "on",  "off",
                                             "y",    "n",     "null", "nan", "inf", "infinity" };

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
                if (strcasecmp(text, words[i]) == 0)
                        return true;
        return false;
}

/* Tells whether @text is a text for every reader of YAML without quotes. It errs on the side of quotes. */
static bool is_plain(const char *text) {
        static const char inner[] = "_/.-+@:=, ", not_of_numbers[] = "ghijklmnpqrsuvwyGHIJKLMNPQRSUVWY";
        size_t len = strlen(text);

        /* What begins with a digit may be a number of any base, or a time, unless it has a letter of neither. */
        if (ascii_is_digit(text[0]) ? !strpbrk(text, not_of_numbers)
                                    : !ascii_is_alpha(text[0]) && text[0] != '/' && text[0] != '_')
                return false;

        for (size_t i = 0; i < len; i++) {
                if (!ascii_is_alnum(text[i]) && !strchr(inner, text[i]))
                        return false;
                if ((text[i] == ':' || text[i] == ' ') && (text[i + 1] == '\0' || text[i + 1] == ' '))
                        return false;
        }
        return !is_word(text);
}

/* Tells whether @text may stand as a block of lines: several, printable, and without spaces that nobody would see or
 * that would be taken for indentation. */
static bool is_block(const char *text) {
        size_t len = strlen(text), n;
        uint32_t c;

        if (!strchr(text, '\n') || strchr(" \t\n", text[0]) || strstr(text, " \n") || strstr(text, "\t\n") ||
            strchr(" \t", text[len - 1]) || str_has_suffix(text, "\n\n"))
                return false;

        for (; len > 0; text += n, len -= n) {
                n = utf8_next(text, len, &c);
                if (n == 0 || (!character_is_printable(c) && c != '\n' && c != '\t'))
                        return false;
        }
        return true;
}

static void indent_by(StringBuilder *out, unsigned indent) {
        string_builder_appendf(out, "%*s", (int) indent, "");
}

static void write_block(StringBuilder *out, const char *text, unsigned indent) {
        string_builder_append(out, str_has_suffix(text, "\n") ? "|\n" : "|-\n");

        while (*text != '\0') {
                size_t len = strcspn(text, "\n");

                if (len > 0)
                        indent_by(out, indent);
                string_builder_append_bytes(out, text, len);
                string_builder_append(out, "\n");
                text += len + (text[len] == '\n');
        }
}

/* A scalar on one line, or what is empty. */
static void write_line(StringBuilder *out, const Node *node) {
        if (node->kind == NODE_MAP)
                string_builder_append(out, "{}");
        else if (node->kind == NODE_LIST)
                string_builder_append(out, "[]");
        else if (node->kind == NODE_TEXT && !is_plain(node->text))
                json_write_text(out, node->text);
        else
                string_builder_append(out, node->text);
}

/* A key, on a line of its own behind "?" when it is long. */
static void write_key(StringBuilder *out, const char *key, unsigned indent) {
        _cleanup_(string_builder_clear) StringBuilder written = {};

        if (is_plain(key))
                string_builder_append(&written, key);
        else
                json_write_text(&written, key);

        if (written.len <= KEY_MAX) {
                string_builder_appendf(out, "%s:", written.text);
        } else {
                string_builder_appendf(out, "? %s\n", written.text);
                indent_by(out, indent);
                string_builder_append(out, ":");
        }
}

static void write_children(StringBuilder *out, const Node *node, unsigned indent);

/* Writes what stands behind "KEY:" or "-", whose column is @indent, up to the end of its last line. */
static void write_value(StringBuilder *out, const Node *node, unsigned indent, bool in_list) {
        if (node->kind == NODE_TEXT && is_block(node->text)) {
                string_builder_append(out, " ");
                write_block(out, node->text, indent + 2);
        } else if (!node->first) {
                string_builder_append(out, " ");
                write_line(out, node);
                string_builder_append(out, "\n");
        } else if (in_list && node->kind == NODE_MAP) {
                string_builder_append(out, " ");
                write_children(out, node, indent + 2);
        } else {
                string_builder_append(out, "\n");
                indent_by(out, indent + 2);
                write_children(out, node, indent + 2);
        }
}

/* Writes the lines of a list or map. The first begins where @out ends, the others at @indent. */
static void write_children(StringBuilder *out, const Node *node, unsigned indent) {
        for (const Node *child = node->first; child; child = child->next) {
                if (child != node->first)
                        indent_by(out, indent);
                if (node->kind == NODE_MAP)
                        write_key(out, child->key, indent);
                else
                        string_builder_append(out, "-");
                write_value(out, child, indent, node->kind == NODE_LIST);
        }
}

void yaml_write(StringBuilder *out, const Node *node) {
        if (node->first) {
                write_children(out, node, 0);
        } else {
                write_line(out, node);
                string_builder_append(out, "\n");
        }
}
