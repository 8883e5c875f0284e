/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "api/violations.h"
#include "model/environment.h"
#include "model/labels.h"

/* What sandboxes and execs have in common: arguments, environments, users, and maps and lists out of messages. */

/* An entry of any map<string, string>: protobuf-c gives each map a type of its own, of this shape. */
typedef struct MapEntry {
        ProtobufCMessage base;
        char *key;
        char *value;
} MapEntry;

/* Each adds what is wrong as violations of @field. */

/* At least one argument, the first not empty. */
void check_arguments(char *const arguments[], size_t n, const char *field, Violations *violations)
        __attribute__((nonnull(3, 4)));

/* Also refuses "secret://…", which nothing here resolves yet. */
void check_environment(MapEntry *const entries[], size_t n, const char *field, Violations *violations)
        __attribute__((nonnull(3, 4)));

/* How much of it the kernel takes: ARGUMENTS_TOO_LARGE. */
void check_arguments_size(char *const arguments[], size_t n_arguments, MapEntry *const entries[], size_t n_entries,
                          Violations *violations) __attribute__((nonnull(5)));

/* A name, "uid", "uid:gid" or "name:group"; empty is none. */
void check_user(const char *user, const char *field, Violations *violations) __attribute__((nonnull));

void check_labels(MapEntry *const entries[], size_t n, const char *field, Violations *violations)
        __attribute__((nonnull(3, 4)));

/* Copies. NULL for none. */
char **copy_texts(char *const texts[], size_t n);
EnvVariable *copy_environment(MapEntry *const entries[], size_t n);
Label *copy_labels(MapEntry *const entries[], size_t n);
