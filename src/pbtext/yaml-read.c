/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: YAML to nodes, by the events of libyaml. What does not: writing it (yaml-write.c). */

#include "pbtext/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "pbtext/place.h"

typedef struct YamlReader {
        yaml_parser_t parser;
        const char *text;
        unsigned depth;
        HutchError *err;
} YamlReader;

static unsigned line_of(const yaml_event_t *event) {
        return (unsigned) event->start_mark.line + 1;
}

static int refuse(YamlReader *reader, const yaml_event_t *event, const char *what) {
        (void) error_set(reader->err, -EINVAL, "FIELD_INVALID", "line %u: %s", line_of(event), what);
        return -EINVAL;
}

/* libyaml knows the line of what it cannot parse, but only the offset of what it cannot read. */
static int refuse_syntax(YamlReader *reader) {
        const yaml_parser_t *parser = &reader->parser;
        unsigned line = parser->error == YAML_READER_ERROR ? text_line(reader->text, parser->problem_offset)
                                                           : (unsigned) parser->problem_mark.line + 1;

        (void) error_set(reader->err, -EINVAL, "FIELD_INVALID", "line %u: this is no YAML: %s%s%s", line,
                         parser->problem ? parser->problem : "it cannot be read", parser->context ? " " : "",
                         parser->context ? parser->context : "");
        return -EINVAL;
}

/* Frees what @event held, and makes it the next one. */
static int next_event(YamlReader *reader, yaml_event_t *event) {
        yaml_event_delete(event);
        return yaml_parser_parse(&reader->parser, event) ? 0 : refuse_syntax(reader);
}

static bool is_null(const char *text) {
        return text[0] == '\0' || str_equal(text, "~") || str_equal(text, "null") || str_equal(text, "Null") ||
               str_equal(text, "NULL");
}

static int read_scalar(YamlReader *reader, const yaml_event_t *event, Node **ret_node) {
        const char *text = (const char *) event->data.scalar.value;
        NodeKind kind = NODE_TEXT;

        if (event->data.scalar.anchor || event->data.scalar.tag)
                return refuse(reader, event, "anchors and tags are not supported");
        if (strlen(text) != event->data.scalar.length)
                return refuse(reader, event, "a text contains NUL");

        if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
                kind = is_null(text) ? NODE_NULL : NODE_PLAIN;
        *ret_node = node_new_scalar(kind, line_of(event), xstrdup(text));
        return 0;
}

static int read_node(YamlReader *reader, const yaml_event_t *event, Node **ret_node);

/* Reads what stands in a list, up to its end. */
static int read_list(YamlReader *reader, Node *list) {
        _cleanup_(yaml_event_delete) yaml_event_t event = {};

        for (;;) {
                Node *child;
                int r = next_event(reader, &event);

                if (r < 0 || event.type == YAML_SEQUENCE_END_EVENT)
                        return r;
                r = read_node(reader, &event, &child);
                if (r < 0)
                        return r;
                node_append(list, NULL, child);
        }
}

/* Reads what stands in a map, up to its end. */
static int read_map(YamlReader *reader, Node *map) {
        _cleanup_(yaml_event_delete) yaml_event_t event = {};

        for (;;) {
                _cleanup_(node_freep) Node *key = NULL;
                Node *child;
                unsigned line;
                int r = next_event(reader, &event);

                if (r < 0 || event.type == YAML_MAPPING_END_EVENT)
                        return r;
                if (event.type != YAML_SCALAR_EVENT)
                        return refuse(reader, &event, "a key is a single text");
                line = line_of(&event);
                r = read_scalar(reader, &event, &key);
                if (r < 0)
                        return r;

                r = next_event(reader, &event);
                if (r < 0)
                        return r;
                r = read_node(reader, &event, &child);
                if (r < 0)
                        return r;
                child->line = line; /* a block's own line is often the one below */
                node_append(map, TAKE_PTR(key->text), child);
        }
}

static int read_node(YamlReader *reader, const yaml_event_t *event, Node **ret_node) {
        bool is_map = event->type == YAML_MAPPING_START_EVENT;
        _cleanup_(node_freep) Node *node = NULL;
        int r;

        if (event->type == YAML_SCALAR_EVENT)
                return read_scalar(reader, event, ret_node);
        if (event->type == YAML_ALIAS_EVENT)
                return refuse(reader, event, "aliases are not supported");

        if (is_map ? event->data.mapping_start.anchor || event->data.mapping_start.tag
                   : event->data.sequence_start.anchor || event->data.sequence_start.tag)
                return refuse(reader, event, "anchors and tags are not supported");
        if (++reader->depth > NODE_DEPTH_MAX)
                return refuse(reader, event, "this is nested too deeply");

        node = node_new(is_map ? NODE_MAP : NODE_LIST, line_of(event));
        r = is_map ? read_map(reader, node) : read_list(reader, node);
        if (r < 0)
                return r;

        reader->depth--;
        *ret_node = TAKE_PTR(node);
        return 0;
}

static int read_stream(YamlReader *reader, Node **ret_node) {
        _cleanup_(yaml_event_delete) yaml_event_t event = {};
        _cleanup_(node_freep) Node *node = NULL;
        int r;

        do {
                r = next_event(reader, &event);
                if (r < 0)
                        return r;
        } while (event.type == YAML_STREAM_START_EVENT || event.type == YAML_DOCUMENT_START_EVENT);

        if (event.type == YAML_STREAM_END_EVENT)
                return refuse(reader, &event, "there is nothing here");
        r = read_node(reader, &event, &node);
        if (r < 0)
                return r;

        do {
                r = next_event(reader, &event);
                if (r < 0)
                        return r;
        } while (event.type == YAML_DOCUMENT_END_EVENT);
        if (event.type != YAML_STREAM_END_EVENT)
                return refuse(reader, &event, "there is more than one document");

        *ret_node = TAKE_PTR(node);
        return 0;
}

int yaml_read(const char *text, size_t len, Node **ret_node, HutchError *err) {
        YamlReader reader = { .text = text, .err = err };
        int r;

        r = text_check_utf8(text, len, err);
        if (r < 0)
                return r;

        if (!yaml_parser_initialize(&reader.parser))
                abort(); /* memory is out */
        yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&reader.parser, (const unsigned char *) text, len);
        r = read_stream(&reader, ret_node);
        yaml_parser_delete(&reader.parser);
        return r;
}
