/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: watching what changes in a sandbox's folders. What does not: watching events (watch.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <stdlib.h>

#include "base/memory.h"
#include "client/checks.h"
#include "client/outcall.h"
#include "contract/hutch/v1/file.pb-c.h"

struct HutchFileWatch {
        HutchCall *call;
        ProtobufCMessage *message; /* that the last change is in */
        uint8_t *encoded;
};

void hutch_file_watch_free(HutchFileWatch *watch) {
        if (!watch)
                return;

        (void) outcall_free(watch->call);
        (void) protobuf_free(watch->message);
        free(watch->encoded);
        free(watch);
}

static int watch_begin(HutchFileWatch *watch, HutchClient *client, const Hutch__V1__WatchFilesRequest *request,
                       void *user, Failure *failure) {
        const OutcallOptions options = { .method = "FileService/WatchFiles", .user = user };
        int r = outcall_new(client, &options, &watch->call, failure);

        if (r == 0)
                r = outcall_queue(watch->call, &request->base, failure);
        if (r == 0)
                hutch_call_end(watch->call);
        return r == -EPIPE ? 0 : r; /* why it is over, the first change will tell */
}

int hutch_file_watch_new(HutchClient *client, const char *sandbox_id, const char *path, bool recursive, void *user,
                         HutchFileWatch **ret_watch, HutchError **ret_error) {
        Hutch__V1__WatchFilesRequest request = HUTCH__V1__WATCH_FILES_REQUEST__INIT;
        HutchFileWatch *watch = try_new0(HutchFileWatch, 1);
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        int r = watch ? 0 : -ENOMEM;

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_path(&checks, "path", path);
        if (r == 0)
                r = checks_result(&checks, &failure);
        request.sandbox_id = (char *) sandbox_id;
        request.path = (char *) path;
        request.recursive = recursive;
        if (r == 0)
                r = watch_begin(watch, client, &request, user, &failure);
        if (r < 0) {
                hutch_file_watch_free(watch);
                return failure_tell(&failure, r, ret_error);
        }

        *ret_watch = watch;
        return 0;
}

static int tell(HutchFileWatch *watch, HutchFileChange *ret_change) {
        const Hutch__V1__WatchFilesResponse *step = (const Hutch__V1__WatchFilesResponse *) watch->message;
        HutchFileChange told = { .path = "", .old_path = "" };
        int r;

        free(watch->encoded);
        watch->encoded = NULL;
        r = protobuf_pack(watch->message, &watch->encoded, &told.encoded_len);
        if (r < 0)
                return r;

        told.encoded = watch->encoded;
        told.overflow = step->item_case == HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_OVERFLOW;
        if (step->item_case == HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_CHANGE) {
                told.type = (HutchFileChangeType) step->change->type;
                told.path = step->change->path;
                told.old_path = step->change->old_path;
                told.file_type = (HutchFileType) step->change->file_type;
        }
        *ret_change = told;
        return 1;
}

int hutch_file_watch_next(HutchFileWatch *watch, bool wait, HutchFileChange *ret_change, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r;

        watch->message = protobuf_free(watch->message);
        r = outcall_receive_message(watch->call, wait, &hutch__v1__watch_files_response__descriptor, &watch->message,
                                    &failure);
        if (r == -EAGAIN)
                return r;
        if (r == 0) /* a watch has no end */
                r = error_set_code(&failure.error, STATUS_UNAVAILABLE, -ECONNRESET, "STREAM_INCOMPLETE",
                                   "the daemon ended the watch");
        if (r > 0)
                r = tell(watch, ret_change);
        return failure_tell(&failure, r, ret_error);
}
