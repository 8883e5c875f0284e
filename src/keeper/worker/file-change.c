/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the methods MakeDirectory and MoveFile. What does not: making files (file-write.c), removing
 * (file-remove.c). */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define FOLDER_MODE 0755
#define MODE_MASK 0777

/* ---- MakeDirectory ---- */

/* Makes it, or is content with the folder that is there, or that a link leads to. */
static int make_folder(const FilePlace *place, mode_t mode, bool is_content, struct stat *ret_stat, HutchError *err) {
        int r = mkdirat(place->folder, place->name, mode) < 0 ? -errno : 0;
        if (r < 0 && !(r == -EEXIST && is_content))
                return file_fail(err, r, "make the folder", place->path);

        _cleanup_close_ int fd = -1;
        r = file_open_path(place->path, &fd, err);
        if (r < 0)
                return r;
        r = fstat(fd, ret_stat) < 0 ? -errno : 0;
        if (r >= 0 && !S_ISDIR(ret_stat->st_mode))
                r = -EEXIST;
        return r < 0 ? file_fail(err, r, "make the folder", place->path) : 0;
}

int file_method_make_directory(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__make_directory_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__MakeDirectoryRequest *request = (const Hutch__V1__MakeDirectoryRequest *) unpacked;

        _cleanup_(file_place_clear) FilePlace place = {};
        r = file_place_open(request->path, request->create_parents, &place, err);
        if (r < 0)
                return r;
        mode_t mode = request->opt_mode_case != 0 ? request->mode & MODE_MASK : FOLDER_MODE;
        struct stat st;
        r = make_folder(&place, mode, request->create_parents, &st, err);
        if (r < 0)
                return r;

        _cleanup_(file_info_clear) FileInfo info = {};
        r = file_info_init(&info, place.path, &st, NULL);
        if (r < 0)
                return file_fail(err, r, "look at", place.path);
        Hutch__V1__MakeDirectoryResponse response = HUTCH__V1__MAKE_DIRECTORY_RESPONSE__INIT;
        response.file = &info.message;
        return file_stream_send(stream, &response.base);
}

/* ---- MoveFile ---- */

/* Whether the source may come to where @target is. */
static int check_target(const FilePlace *target, bool source_is_folder, bool overwrite) {
        struct stat st;
        if (target->must_be_folder && !source_is_folder)
                return -ENOTDIR;
        if (fstatat(target->folder, target->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!overwrite)
                return -EEXIST;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;
        return source_is_folder ? -ENOTDIR : 0;
}

/* A folder replaces nothing, not even an empty one that came meanwhile. */
static int rename_place(const FilePlace *source, const FilePlace *target, bool source_is_folder, bool overwrite) {
        unsigned flags = source_is_folder || !overwrite ? RENAME_NOREPLACE : 0;
        return renameat2(source->folder, source->name, target->folder, target->name, flags) < 0 ? -errno : 0;
}

/* Whether both are in the same mount: folders of an image cannot be renamed even so. */
static bool is_same_mount(const FilePlace *a, const FilePlace *b) {
        struct statx sa, sb;
        return statx(a->folder, "", AT_EMPTY_PATH, STATX_MNT_ID, &sa) == 0 &&
               statx(b->folder, "", AT_EMPTY_PATH, STATX_MNT_ID, &sb) == 0 && sa.stx_mnt_id == sb.stx_mnt_id;
}

static int explain_move(const FilePlace *source, const FilePlace *target, int r, HutchError *err) {
        if (r == -EXDEV)
                return reason_set(err, r, REASON_CROSS_MOUNT,
                                  is_same_mount(source, target)
                                          ? "cannot move %s to %s: folders that belong to the image cannot be moved"
                                          : "cannot move %s to %s: they are on different mounts",
                                  source->path, target->path);
        /* That is what the kernel says for a folder into itself. */
        if (r == -EINVAL)
                return reason_set(err, r, REASON_FIELD_CONFLICT, "cannot move %s into itself, to %s", source->path,
                                  target->path);
        return reason_set(err, r, reason_from_errno(r), "cannot move %s to %s: %s", source->path, target->path,
                          strerror(-r));
}

int file_method_move(FileStream *stream, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r = file_stream_unpack(stream, &hutch__v1__move_file_request__descriptor, &unpacked, err);
        if (r < 0)
                return r;
        const Hutch__V1__MoveFileRequest *request = (const Hutch__V1__MoveFileRequest *) unpacked;

        _cleanup_(file_place_clear) FilePlace source = {}, target = {};
        struct stat st;
        r = file_place_open(request->source, false, &source, err);
        if (r < 0)
                return r;
        r = file_place_stat(&source, &st);
        if (r < 0)
                return file_fail(err, r, "move", source.path);
        r = file_place_check_protected(&source, err);
        if (r < 0)
                return r;
        r = file_place_open(request->target, request->create_parents, &target, err);
        if (r < 0)
                return r;
        r = check_target(&target, S_ISDIR(st.st_mode), request->overwrite);
        if (r >= 0)
                r = rename_place(&source, &target, S_ISDIR(st.st_mode), request->overwrite);
        if (r < 0)
                return explain_move(&source, &target, r, err);

        _cleanup_(file_info_clear) FileInfo info = {};
        r = file_info_init_at(&info, target.path, target.folder, target.name, NULL);
        if (r < 0)
                return file_fail(err, r, "look at", target.path);
        Hutch__V1__MoveFileResponse response = HUTCH__V1__MOVE_FILE_RESPONSE__INIT;
        response.file = &info.message;
        return file_stream_send(stream, &response.base);
}
