/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a byte that chooses the method, and its messages, each after two bytes that say how long it is. They are done
 * in a folder of /tmp that is made anew for each. */

#include "keeper/worker/file-worker.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/root/remove.h"
#include "keeper/worker/file-frames.h"
#include "keeper/worker/file-layers.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *serve(void *argument) {
        file_worker_serve(*(int *) argument);
        return NULL;
}

static void send_frame(int socket, FileFrameKind kind, const void *bytes, size_t len) {
        FileFrameHead head = { .len = (uint32_t) len, .kind = (uint8_t) kind };

        assert(fd_write_all(socket, &head, sizeof(head)) == 0);
        assert(fd_write_all(socket, bytes, len) == 0);
}

/* libFuzzer's clock interrupts. */
static void receive(int socket, void *bytes, size_t len) {
        for (size_t at = 0; at < len;) {
                ssize_t n = recv(socket, (char *) bytes + at, len - at, 0);

                assert(n > 0 || (n < 0 && errno == EINTR));
                at += n > 0 ? (size_t) n : 0;
        }
}

/* Reads what it says to the end, which must come. */
static void receive_all(int socket) {
        FileFrameHead head;

        do {
                static uint8_t bytes[FILE_FRAME_MAX];

                receive(socket, &head, sizeof(head));
                assert(head.len <= sizeof(bytes));
                assert(head.kind == FILE_FRAME_MESSAGE || head.kind == FILE_FRAME_END);
                receive(socket, bytes, head.len);
        } while (head.kind != FILE_FRAME_END);
}

static void send_call(int socket, const uint8_t *data, size_t size) {
        FileBegin begin = { .method = data[0] % (uint32_t) n_file_methods };

        send_frame(socket, FILE_FRAME_BEGIN, &begin, sizeof(begin));
        for (size_t at = 1; at + 2 <= size;) {
                size_t len = (size_t) data[at] | (size_t) data[at + 1] << 8;

                at += 2;
                len = len < size - at ? len : size - at;
                send_frame(socket, FILE_FRAME_MESSAGE, data + at, len);
                at += len;
        }
        send_frame(socket, FILE_FRAME_HALF_CLOSE, "", 0);
        if (file_methods[begin.method].lasts)
                send_frame(socket, FILE_FRAME_CANCEL, "", 0);
}

/* A folder with one of everything. */
static int make_root(const char *path) {
        int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = openat(root, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        assert(root >= 0 && fd >= 0 && fd_write_all(fd, "content", 7) == 0);
        fd_close(fd);
        assert(mkdirat(root, "workspace", 0755) == 0 && mkdirat(root, "folder", 0755) == 0);
        assert(mkdirat(root, "folder/below", 0755) == 0 && symlinkat("/file", root, "link") == 0);
        assert(symlinkat("../../..", root, "folder/out") == 0 && mkfifoat(root, "fifo", 0600) == 0);
        /* It is the image of itself, too; what was changed of it is in a folder of its own. */
        assert(mkdirat(root, "upper", 0755) == 0 && mkdirat(root, "upper/folder", 0700) == 0);
        assert(symlinkat("/file", root, "upper/file") == 0 && mkfifoat(root, "workspace/fifo", 0600) == 0);
        assert(mknodat(root, "upper/link", S_IFCHR, 0) == 0);
        file_layers_set((FileLayers){ .kept = root, .image = root, .upper = -1 });
        return root;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char path[] = "/tmp/hutch-fuzz-files-XXXXXX";
        pthread_t thread;
        int pair[2], root;

        if (size == 0 || size > 32768)
                return 0;
        assert(mkdtemp(path));
        root = make_root(path);
        file_root_set(root, "/workspace");
        assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        send_call(pair[0], data, size);
        assert(pthread_create(&thread, NULL, serve, &pair[1]) == 0);
        receive_all(pair[0]);
        fd_close(pair[0]);
        assert(pthread_join(thread, NULL) == 0);
        fd_close(pair[1]);
        fd_close(root);
        assert(folder_remove(path, NULL) == 0);
        return 0;
}
