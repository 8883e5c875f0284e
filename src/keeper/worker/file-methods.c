/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the list of the methods. What does not: the methods. */

#include "keeper/worker/file-methods.h"

#define PATH(method) "/hutch.v1.FileService/" method

const FileMethodEntry file_methods[] = {
        { .path = PATH("StatFile"), .run = file_method_stat, .upload_use = FILE_UPLOAD_TOLD },
        { .path = PATH("ListFiles"), .run = file_method_list },
        { .path = PATH("MakeDirectory"), .run = file_method_make_directory, .writes = true },
        { .path = PATH("MoveFile"), .run = file_method_move },
        { .path = PATH("RemoveFile"), .run = file_method_remove },
        { .path = PATH("ReadFile"), .run = file_method_read },
        { .path = PATH("DownloadFile"), .run = file_method_download },
        { .path = PATH("WriteFile"), .run = file_method_write, .writes = true },
        { .path = PATH("UploadFile"), .run = file_method_upload, .upload_use = FILE_UPLOAD_WRITTEN, .writes = true },
        { .path = PATH("UploadArchive"), .run = file_method_upload_archive, .writes = true },
        { .path = PATH("DownloadArchive"), .run = file_method_download_archive },
        { .path = PATH("WatchFiles"), .run = file_method_watch, .lasts = true },
        { .path = PATH("ListChanges"), .run = file_method_changes, .sees_layers = true },
};
const size_t n_file_methods = sizeof(file_methods) / sizeof(*file_methods);
