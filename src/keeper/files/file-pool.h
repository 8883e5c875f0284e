/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "keeper/box/sandbox.h"
#include "keeper/worker/file-frames.h"

/* File workers, as the keeper has them: each does one call at a time, and is kept for a while for the next one of the
 * same user.
 *
 *         file_pool_take(pool, "1000", method, call, &worker, &err);
 *         file_worker_send(worker, FILE_FRAME_MESSAGE, bytes, len);      false: wait for `taken`
 *         events: message, message, …, ended                             the worker is the pool's again
 *
 * What comes from a worker waits in its socket while nobody reads, and then the worker waits. */

typedef struct FilePool FilePool;
typedef struct FileWorker FileWorker;

#define FILE_WORKERS_MAX 64 /* at work */

typedef struct FilePoolEvents {
        /* A message, which is the callee's to free. */
        void (*message)(void *user, uint8_t *message, size_t len);
        /* In file_worker_relay(): its message becomes the caller's of this. */
        uint8_t *(*take)(void *user);
        /* All that was sent is on its way. */
        void (*taken)(void *user);
        /* The call is over; @err: with an error, else NULL. @is_kept: what came of an upload may be
         * there still. */
        void (*ended)(void *user, const HutchError *err, bool is_kept);
} FilePoolEvents;

/* A pool for @sandbox, which outlives it until file_pool_end(). */
FilePool *file_pool_new(uv_loop_t *loop, KeptSandbox *sandbox, const FilePoolEvents *events)
        __attribute__((nonnull, returns_nonnull));

/* Has a worker begin. -EAGAIN: as many are at work as there can be; try again when one has ended. */
int file_pool_take(FilePool *pool, const char *user_name, size_t method, void *user, FileWorker **ret_worker,
                   HutchError *err) __attribute__((nonnull));

/* Sends a frame. Returns whether it is on its way; else it waits, and `taken` will be told. */
bool file_worker_send(FileWorker *worker, FileFrameKind kind, const void *bytes, size_t len)
        __attribute__((nonnull(1)));

/* The same with a message, which is not copied when it has to wait, but taken. */
bool file_worker_relay(FileWorker *worker, const uint8_t *message, size_t len) __attribute__((nonnull));

/* Stops reading what it says, or goes on. */
void file_worker_set_reading(FileWorker *worker, bool is_reading) __attribute__((nonnull));

/* Nobody wants the answer any more: it is read to its end and thrown away by `message`; a worker that does not come to
 * its end in time is killed. `ended` comes in any case. */
void file_worker_cancel(FileWorker *worker) __attribute__((nonnull));

/* Kills the workers whose calls' users @which names; these are told that they ended with @err. */
void file_pool_fail(FilePool *pool, bool (*which)(const void *user), const HutchError *err) __attribute__((nonnull));

/* Kills all workers; calls are told that they ended with @err, and no others begin. */
void file_pool_end(FilePool *pool, const HutchError *err) __attribute__((nonnull));
