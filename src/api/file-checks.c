/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules of requests for file work. What does not: the rule of paths itself (policy/path-rules.c),
 * and how requests travel (file-service.c). */

#include "api/file-checks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "policy/path-rules.h"

#define MODE_MAX 0777
#define DIRECTORY_MODE 0755
#define SHA256_SIZE 32
#define UPLOAD_ID_MAX 128
#define VERSION_MAX 64
#define PATTERNS_MAX 256
#define PATTERN_BYTES_MAX PATH_BYTES_MAX
#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define PAGE_TOKEN_MAX ((size_t) 24 << 10) /* of 64 names in base64 */
#define DEPTH_MAX 64
#define SIZE_UNLIMITED ((uint64_t) INT64_MAX) /* no file is larger */

static void replace_text(char **text, char *by) {
        if (*text != protobuf_c_empty_string)
                free(*text);
        *text = by;
}

static void check_path_for(char **path, const char *field, PathUse use, const FileRules *rules,
                           Violations *violations) {
        const PathContext context = {
                .working_directory = rules->working_directory,
                .workspace = rules->workspace,
                .use = use,
        };
        bool is_directory = false;
        char *resolved;
        size_t len;

        if (violations_note(violations, field,
                            path_resolve(*path, strlen(*path), &context, &resolved, &is_directory, &violations->err)) <
            0)
                return;

        len = strlen(resolved);
        if (is_directory && len > 1) {
                resolved = xreallocarray(resolved, len + 2, 1);
                memcpy(resolved + len, "/", 2);
        }
        replace_text(path, resolved);
}

static void check_path(char **path, const FileRules *rules, Violations *violations) {
        check_path_for(path, "path", PATH_USE_ANY, rules, violations);
}

static void check_mode(bool is_set, uint32_t mode, Violations *violations) {
        if (is_set && mode > MODE_MAX)
                violations_add(violations, "mode", REASON_FIELD_INVALID,
                               "permission bits are 0 to 0777: setuid, setgid and sticky are refused");
}

static void check_version(const char *version, Violations *violations) {
        if (strlen(version) > VERSION_MAX)
                violations_add(violations, "expected_version", REASON_FIELD_TOO_LONG, "a version has at most %d bytes",
                               VERSION_MAX);
}

static void check_upload_id(const char *id, Violations *violations) {
        size_t len = strlen(id);

        if (len > UPLOAD_ID_MAX) {
                violations_add(violations, "upload_id", REASON_FIELD_TOO_LONG, "an upload id has at most %d bytes",
                               UPLOAD_ID_MAX);
                return;
        }
        for (size_t i = 0; i < len; i++)
                if (!ascii_is_alnum(id[i]) && !strchr("-_.:", id[i])) {
                        violations_add(violations, "upload_id", REASON_FIELD_INVALID,
                                       "an upload id has letters, digits and \"-_.:\"");
                        return;
                }
}

static void check_compression(Hutch__V1__ArchiveCompression compression, Violations *violations) {
        if ((int) compression < HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_UNSPECIFIED ||
            (int) compression > HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_ZSTD)
                violations_add(violations, "compression", REASON_FIELD_INVALID, "there is no such compression");
}

static void check_pattern(const char *pattern, Violations *violations) {
        if (strlen(pattern) > PATTERN_BYTES_MAX)
                violations_add_limit(violations, NULL, REASON_FIELD_TOO_LONG, "pattern_bytes", PATTERN_BYTES_MAX,
                                     "a pattern has at most %d bytes", PATTERN_BYTES_MAX);
}

static void check_patterns(char *const patterns[], size_t n, const char *field, Violations *violations) {
        if (n > PATTERNS_MAX) {
                violations_add_limit(violations, field, REASON_FIELD_TOO_LONG, "patterns", PATTERNS_MAX,
                                     "at most %d patterns", PATTERNS_MAX);
                return;
        }
        for (size_t i = 0; i < n; i++) {
                size_t above = violations_enter_element(violations, field, i);

                if (!*patterns[i])
                        violations_add(violations, NULL, REASON_FIELD_INVALID, "a pattern is not empty");
                check_pattern(patterns[i], violations);
                violations_leave(violations, above);
        }
}

static void check_page(uint32_t *size, const char *token, Violations *violations) {
        if (*size == 0)
                *size = PAGE_DEFAULT;
        else if (*size > PAGE_MAX)
                *size = PAGE_MAX;
        if (strlen(token) > PAGE_TOKEN_MAX)
                violations_add(violations, "page_token", REASON_PAGE_TOKEN_INVALID,
                               "this listing gave out no such token");
}

static void check_ignore_file(const char *name, Violations *violations) {
        if (strlen(name) > PATH_COMPONENT_BYTES_MAX)
                violations_add(violations, "ignore_file", REASON_FIELD_TOO_LONG, "a name has at most %d bytes",
                               PATH_COMPONENT_BYTES_MAX);
        else if (strchr(name, '/') || str_equal(name, ".") || str_equal(name, ".."))
                violations_add(violations, "ignore_file", REASON_FIELD_INVALID, "it is the name of a file, not a path");
}

static void refuse_size(const char *field, const char *limit, uint64_t value, Violations *violations) {
        violations_add_limit(violations, field, REASON_FILE_TOO_LARGE, limit, value, "at most %" PRIu64 " bytes",
                             value);
}

/* Sets the limit in force. Returns whether it is the one that the caller raised. */
static bool check_max_size(uint64_t *max_size, const FileRules *rules, Violations *violations) {
        uint64_t cap = rules->limits->max_file_bytes;

        if (*max_size > 0) {
                if (cap > 0 && *max_size > cap)
                        refuse_size("max_size_bytes", "max_file_bytes", cap, violations);
                return true;
        }

        *max_size = rules->limits->file_bytes > 0 ? rules->limits->file_bytes : SIZE_UNLIMITED;
        return false;
}

static void check_small_size(const char *field, uint64_t size, const FileRules *rules, Violations *violations) {
        uint64_t max = rules->limits->small_file_bytes;

        if (max > 0 && size > max)
                refuse_size(field, "small_file_bytes", max, violations);
}

void check_upload_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__UploadFileHeader *header = (Hutch__V1__UploadFileHeader *) base;
        bool has_mode = header->opt_mode_case == HUTCH__V1__UPLOAD_FILE_HEADER__OPT_MODE_MODE;
        bool has_size = header->opt_size_bytes_case == HUTCH__V1__UPLOAD_FILE_HEADER__OPT_SIZE_BYTES_SIZE_BYTES;
        bool raised;

        check_path(&header->path, rules, violations);
        check_mode(has_mode, header->mode, violations);
        raised = check_max_size(&header->max_size_bytes, rules, violations);
        if (has_size && header->size_bytes > header->max_size_bytes)
                refuse_size("size_bytes", raised ? "max_size_bytes" : "file_bytes", header->max_size_bytes, violations);
        if (header->sha256.len != 0 && header->sha256.len != SHA256_SIZE)
                violations_add(violations, "sha256", REASON_FIELD_INVALID, "a SHA-256 has %d bytes", SHA256_SIZE);
        check_upload_id(header->upload_id, violations);
        if (header->resume_offset > 0 && !*header->upload_id)
                violations_add(violations, "resume_offset", REASON_FIELD_INVALID,
                               "only an upload with an `upload_id` can be resumed");
}

void check_download_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__DownloadFileRequest *request = (Hutch__V1__DownloadFileRequest *) base;

        check_path(&request->path, rules, violations);
        check_version(request->expected_version, violations);
        (void) check_max_size(&request->max_size_bytes, rules, violations);
}

void check_upload_archive(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__UploadArchiveHeader *header = (Hutch__V1__UploadArchiveHeader *) base;

        check_path(&header->path, rules, violations);
        check_compression(header->compression, violations);
        (void) check_max_size(&header->max_size_bytes, rules, violations);
}

void check_download_archive(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__DownloadArchiveRequest *request = (Hutch__V1__DownloadArchiveRequest *) base;

        check_path(&request->path, rules, violations);
        check_compression(request->compression, violations);
        check_patterns(request->include, request->n_include, "include", violations);
        check_patterns(request->exclude, request->n_exclude, "exclude", violations);
        check_ignore_file(request->ignore_file, violations);
        (void) check_max_size(&request->max_size_bytes, rules, violations);
}

void check_read_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__ReadFileRequest *request = (Hutch__V1__ReadFileRequest *) base;

        check_path(&request->path, rules, violations);
        if (request->opt_length_case == HUTCH__V1__READ_FILE_REQUEST__OPT_LENGTH_LENGTH)
                check_small_size("length", request->length, rules, violations);
        check_version(request->expected_version, violations);
}

void check_write_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__WriteFileRequest *request = (Hutch__V1__WriteFileRequest *) base;

        check_path(&request->path, rules, violations);
        check_small_size("data", request->data.len, rules, violations);
        check_mode(request->opt_mode_case == HUTCH__V1__WRITE_FILE_REQUEST__OPT_MODE_MODE, request->mode, violations);
        check_version(request->expected_version, violations);
}

void check_stat_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__StatFileRequest *request = (Hutch__V1__StatFileRequest *) base;

        if (*request->path || !*request->upload_id)
                check_path(&request->path, rules, violations);
        check_upload_id(request->upload_id, violations);
}

void check_list_files(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__ListFilesRequest *request = (Hutch__V1__ListFilesRequest *) base;
        size_t above;

        check_path(&request->path, rules, violations);
        if (request->depth > DEPTH_MAX)
                violations_add(violations, "depth", REASON_FIELD_OUT_OF_RANGE, "a depth is at most %d", DEPTH_MAX);
        else if (request->depth == 0)
                request->depth = 1;
        above = violations_enter(violations, "glob");
        check_pattern(request->glob, violations);
        violations_leave(violations, above);
        check_page(&request->page_size, request->page_token, violations);
}

void check_list_changes(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__ListChangesRequest *request = (Hutch__V1__ListChangesRequest *) base;

        check_path(&request->path, rules, violations);
        check_page(&request->page_size, request->page_token, violations);
}

void check_make_directory(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__MakeDirectoryRequest *request = (Hutch__V1__MakeDirectoryRequest *) base;
        bool has_mode = request->opt_mode_case == HUTCH__V1__MAKE_DIRECTORY_REQUEST__OPT_MODE_MODE;

        check_path(&request->path, rules, violations);
        check_mode(has_mode, request->mode, violations);
        if (!has_mode) {
                request->opt_mode_case = HUTCH__V1__MAKE_DIRECTORY_REQUEST__OPT_MODE_MODE;
                request->mode = DIRECTORY_MODE;
        }
}

void check_move_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__MoveFileRequest *request = (Hutch__V1__MoveFileRequest *) base;

        check_path_for(&request->source, "source", PATH_USE_REMOVE, rules, violations);
        check_path_for(&request->target, "target", PATH_USE_ANY, rules, violations);
}

void check_remove_file(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__RemoveFileRequest *request = (Hutch__V1__RemoveFileRequest *) base;

        check_path_for(&request->path, "path", PATH_USE_REMOVE, rules, violations);
}

void check_watch_files(ProtobufCMessage *base, const FileRules *rules, Violations *violations) {
        Hutch__V1__WatchFilesRequest *request = (Hutch__V1__WatchFilesRequest *) base;

        check_path(&request->path, rules, violations);
}

bool is_plain_data(const uint8_t *bytes, size_t len, unsigned number) {
        size_t value = 0, n = 0;
        unsigned shift = 0;

        if (len < 2 || bytes[n++] != (number << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED))
                return false;

        /* No length that is allowed has more than three bytes. */
        do {
                if (n == len || shift > 14)
                        return false;
                value |= (size_t) (bytes[n] & 0x7f) << shift;
                shift += 7;
        } while (bytes[n++] & 0x80);

        return value == len - n && value <= FILE_DATA_MAX && (bytes[n - 1] != 0 || n == 2);
}
