/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"

/* File workers: processes in the sandbox that do its file work, one call of hutch.v1.FileService at a time, as the
 * sandbox's user. What a method of theirs is written against, all of which blocks:
 *
 *         int file_method_make_directory(FileStream *stream, HutchError *err) {
 *                 _cleanup_(protobuf_freep) ProtobufCMessage *request = NULL;
 *                 int r = file_stream_unpack(stream, &hutch__v1__make_directory_request__descriptor, &request, err);
 *                 …
 *                 return file_stream_send(stream, &response.base);
 *         }
 *
 * It ends the call by returning: 0 is OK, else @err says why. -ECANCELED goes up as it is, @err unset: nobody will read
 * it. Whatever a method makes on its way it removes before it returns, also then: the worker lives on.
 *
 * A method runs with the capabilities of nobody, and with umask 0. Descriptors 0 to 2 can be neither read nor
 * written. */

typedef struct FileStream FileStream;

typedef int (*FileMethod)(FileStream *stream, HutchError *err);

/* The next message of the call, valid until the next call of this: 1; 0: no more will come; -ECANCELED: nobody wants
 * the answer any more. */
int file_stream_receive(FileStream *stream, const uint8_t **ret_bytes, size_t *ret_len) __attribute__((nonnull));

/* The next message, decoded. That there is none is an error here. */
int file_stream_unpack(FileStream *stream, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_message,
                       HutchError *err) __attribute__((nonnull(1, 2, 3)));

/* Sends a message. -ECANCELED. */
int file_stream_send(FileStream *stream, const ProtobufCMessage *message) __attribute__((nonnull));

/* Sends a message that is one bytes field, of number @field (below 16). @data stands FILE_HEAD bytes or more behind the
 * beginning of a buffer: what comes before it on the wire is written there. At most FILE_CHUNK bytes are best.
 * -ECANCELED. */
#define FILE_HEAD 16
#define FILE_CHUNK (256 * 1024)
int file_stream_send_data(FileStream *stream, uint32_t field, uint8_t *data, size_t len) __attribute__((nonnull));

/* Tells whether nobody wants the answer any more. Costs a system call. */
bool file_stream_is_cancelled(FileStream *stream) __attribute__((nonnull));

/* What came of an upload that can be resumed is kept, though the call fails. */
void file_stream_keep_upload(FileStream *stream) __attribute__((nonnull));

/* The socket, to be waited for with others: readable when file_stream_is_cancelled() may have become true. */
int file_stream_fd(const FileStream *stream) __attribute__((nonnull));

/* A stream over a socket that speaks file-frames.h, for which a call has begun. The socket stays the caller's. */
FileStream *file_stream_new(int socket) __attribute__((returns_nonnull));
FileStream *file_stream_free(FileStream *stream);
DEFINE_CLEANUP(FileStream *, file_stream_free);

/* Serves calls from @socket until the other end is closed. */
void file_worker_serve(int socket);
