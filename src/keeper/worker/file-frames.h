/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* What the keeper and its file workers say to each other, on a stream socket: frames of a head and its bytes. Both ends
 * are the same program, so numbers and structs go as they are.
 *
 *         keeper                       worker
 *         BEGIN      ──────────────►   a method begins
 *         MESSAGE    ──────────────►   as the caller sends them
 *         HALF_CLOSE ──────────────►   all were sent
 *         CANCEL     ──────────────►   nobody wants the answer any more
 *                    ◄──────────────   MESSAGE
 *                    ◄──────────────   END: the next is BEGIN; what was on its way is skipped */

#define FILE_FRAME_MAX (5 << 20) /* bytes that follow a head: more than any message has */

typedef enum FileFrameKind {
        FILE_FRAME_BEGIN = 1, /* FileBegin */
        FILE_FRAME_MESSAGE,
        FILE_FRAME_HALF_CLOSE,
        FILE_FRAME_CANCEL,
        FILE_FRAME_END, /* FileEnd, and the sentence */
} FileFrameKind;

typedef struct __attribute__((packed)) FileFrameHead {
        uint32_t len; /* of what follows */
        uint8_t kind;
} FileFrameHead;

typedef struct FileBegin {
        uint32_t method; /* an index of file_methods */
} FileBegin;

typedef struct FileEnd {
        int32_t code; /* StatusCode */
        int32_t error;
        uint32_t is_last; /* the worker ends, too */
        uint32_t is_kept; /* what came of an upload is still there */
        uint32_t n_pairs;
        char reason[ERROR_REASON_MAX + 1];
        ErrorPair pairs[ERROR_PAIRS_MAX];
} FileEnd;
