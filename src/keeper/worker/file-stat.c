/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the method StatFile. What does not: what is told (file-info.c). */

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "keeper/worker/file-uploads.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

/* Tells about what @place is, or leads to. */
static int look(const FilePlace *place, bool follow, FileInfo *info, HutchError *err) {
        struct stat st;
        int r = file_info_init_at(info, place->path, place->folder, place->name, &st);
        if (r < 0)
                return file_fail(err, r, "look at", place->path);
        /* "link/" is what it leads to. */
        if (!S_ISLNK(st.st_mode) || !(follow || place->must_be_folder))
                return place->must_be_folder && !S_ISDIR(st.st_mode) ? file_fail(err, -ENOTDIR, "look at", place->path)
                                                                     : 0;
        file_info_clear(info);

        _cleanup_close_ int fd = -1;
        r = file_open_path(place->path, &fd, err);
        if (r < 0)
                return r;
        r = fstat(fd, &st) < 0 ? -errno : 0;
        if (r >= 0 && place->must_be_folder && !S_ISDIR(st.st_mode))
                r = -ENOTDIR;
        if (r >= 0)
                r = file_info_init(info, place->path, &st, NULL);
        return r < 0 ? file_fail(err, r, "look at", place->path) : 0;
}

/* Tells what came of an upload so far, as the file that it is to become. */
static int look_at_upload(const FilePlace *place, const char *id, FileInfo *info, HutchError *err) {
        char name[FILE_UPLOAD_NAME_SIZE];
        struct stat st;
        file_upload_name(id, name);
        int r = fstatat(place->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
        if (r == -ENOENT || (r >= 0 && !S_ISREG(st.st_mode)))
                return reason_set(err, -ENOENT, REASON_UPLOAD_NOT_FOUND, "nothing is left of the upload to %s",
                                  place->path);
        if (r >= 0)
                r = file_info_init(info, place->path, &st, NULL);
        return r < 0 ? file_fail(err, r, "look at", place->path) : 0;
}

int file_method_stat(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__stat_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__StatFileRequest *request = (const Hutch__V1__StatFileRequest *) unpacked;

        _cleanup_(file_place_clear) FilePlace place = {};
        r = file_place_open(request->path, false, &place, err);
        if (r < 0)
                return r;
        _cleanup_(file_info_clear) FileInfo info = {};
        r = *request->upload_id ? look_at_upload(&place, request->upload_id, &info, err)
                                : look(&place, request->follow_symlink, &info, err);
        if (r < 0)
                return r;
        Hutch__V1__StatFileResponse response = HUTCH__V1__STAT_FILE_RESPONSE__INIT;
        response.file = &info.message;
        return file_stream_send(stream, &response.base);
}
