/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* Uploads that can be resumed, by the ids that their callers gave them: whose, where to, and until when what came of
 * them is kept. What came stands beside where the file is to stand, under a name that the id gives. The list outlives
 * the keeper, in a file of its own. Times are those of the wall clock, in nanoseconds. */

#define FILE_UPLOADS_MAX 64
#define FILE_UPLOAD_TIME (3600 * UINT64_C(1000000000))
#define FILE_UPLOAD_NAME_SIZE 64

typedef struct FileUploads FileUploads;

typedef struct FileUpload FileUpload;
struct FileUpload {
        FileUpload *next;
        char *id;
        char *user_name;
        char *path;
        uint64_t expires;
        void *runner; /* who writes it now; NULL: nobody */
};

/* The list that is kept in @folder, which is borrowed, read at @now. One that cannot be read is empty. */
FileUploads *file_uploads_open(int folder, uint64_t now) __attribute__((returns_nonnull));
FileUploads *file_uploads_close(FileUploads *uploads);
DEFINE_CLEANUP(FileUploads *, file_uploads_close);

/* NULL: there is none of that id. */
FileUpload *file_uploads_find(const FileUploads *uploads, const char *id) __attribute__((nonnull));

/* Adds one. NULL: there are too many. */
FileUpload *file_uploads_add(FileUploads *uploads, const char *id, const char *user_name, const char *path)
        __attribute__((nonnull));

void file_uploads_remove(FileUploads *uploads, FileUpload *upload) __attribute__((nonnull));

/* The one that nobody writes which expires first; NULL: there is none. */
FileUpload *file_uploads_first(const FileUploads *uploads) __attribute__((nonnull));

/* Writes the list. What could not be written is lost when the keeper ends, and nothing else. */
void file_uploads_save(const FileUploads *uploads) __attribute__((nonnull));

/* The name under which what came of an upload stands. */
void file_upload_name(const char *id, char ret_name[static FILE_UPLOAD_NAME_SIZE]) __attribute__((nonnull));
