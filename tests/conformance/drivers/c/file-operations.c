/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: commands about files. */

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "driver.h"

#define PIECE ((size_t) 1 << 20) /* that is written at once */

static json_t *file_to_value(const HutchFile *file) {
        return message_to_value("FileInfo", file->encoded, file->encoded_len);
}

/* Answers with @file, and frees it. */
static int answer(int r, HutchFile *file, json_t *ok) {
        if (r >= 0)
                json_object_set_new(ok, "file", file_to_value(file));
        hutch_file_free(file);
        return r;
}

static int stat_file(Command *command, json_t *ok, HutchError **ret_error) {
        HutchFile *file = NULL;
        int r = hutch_file_stat(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                arg_flag(command, "follow_symlink"), &file, ret_error);

        return answer(r, file, ok);
}

static int add_file(const HutchFile *file, void *user) {
        return json_array_append_new(user, file_to_value(file));
}

static int list(Command *command, json_t *ok, HutchError **ret_error) {
        const HutchListFilesOptions options = {
                .depth = (uint32_t) arg_number(command, "depth"),
                .glob = arg_text(command, "glob"),
        };
        json_t *files = json_array();
        bool changed = false;
        int r = hutch_file_list(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"), &options,
                                add_file, files, &changed, ret_error);

        json_object_set_new(ok, "files", files);
        json_object_set_new(ok, "changed", json_boolean(changed));
        return r;
}

static int add_difference(const HutchImageChange *change, void *user) {
        return json_array_append_new(user, message_to_value("ImageChange", change->encoded, change->encoded_len));
}

static int list_differences(Command *command, json_t *ok, HutchError **ret_error) {
        json_t *differences = json_array();
        bool incomplete = false;
        int r = hutch_file_changes(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                   add_difference, differences, &incomplete, ret_error);

        json_object_set_new(ok, "differences", differences);
        json_object_set_new(ok, "incomplete", json_boolean(incomplete));
        return r;
}

static int make_directory(Command *command, json_t *ok, HutchError **ret_error) {
        HutchFile *file = NULL;
        int r = hutch_file_make_directory(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                          (uint32_t) arg_number(command, "mode"), arg_flag(command, "create_parents"),
                                          &file, ret_error);

        return answer(r, file, ok);
}

static int move(Command *command, json_t *ok, HutchError **ret_error) {
        HutchFile *file = NULL;
        int r = hutch_file_move(command->client, arg_text(command, "sandbox_id"), arg_text(command, "source"),
                                arg_text(command, "target"), arg_flag(command, "overwrite"),
                                arg_flag(command, "create_parents"), &file, ret_error);

        return answer(r, file, ok);
}

static int remove_file(Command *command, json_t *ok, HutchError **ret_error) {
        uint64_t removed = 0;
        int r = hutch_file_remove(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                  arg_flag(command, "recursive"), arg_flag(command, "ignore_missing"), &removed,
                                  ret_error);

        json_object_set_new(ok, "removed", json_integer((json_int_t) removed));
        return r;
}

/* ---- Bytes ---- */

static HutchWriteOptions write_options_of(Command *command) {
        return (HutchWriteOptions){
                .mode = (uint32_t) arg_number(command, "mode"),
                .parents = arg_flag(command, "create_parents"),
                .overwrite = arg_flag(command, "overwrite"),
                .expected_version = arg_text(command, "expected_version"),
                .has_size = arg_has(command, "size_bytes"),
                .size = arg_number(command, "size_bytes"),
                .sha256 = bytes_of(command, command->args, "sha256").data,
                .upload_id = arg_text(command, "upload_id"),
                .offset = arg_number(command, "resume_offset"),
                .max_size = arg_number(command, "max_size_bytes"),
        };
}

static int read_file(Command *command, json_t *ok, HutchError **ret_error) {
        HutchBuffer data = { 0 };
        HutchFile *file = NULL;
        int r = hutch_file_read(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"), &data,
                                &file, ret_error);

        if (r >= 0)
                ok_bytes(ok, "data", data.data, data.len);
        hutch_buffer_clear(&data);
        return answer(r, file, ok);
}

static int write_file(Command *command, json_t *ok, HutchError **ret_error) {
        HutchWriteOptions options = write_options_of(command);
        Bytes data = bytes_of(command, command->args, "data");
        HutchFile *file = NULL;
        int r = hutch_file_write(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"), data.data,
                                 data.len, &options, &file, ret_error);

        return answer(r, file, ok);
}

/* Sends all of @data, as far as somebody takes it. */
static int send_all(HutchUpload *upload, Bytes data, HutchError **ret_error) {
        int r = 0;

        for (size_t at = 0; at < data.len && r >= 0 && !hutch_upload_is_over(upload); at += PIECE) {
                size_t len = data.len - at < PIECE ? data.len - at : PIECE;

                r = hutch_upload_write(upload, true, (const char *) data.data + at, len, ret_error);
        }
        return r;
}

static int upload(Command *command, json_t *ok, HutchError **ret_error) {
        HutchWriteOptions options = write_options_of(command);
        HutchUpload *started = NULL;
        HutchFile *file = NULL;
        int r = hutch_upload_new(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"), &options,
                                 NULL, &started, ret_error);

        if (r >= 0)
                r = send_all(started, bytes_of(command, command->args, "data"), ret_error);
        if (r >= 0)
                r = hutch_upload_finish(started, true, &file, ret_error);
        hutch_upload_free(started);
        return answer(r, file, ok);
}

static int stat_upload(Command *command, json_t *ok, HutchError **ret_error) {
        HutchFile *file = NULL;
        int r = hutch_upload_stat(command->client, arg_text(command, "sandbox_id"), arg_text(command, "upload_id"),
                                  &file, ret_error);

        return answer(r, file, ok);
}

/* Reads @download to its end and answers with it. Takes it over. */
static int collect(Command *command, HutchDownload *download, json_t *ok, HutchError **ret_error) {
        _cleanup_(collected_clear) Collected all = {};
        const void *data;
        size_t len;
        int r;

        do {
                r = hutch_download_next(download, false, &data, &len, ret_error);
                if (r == 1)
                        collected_add(&all, all.len, data, len);
                else if (r == -EAGAIN)
                        r = command_wait(command) < 0 ? -ECANCELED : 1;
        } while (r == 1);
        if (r == 0) {
                ok_bytes(ok, "data", all.data, all.len);
                if (hutch_download_file(download))
                        json_object_set_new(ok, "file", file_to_value(hutch_download_file(download)));
        }
        hutch_download_free(download);
        return r;
}

static int download_file(Command *command, json_t *ok, HutchError **ret_error) {
        const HutchDownloadOptions options = {
                .offset = arg_number(command, "offset"),
                .has_length = arg_has(command, "length"),
                .length = arg_number(command, "length"),
                .expected_version = arg_text(command, "expected_version"),
                .max_size = arg_number(command, "max_size_bytes"),
        };
        HutchDownload *download = NULL;
        int r = hutch_download_new(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                   &options, &download, ret_error);

        return r < 0 ? r : collect(command, download, ok, ret_error);
}

/* ---- Archives ---- */

static HutchArchiveOptions archive_options_of(Command *command) {
        const char *compression = arg_text(command, "compression");

        return (HutchArchiveOptions){
                .compression = !compression                           ? HUTCH_COMPRESSION_DEFAULT
                               : str_has_suffix(compression, "_GZIP") ? HUTCH_COMPRESSION_GZIP
                               : str_has_suffix(compression, "_ZSTD") ? HUTCH_COMPRESSION_ZSTD
                                                                      : HUTCH_COMPRESSION_NONE,
                .include = texts_of(command, command->args, "include"),
                .exclude = texts_of(command, command->args, "exclude"),
                .ignore_file = arg_text(command, "ignore_file"),
                .parents = arg_flag(command, "create_parents"),
                .overwrite = arg_flag(command, "overwrite"),
        };
}

static int upload_archive(Command *command, json_t *ok, HutchError **ret_error) {
        HutchArchiveOptions options = archive_options_of(command);
        HutchUpload *started = NULL;
        int r = hutch_archive_upload(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                     &options, &started, ret_error);

        if (r >= 0)
                r = send_all(started, bytes_of(command, command->args, "data"), ret_error);
        if (r >= 0)
                r = hutch_upload_finish(started, true, NULL, ret_error);
        if (r >= 0)
                json_object_set_new(ok, "entries", json_integer((json_int_t) hutch_upload_entries(started)));
        hutch_upload_free(started);
        return r;
}

static int download_archive(Command *command, json_t *ok, HutchError **ret_error) {
        HutchArchiveOptions options = archive_options_of(command);
        HutchDownload *download = NULL;
        int r = hutch_archive_download(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                       &options, &download, ret_error);

        return r < 0 ? r : collect(command, download, ok, ret_error);
}

/* ---- Changes ---- */

static int take_changes(Command *command, HutchFileWatch *watch, json_t *changes, HutchError **ret_error) {
        HutchFileChange change;
        int r;

        while (json_array_size(changes) < arg_number(command, "count")) {
                r = hutch_file_watch_next(watch, false, &change, ret_error);
                if (r == -EAGAIN)
                        r = command_wait(command);
                else if (r == 1)
                        command_note(command);
                if (r < 0)
                        return r;
                if (r == 1 && change.type != 0) {
                        json_t *step = message_to_value("WatchFilesResponse", change.encoded, change.encoded_len);

                        json_array_append(changes, json_object_get(step, "change"));
                        json_decref(step);
                }
        }
        return 0;
}

static int watch_files(Command *command, json_t *ok, HutchError **ret_error) {
        HutchFileWatch *watch = NULL;
        int r = hutch_file_watch_new(command->client, arg_text(command, "sandbox_id"), arg_text(command, "path"),
                                     arg_flag(command, "recursive"), NULL, &watch, ret_error);

        if (r < 0)
                return r;

        json_object_set_new(ok, "changes", json_array());
        r = take_changes(command, watch, json_object_get(ok, "changes"), ret_error);
        hutch_file_watch_free(watch);
        return r;
}

const NamedOperation file_operations[] = {
        { "file.read", read_file },
        { "file.write", write_file },
        { "file.upload", upload },
        { "file.upload_stat", stat_upload },
        { "file.download", download_file },
        { "file.archive_upload", upload_archive },
        { "file.archive_download", download_archive },
        { "file.stat", stat_file },
        { "file.list", list },
        { "file.changes", list_differences },
        { "file.mkdir", make_directory },
        { "file.move", move },
        { "file.remove", remove_file },
        { "file.watch", watch_files },
        { NULL, NULL },
};
