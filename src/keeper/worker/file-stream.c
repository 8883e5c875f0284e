/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the worker's end of the socket: messages in, messages out, and whether anybody still waits. What
 * does not: the process (file-worker.c), and the keeper's end (file-pool.c). */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "keeper/worker/file-process.h"
#include "keeper/worker/file-worker.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

_Static_assert(sizeof(FileFrameHead) + PROTOBUF_BYTES_HEAD_MAX <= FILE_HEAD, "there is room for what precedes data");

#define UNPACKED_MAX (9 << 20) /* bytes in memory of a message: as large as any, and what it says */

/* Where a message begins in the buffer, so that large data behind its head of four bytes is aligned: from there the
 * kernel copies it to files faster. */
#define DATA_ALIGNMENT 64
#define MESSAGE_AT (DATA_ALIGNMENT - 4)

struct FileStream {
        int socket;
        bool is_half_closed;
        bool is_cancelled; /* or the keeper is gone */
        bool is_kept;      /* an upload is */
        uint8_t *buffer;
        size_t size; /* of the largest message that it has room for */
};

FileStream *file_stream_new(int socket) {
        FileStream *stream = new0(FileStream, 1);
        stream->socket = socket;
        return stream;
}

FileStream *file_stream_free(FileStream *stream) {
        if (!stream)
                return NULL;
        free(stream->buffer);
        free(stream);
        return NULL;
}

void file_stream_keep_upload(FileStream *stream) {
        stream->is_kept = true;
}

int file_stream_fd(const FileStream *stream) {
        return stream->socket;
}

/* ---- Receiving ---- */

static int read_all(FileStream *stream, void *bytes, size_t len) {
        for (size_t at = 0; at < len;) {
                ssize_t n = recv(stream->socket, (char *) bytes + at, len - at, MSG_WAITALL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0) {
                        stream->is_cancelled = true;
                        return -ECANCELED;
                }
                at += (size_t) n;
        }
        return 0;
}

static int read_bytes(FileStream *stream, size_t len) {
        if (!stream->buffer || len > stream->size) {
                void *larger;
                if (len > FILE_FRAME_MAX || posix_memalign(&larger, DATA_ALIGNMENT, MESSAGE_AT + len) != 0) {
                        stream->is_cancelled = true;
                        return -ECANCELED;
                }
                free(stream->buffer);
                stream->buffer = larger;
                stream->size = len;
        }
        return read_all(stream, stream->buffer + MESSAGE_AT, len);
}

int file_stream_receive(FileStream *stream, const uint8_t **ret_bytes, size_t *ret_len) {
        if (stream->is_cancelled)
                return -ECANCELED;
        if (stream->is_half_closed)
                return 0;

        FileFrameHead head;
        int r = read_all(stream, &head, sizeof(head));
        if (r >= 0)
                r = read_bytes(stream, head.len);
        if (r < 0)
                return r;
        stream->is_half_closed = head.kind == FILE_FRAME_HALF_CLOSE;
        stream->is_cancelled = head.kind == FILE_FRAME_CANCEL;
        if (head.kind != FILE_FRAME_MESSAGE)
                return stream->is_cancelled ? -ECANCELED : 0;
        *ret_bytes = stream->buffer + MESSAGE_AT;
        *ret_len = head.len;
        return 1;
}

int file_stream_unpack(FileStream *stream, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_message,
                       HutchError *err) {
        const uint8_t *bytes;
        size_t len;
        int r = file_stream_receive(stream, &bytes, &len);
        if (r < 0)
                return r;
        if (r == 0)
                return reason_set(err, -EBADMSG, REASON_STREAM_ORDER, "there is no request");
        r = protobuf_unpack(type, bytes, len, UNPACKED_MAX, ret_message);
        if (r == -EBADMSG)
                return reason_set(err, r, REASON_FIELD_INVALID, "the request cannot be decoded");
        if (r < 0)
                return reason_set(err, r, REASON_MESSAGE_TOO_LARGE, "the request takes too much memory");
        return 0;
}

/* ---- Sending ---- */

bool file_stream_is_cancelled(FileStream *stream) {
        FileFrameHead head;
        while (!stream->is_cancelled) {
                ssize_t n = recv(stream->socket, &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n == 0 || (n < 0 && errno != EAGAIN))
                        stream->is_cancelled = true;
                /* A message that nobody asked for yet stays where it is. */
                else if (n < (ssize_t) sizeof(head) || head.kind == FILE_FRAME_MESSAGE)
                        break;
                else if (read_all(stream, &head, sizeof(head)) >= 0 && head.kind == FILE_FRAME_HALF_CLOSE)
                        stream->is_half_closed = true;
                else
                        stream->is_cancelled = true;
        }
        return stream->is_cancelled;
}

static int write_all(FileStream *stream, const void *bytes, size_t len) {
        for (size_t at = 0; at < len;) {
                ssize_t n = send(stream->socket, (const char *) bytes + at, len - at, MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        stream->is_cancelled = true;
                        return -ECANCELED;
                }
                at += (size_t) n;
        }
        return 0;
}

int file_stream_send(FileStream *stream, const ProtobufCMessage *message) {
        size_t len = protobuf_c_message_get_packed_size(message);
        FileFrameHead head = { .len = (uint32_t) len, .kind = FILE_FRAME_MESSAGE };
        if (file_stream_is_cancelled(stream))
                return -ECANCELED;
        if (len > FILE_FRAME_MAX)
                return -EMSGSIZE;
        _cleanup_free_ uint8_t *bytes = malloc(sizeof(head) + len);
        if (!bytes)
                return -ENOMEM;
        memcpy(bytes, &head, sizeof(head));
        (void) protobuf_c_message_pack(message, bytes + sizeof(head));
        return write_all(stream, bytes, sizeof(head) + len);
}

int file_stream_send_data(FileStream *stream, uint32_t field, uint8_t *data, size_t len) {
        uint8_t prefix[FILE_HEAD];
        if (file_stream_is_cancelled(stream))
                return -ECANCELED;
        size_t n = sizeof(FileFrameHead) + protobuf_write_bytes_head(prefix + sizeof(FileFrameHead), field, len);
        FileFrameHead head = { .len = (uint32_t) (n - sizeof(head) + len), .kind = FILE_FRAME_MESSAGE };
        memcpy(prefix, &head, sizeof(head));
        memcpy(data - n, prefix, n);
        return write_all(stream, data - n, n + len);
}

/* ---- The frames around a call ---- */

int file_stream_begin(FileStream *stream, FileBegin *ret_begin) {
        stream->is_half_closed = stream->is_cancelled = stream->is_kept = false;
        for (;;) {
                /* What was on its way when the last call ended is skipped. */
                FileFrameHead head;
                int r = read_all(stream, &head, sizeof(head));
                if (r >= 0)
                        r = read_bytes(stream, head.len);
                if (r < 0)
                        return r;
                if (head.kind == FILE_FRAME_BEGIN && head.len == sizeof(*ret_begin)) {
                        memcpy(ret_begin, stream->buffer + MESSAGE_AT, sizeof(*ret_begin));
                        return 0;
                }
        }
}

int file_stream_end(FileStream *stream, int r, const HutchError *err, bool is_last) {
        HutchError unset = {};
        if (r < 0 && err->error == 0) {
                reason_set(&unset, r, reason_from_errno(r), "the file work failed: %s", strerror(-r));
                err = &unset;
        }
        FileEnd end = { .is_last = is_last, .is_kept = stream->is_kept };
        const char *message = "";
        if (r < 0) {
                end.code = err->code;
                end.error = err->error;
                end.n_pairs = err->n_pairs;
                memcpy(end.reason, err->reason, sizeof(end.reason));
                memcpy(end.pairs, err->pairs, sizeof(end.pairs));
                message = error_message(err);
        }
        size_t len = strnlen(message, ERROR_MESSAGE_MAX);
        FileFrameHead head = { .len = (uint32_t) (sizeof(end) + len), .kind = FILE_FRAME_END };
        uint8_t bytes[sizeof(head) + sizeof(end) + ERROR_MESSAGE_MAX];
        memcpy(bytes, &head, sizeof(head));
        memcpy(bytes + sizeof(head), &end, sizeof(end));
        memcpy(bytes + sizeof(head) + sizeof(end), message, len);
        error_clear(&unset);

        /* What a call needed is not kept for the next. */
        free(stream->buffer);
        stream->buffer = NULL;
        stream->size = 0;
        return write_all(stream, bytes, sizeof(head) + sizeof(end) + len);
}
