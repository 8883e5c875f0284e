/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* Pairs: labels and environments as callers have them, texts of the form "NAME=VALUE" in a list that ends with NULL,
 * and as messages have them, in maps. */

/* An entry of a map from text to text: all of the contract's have this shape. */
typedef struct Pair {
        ProtobufCMessage base;
        char *key;
        char *value;
} Pair;

size_t texts_count(const char *const *texts);

/* Makes entries of @type out of texts, which outlive them and have all an '='. They are one piece of memory, which the
 * caller frees; NULL for none. -ENOMEM. */
int pairs_from_texts(const char *const *texts, const ProtobufCMessageDescriptor *type, Pair ***ret_pairs, size_t *ret_n)
        __attribute__((nonnull(2, 3, 4)));

/* Makes texts out of entries, in one piece of memory, which the caller frees. -ENOMEM. */
int pairs_to_texts(const Pair *const *pairs, size_t n, const char *const **ret_texts) __attribute__((nonnull(3)));
