/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the methods ReadFile and DownloadFile. What does not: finding the file (file-path.c).
 *
 * The kernel tells the size of a file that has one. Files of /proc and the like have 0, or say more than they have:
 * they are read to where they end. That a file changed is seen by its version, after what was read. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define READ_MAX (3 << 20)
#define DATA_FIELD 2 /* of DownloadFileResponse */

/* A file being read. */
typedef struct Source {
        int fd;
        const char *path; /* for sentences */
        char version[FILE_VERSION_SIZE];
        uint64_t offset; /* of the next byte */
        uint64_t left;   /* bytes to be read at most */
        uint64_t max;    /* bytes that may be read, of a file that does not tell its size */
        const char *max_name;
        FileInfo info;
} Source;

static void source_clear(Source *source) {
        file_info_clear(&source->info);
        fd_close(source->fd);
}

static int changed(const Source *source, HutchError *err) {
        return reason_set(err, -ESTALE, REASON_FILE_CHANGED, "%s is not what it was: it changed", source->path);
}

static int too_large(const Source *source, HutchError *err) {
        reason_set(err, -EFBIG, REASON_FILE_TOO_LARGE, "%s has more than %" PRIu64 " bytes to read: ask for a part",
                   source->path, source->max);
        return reason_add_limit(err, source->max_name, source->max, -EFBIG);
}

/* Goes to @offset, which may be the end, but not behind it. */
static int source_seek(Source *source, const struct stat *st, uint64_t offset, HutchError *err) {
        uint64_t size = (uint64_t) st->st_size;
        char last;
        source->offset = offset;
        if (offset <= size)
                return 0;
        /* One that does not tell its size is asked for the byte before. */
        if (size == 0 && offset <= INT64_MAX && pread(source->fd, &last, 1, (off_t) offset - 1) == 1)
                return 0;
        return reason_set(err, -ERANGE, REASON_OFFSET_OUT_OF_RANGE,
                          "%s has %" PRIu64 " bytes: there is no offset %" PRIu64, source->path, size, offset);
}

static int source_open(Source *source, const char *path, const char *expected_version, uint64_t offset,
                       HutchError *err) {
        struct stat st;
        source->path = path;
        int r = file_open_regular(path, &source->fd, &st, err);
        if (r < 0)
                return r;
        r = file_info_init(&source->info, path, &st, NULL);
        if (r < 0)
                return file_fail(err, r, "read", path);
        file_version(&st, source->version);
        if (*expected_version && !str_equal(expected_version, source->version))
                return changed(source, err);
        r = source_seek(source, &st, offset, err);
        if (r < 0)
                return r;

        uint64_t there = (uint64_t) st.st_size - (offset < (uint64_t) st.st_size ? offset : (uint64_t) st.st_size);
        if (st.st_size > 0 && there < source->left)
                source->left = there;
        return st.st_size > 0 && source->left > source->max ? too_large(source, err) : 0;
}

/* Reads up to @size bytes. Returns how many; 0: there are no more, or no more were asked for. */
static ssize_t source_read(Source *source, uint8_t *bytes, size_t size, HutchError *err) {
        struct stat st;
        size_t wanted = source->left < size ? (size_t) source->left : size, len = 0;
        while (len < wanted) {
                ssize_t n = pread(source->fd, bytes + len, wanted - len, (off_t) (source->offset + len));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && len == 0)
                        return file_fail(err, errno == EAGAIN ? -EBUSY : -errno, "read", source->path);
                if (n <= 0)
                        break;
                len += (size_t) n;
        }

        char version[FILE_VERSION_SIZE];
        if (fstat(source->fd, &st) < 0)
                return file_fail(err, -errno, "read", source->path);
        file_version(&st, version);
        if (!str_equal(version, source->version))
                return changed(source, err);
        if (len > source->max)
                return too_large(source, err);
        source->max -= len;
        source->offset += len;
        source->left -= len;
        return (ssize_t) len;
}

int file_method_read(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__read_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__ReadFileRequest *request = (const Hutch__V1__ReadFileRequest *) unpacked;

        _cleanup_(source_clear) Source source = {
                .fd = -1,
                .left = request->opt_length_case != 0 ? request->length : UINT64_MAX,
                .max = READ_MAX,
                .max_name = "read_file_bytes",
        };
        r = source_open(&source, request->path, request->expected_version, request->offset, err);
        if (r < 0)
                return r;
        /* One more than allowed, so that too many are noticed. */
        size_t size = source.left < READ_MAX ? (size_t) source.left : READ_MAX;
        _cleanup_free_ uint8_t *bytes = malloc(size + 1);
        if (!bytes)
                return file_fail(err, -ENOMEM, "read", request->path);
        ssize_t len = source_read(&source, bytes, source.left > READ_MAX ? size + 1 : size, err);
        if (len < 0)
                return (int) len;

        Hutch__V1__ReadFileResponse response = HUTCH__V1__READ_FILE_RESPONSE__INIT;
        response.file = &source.info.message;
        response.data = (ProtobufCBinaryData){ .data = bytes, .len = (size_t) len };
        return file_stream_send(stream, &response.base);
}

int file_method_download(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__download_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__DownloadFileRequest *request = (const Hutch__V1__DownloadFileRequest *) unpacked;

        _cleanup_(source_clear) Source source = {
                .fd = -1,
                .left = request->opt_length_case != 0 ? request->length : UINT64_MAX,
                .max = request->max_size_bytes,
                .max_name = "max_size_bytes",
        };
        r = source_open(&source, request->path, request->expected_version, request->offset, err);
        if (r < 0)
                return r;
        Hutch__V1__DownloadFileResponse response = HUTCH__V1__DOWNLOAD_FILE_RESPONSE__INIT;
        response.item_case = HUTCH__V1__DOWNLOAD_FILE_RESPONSE__ITEM_FILE;
        response.file = &source.info.message;
        r = file_stream_send(stream, &response.base);
        if (r < 0)
                return r;

        static uint8_t buffer[FILE_HEAD + FILE_CHUNK];
        for (;;) {
                ssize_t len = source_read(&source, buffer + FILE_HEAD, FILE_CHUNK, err);
                if (len <= 0)
                        return (int) len;
                r = file_stream_send_data(stream, DATA_FIELD, buffer + FILE_HEAD, (size_t) len);
                if (r < 0)
                        return r;
        }
}
