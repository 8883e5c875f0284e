/* SPDX-License-Identifier: Apache-2.0 */

/* Input: the first byte says how the archive is sent (compression, overwrite, size of messages), the rest is the
 * archive. It is unpacked by the method itself into a folder, beside a canary that must stay as it is. */

#include "keeper/worker/file-methods.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "keeper/root/remove.h"
#include "keeper/worker/file-frames.h"
#include "keeper/worker/file-path.h"
#include "model/reason.h"

#define SIZE_MAX_BYTES (1 << 20) /* of what is unpacked */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static char base[] = "/tmp/hutch-fuzz-unpack-XXXXXX";
static char box[64], in[80], canary[80];

static void clean_up(void) {
        (void) folder_remove(base, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        (void) argc;
        (void) argv;
        assert(mkdtemp(base));
        (void) snprintf(box, sizeof(box), "%s/box", base);
        (void) snprintf(in, sizeof(in), "%s/in", box);
        (void) snprintf(canary, sizeof(canary), "%s/canary", box);
        assert(mkdir(box, 0700) == 0);
        (void) atexit(clean_up);
        return 0;
}

typedef struct Sender {
        int socket;
        const uint8_t *bytes;
        size_t len, chunk;
        Hutch__V1__UploadArchiveHeader header;
} Sender;

static int send_all(int socket, const void *bytes, size_t len) {
        for (size_t at = 0; at < len;) {
                ssize_t n = send(socket, (const char *) bytes + at, len - at, MSG_NOSIGNAL);
                if (n < 0)
                        return -errno;
                at += (size_t) n;
        }
        return 0;
}

static int send_message(int socket, const Hutch__V1__UploadArchiveRequest *request) {
        size_t len = hutch__v1__upload_archive_request__get_packed_size(request);
        FileFrameHead head = { .len = (uint32_t) len, .kind = FILE_FRAME_MESSAGE };
        _cleanup_free_ uint8_t *bytes = new0(uint8_t, len + 1);
        (void) hutch__v1__upload_archive_request__pack(request, bytes);
        int r = send_all(socket, &head, sizeof(head));
        return r < 0 ? r : send_all(socket, bytes, len);
}

static void *send_archive(void *user) {
        Sender *sender = user;
        Hutch__V1__UploadArchiveRequest request = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__INIT;
        request.item_case = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_HEADER;
        request.header = &sender->header;
        int r = send_message(sender->socket, &request);
        request.item_case = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_DATA;
        for (size_t at = 0; at < sender->len && r == 0; at += sender->chunk) {
                size_t left = sender->len - at;
                request.data.data = (uint8_t *) sender->bytes + at;
                request.data.len = left < sender->chunk ? left : sender->chunk;
                r = send_message(sender->socket, &request);
        }
        FileFrameHead head = { .kind = FILE_FRAME_HALF_CLOSE };
        (void) send_all(sender->socket, &head, sizeof(head));
        return NULL;
}

static void check_canary(void) {
        char text[8] = "";
        _cleanup_close_ int fd = open(canary, O_RDONLY | O_CLOEXEC);
        struct stat st;
        assert(fd >= 0 && read(fd, text, sizeof(text)) == 6 && strcmp(text, "canary") == 0);
        assert(fstat(fd, &st) == 0 && st.st_nlink == 1 && (st.st_mode & 07777) == 0600);
        /* Nothing came to be beside it. */
        assert(stat(box, &st) == 0 && st.st_nlink == 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size == 0)
                return 0;
        (void) umask(0);
        assert(mkdir(in, 0700) == 0);
        int fd = open(canary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), pair[2];
        assert(fd >= 0 && write(fd, "canary", 6) == 6);
        fd_close(fd);
        assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);

        Sender sender = {
                .socket = pair[0],
                .bytes = data + 1,
                .len = size - 1,
                .chunk = data[0] & 8 ? 100 : 100000,
                .header = HUTCH__V1__UPLOAD_ARCHIVE_HEADER__INIT,
        };
        sender.header.path = (char *) "/in";
        sender.header.max_size_bytes = SIZE_MAX_BYTES;
        sender.header.overwrite = data[0] & 4;
        sender.header.compression = (Hutch__V1__ArchiveCompression) (data[0] & 3);
        pthread_t thread;
        assert(pthread_create(&thread, NULL, send_archive, &sender) == 0);

        _cleanup_(error_clear) HutchError err = {};
        _cleanup_close_ int root = open(box, O_PATH | O_DIRECTORY | O_CLOEXEC);
        FileStream *stream = file_stream_new(pair[1]);
        file_root_set(root, "/workspace");
        int r = file_method_upload_archive(stream, &err);
        assert(r == 0 || (r < 0 && err.error != 0 && reason_from_name(err.reason) != REASON_INTERNAL));
        file_stream_free(stream);
        fd_close(pair[1]);
        (void) pthread_join(thread, NULL);
        fd_close(pair[0]);

        check_canary();
        assert(folder_remove(in, NULL) == 0);
        return 0;
}
