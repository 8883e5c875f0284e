/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The driver of libhutch: what ../../PROTOCOL.md says, by a thread for each command. */

typedef struct Client Client; /* that commands name */

/* A command on its way. */
typedef struct Command {
        json_t *line;
        json_t *args; /* of @line */
        Client *owner;
        HutchClient *client;   /* of @owner, or one of its own, with the command's deadline */
        uint64_t timeout;      /* 0: none was given */
        atomic_bool cancelled; /* by another command */
        bool noted;
        char *problem; /* what kept the driver itself from doing it; NULL: nothing */
        void **kept;   /* freed with it */
        size_t n_kept;
        struct Command *next;
} Command;

/* Does a command, and puts what came of it into @ok. -ECANCELED, without an error, when it was cancelled. */
typedef int (*Operation)(Command *command, json_t *ok, HutchError **ret_error);

typedef struct NamedOperation {
        const char *name; /* NULL: the end of the list */
        Operation run;
} NamedOperation;

extern const NamedOperation sandbox_operations[], exec_operations[], file_operations[], other_operations[];

/* Prints that the command has come so far that others may go on. Once. */
void command_note(Command *command);

/* Has a stream of the command's client go on, for those that find nothing to take yet: 0, or -ECANCELED. */
int command_wait(Command *command);

/* Frees @memory with the command, and returns it. */
void *command_keep(Command *command, void *memory);

/* ---- Arguments; those that are absent are zero ---- */

bool arg_has(const Command *command, const char *name);
const char *arg_text(const Command *command, const char *name);
bool arg_flag(const Command *command, const char *name);
uint64_t arg_number(const Command *command, const char *name);

/* The same of any object. */
const char *text_of(const json_t *object, const char *name);
uint64_t number_of(const json_t *object, const char *name);
uint64_t duration_of(Command *command, const json_t *object, const char *name); /* nanoseconds */
const char *const *texts_of(Command *command, const json_t *object, const char *name);
const char *const *pairs_of(Command *command, const json_t *object, const char *name); /* "NAME=VALUE" */

typedef struct Bytes {
        void *data;
        size_t len;
} Bytes;

/* Lives as long as @command. */
Bytes bytes_of(Command *command, const json_t *object, const char *name);

/* A message of the contract, from its JSON, as it is sent. */
typedef struct ProtobufCMessageDescriptor ProtobufCMessageDescriptor;
Bytes encode_value(Command *command, const json_t *value, const ProtobufCMessageDescriptor *type);

/* ---- Answers ---- */

json_t *decode_value(const ProtobufCMessageDescriptor *type, const void *encoded, size_t len);
json_t *message_to_value(const char *type, const void *encoded, size_t len); /* "Sandbox" */
void ok_bytes(json_t *ok, const char *name, const void *data, size_t len);

/* Bytes that come bit by bit, from offsets that may jump. */
typedef struct Collected {
        char *data;
        size_t len, size;
        uint64_t start, next;
        json_t *gaps; /* NULL: none */
} Collected;

void collected_clear(Collected *collected);
void collected_add(Collected *collected, uint64_t offset, const void *data, size_t len);
void ok_output(json_t *ok, const char *name, const Collected *collected);
