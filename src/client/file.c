/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls about files with one message each way. What does not: streams of bytes (file-stream.c), what
 * changes in folders (file-watch.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/memory.h"
#include "client/checks.h"
#include "client/outcall.h"
#include "client/views.h"

#define PAGE_SIZE 1000

/* A text as messages have them; they are only read. */
static char *text_or_empty(const char *text) {
        return (char *) (text ? text : protobuf_c_empty_string);
}

/* Makes a file of a part of @whole for the caller, who may not want it. Takes over @whole. */
static int hand_over(ProtobufCMessage *whole, const Hutch__V1__FileInfo *part, HutchFile **ret_file, Failure *failure) {
        HutchFile *file = NULL;
        int r = file_view_new(whole, part, &file);

        if (r < 0)
                return r == -EBADMSG ? error_set_code(&failure->error, STATUS_INTERNAL, r, "INTERNAL",
                                                      "the daemon's answer has no file")
                                     : r;

        if (ret_file)
                *ret_file = file;
        else
                hutch_file_free(file);
        return 0;
}

_Static_assert(offsetof(Hutch__V1__StatFileResponse, file) == offsetof(Hutch__V1__MakeDirectoryResponse, file) &&
                       offsetof(Hutch__V1__StatFileResponse, file) == offsetof(Hutch__V1__MoveFileResponse, file) &&
                       offsetof(Hutch__V1__StatFileResponse, file) == offsetof(Hutch__V1__WriteFileResponse, file),
               "answers with a file have one shape");

/* Makes a call whose answer has one field, a file, when @checks find nothing. */
static int call_for_file(HutchClient *client, const char *method, const ProtobufCMessage *request, const Checks *checks,
                         HutchFile **ret_file, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        ProtobufCMessage *reply;
        int r = checks_result(checks, &failure);

        if (r == 0)
                r = outcall_unary_message(client, method, request, 0, &reply, &failure);
        if (r == 0)
                r = hand_over(reply, ((const Hutch__V1__StatFileResponse *) reply)->file, ret_file, &failure);
        return failure_tell(&failure, r, ret_error);
}

int hutch_file_stat(HutchClient *client, const char *sandbox_id, const char *path, bool follow, HutchFile **ret_file,
                    HutchError **ret_error) {
        Hutch__V1__StatFileRequest request = HUTCH__V1__STAT_FILE_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        request.follow_symlink = follow;
        return call_for_file(client, "FileService/StatFile", &request.base, &checks, ret_file, ret_error);
}

int hutch_upload_stat(HutchClient *client, const char *sandbox_id, const char *upload_id, HutchFile **ret_file,
                      HutchError **ret_error) {
        Hutch__V1__StatFileRequest request = HUTCH__V1__STAT_FILE_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_required(&checks, "upload_id", upload_id);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.upload_id = text_or_empty(upload_id);
        return call_for_file(client, "FileService/StatFile", &request.base, &checks, ret_file, ret_error);
}

int hutch_file_make_directory(HutchClient *client, const char *sandbox_id, const char *path, uint32_t mode,
                              bool parents, HutchFile **ret_file, HutchError **ret_error) {
        Hutch__V1__MakeDirectoryRequest request = HUTCH__V1__MAKE_DIRECTORY_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        checks_mode(&checks, "mode", mode);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        request.create_parents = parents;
        if (mode > 0) {
                request.opt_mode_case = HUTCH__V1__MAKE_DIRECTORY_REQUEST__OPT_MODE_MODE;
                request.mode = mode;
        }
        return call_for_file(client, "FileService/MakeDirectory", &request.base, &checks, ret_file, ret_error);
}

int hutch_file_move(HutchClient *client, const char *sandbox_id, const char *source, const char *target, bool overwrite,
                    bool parents, HutchFile **ret_file, HutchError **ret_error) {
        Hutch__V1__MoveFileRequest request = HUTCH__V1__MOVE_FILE_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "source", source);
        checks_path(&checks, "target", target);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.source = text_or_empty(source);
        request.target = text_or_empty(target);
        request.overwrite = overwrite;
        request.create_parents = parents;
        return call_for_file(client, "FileService/MoveFile", &request.base, &checks, ret_file, ret_error);
}

int hutch_file_remove(HutchClient *client, const char *sandbox_id, const char *path, bool recursive,
                      bool ignore_missing, uint64_t *ret_removed, HutchError **ret_error) {
        Hutch__V1__RemoveFileRequest request = HUTCH__V1__REMOVE_FILE_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        int r;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        r = checks_result(&checks, &failure);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        request.recursive = recursive;
        request.ignore_missing = ignore_missing;
        if (r == 0)
                r = outcall_unary_message(client, "FileService/RemoveFile", &request.base, 0, &reply, &failure);
        if (r != 0)
                return failure_tell(&failure, r, ret_error);

        if (ret_removed)
                *ret_removed = ((const Hutch__V1__RemoveFileResponse *) reply)->removed;
        return 0;
}

/* ---- Contents ---- */

int hutch_file_read(HutchClient *client, const char *sandbox_id, const char *path, HutchBuffer *ret_data,
                    HutchFile **ret_file, HutchError **ret_error) {
        Hutch__V1__ReadFileRequest request = HUTCH__V1__READ_FILE_REQUEST__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        Hutch__V1__ReadFileResponse *reply;
        ProtobufCMessage *message;
        HutchBuffer data;
        int r;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        r = checks_result(&checks, &failure);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        if (r == 0)
                r = outcall_unary_message(client, "FileService/ReadFile", &request.base, 0, &message, &failure);
        if (r != 0)
                return failure_tell(&failure, r, ret_error);

        reply = (Hutch__V1__ReadFileResponse *) message;
        data = (HutchBuffer){ realloc(reply->data.data, reply->data.len + 1), reply->data.len };
        if (!data.data) {
                (void) protobuf_free(message);
                return failure_tell(&failure, -ENOMEM, ret_error);
        }
        data.data[data.len] = '\0';
        reply->data = (ProtobufCBinaryData){};
        r = hand_over(message, reply->file, ret_file, &failure);
        if (r < 0) {
                hutch_buffer_clear(&data);
                return failure_tell(&failure, r, ret_error);
        }

        *ret_data = data;
        return 0;
}

int hutch_file_write(HutchClient *client, const char *sandbox_id, const char *path, const void *data, size_t len,
                     const HutchWriteOptions *options, HutchFile **ret_file, HutchError **ret_error) {
        static const HutchWriteOptions defaults;
        Hutch__V1__WriteFileRequest request = HUTCH__V1__WRITE_FILE_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        if (!options)
                options = &defaults;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        checks_mode(&checks, "mode", options->mode);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        request.data = (ProtobufCBinaryData){ .len = len, .data = (uint8_t *) data };
        request.create_parents = options->parents;
        request.overwrite = options->overwrite;
        request.expected_version = text_or_empty(options->expected_version);
        if (options->mode > 0) {
                request.opt_mode_case = HUTCH__V1__WRITE_FILE_REQUEST__OPT_MODE_MODE;
                request.mode = options->mode;
        }
        return call_for_file(client, "FileService/WriteFile", &request.base, &checks, ret_file, ret_error);
}

/* ---- Lists ---- */

/* Hands out one page. */
static int hand_out(const Hutch__V1__ListFilesResponse *page, int (*callback)(const HutchFile *file, void *user),
                    void *user, HutchError **ret_error) {
        int r = 0;

        for (size_t i = 0; i < page->n_files && r == 0; i++) {
                _cleanup_(file_view_clear) FileView view = {};

                if (file_view_fill(&view, page->files[i]) < 0)
                        return failure_tell(&(Failure){}, -ENOMEM, ret_error);
                r = callback(&view.view, user);
        }

        return r;
}

int hutch_file_list(HutchClient *client, const char *sandbox_id, const char *path, const HutchListFilesOptions *options,
                    int (*callback)(const HutchFile *file, void *user), void *user, bool *ret_changed,
                    HutchError **ret_error) {
        Hutch__V1__ListFilesRequest request = HUTCH__V1__LIST_FILES_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *page = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        bool changed = false;
        int r;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        r = checks_result(&checks, &failure);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        request.depth = options ? options->depth : 0;
        request.glob = text_or_empty(options ? options->glob : NULL);
        request.page_size = PAGE_SIZE;

        do {
                ProtobufCMessage *next = NULL;

                if (r == 0)
                        r = outcall_unary_message(client, "FileService/ListFiles", &request.base, 0, &next, &failure);
                if (r != 0)
                        return failure_tell(&failure, r, ret_error);

                (void) protobuf_free(page); /* whose token was sent */
                page = next;
                request.page_token = ((Hutch__V1__ListFilesResponse *) page)->next_page_token;
                changed |= ((Hutch__V1__ListFilesResponse *) page)->changed;
                r = hand_out((const Hutch__V1__ListFilesResponse *) page, callback, user, ret_error);
        } while (r == 0 && *request.page_token);

        if (r == 0 && ret_changed)
                *ret_changed = changed;
        return r;
}

/* ---- Differences from the image ---- */

static int hand_out_change(const Hutch__V1__ImageChange *message,
                           int (*callback)(const HutchImageChange *change, void *user), void *user,
                           HutchError **ret_error) {
        _cleanup_(file_view_clear) FileView view = {};
        _cleanup_free_ uint8_t *encoded = NULL;
        HutchImageChange change = { .type = (HutchImageChangeType) message->type, .path = message->path };

        if (protobuf_pack(&message->base, &encoded, &change.encoded_len) < 0 ||
            (message->file && file_view_fill(&view, message->file) < 0))
                return failure_tell(&(Failure){}, -ENOMEM, ret_error);

        change.encoded = encoded;
        change.file = message->file ? &view.view : NULL;
        return callback(&change, user);
}

int hutch_file_changes(HutchClient *client, const char *sandbox_id, const char *path,
                       int (*callback)(const HutchImageChange *change, void *user), void *user, bool *ret_incomplete,
                       HutchError **ret_error) {
        Hutch__V1__ListChangesRequest request = HUTCH__V1__LIST_CHANGES_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *page = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        bool incomplete = false;
        int r;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        r = checks_result(&checks, &failure);
        request.sandbox_id = text_or_empty(sandbox_id);
        request.path = text_or_empty(path);
        request.page_size = PAGE_SIZE;

        do {
                const Hutch__V1__ListChangesResponse *told;
                ProtobufCMessage *next = NULL;

                if (r == 0)
                        r = outcall_unary_message(client, "FileService/ListChanges", &request.base, 0, &next, &failure);
                if (r != 0)
                        return failure_tell(&failure, r, ret_error);

                (void) protobuf_free(page); /* whose token was sent */
                page = next;
                told = (const Hutch__V1__ListChangesResponse *) page;
                request.page_token = told->next_page_token;
                incomplete |= told->incomplete;
                for (size_t i = 0; i < told->n_changes && r == 0; i++)
                        r = hand_out_change(told->changes[i], callback, user, ret_error);
        } while (r == 0 && *request.page_token);

        if (r == 0 && ret_incomplete)
                *ret_incomplete = incomplete;
        return r;
}
