/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the list of uploads that were begun, and its file: a line each, "EXPIRES USER ID PATH". What does
 * not: the uploads themselves (file-write.c), and who may write one (file-service.c). */

#include "keeper/worker/file-uploads.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "keeper/worker/sha256.h"

#define FILE_NAME "uploads"
#define NEW_NAME "uploads.new"
#define SIZE_MAX_READ (FILE_UPLOADS_MAX * 8192)
#define NAME_PREFIX ".hutch-upload-"

struct FileUploads {
        int folder;
        FileUpload *first;
        size_t n_uploads;
};

void file_upload_name(const char *id, char ret_name[static FILE_UPLOAD_NAME_SIZE]) {
        uint8_t digest[SHA256_SIZE];
        Sha256 hash;
        sha256_init(&hash);
        sha256_add(&hash, id, strlen(id));
        sha256_finish(&hash, digest);
        int len = snprintf(ret_name, FILE_UPLOAD_NAME_SIZE, NAME_PREFIX);
        for (size_t i = 0; i < 16; i++)
                len += snprintf(ret_name + len, FILE_UPLOAD_NAME_SIZE - (size_t) len, "%02x", digest[i]);
}

/* ---- The list ---- */

FileUpload *file_uploads_find(const FileUploads *uploads, const char *id) {
        for (FileUpload *upload = uploads->first; upload; upload = upload->next)
                if (str_equal(upload->id, id))
                        return upload;
        return NULL;
}

FileUpload *file_uploads_add(FileUploads *uploads, const char *id, const char *user_name, const char *path) {
        if (uploads->n_uploads == FILE_UPLOADS_MAX)
                return NULL;
        FileUpload *upload = new0(FileUpload, 1);
        upload->id = xstrdup(id);
        upload->user_name = xstrdup(user_name);
        upload->path = xstrdup(path);
        upload->next = uploads->first;
        uploads->first = upload;
        uploads->n_uploads++;
        return upload;
}

void file_uploads_remove(FileUploads *uploads, FileUpload *upload) {
        FileUpload **at = &uploads->first;
        while (*at != upload)
                at = &(*at)->next;
        *at = upload->next;
        uploads->n_uploads--;
        free(upload->id);
        free(upload->user_name);
        free(upload->path);
        free(upload);
}

FileUpload *file_uploads_first(const FileUploads *uploads) {
        FileUpload *first = NULL;
        for (FileUpload *upload = uploads->first; upload; upload = upload->next)
                if (!upload->runner && (!first || upload->expires < first->expires))
                        first = upload;
        return first;
}

/* ---- Its file ---- */

static int read_text(int folder, char **ret_text) {
        _cleanup_close_ int fd = openat(folder, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        char *text = new0(char, SIZE_MAX_READ + 1);
        for (size_t len = 0; len < SIZE_MAX_READ;) {
                ssize_t n = read(fd, text + len, SIZE_MAX_READ - len);
                if (n <= 0)
                        break;
                len += (size_t) n;
        }
        *ret_text = text;
        return 0;
}

/* Takes over what a line says, but for what is not as it was written. */
static void take_line(FileUploads *uploads, char *line, uint64_t now) {
        const char *expires = strsep(&line, " "), *user_name = strsep(&line, " "), *id = strsep(&line, " ");
        if (!line || *line != '/' || !*id || file_uploads_find(uploads, id))
                return;
        FileUpload *upload = file_uploads_add(uploads, id, user_name, line);
        if (!upload)
                return;
        /* A clock that was set back does not have it kept for longer. */
        upload->expires = strtoull(expires, NULL, 10);
        if (upload->expires > now + FILE_UPLOAD_TIME)
                upload->expires = now + FILE_UPLOAD_TIME;
}

FileUploads *file_uploads_open(int folder, uint64_t now) {
        FileUploads *uploads = new0(FileUploads, 1);
        _cleanup_free_ char *text = NULL;
        uploads->folder = folder;
        if (read_text(folder, &text) < 0)
                return uploads;
        for (char *at = text, *line; (line = strsep(&at, "\n"));)
                take_line(uploads, line, now);
        return uploads;
}

FileUploads *file_uploads_close(FileUploads *uploads) {
        if (!uploads)
                return NULL;
        while (uploads->first)
                file_uploads_remove(uploads, uploads->first);
        free(uploads);
        return NULL;
}

static int write_file(const FileUploads *uploads, const char *text, size_t len) {
        _cleanup_close_ int fd =
                openat(uploads->folder, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        int r = fd_write_all(fd, text, len);
        if (r < 0)
                return r;
        return renameat(uploads->folder, NEW_NAME, uploads->folder, FILE_NAME) < 0 ? -errno : 0;
}

void file_uploads_save(const FileUploads *uploads) {
        _cleanup_(string_builder_clear) StringBuilder builder = {};
        for (const FileUpload *upload = uploads->first; upload; upload = upload->next)
                string_builder_appendf(&builder, "%" PRIu64 " %s %s %s\n", upload->expires, upload->user_name,
                                       upload->id, upload->path);
        int r = write_file(uploads, builder.text ? builder.text : "", builder.len);
        if (r < 0)
                log_warning("cannot write the list of uploads", LOG_STR("error", strerror(-r)));
}
