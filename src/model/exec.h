/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "model/environment.h"
#include "model/exec-state.h"
#include "model/ids.h"
#include "model/reason.h"

/* An exec as the daemon knows it, in the same way as a sandbox (sandbox.h): what was asked for, and how it is.
 *
 * Times are nanoseconds since 1970; 0: never. Durations are nanoseconds. */

/* What to run. Shared by reference; its texts are its own. */
typedef struct ExecSpec {
        unsigned n_refs;

        /* As callers gave it and see it: encoded by the api, opaque to everybody else, kept by the store. */
        uint8_t *encoded;
        size_t encoded_len;

        /* Bytes for its stdin, of a command that was run in one call; kept by the store until it has started. */
        uint8_t *input;
        size_t input_len;

        /* What the daemon acts on. */
        char **argv; /* ends with NULL */
        EnvVariable *env;
        size_t n_env;
        char **unset_env;        /* ends with NULL; NULL: none */
        char *working_directory; /* absolute; NULL: the sandbox's */
        char *user;              /* NULL: the sandbox's */
        uint64_t timeout;        /* 0: the sandbox's, or none */
        uint64_t kill_grace;
        bool stdin_stream;
        bool terminal;
        uint32_t rows, columns; /* of the terminal */
        uint64_t output_limit;  /* bytes kept of each stream */
} ExecSpec;

/* An empty spec with one reference. */
ExecSpec *exec_spec_new(void) __attribute__((returns_nonnull));
ExecSpec *exec_spec_ref(ExecSpec *spec) __attribute__((nonnull, returns_nonnull));

/* Drops a reference of @spec, which may be NULL, and frees it with the last one. Returns NULL. */
ExecSpec *exec_spec_unref(ExecSpec *spec);
DEFINE_CLEANUP(ExecSpec *, exec_spec_unref);

/* Why an exec ended, with the numbers of hutch.v1.ExecEndReason. */
typedef enum ExecEndReason {
        EXEC_END_NONE = 0,
        EXEC_END_EXITED = 1,
        EXEC_END_CANCELLED = 2,
        EXEC_END_TIMED_OUT = 3,
        EXEC_END_OUT_OF_MEMORY = 4,
        EXEC_END_NOT_STARTED = 5,
        EXEC_END_SANDBOX_STOPPED = 6,
        EXEC_END_SANDBOX_DELETED = 7,
        EXEC_END_SANDBOX_FAILED = 8,
        EXEC_END_MACHINE_DOWN = 9,
        EXEC_END_DISK_FULL = 10,
} ExecEndReason;

/* As the contract has them without their prefix ("TIMED_OUT"); NULL for EXEC_END_NONE. The other way round an unknown
 * name is -EINVAL. */
const char *exec_end_reason_name(ExecEndReason reason);
int exec_end_reason_from_name(const char *name, ExecEndReason *ret_reason);

#define EXEC_MESSAGE_MAX 255 /* bytes; a longer one is cut */

/* What became of a stream of output. */
typedef struct StreamSummary {
        uint64_t total;
        uint64_t dropped;
} StreamSummary;

/* How an exec ended. */
typedef struct ExecResult {
        ExecEndReason end_reason;
        bool has_exit_code;
        int32_t exit_code;
        uint32_t signal;
        Reason failure;
        char message[EXEC_MESSAGE_MAX + 1];
        StreamSummary out, err;
        uint64_t cpu_time;
        uint64_t peak_memory;
} ExecResult;

/* How an exec is. */
typedef struct ExecRecord {
        char id[ID_LEN_MAX + 1];
        uint64_t sandbox_serial;
        uint64_t serial; /* its place among the sandbox's, in the order of creation */
        ExecSpec *spec;  /* borrowed from whoever holds the record */

        ExecState state;
        uint64_t create_time;
        uint64_t start_time;
        uint64_t end_time;
        uint64_t cancel_time;  /* a cancel was accepted */
        uint64_t cancel_grace; /* that it came with */
        bool bound;            /* it ends with the call that runs it */
        ExecResult result;     /* once it has ended */
} ExecRecord;
