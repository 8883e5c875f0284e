/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "keeper/box/sandbox.h"
#include "keeper/worker/file-frames.h"

/* File workers as processes: see file-worker.h for what they do. */

typedef struct FileStream FileStream;

typedef struct FileProcess {
        pid_t pid;
        int pidfd;
        int socket; /* speaks file-frames.h; does not block */
} FileProcess;

/* Starts a worker that does file work as @user, and waits for BEGIN; @sees_layers: it has what file-layers.h says. When
 * it cannot become that user it says END at once. It ends when the socket is closed, and must be waited for. What
 * sandbox_spawn() says. */
int file_process_start(KeptSandbox *sandbox, ExecGroup *group, const char *user, bool sees_layers,
                       FileProcess *ret_process, HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));

/* The worker's side of a call: waits for BEGIN, and tells END: OK, or with @r the error; and whether the worker ends as
 * well. -ECANCELED: the keeper is gone. */
int file_stream_begin(FileStream *stream, FileBegin *ret_begin) __attribute__((nonnull));
int file_stream_end(FileStream *stream, int r, const HutchError *err, bool is_last) __attribute__((nonnull));
