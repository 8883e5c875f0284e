/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* The contexts file: daemons that the user has given names, and how to reach them.
 *
 *         { "current": "prod",
 *           "contexts": { "prod": { "address": "example.com:7443", "ca_file": "/etc/ca.pem", "token": "hutch_…" } } }
 *
 * It is for its owner only, because tokens are in it: local/private-file.h. */

typedef struct Context {
        char *name;
        char *address; /* always there; the rest may be NULL */
        char *ca_file;
        char *certificate_file;
        char *key_file;
        char *server_name;
        char *token;
} Context;

typedef struct Contexts {
        Context *list; /* in the order of the file */
        size_t n;
        char *current; /* NULL: none */
} Contexts;

void contexts_clear(Contexts *contexts) __attribute__((nonnull));

/* Reads the file; one that is not there has no contexts. CONTEXTS_FILE_EXPOSED, CONTEXTS_FILE_INVALID; -ENOMEM. */
int contexts_read(Contexts *ret_contexts, const char *path, HutchError *err) __attribute__((nonnull(1, 2)));

/* Writes it into its folder, which is there. */
int contexts_write(const Contexts *contexts, const char *path, HutchError *err) __attribute__((nonnull(1, 2)));

/* The context of that name, or NULL. */
Context *contexts_find(const Contexts *contexts, const char *name) __attribute__((nonnull));

/* Adds a context, whose texts are copied, in the place of the one that has its name, if there is one. -ENOMEM. */
int contexts_put(Contexts *contexts, const Context *context) __attribute__((nonnull));

/* Takes one out. When it was the current one there is none any more. */
void contexts_remove(Contexts *contexts, Context *context) __attribute__((nonnull));
