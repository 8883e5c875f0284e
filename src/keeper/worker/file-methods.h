/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "keeper/worker/file-worker.h"

/* The methods of hutch.v1.FileService, as workers do them. */

/* What a method has to do with uploads that can be resumed. */
typedef enum FileUploadUse {
        FILE_UPLOAD_NOT_USED,
        FILE_UPLOAD_WRITTEN,
        FILE_UPLOAD_TOLD,
} FileUploadUse;

typedef struct FileMethodEntry {
        const char *path; /* of gRPC */
        FileMethod run;
        FileUploadUse upload_use;
        bool writes;      /* makes files, or lets them grow */
        bool lasts;       /* until the caller has enough of it */
        bool sees_layers; /* its worker has what file-layers.h says, and does nothing else */
} FileMethodEntry;

extern const FileMethodEntry file_methods[];
extern const size_t n_file_methods;

int file_method_stat(FileStream *stream, HutchError *err);
int file_method_list(FileStream *stream, HutchError *err);
int file_method_make_directory(FileStream *stream, HutchError *err);
int file_method_move(FileStream *stream, HutchError *err);
int file_method_remove(FileStream *stream, HutchError *err);
int file_method_read(FileStream *stream, HutchError *err);
int file_method_download(FileStream *stream, HutchError *err);
int file_method_write(FileStream *stream, HutchError *err);
int file_method_upload(FileStream *stream, HutchError *err);
int file_method_upload_archive(FileStream *stream, HutchError *err);
int file_method_download_archive(FileStream *stream, HutchError *err);
int file_method_watch(FileStream *stream, HutchError *err);
int file_method_changes(FileStream *stream, HutchError *err);
