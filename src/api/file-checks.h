/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api.h"
#include "api/violations.h"

/* The rules of requests for file work. A check adds everything that is wrong with a message to the violations, below
 * where these are, and brings the message into the form in which whoever does the work wants it:
 *
 *   - paths are absolute, in the form of PATH-009, with a "/" behind those that were written as a directory's
 *   - limits that were left to the daemon are those in force
 *
 * What `sandbox_id` and `request_id` may be is checked elsewhere: every request has them. */

typedef struct FileRules {
        const char *working_directory, *workspace; /* of the sandbox; NULL: not known */
        const ApiLimits *limits;
} FileRules;

typedef void (*FileCheck)(ProtobufCMessage *message, const FileRules *rules, Violations *violations);

#define FILE_DATA_MAX ((size_t) 1 << 20) /* bytes in one message of a stream */

void check_upload_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations); /* the header */
void check_download_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_upload_archive(ProtobufCMessage *message, const FileRules *rules, Violations *violations); /* the header */
void check_download_archive(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_read_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_write_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_stat_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_list_files(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_make_directory(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_move_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_remove_file(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_watch_files(ProtobufCMessage *message, const FileRules *rules, Violations *violations);
void check_list_changes(ProtobufCMessage *message, const FileRules *rules, Violations *violations);

/* Tells whether the @len bytes at @bytes are a message that has the field @number, bytes, at most FILE_DATA_MAX of them
 * and in the shortest form, and nothing else: then it can be passed on as it is. */
bool is_plain_data(const uint8_t *bytes, size_t len, unsigned number);
