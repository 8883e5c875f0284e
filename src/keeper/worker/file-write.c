/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the methods WriteFile and UploadFile. What does not: how a file comes to its place
 * (file-draft.c). */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "keeper/worker/file-draft.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "keeper/worker/file-uploads.h"
#include "keeper/worker/sha256.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define NEW_MODE 0644
#define MODE_MASK 0777
#define DATA_FIELD 2                       /* of UploadFileRequest */
#define WRITE_BEHIND ((uint64_t) 16 << 20) /* bytes that came, and then begin to go to disk while others come */
#define LOCK_TRIES 200
#define LOCK_PAUSE_USEC 10000

/* A place where a file is to stand. */
typedef struct Target {
        FilePlace place;
        bool overwrite;
        const char *expected_version; /* "": any */
        bool has_mode;
        mode_t mode;
        mode_t old_mode; /* of what will be replaced */
} Target;

static void target_clear(Target *target) {
        file_place_clear(&target->place);
}

/* Whether what stands there may be replaced; asked before anything is written, and before it comes there. */
static int target_check(Target *target, HutchError *err) {
        const FilePlace *place = &target->place;
        char version[FILE_VERSION_SIZE] = "";
        struct stat st = {};
        target->old_mode = NEW_MODE;
        int r = file_place_stat(place, &st);
        if (r == -ENOENT)
                r = place->must_be_folder ? -EISDIR : 0;
        else if (r >= 0) {
                file_version(&st, version);
                if (S_ISDIR(st.st_mode))
                        r = -EISDIR;
                else if (!target->overwrite)
                        r = -EEXIST;
                else if (S_ISREG(st.st_mode))
                        target->old_mode = st.st_mode & MODE_MASK;
                else if (!S_ISLNK(st.st_mode))
                        r = -ENXIO;
        }
        if (r < 0)
                return file_fail(err, r, "write", place->path);
        if (*target->expected_version && !str_equal(target->expected_version, version))
                return reason_set(err, -ESTALE, REASON_FILE_CHANGED, "%s is not the version that was expected",
                                  place->path);
        return 0;
}

static int target_open(Target *target, const char *path, bool make_parents, HutchError *err) {
        int r = file_place_open(path, make_parents, &target->place, err);
        return r < 0 ? r : target_check(target, err);
}

/* Keeps others that expect a version out of the folder until @ret_lock is closed: of those who expect the same, one is
 * the first. Whoever holds it inside is not waited for for ever. */
static int target_lock(const Target *target, int *ret_lock, HutchError *err) {
        const FilePlace *place = &target->place;
        if (!*target->expected_version)
                return 0;
        _cleanup_close_ int lock = openat(place->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lock < 0)
                return file_fail(err, -errno, "write", place->path);
        for (int i = 0; flock(lock, LOCK_EX | LOCK_NB) < 0; i++) {
                if (errno != EWOULDBLOCK && errno != EINTR)
                        return file_fail(err, -errno, "write", place->path);
                if (i == LOCK_TRIES)
                        return file_fail(err, -EBUSY, "write", place->path);
                (void) usleep(LOCK_PAUSE_USEC);
        }
        *ret_lock = TAKE_FD(lock);
        return 0;
}

/* Puts @draft there, and tells about it. */
static int target_fill(Target *target, FileDraft *draft, FileInfo *ret_info, HutchError *err) {
        const FilePlace *place = &target->place;
        _cleanup_close_ int lock = -1;
        int r = target_lock(target, &lock, err);
        if (r >= 0)
                r = target_check(target, err);
        if (r < 0)
                return r;
        struct stat st;
        r = file_draft_commit(draft, place->name, target->has_mode ? target->mode & MODE_MASK : target->old_mode,
                              target->overwrite);
        if (r >= 0 && fstat(draft->fd, &st) < 0)
                r = -errno;
        if (r >= 0)
                r = file_info_init(ret_info, place->path, &st, NULL);
        return r < 0 ? file_fail(err, r, "write", place->path) : 0;
}

/* ---- WriteFile ---- */

int file_method_write(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__write_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__WriteFileRequest *request = (const Hutch__V1__WriteFileRequest *) unpacked;

        _cleanup_(target_clear) Target target = {
                .overwrite = request->overwrite,
                .expected_version = request->expected_version,
                .has_mode = request->opt_mode_case != 0,
                .mode = request->mode,
        };
        r = target_open(&target, request->path, request->create_parents, err);
        if (r < 0)
                return r;
        _cleanup_(file_draft_clear) FileDraft draft = FILE_DRAFT_NONE;
        r = file_draft_open(&draft, target.place.folder);
        if (r >= 0)
                r = fd_write_all(draft.fd, request->data.data, request->data.len);
        if (r < 0)
                return file_fail(err, r, "write", target.place.path);
        _cleanup_(file_info_clear) FileInfo info = {};
        r = target_fill(&target, &draft, &info, err);
        if (r < 0)
                return r;
        Hutch__V1__WriteFileResponse response = HUTCH__V1__WRITE_FILE_RESPONSE__INIT;
        response.file = &info.message;
        return file_stream_send(stream, &response.base);
}

/* ---- UploadFile ---- */

typedef struct Upload {
        const Hutch__V1__UploadFileHeader *header;
        Target target;
        FileDraft draft;
        uint64_t size; /* so far */
        Sha256 hash;
} Upload;

static void upload_clear(Upload *upload) {
        file_draft_clear(&upload->draft);
        target_clear(&upload->target);
}

static int check_size(const Upload *upload, uint64_t size, HutchError *err) {
        const Hutch__V1__UploadFileHeader *header = upload->header;
        if (size > header->max_size_bytes) {
                reason_set(err, -EFBIG, REASON_FILE_TOO_LARGE, "%s would have more than %" PRIu64 " bytes",
                           upload->target.place.path, header->max_size_bytes);
                return reason_add_limit(err, "max_size_bytes", header->max_size_bytes, -EFBIG);
        }
        if (header->opt_size_bytes_case != 0 && size > header->size_bytes)
                return reason_set(err, -EINVAL, REASON_SIZE_MISMATCH, "more than the announced %" PRIu64 " bytes came",
                                  header->size_bytes);
        return 0;
}

static int upload_add(Upload *upload, const uint8_t *bytes, size_t len, HutchError *err) {
        int r = check_size(upload, upload->size + len, err);
        if (r < 0)
                return r;
        r = fd_write_all(upload->draft.fd, bytes, len);
        if (r < 0)
                return file_fail(err, r, "write", upload->target.place.path);
        sha256_add(&upload->hash, bytes, len);
        if ((upload->size + len) / WRITE_BEHIND > upload->size / WRITE_BEHIND)
                (void) sync_file_range(upload->draft.fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* fsync() has less to do then */
        upload->size += len;
        return 0;
}

/* Takes all that comes. */
static int upload_receive(Upload *upload, FileStream *stream, HutchError *err) {
        for (;;) {
                const uint8_t *message, *data;
                size_t len, data_len;
                int r = file_stream_receive(stream, &message, &len);
                if (r <= 0)
                        return r;
                if (!protobuf_find_bytes(message, len, DATA_FIELD, &data, &data_len))
                        return reason_set(err, -EBADMSG, REASON_STREAM_ORDER, "after the header only data can follow");
                r = upload_add(upload, data, data_len, err);
                if (r < 0)
                        return r;
        }
}

static int check_all(const Upload *upload, const uint8_t digest[static SHA256_SIZE], HutchError *err) {
        const Hutch__V1__UploadFileHeader *header = upload->header;
        if (header->opt_size_bytes_case != 0 && upload->size != header->size_bytes)
                return reason_set(err, -EINVAL, REASON_SIZE_MISMATCH,
                                  "%" PRIu64 " bytes came, and %" PRIu64 " were announced", upload->size,
                                  header->size_bytes);
        if (header->sha256.len > 0 &&
            (header->sha256.len != SHA256_SIZE || memcmp(header->sha256.data, digest, SHA256_SIZE) != 0))
                return reason_set(err, -EINVAL, REASON_CHECKSUM_MISMATCH,
                                  "the bytes that came do not have the SHA-256 that was announced");
        return 0;
}

/* Goes on where an upload broke: what came by then counts as if it came now. */
static int upload_resume(Upload *upload, FileStream *stream, HutchError *err) {
        const Hutch__V1__UploadFileHeader *header = upload->header;
        static uint8_t buffer[FILE_CHUNK];
        struct stat st;
        int r = check_size(upload, header->resume_offset, err);
        if (r < 0)
                return r;
        if (fstat(upload->draft.fd, &st) < 0)
                return file_fail(err, -errno, "write", upload->target.place.path);
        if (header->resume_offset > (uint64_t) st.st_size)
                return reason_set(err, -ERANGE, REASON_OFFSET_OUT_OF_RANGE,
                                  "only %" PRIu64 " bytes of the upload are there", (uint64_t) st.st_size);
        if (ftruncate(upload->draft.fd, (off_t) header->resume_offset) < 0)
                return file_fail(err, -errno, "write", upload->target.place.path);
        while (upload->size < header->resume_offset) {
                uint64_t left = header->resume_offset - upload->size;
                ssize_t n = read(upload->draft.fd, buffer, left < sizeof(buffer) ? (size_t) left : sizeof(buffer));
                if (n <= 0)
                        return file_fail(err, n < 0 ? -errno : -EIO, "read what came of", header->path);
                if (file_stream_is_cancelled(stream))
                        return -ECANCELED;
                sha256_add(&upload->hash, buffer, (size_t) n);
                upload->size += (uint64_t) n;
        }
        return 0;
}

static int upload_open_draft(Upload *upload, HutchError *err) {
        const Hutch__V1__UploadFileHeader *header = upload->header;
        int folder = upload->target.place.folder;
        char name[FILE_UPLOAD_NAME_SIZE];
        file_upload_name(header->upload_id, name);
        bool is_new = header->resume_offset == 0;
        int r = *header->upload_id ? file_draft_open_named(&upload->draft, folder, name, is_new)
                                   : file_draft_open(&upload->draft, folder);
        if (!is_new && (r == -ENOENT || r == -EPERM))
                return reason_set(err, r, REASON_UPLOAD_NOT_FOUND, "nothing is left of the upload to %s", header->path);
        if (r < 0)
                return file_fail(err, r, "write", upload->target.place.path);
        return 0;
}

static int upload_begin(Upload *upload, FileStream *stream, HutchError *err) {
        const Hutch__V1__UploadFileHeader *header = upload->header;
        upload->target = (Target){
                .overwrite = header->overwrite,
                .expected_version = "",
                .has_mode = header->opt_mode_case != 0,
                .mode = header->mode,
        };
        bool has_id = *header->upload_id;
        sha256_init(&upload->hash);
        int r = file_place_open(header->path, header->create_parents, &upload->target.place, err);
        /* What another upload of that id left is not left again, whatever becomes of this one. */
        if (r >= 0 && has_id)
                r = upload_open_draft(upload, err);
        if (r >= 0)
                r = target_check(&upload->target, err);
        if (r >= 0)
                r = check_size(upload, header->opt_size_bytes_case != 0 ? header->size_bytes : 0, err);
        if (r < 0)
                return r;
        if (!has_id)
                return upload_open_draft(upload, err);
        return header->resume_offset > 0 ? upload_resume(upload, stream, err) : 0;
}

static int upload_finish(Upload *upload, FileStream *stream, HutchError *err) {
        uint8_t digest[SHA256_SIZE];
        sha256_finish(&upload->hash, digest);
        int r = check_all(upload, digest, err);
        if (r < 0)
                return r;
        _cleanup_(file_info_clear) FileInfo info = {};
        r = target_fill(&upload->target, &upload->draft, &info, err);
        if (r < 0)
                return r;
        Hutch__V1__UploadFileResponse response = HUTCH__V1__UPLOAD_FILE_RESPONSE__INIT;
        response.file = &info.message;
        response.sha256 = (ProtobufCBinaryData){ .data = digest, .len = sizeof(digest) };
        return file_stream_send(stream, &response.base);
}

int file_method_upload(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__upload_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__UploadFileRequest *request = (const Hutch__V1__UploadFileRequest *) unpacked;
        if (request->item_case != HUTCH__V1__UPLOAD_FILE_REQUEST__ITEM_HEADER)
                return reason_set(err, -EBADMSG, REASON_STREAM_ORDER, "the first message is not the header");

        _cleanup_(upload_clear) Upload upload = { .header = request->header, .draft = FILE_DRAFT_NONE };
        r = upload_begin(&upload, stream, err);
        bool is_begun = r >= 0 || upload.header->resume_offset == 0;
        if (r >= 0)
                r = upload_receive(&upload, stream, err);
        /* It broke, or could not even be resumed: whoever has its id can go on. */
        if (upload.draft.fd >= 0 && *upload.header->upload_id && (r == -ECANCELED || !is_begun)) {
                file_draft_keep(&upload.draft);
                file_stream_keep_upload(stream);
        }
        return r < 0 ? r : upload_finish(&upload, stream, err);
}
