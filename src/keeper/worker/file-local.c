/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the other end of a file worker that works outside of sandboxes, without a loop. What does not: the
 * work (file-pack.c, file-unpack.c). */

#include "keeper/worker/file-local.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "keeper/archive/file-archive.h"
#include "keeper/worker/file-frames.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "rpc/core/protobuf.h"

#define PACKED_FIELD 1 /* of DownloadArchiveResponse */

typedef struct Worker {
        int socket;
        pid_t pid;
        uint8_t *bytes; /* of the last frame */
} Worker;

static int fail(const char *what, int r) {
        (void) fprintf(stderr, "hutch: %s: %s\n", what, strerror(-r));
        return EXIT_FAILURE;
}

/* Lets it end. */
static int worker_end(Worker *worker, int exit_code) {
        fd_close(worker->socket);
        free(worker->bytes);
        if (worker->pid > 0)
                (void) waitpid(worker->pid, NULL, 0);
        return exit_code;
}

static int worker_start(Worker *worker) {
        int pair[2], root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        mode_t mask = umask(0) & (S_IRWXG | S_IRWXO);
        (void) umask(mask);
        if (root < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        worker->pid = fork();
        if (worker->pid == 0) {
                (void) close(pair[0]);
                /* The sandbox does not say what others may do here. What is the owner's is needed for unpacking. */
                file_archive_set_mode_mask(mask);
                (void) umask(mask);
                file_root_set(root, "/");
                file_archive_leave_out_links();
                file_worker_serve(pair[1]);
                _exit(0);
        }
        (void) close(pair[1]);
        (void) close(root);
        worker->socket = pair[0];
        return worker->pid < 0 ? -errno : 0;
}

static int send_frame(const Worker *worker, FileFrameKind kind, const void *bytes, size_t len) {
        const FileFrameHead head = { .len = (uint32_t) len, .kind = (uint8_t) kind };
        int r = fd_write_all(worker->socket, &head, sizeof(head));
        return r < 0 ? r : fd_write_all(worker->socket, bytes, len);
}

static int send_message(const Worker *worker, const ProtobufCMessage *message) {
        uint8_t *bytes;
        size_t len;
        int r = protobuf_pack(message, &bytes, &len);
        if (r < 0)
                return r;
        r = send_frame(worker, FILE_FRAME_MESSAGE, bytes, len);
        free(bytes);
        return r;
}

static int begin(const Worker *worker, FileMethod method, const ProtobufCMessage *first) {
        FileBegin begin = {};
        while (file_methods[begin.method].run != method)
                begin.method++;
        int r = send_frame(worker, FILE_FRAME_BEGIN, &begin, sizeof(begin));
        return r < 0 ? r : send_message(worker, first);
}

static int receive_all(const Worker *worker, void *bytes, size_t len) {
        for (size_t at = 0; at < len;) {
                ssize_t n = read(worker->socket, (char *) bytes + at, len - at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EPIPE;
                at += (size_t) n;
        }
        return 0;
}

static int receive_frame(Worker *worker, FileFrameHead *ret_head) {
        int r = receive_all(worker, ret_head, sizeof(*ret_head));
        if (r < 0)
                return r;
        free(worker->bytes);
        worker->bytes = malloc(ret_head->len + 1);
        if (!worker->bytes)
                return -ENOMEM;
        worker->bytes[ret_head->len] = '\0';
        return receive_all(worker, worker->bytes, ret_head->len);
}

/* Says how the work ended, when that is not well. What has its name from a sandbox is not for a terminal to obey. */
static int tell_end(const Worker *worker) {
        char *text = (char *) worker->bytes + sizeof(FileEnd);
        FileEnd end;
        memcpy(&end, worker->bytes, sizeof(end));
        if (end.code == 0)
                return EXIT_SUCCESS;
        str_make_printable(text);
        (void) fprintf(stderr, "hutch: %s\n", text);
        return EXIT_FAILURE;
}

/* Waits for the end; what comes until then goes to stdout. */
static int finish(Worker *worker) {
        FileFrameHead head;
        for (;;) {
                const uint8_t *data;
                size_t len;
                int r = receive_frame(worker, &head);
                if (r < 0)
                        return fail("the work on files ended early", r);
                if (head.kind == FILE_FRAME_END)
                        return tell_end(worker);
                if (protobuf_find_bytes(worker->bytes, head.len, PACKED_FIELD, &data, &len))
                        r = fd_write_all(STDOUT_FILENO, data, len);
                if (r < 0)
                        return fail("the archive cannot be written", r);
        }
}

int local_pack(const char *folder) {
        Hutch__V1__DownloadArchiveRequest request = HUTCH__V1__DOWNLOAD_ARCHIVE_REQUEST__INIT;
        Worker worker = { .socket = -1 };
        int r = worker_start(&worker);
        request.path = (char *) folder;
        request.max_size_bytes = UINT64_MAX;
        if (r >= 0)
                r = begin(&worker, file_method_download_archive, &request.base);
        if (r >= 0)
                r = send_frame(&worker, FILE_FRAME_HALF_CLOSE, NULL, 0);
        return worker_end(&worker, r < 0 ? fail(folder, r) : finish(&worker));
}

/* Whether the worker has said something: it has given up. */
static bool has_ended(const Worker *worker) {
        char byte;
        return recv(worker->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static int send_stdin(const Worker *worker) {
        static uint8_t buffer[FILE_CHUNK];
        Hutch__V1__UploadArchiveRequest piece = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__INIT;
        piece.item_case = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_DATA;
        while (!has_ended(worker)) {
                ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                piece.data = (ProtobufCBinaryData){ .len = (size_t) n, .data = buffer };
                int r = send_message(worker, &piece.base);
                if (r < 0)
                        return r;
        }
        return 0;
}

int local_unpack(const char *folder, int overwrite) {
        Hutch__V1__UploadArchiveRequest first = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__INIT;
        Hutch__V1__UploadArchiveHeader header = HUTCH__V1__UPLOAD_ARCHIVE_HEADER__INIT;
        Worker worker = { .socket = -1 };
        int r = worker_start(&worker);
        header.path = (char *) folder;
        header.create_parents = true;
        header.overwrite = overwrite;
        header.max_size_bytes = UINT64_MAX;
        first.item_case = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_HEADER;
        first.header = &header;
        if (r >= 0)
                r = begin(&worker, file_method_upload_archive, &first.base);
        if (r >= 0)
                r = send_stdin(&worker);
        if (r >= 0)
                r = send_frame(&worker, FILE_FRAME_HALF_CLOSE, NULL, 0);
        return worker_end(&worker, r < 0 ? fail(folder, r) : finish(&worker));
}
