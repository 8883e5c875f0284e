/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: files and archives as streams of bytes, out of a sandbox and into one. What does not: calls with one
 * message each way (file.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "client/checks.h"
#include "client/outcall.h"
#include "client/pairs.h"
#include "client/request-id.h"
#include "client/views.h"

#define DATA_MAX ((size_t) 256 << 10) /* bytes in one message: several stay in a processor's cache */
#define FILE_FIELD HUTCH__V1__DOWNLOAD_FILE_RESPONSE__ITEM_DATA
#define ARCHIVE_FIELD 1 /* of DownloadArchiveResponse: its bytes */
#define RESUMES_MAX 6   /* in a row that brought nothing */
#define SHA256_SIZE 32

static const HutchArchiveOptions archive_defaults;

/* A text as messages have them; they are only read. */
static char *text_or_empty(const char *text) {
        return (char *) (text ? text : protobuf_c_empty_string);
}

static int fail_incomplete(Failure *failure, const char *what) {
        return error_set_code(&failure->error, STATUS_DATA_LOSS, -EPROTO, "STREAM_INCOMPLETE", "the daemon never %s",
                              what);
}

/* Begins a call with its first message. Why one is over that has just begun, its end will tell. */
static int begin(HutchClient *client, const char *method, const ProtobufCMessage *message, void *user,
                 HutchCall **ret_call, Failure *failure) {
        const OutcallOptions options = { .method = method, .user = user };
        int r = outcall_new(client, &options, ret_call, failure);

        if (r == 0)
                r = outcall_queue(*ret_call, message, failure);
        return r == -EPIPE ? 0 : r;
}

/* ---- Downloads ---- */

struct HutchDownload {
        HutchClient *client;
        HutchCall *call;
        void *user;
        bool archive;
        bool ended;
        char *sandbox_id, *path;
        HutchDownloadOptions options; /* what is still missing */
        char *version;                /* that the file must have; NULL: any */
        FileView file;
        HutchBuffer message; /* that the last bytes are in */
        unsigned n_resumes;
};

void hutch_download_free(HutchDownload *download) {
        if (!download)
                return;

        (void) outcall_free(download->call);
        free(download->sandbox_id);
        free(download->path);
        free(download->version);
        file_view_clear(&download->file);
        hutch_buffer_clear(&download->message);
        free(download);
}

static HutchDownload *download_make(HutchClient *client, const char *sandbox_id, const char *path, void *user) {
        HutchDownload *download = try_new0(HutchDownload, 1);

        if (!download)
                return NULL;

        download->client = client;
        download->user = user;
        download->sandbox_id = strdup(sandbox_id);
        download->path = strdup(path);
        if (download->sandbox_id && download->path)
                return download;

        hutch_download_free(download);
        return NULL;
}

/* Asks for what is missing of a file. */
static int download_begin(HutchDownload *download, Failure *failure) {
        Hutch__V1__DownloadFileRequest request = HUTCH__V1__DOWNLOAD_FILE_REQUEST__INIT;
        const HutchDownloadOptions *options = &download->options;
        int r;

        request.sandbox_id = download->sandbox_id;
        request.path = download->path;
        request.offset = options->offset;
        request.expected_version = text_or_empty(download->version);
        request.max_size_bytes = outcall_size_limit(download->client, options->max_size);
        if (options->has_length) {
                request.opt_length_case = HUTCH__V1__DOWNLOAD_FILE_REQUEST__OPT_LENGTH_LENGTH;
                request.length = options->length;
        }
        r = begin(download->client, "FileService/DownloadFile", &request.base, download->user, &download->call,
                  failure);
        if (r == 0)
                hutch_call_end(download->call);
        return r;
}

static int check_target(const char *sandbox_id, const char *path, const char *above, Failure *failure) {
        _cleanup_(checks_clear) Checks checks = { .above = above };

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        return checks_result(&checks, failure);
}

/* Fills a new download with what the caller wants, and begins it. */
static int download_start(HutchDownload *download, const HutchDownloadOptions *options, Failure *failure) {
        if (options) {
                download->options = *options;
                if (options->expected_version && *options->expected_version) {
                        download->version = strdup(options->expected_version);
                        if (!download->version)
                                return -ENOMEM;
                }
        }
        return download_begin(download, failure);
}

static int archive_start(HutchDownload *download, const HutchArchiveOptions *options, Failure *failure) {
        Hutch__V1__DownloadArchiveRequest request = HUTCH__V1__DOWNLOAD_ARCHIVE_REQUEST__INIT;
        int r;

        download->archive = true;
        request.sandbox_id = download->sandbox_id;
        request.path = download->path;
        request.compression = (Hutch__V1__ArchiveCompression) options->compression;
        request.include = (char **) options->include;
        request.n_include = texts_count(options->include);
        request.exclude = (char **) options->exclude;
        request.n_exclude = texts_count(options->exclude);
        request.ignore_file = text_or_empty(options->ignore_file);
        request.max_size_bytes = outcall_size_limit(download->client, options->max_size);
        r = begin(download->client, "FileService/DownloadArchive", &request.base, options->user, &download->call,
                  failure);
        if (r == 0)
                hutch_call_end(download->call);
        return r;
}

/* Hands a download to the caller, or, when @r says that it could not begin, frees it. */
static int hand_over(HutchDownload *download, int r, HutchDownload **ret_download, Failure *failure,
                     HutchError **ret_error) {
        if (r == 0) {
                *ret_download = download;
                return 0;
        }

        hutch_download_free(download);
        return failure_tell(failure, r, ret_error);
}

int hutch_download_new(HutchClient *client, const char *sandbox_id, const char *path,
                       const HutchDownloadOptions *options, HutchDownload **ret_download, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        HutchDownload *download = NULL;
        int r = check_target(sandbox_id, path, NULL, &failure);

        if (r == 0) {
                download = download_make(client, sandbox_id, path, options ? options->user : NULL);
                r = download ? download_start(download, options, &failure) : -ENOMEM;
        }
        return hand_over(download, r, ret_download, &failure, ret_error);
}

int hutch_archive_download(HutchClient *client, const char *sandbox_id, const char *path,
                           const HutchArchiveOptions *options, HutchDownload **ret_download, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        HutchDownload *download = NULL;
        int r = check_target(sandbox_id, path, NULL, &failure);

        if (!options)
                options = &archive_defaults;
        if (r == 0) {
                download = download_make(client, sandbox_id, path, options->user);
                r = download ? archive_start(download, options, &failure) : -ENOMEM;
        }
        return hand_over(download, r, ret_download, &failure, ret_error);
}

/* Keeps what the first message tells. One that goes on knows it already. */
static int keep_file(HutchDownload *download, ProtobufCMessage **message, const Hutch__V1__FileInfo *file) {
        int r;

        if (download->file.message)
                return 0;

        download->file.message = TAKE_PTR(*message);
        r = file_view_fill(&download->file, file);
        if (r == 0 && !download->version) {
                download->version = strdup(file->version);
                r = download->version ? 0 : -ENOMEM;
        }
        return r;
}

/* The connection is lost. Goes on from where the download has come to, or fails. */
static int download_resume(HutchDownload *download, int r, Failure *failure) {
        if (download->archive || failure->error.code != STATUS_UNAVAILABLE || download->n_resumes == RESUMES_MAX)
                return r;

        download->n_resumes++;
        failure_clear(failure);
        download->call = outcall_free(download->call);
        return download_begin(download, failure);
}

/* Notes that @len more bytes have come. */
static void download_advance(HutchDownload *download, size_t len) {
        download->n_resumes = 0;
        download->options.offset += len;
        if (download->options.has_length)
                download->options.length -= len < download->options.length ? len : download->options.length;
}

/* Decodes the last message, which is not made of bytes alone, and leaves of it what bytes it has. */
static int decode_message(HutchDownload *download, Failure *failure) {
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        ProtobufCBinaryData *data = NULL;
        int r = outcall_decode(download->archive ? &hutch__v1__download_archive_response__descriptor
                                                 : &hutch__v1__download_file_response__descriptor,
                               &download->message, &message, failure);

        hutch_buffer_clear(&download->message);
        if (r < 0)
                return r;

        if (download->archive) {
                data = &((Hutch__V1__DownloadArchiveResponse *) message)->data;
        } else {
                Hutch__V1__DownloadFileResponse *step = (Hutch__V1__DownloadFileResponse *) message;

                if (step->item_case == HUTCH__V1__DOWNLOAD_FILE_RESPONSE__ITEM_FILE)
                        return keep_file(download, &message, step->file);
                if (step->item_case != HUTCH__V1__DOWNLOAD_FILE_RESPONSE__ITEM_DATA)
                        return 0;
                data = &step->data;
        }
        download->message = (HutchBuffer){ data->data, data->len };
        *data = (ProtobufCBinaryData){};
        return 0;
}

/* Sets @ret_data to the bytes that the last message has. */
static int take_message(HutchDownload *download, ProtobufCBinaryData *ret_data, Failure *failure) {
        HutchBuffer *message = &download->message;
        const uint8_t *data;
        int r;

        if (protobuf_find_bytes(message->data, message->len, download->archive ? ARCHIVE_FIELD : FILE_FIELD, &data,
                                &ret_data->len)) {
                ret_data->data = (uint8_t *) data;
                return 0;
        }

        r = decode_message(download, failure);
        *ret_data = (ProtobufCBinaryData){ .data = message->data, .len = message->len };
        return r;
}

static int download_next(HutchDownload *download, bool wait, const void **ret_data, size_t *ret_len, Failure *failure) {
        while (!download->ended) {
                ProtobufCBinaryData data = {};
                int r;

                hutch_buffer_clear(&download->message);
                r = download->call ? outcall_receive(download->call, wait, &download->message, failure) : -ECONNREFUSED;
                if (r == -EAGAIN)
                        return r;
                if (r == 0) {
                        if (!download->archive && !download->file.message)
                                return fail_incomplete(failure, "told about the file");
                        download->ended = true;
                        return 0;
                }
                if (r > 0)
                        r = take_message(download, &data, failure);
                else
                        r = download_resume(download, r, failure);
                if (r < 0)
                        return r;
                if (data.len > 0) {
                        download_advance(download, data.len);
                        *ret_data = data.data;
                        *ret_len = data.len;
                        return 1;
                }
        }

        return 0;
}

int hutch_download_next(HutchDownload *download, bool wait, const void **ret_data, size_t *ret_len,
                        HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = download_next(download, wait, ret_data, ret_len, &failure);

        return r == -EAGAIN ? r : failure_tell(&failure, r, ret_error);
}

const HutchFile *hutch_download_file(const HutchDownload *download) {
        return download->file.message ? &download->file.view : NULL;
}

/* ---- Uploads ---- */

struct HutchUpload {
        HutchCall *call;
        bool archive;
        bool finishing;
        uint64_t entries;
};

void hutch_upload_free(HutchUpload *upload) {
        if (!upload)
                return;

        (void) outcall_free(upload->call);
        free(upload);
}

/* Begins an upload with @header, when there is nothing wrong with it. */
static int upload_begin(HutchClient *client, bool archive, const ProtobufCMessage *header, void *user,
                        HutchUpload **ret_upload, Failure *failure) {
        HutchUpload *upload = try_new0(HutchUpload, 1);
        int r;

        if (!upload)
                return -ENOMEM;

        upload->archive = archive;
        r = begin(client, archive ? "FileService/UploadArchive" : "FileService/UploadFile", header, user, &upload->call,
                  failure);
        if (r < 0) {
                hutch_upload_free(upload);
                return r;
        }

        *ret_upload = upload;
        return 0;
}

int hutch_upload_new(HutchClient *client, const char *sandbox_id, const char *path, const HutchWriteOptions *options,
                     void *user, HutchUpload **ret_upload, HutchError **ret_error) {
        static const HutchWriteOptions defaults;
        Hutch__V1__UploadFileRequest request = HUTCH__V1__UPLOAD_FILE_REQUEST__INIT;
        Hutch__V1__UploadFileHeader header = HUTCH__V1__UPLOAD_FILE_HEADER__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = { .above = "header." };
        char request_id[REQUEST_ID_SIZE];
        int r;

        if (!options)
                options = &defaults;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        checks_mode(&checks, "mode", options->mode);
        r = checks_result(&checks, &failure);
        if (r == 0)
                r = request_id_make(request_id);

        header.sandbox_id = text_or_empty(sandbox_id);
        header.path = text_or_empty(path);
        header.request_id = request_id;
        header.create_parents = options->parents;
        header.overwrite = options->overwrite;
        header.upload_id = text_or_empty(options->upload_id);
        header.resume_offset = options->offset;
        header.max_size_bytes = r == 0 ? outcall_size_limit(client, options->max_size) : 0;
        if (options->mode > 0) {
                header.opt_mode_case = HUTCH__V1__UPLOAD_FILE_HEADER__OPT_MODE_MODE;
                header.mode = options->mode;
        }
        if (options->has_size) {
                header.opt_size_bytes_case = HUTCH__V1__UPLOAD_FILE_HEADER__OPT_SIZE_BYTES_SIZE_BYTES;
                header.size_bytes = options->size;
        }
        if (options->sha256)
                header.sha256 = (ProtobufCBinaryData){ .len = SHA256_SIZE, .data = (uint8_t *) options->sha256 };
        request.item_case = HUTCH__V1__UPLOAD_FILE_REQUEST__ITEM_HEADER;
        request.header = &header;
        if (r == 0)
                r = upload_begin(client, false, &request.base, user, ret_upload, &failure);
        return failure_tell(&failure, r, ret_error);
}

int hutch_archive_upload(HutchClient *client, const char *sandbox_id, const char *path,
                         const HutchArchiveOptions *options, HutchUpload **ret_upload, HutchError **ret_error) {
        Hutch__V1__UploadArchiveRequest request = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__INIT;
        Hutch__V1__UploadArchiveHeader header = HUTCH__V1__UPLOAD_ARCHIVE_HEADER__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        char request_id[REQUEST_ID_SIZE];
        int r = check_target(sandbox_id, path, "header.", &failure);

        if (r == 0)
                r = request_id_make(request_id);
        if (!options)
                options = &archive_defaults;
        header.sandbox_id = text_or_empty(sandbox_id);
        header.path = text_or_empty(path);
        header.request_id = request_id;
        header.compression = (Hutch__V1__ArchiveCompression) options->compression;
        header.create_parents = options->parents;
        header.overwrite = options->overwrite;
        header.max_size_bytes = r == 0 ? outcall_size_limit(client, options->max_size) : 0;
        request.item_case = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_HEADER;
        request.header = &header;
        if (r == 0)
                r = upload_begin(client, true, &request.base, options->user, ret_upload, &failure);
        return failure_tell(&failure, r, ret_error);
}

_Static_assert((int) HUTCH__V1__UPLOAD_FILE_REQUEST__ITEM_DATA == (int) HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_DATA,
               "both kinds of uploads have their bytes in the same field");

/* Queues a message of @len bytes. */
static int queue_data(HutchUpload *upload, const uint8_t *bytes, size_t len, Failure *failure) {
        uint8_t head[PROTOBUF_BYTES_HEAD_MAX];
        size_t head_len = protobuf_write_bytes_head(head, HUTCH__V1__UPLOAD_FILE_REQUEST__ITEM_DATA, len);
        uint8_t *message = malloc(head_len + len);

        if (!message)
                return -ENOMEM;

        memcpy(message, head, head_len);
        memcpy(message + head_len, bytes, len);
        return outcall_queue_taken(upload->call, message, head_len + len, failure);
}

static int write_all(HutchUpload *upload, bool wait, const uint8_t *bytes, size_t len, Failure *failure) {
        if (!wait && !hutch_call_is_writable(upload->call) && !outcall_is_over(upload->call))
                return -EAGAIN;

        while (len > 0) {
                size_t n = len < DATA_MAX ? len : DATA_MAX;
                int r = queue_data(upload, bytes, n, failure);

                if (r < 0)
                        return r == -EPIPE ? 0 : r; /* the end tells why */
                if (wait)
                        outcall_wait_for_room(upload->call);
                bytes += n;
                len -= n;
        }

        return 0;
}

int hutch_upload_write(HutchUpload *upload, bool wait, const void *data, size_t len, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = write_all(upload, wait, data, len, &failure);

        return r == -EAGAIN ? r : failure_tell(&failure, r, ret_error);
}

bool hutch_upload_is_over(const HutchUpload *upload) {
        return outcall_is_over(upload->call);
}

static int finish(HutchUpload *upload, bool wait, HutchFile **ret_file, Failure *failure) {
        const ProtobufCMessageDescriptor *type = upload->archive ? &hutch__v1__upload_archive_response__descriptor
                                                                 : &hutch__v1__upload_file_response__descriptor;
        ProtobufCMessage *reply;
        HutchFile *file = NULL;
        int r;

        if (!upload->finishing)
                hutch_call_end(upload->call);
        upload->finishing = true;
        r = outcall_receive_message(upload->call, wait, type, &reply, failure);
        if (r == 0)
                return fail_incomplete(failure, "told that it is written");
        if (r < 0)
                return r;

        if (upload->archive) {
                upload->entries = ((const Hutch__V1__UploadArchiveResponse *) reply)->entries;
                (void) protobuf_free(reply);
                return 0;
        }
        r = file_view_new(reply, ((const Hutch__V1__UploadFileResponse *) reply)->file, &file);
        if (r < 0)
                return r == -EBADMSG ? fail_incomplete(failure, "told about the file") : r;
        if (ret_file)
                *ret_file = file;
        else
                hutch_file_free(file);
        return 0;
}

int hutch_upload_finish(HutchUpload *upload, bool wait, HutchFile **ret_file, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = finish(upload, wait, ret_file, &failure);

        return r == -EAGAIN ? r : failure_tell(&failure, r, ret_error);
}

uint64_t hutch_upload_entries(const HutchUpload *upload) {
        return upload->entries;
}
