/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "keeper/worker/file-frames.h"
#include "keeper/worker/file-worker.h"

/* Methods of file workers, run in a process of their own, with a folder of the test's as their root:
 *
 *         FileCall call = file_call_begin(root, file_method_stat);
 *         file_call_send(&call, &request.base);
 *         file_call_half_close(&call);
 *         while (file_call_next(&call, &message, &len))
 *                 …
 *         assert_string_equal(call.end.reason, "");
 *         file_call_end(&call);
 *
 * What the method left open or did not free fails the test. */

typedef struct FileCall {
        pid_t pid;
        int socket;
        FileEnd end; /* once file_call_next() said that there is no more */
        char sentence[ERROR_MESSAGE_MAX + 1];
        uint8_t *message;
} FileCall;

FileCall file_call_begin(const char *root, FileMethod method);

/* Sends a message; -EPIPE when the method has ended. */
int file_call_send(FileCall *call, const ProtobufCMessage *message);
int file_call_send_bytes(FileCall *call, uint32_t field, const void *bytes, size_t len);
void file_call_half_close(FileCall *call);
void file_call_cancel(FileCall *call);

/* The next message that the method sent, valid until the next call: true; false: it has ended. */
bool file_call_next(FileCall *call, const uint8_t **ret_bytes, size_t *ret_len);

/* Waits for the process, and frees what there is. */
void file_call_end(FileCall *call);
