/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <stdint.h>

#include "contract/google/protobuf/duration.pb-c.h"
#include "contract/google/protobuf/timestamp.pb-c.h"
#include "contract/hutch/v1/error.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"

/* Views: messages as callers of libhutch see them. They point into the message, which outlives them. */

typedef struct SandboxView {
        HutchSandbox view; /* first: a sandbox that a caller has is one of these */
        uint8_t *encoded;
        ProtobufCMessage *message; /* that it points into, if that is its own; NULL: somebody else's */
} SandboxView;

typedef struct ExecView {
        HutchExec view; /* first */
        uint8_t *encoded;
        ProtobufCMessage *message;
} ExecView;

typedef struct FileView {
        HutchFile view; /* first */
        uint8_t *encoded;
        ProtobufCMessage *message;
} FileView;

/* Fill a view of @message. The owner clears it. -ENOMEM. */
int sandbox_view_fill(SandboxView *view, const Hutch__V1__Sandbox *message) __attribute__((nonnull));
int exec_view_fill(ExecView *view, const Hutch__V1__Exec *message) __attribute__((nonnull));
int file_view_fill(FileView *view, const Hutch__V1__FileInfo *message) __attribute__((nonnull));
void sandbox_view_clear(SandboxView *view) __attribute__((nonnull));
void exec_view_clear(ExecView *view) __attribute__((nonnull));
void file_view_clear(FileView *view) __attribute__((nonnull));

/* Make one for a caller, of a part of @whole, which it takes over, also when it fails. -EBADMSG: that part is missing.
 * -ENOMEM. */
int sandbox_view_new(ProtobufCMessage *whole, const Hutch__V1__Sandbox *part, HutchSandbox **ret_sandbox)
        __attribute__((nonnull(1, 3)));
int exec_view_new(ProtobufCMessage *whole, const Hutch__V1__Exec *part, HutchExec **ret_exec)
        __attribute__((nonnull(1, 3)));
int file_view_new(ProtobufCMessage *whole, const Hutch__V1__FileInfo *part, HutchFile **ret_file)
        __attribute__((nonnull(1, 3)));

/* The name of a value without what all names of @type begin with; "" for the value 0 and for one that is not known. */
const char *enum_name(const ProtobufCEnumDescriptor *type, int value, const char *prefix) __attribute__((nonnull));
const char *reason_text(Hutch__V1__Reason reason);

/* Nanoseconds; 0 for NULL. */
uint64_t timestamp_to_ns(const Google__Protobuf__Timestamp *timestamp);
uint64_t duration_to_ns(const Google__Protobuf__Duration *duration);

/* Fills @message and returns it. */
Google__Protobuf__Duration *duration_from_ns(uint64_t ns, Google__Protobuf__Duration *message)
        __attribute__((nonnull, returns_nonnull));
