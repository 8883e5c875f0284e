/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the keeper's side of a file worker's socket, for tests. */

#include "file-call.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/worker/file-path.h"
#include "test.h"

static int count_fds(void) {
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;
        while (readdir(dir))
                n++;
        (void) closedir(dir);
        return n;
}

static int send_frame(int socket, uint8_t kind, const void *head, size_t head_len, const void *bytes, size_t len) {
        FileFrameHead frame = { .len = (uint32_t) (head_len + len), .kind = kind };
        const struct {
                const void *bytes;
                size_t len;
        } parts[] = { { &frame, sizeof(frame) }, { head, head_len }, { bytes, len } };
        for (size_t i = 0; i < 3; i++)
                for (size_t at = 0; at < parts[i].len;) {
                        ssize_t n = send(socket, (const char *) parts[i].bytes + at, parts[i].len - at, MSG_NOSIGNAL);
                        if (n < 0)
                                return -errno;
                        at += (size_t) n;
                }
        return 0;
}

/* The worker's end, as file-frames.h has it. */
static void serve(int socket, int root, FileMethod method) {
        _cleanup_(error_clear) HutchError err = {};
        FileStream *stream = file_stream_new(socket);
        file_root_set(root, "/workspace");
        (void) umask(0);
        int n_fds = count_fds(), r = method(stream, &err);
        if (count_fds() != n_fds)
                (void) error_set(&err, -EIO, "DESCRIPTOR_LEFT_OPEN", "a descriptor was left open");
        file_stream_free(stream);

        FileEnd end = { .code = (int32_t) err.code, .error = r < 0 ? -r : 0, .n_pairs = err.n_pairs };
        memcpy(end.reason, err.reason, sizeof(end.reason));
        memcpy(end.pairs, err.pairs, sizeof(end.pairs));
        const char *sentence = err.error != 0 ? error_message(&err) : "";
        (void) send_frame(socket, FILE_FRAME_END, &end, sizeof(end), sentence, strlen(sentence));
}

FileCall file_call_begin(const char *root, FileMethod method) {
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                close(sockets[0]);
                serve(sockets[1], open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), method);
                /* With a sanitizer, leaks are looked for. */
                exit(0);
        }
        close(sockets[1]);
        return (FileCall){ .pid = pid, .socket = sockets[0] };
}

int file_call_send(FileCall *call, const ProtobufCMessage *message) {
        size_t len = protobuf_c_message_get_packed_size(message);
        _cleanup_free_ uint8_t *bytes = new0(uint8_t, len + 1);
        (void) protobuf_c_message_pack(message, bytes);
        return send_frame(call->socket, FILE_FRAME_MESSAGE, bytes, len, NULL, 0);
}

int file_call_send_bytes(FileCall *call, uint32_t field, const void *bytes, size_t len) {
        uint8_t head[16];
        size_t n = 0;
        head[n++] = (uint8_t) (field << 3 | 2);
        for (size_t left = len;; left >>= 7) {
                head[n++] = (uint8_t) ((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
                if (left <= 0x7f)
                        break;
        }
        return send_frame(call->socket, FILE_FRAME_MESSAGE, head, n, bytes, len);
}

void file_call_half_close(FileCall *call) {
        (void) send_frame(call->socket, FILE_FRAME_HALF_CLOSE, NULL, 0, NULL, 0);
}

void file_call_cancel(FileCall *call) {
        (void) send_frame(call->socket, FILE_FRAME_CANCEL, NULL, 0, NULL, 0);
}

static bool read_all(int socket, void *bytes, size_t len) {
        for (size_t at = 0; at < len;) {
                ssize_t n = recv(socket, (char *) bytes + at, len - at, 0);
                if (n < 0 && errno == ECONNRESET)
                        continue;
                if (n <= 0)
                        return false;
                at += (size_t) n;
        }
        return true;
}

bool file_call_next(FileCall *call, const uint8_t **ret_bytes, size_t *ret_len) {
        FileFrameHead head;
        assert_true(read_all(call->socket, &head, sizeof(head)));
        free(call->message);
        call->message = malloc(head.len + 1);
        assert_true(read_all(call->socket, call->message, head.len));
        if (head.kind == FILE_FRAME_MESSAGE) {
                *ret_bytes = call->message;
                *ret_len = head.len;
                return true;
        }
        assert_int_equal(head.kind, FILE_FRAME_END);
        memcpy(&call->end, call->message, sizeof(call->end));
        memcpy(call->sentence, call->message + sizeof(FileEnd), head.len - sizeof(FileEnd));
        return false;
}

void file_call_end(FileCall *call) {
        int status;
        call->socket = fd_close(call->socket);
        assert_int_equal(waitpid(call->pid, &status, 0), call->pid);
        free(call->message);
        assert_int_equal(status, 0);
}
