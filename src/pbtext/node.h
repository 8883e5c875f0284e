/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/memory.h"

/* What a text in JSON or YAML says, as a tree: the one form between texts and messages.
 *
 * A scalar is kept as it was written. What it means is decided by the field that it is for, so no digit of a number is
 * lost, and a version like 3.10 stays what it is. */

#define NODE_DEPTH_MAX 64 /* of lists and maps within each other; readers refuse more */

/* Kinds are bits, so that a reader can say in one word which ones it takes. */
typedef enum NodeKind {
        NODE_NULL = 1 << 0,
        NODE_BOOL = 1 << 1,   /* "true" or "false" */
        NODE_NUMBER = 1 << 2, /* in JSON's form */
        NODE_TEXT = 1 << 3,   /* a text and nothing else: it stood in quotes */
        NODE_PLAIN = 1 << 4,  /* a text, a number or a boolean: whatever it is for takes */
        NODE_LIST = 1 << 5,
        NODE_MAP = 1 << 6,
} NodeKind;

typedef struct Node {
        NodeKind kind;
        unsigned line; /* from 1; 0: it was not read from lines */
        char *text;    /* of scalars: UTF-8; else NULL */
        char *key;     /* of what stands in a map; else NULL */

        struct Node *first, *last; /* of what stands in a list or map */
        struct Node *next;
        size_t index; /* how many stand before it */
} Node;

Node *node_new(NodeKind kind, unsigned line) __attribute__((returns_nonnull));

/* A scalar; takes @text over. */
Node *node_new_scalar(NodeKind kind, unsigned line, char *text) __attribute__((nonnull, returns_nonnull));

/* Frees @node, which may be NULL, and all below it. Returns NULL. */
Node *node_free(Node *node);
DEFINE_CLEANUP(Node *, node_free);

/* Appends @child to a list, or, with @key, to a map. Takes both over; the key may be there already. */
void node_append(Node *parent, char *key, Node *child) __attribute__((nonnull(1, 3)));

/* Sorts a map by its keys; children of the same key stay in their order. */
void node_sort(Node *map) __attribute__((nonnull));
