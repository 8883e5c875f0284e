/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: making, sorting and freeing trees of nodes. What does not: reading and writing them (json.c,
 * yaml-read.c, yaml-write.c), and what they mean for a message (convert.c). */

#include "pbtext/node.h"

#include <stdlib.h>
#include <string.h>

Node *node_new(NodeKind kind, unsigned line) {
        Node *node = new0(Node, 1);

        node->kind = kind;
        node->line = line;
        return node;
}

Node *node_new_scalar(NodeKind kind, unsigned line, char *text) {
        Node *node = node_new(kind, line);

        node->text = text;
        return node;
}

Node *node_free(Node *node) {
        Node *child = node ? node->first : NULL;

        if (!node)
                return NULL;

        while (child) {
                Node *next = child->next;

                node_free(child);
                child = next;
        }
        free(node->text);
        free(node->key);
        free(node);
        return NULL;
}

static void link_last(Node *parent, Node *child) {
        child->next = NULL;
        child->index = parent->last ? parent->last->index + 1 : 0;
        if (parent->last)
                parent->last->next = child;
        else
                parent->first = child;
        parent->last = child;
}

void node_append(Node *parent, char *key, Node *child) {
        child->key = key;
        link_last(parent, child);
}

static int compare(const void *a, const void *b) {
        const Node *left = *(Node *const *) a, *right = *(Node *const *) b;
        int order = strcmp(left->key, right->key);

        return order != 0 ? order : (left->index > right->index) - (left->index < right->index);
}

void node_sort(Node *map) {
        size_t n = map->last ? map->last->index + 1 : 0, i = 0;
        _cleanup_free_ Node **children = new0(Node *, n + 1);

        for (Node *child = map->first; child; child = child->next)
                children[i++] = child;
        qsort(children, n, sizeof(void *), compare);

        map->first = map->last = NULL;
        for (i = 0; i < n; i++)
                link_last(map, children[i]);
}
