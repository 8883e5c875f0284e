/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/memory.h"

/* Messages as JSON and YAML, both ways, and their fields by name: by what the descriptors of protobuf-c tell, without
 * knowing any message.
 *
 * Names are those of the .proto files ("working_directory"); readers take "workingDirectory" as well. The rest is
 * proto3's mapping to JSON, but for:
 * - enum values are written without the prefix that their type gives them ("READY", not "SANDBOX_STATE_READY"); readers
 *   take both, in either case, and numbers;
 * - integers of 64 bits are numbers up to 2^53 and texts beyond; readers take both;
 * - durations are those of base/duration.h ("1h30m"); one that is negative or too long is written by its fields, and so
 *   is a time that RFC 3339 cannot write;
 * - of google.protobuf only Duration, Timestamp and FieldMask are known; others are messages like any.
 * What has the default value is left out; maps are sorted. Readers refuse unknown names, doubled names, values of
 * another type or out of range, texts that are not UTF-8 or contain NUL, and more than 64 levels; an error names the
 * place ("line 3: spec.limits.memory_bytes: …") and, for an unknown name, the nearest known one. null is as if it were
 * not there.
 *
 * YAML is the part of it that holds no surprises: one document, no anchors, aliases and tags. A scalar without quotes
 * means what its field takes: in a text 3.10, no and 012 are the texts that they look like. Texts are written in quotes
 * wherever some reader of YAML might take them for something else.
 *
 * The types are those of proto3. Readers take as much memory as the text needs, and abort when there is none: callers
 * bound the text. A message is freed with message_free(). */

/* Frees a message that was made here, which may be NULL. Returns NULL. */
ProtobufCMessage *message_free(ProtobufCMessage *message);
DEFINE_CLEANUP(ProtobufCMessage *, message_free);

/* An empty message. */
ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *type) __attribute__((nonnull, returns_nonnull));

/* Encoded messages. -EBADMSG, also when a text is not UTF-8. Unknown fields are kept, and stand in no text. */
int message_decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                   ProtobufCMessage **ret_message, HutchError *err) __attribute__((nonnull(1, 4)));
void message_encode(const ProtobufCMessage *message, void **ret_bytes, size_t *ret_len) __attribute__((nonnull));

/* Texts, which end with a newline and a NUL; the caller frees them. JSON is on one line, or indented. */
char *message_to_json(const ProtobufCMessage *message, bool indented) __attribute__((nonnull, returns_nonnull));
char *message_to_yaml(const ProtobufCMessage *message) __attribute__((nonnull, returns_nonnull));

/* -EINVAL. */
int message_from_json(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
                      ProtobufCMessage **ret_message, HutchError *err) __attribute__((nonnull(1, 2, 4)));
int message_from_yaml(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
                      ProtobufCMessage **ret_message, HutchError *err) __attribute__((nonnull(1, 2, 4)));

/* Fields by their path: "spec.limits.memory_bytes". */

/* The value as a text as it stands in JSON, without quotes; "" where message_has() says that there is none. Of a list:
 * its elements, separated by commas; of a map: "KEY=VALUE" the same way, sorted; of a message: its JSON. The caller
 * frees it. The path must exist in the type. */
char *message_get(const ProtobufCMessage *message, const char *path) __attribute__((nonnull, returns_nonnull));

/* The same with @separator between the elements. */
char *message_join(const ProtobufCMessage *message, const char *path, const char *separator)
        __attribute__((nonnull, returns_nonnull));

/* Whether the field is there: for those that know the difference; others are when they are not zero. */
bool message_has(const ProtobufCMessage *message, const char *path) __attribute__((nonnull));

/* Sets it from a text; the messages on the way are made. To a list it is appended; a map takes "KEY=VALUE" and replaces
 * what it had for KEY; a message takes JSON, but a duration, a time or a mask its text. -EINVAL, also when another
 * member of a oneof is set; nothing is changed then. The path must exist in the type. */
int message_set(ProtobufCMessage *message, const char *path, const char *text, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* The elements of a list of messages. */
size_t message_count(const ProtobufCMessage *message, const char *path) __attribute__((nonnull));
const ProtobufCMessage *message_at(const ProtobufCMessage *message, const char *path, size_t i)
        __attribute__((nonnull, returns_nonnull));
