/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "api/service.h"
#include "control/control.h"

/* A call that sends the output of an exec as it comes, as fast as its peer takes it, and the exec at the end. Part of
 * what a call's user is; its attachment's user is it. */

typedef struct ExecStream ExecStream;

struct ExecStream {
        ApiStream base; /* first */
        Attachment *attachment;
        Deferred *deferred;
        unsigned output_field;                /* of the response, for a chunk */
        unsigned end_field;                   /* for the exec at the end, with exec_stream_end() */
        void (*send_end)(ExecStream *stream); /* ends the call, after all output, when all is durable */
        bool follow;                          /* waits for more until the exec's end */
        bool begun;                           /* output may be sent */
};

/* Sends what there is. To be called whenever there may be something to send or room for it. */
void exec_stream_pump(ExecStream *stream) __attribute__((nonnull));

/* Sends the exec as it is. */
void exec_stream_put_exec(ExecStream *stream, unsigned field) __attribute__((nonnull));

/* Sends the exec as it is, and ends the call. */
void exec_stream_end(ExecStream *stream) __attribute__((nonnull));

/* When the call has ended, before it is cleared, or has no more use for the exec: attachment_release(). A daemon that
 * ends leaves the exec for its caller to attach again. */
bool exec_stream_release(ExecStream *stream) __attribute__((nonnull));

/* When the call has ended. */
void exec_stream_clear(ExecStream *stream) __attribute__((nonnull));
