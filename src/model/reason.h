/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* Reasons: why a call failed, in words a program can compare.
 *
 * These are the values of hutch.v1.Reason, with its numbers and its names without "REASON_", and the one status code
 * that each belongs to. Rooms that do not see protobuf give reasons too.
 *
 *         return reason_set(err, -EINVAL, REASON_ID_MALFORMED, "an id has 4 to 200 characters, not %zu", len);
 *
 * X is given each reason's name, number and status code. */
#define REASONS(X)                                                                                                     \
        X(FIELD_REQUIRED, 1, INVALID_ARGUMENT)                                                                         \
        X(FIELD_INVALID, 2, INVALID_ARGUMENT)                                                                          \
        X(FIELD_OUT_OF_RANGE, 3, INVALID_ARGUMENT)                                                                     \
        X(FIELD_TOO_LONG, 4, INVALID_ARGUMENT)                                                                         \
        X(FIELD_CONFLICT, 5, INVALID_ARGUMENT)                                                                         \
        X(FIELD_NOT_UTF8, 6, INVALID_ARGUMENT)                                                                         \
        X(FIELD_MASK_INVALID, 7, INVALID_ARGUMENT)                                                                     \
        X(ID_MALFORMED, 8, INVALID_ARGUMENT)                                                                           \
        X(NAME_MALFORMED, 9, INVALID_ARGUMENT)                                                                         \
        X(REQUEST_ID_MALFORMED, 10, INVALID_ARGUMENT)                                                                  \
        X(LABEL_MALFORMED, 11, INVALID_ARGUMENT)                                                                       \
        X(LABEL_RESERVED, 12, INVALID_ARGUMENT)                                                                        \
        X(LABELS_TOO_MANY, 13, INVALID_ARGUMENT)                                                                       \
        X(SELECTOR_MALFORMED, 14, INVALID_ARGUMENT)                                                                    \
        X(SELECTOR_EMPTY, 15, INVALID_ARGUMENT)                                                                        \
        X(PATH_EMPTY, 16, INVALID_ARGUMENT)                                                                            \
        X(PATH_TOO_LONG, 17, INVALID_ARGUMENT)                                                                         \
        X(PATH_COMPONENT_TOO_LONG, 18, INVALID_ARGUMENT)                                                               \
        X(PATH_NOT_UTF8, 19, INVALID_ARGUMENT)                                                                         \
        X(PATH_CONTROL_CHARACTER, 20, INVALID_ARGUMENT)                                                                \
        X(PATH_DOTDOT, 21, INVALID_ARGUMENT)                                                                           \
        X(PATH_TILDE, 22, INVALID_ARGUMENT)                                                                            \
        X(PATH_NOT_ABSOLUTE, 23, INVALID_ARGUMENT)                                                                     \
        X(PATH_PROTECTED, 24, INVALID_ARGUMENT)                                                                        \
        X(ENV_NAME_MALFORMED, 25, INVALID_ARGUMENT)                                                                    \
        X(ENV_VALUE_MALFORMED, 26, INVALID_ARGUMENT)                                                                   \
        X(ARGV_EMPTY, 27, INVALID_ARGUMENT)                                                                            \
        X(ARGV_MALFORMED, 28, INVALID_ARGUMENT)                                                                        \
        X(DURATION_MALFORMED, 29, INVALID_ARGUMENT)                                                                    \
        X(DURATION_OUT_OF_RANGE, 30, INVALID_ARGUMENT)                                                                 \
        X(HOST_PATTERN_MALFORMED, 31, INVALID_ARGUMENT)                                                                \
        X(HOST_PATTERN_WILDCARD, 32, INVALID_ARGUMENT)                                                                 \
        X(HOST_PATTERN_ADDRESS, 33, INVALID_ARGUMENT)                                                                  \
        X(CIDR_MALFORMED, 34, INVALID_ARGUMENT)                                                                        \
        X(PROFILE_UNKNOWN, 35, INVALID_ARGUMENT)                                                                       \
        X(RUNTIME_UNKNOWN, 36, INVALID_ARGUMENT)                                                                       \
        X(TOOL_UNKNOWN, 37, INVALID_ARGUMENT)                                                                          \
        X(LIMIT_TOO_SMALL, 38, INVALID_ARGUMENT)                                                                       \
        X(SOURCE_INVALID, 39, INVALID_ARGUMENT)                                                                        \
        X(TARGET_DUPLICATE, 40, INVALID_ARGUMENT)                                                                      \
        X(PAGE_TOKEN_INVALID, 41, INVALID_ARGUMENT)                                                                    \
        X(CURSOR_INVALID, 42, INVALID_ARGUMENT)                                                                        \
        X(ARCHIVE_REFUSED, 43, INVALID_ARGUMENT)                                                                       \
        X(CHECKSUM_MISMATCH, 44, INVALID_ARGUMENT)                                                                     \
        X(SIZE_MISMATCH, 45, INVALID_ARGUMENT)                                                                         \
        X(STREAM_ORDER, 46, INVALID_ARGUMENT)                                                                          \
        X(ADDRESS_MALFORMED, 47, INVALID_ARGUMENT)                                                                     \
        X(SANDBOX_NOT_FOUND, 100, NOT_FOUND)                                                                           \
        X(EXEC_NOT_FOUND, 101, NOT_FOUND)                                                                              \
        X(FILE_NOT_FOUND, 102, NOT_FOUND)                                                                              \
        X(IMAGE_NOT_FOUND, 103, NOT_FOUND)                                                                             \
        X(SNAPSHOT_NOT_FOUND, 104, NOT_FOUND)                                                                          \
        X(PROVIDER_NOT_FOUND, 105, NOT_FOUND)                                                                          \
        X(SERVICE_NOT_FOUND, 106, NOT_FOUND)                                                                           \
        X(SECRET_NOT_FOUND, 107, NOT_FOUND)                                                                            \
        X(UPLOAD_NOT_FOUND, 108, NOT_FOUND)                                                                            \
        X(USER_NOT_FOUND, 109, NOT_FOUND)                                                                              \
        X(CONTEXT_NOT_FOUND, 110, NOT_FOUND)                                                                           \
        X(ID_TAKEN, 200, ALREADY_EXISTS)                                                                               \
        X(NAME_TAKEN, 201, ALREADY_EXISTS)                                                                             \
        X(REQUEST_ID_REUSED, 202, ALREADY_EXISTS)                                                                      \
        X(FILE_EXISTS, 203, ALREADY_EXISTS)                                                                            \
        X(SANDBOX_WRONG_STATE, 300, FAILED_PRECONDITION)                                                               \
        X(EXEC_WRONG_STATE, 301, FAILED_PRECONDITION)                                                                  \
        X(OPERATION_IN_PROGRESS, 302, FAILED_PRECONDITION)                                                             \
        X(SANDBOX_EXPIRED, 303, FAILED_PRECONDITION)                                                                   \
        X(NOT_A_DIRECTORY, 304, FAILED_PRECONDITION)                                                                   \
        X(IS_A_DIRECTORY, 305, FAILED_PRECONDITION)                                                                    \
        X(DIRECTORY_NOT_EMPTY, 306, FAILED_PRECONDITION)                                                               \
        X(NOT_A_REGULAR_FILE, 307, FAILED_PRECONDITION)                                                                \
        X(SYMLINK_LOOP, 308, FAILED_PRECONDITION)                                                                      \
        X(SYMLINK_LEAVES_TREE, 309, FAILED_PRECONDITION)                                                               \
        X(CROSS_MOUNT, 310, FAILED_PRECONDITION)                                                                       \
        X(FILE_BUSY, 311, FAILED_PRECONDITION)                                                                         \
        X(LIMIT_NOT_ENFORCEABLE, 312, FAILED_PRECONDITION)                                                             \
        X(FEATURE_UNSUPPORTED, 313, FAILED_PRECONDITION)                                                               \
        X(IMAGE_IN_USE, 314, FAILED_PRECONDITION)                                                                      \
        X(SNAPSHOT_IN_USE, 315, FAILED_PRECONDITION)                                                                   \
        X(PROVIDER_IN_USE, 316, FAILED_PRECONDITION)                                                                   \
        X(NO_SUCH_STREAM, 317, FAILED_PRECONDITION)                                                                    \
        X(TOKEN_IN_CLEAR_TEXT, 318, FAILED_PRECONDITION)                                                               \
        X(CONTEXTS_FILE_EXPOSED, 319, FAILED_PRECONDITION)                                                             \
        X(CONTEXTS_FILE_INVALID, 320, FAILED_PRECONDITION)                                                             \
        X(FILE_CHANGED, 400, ABORTED)                                                                                  \
        X(REVISION_CHANGED, 401, ABORTED)                                                                              \
        X(CURSOR_GONE, 500, OUT_OF_RANGE)                                                                              \
        X(OFFSET_OUT_OF_RANGE, 501, OUT_OF_RANGE)                                                                      \
        X(QUOTA_EXCEEDED, 600, RESOURCE_EXHAUSTED)                                                                     \
        X(MESSAGE_TOO_LARGE, 601, RESOURCE_EXHAUSTED)                                                                  \
        X(FILE_TOO_LARGE, 602, RESOURCE_EXHAUSTED)                                                                     \
        X(ARGUMENTS_TOO_LARGE, 603, RESOURCE_EXHAUSTED)                                                                \
        X(DISK_FULL, 604, RESOURCE_EXHAUSTED)                                                                          \
        X(WATCHER_LAGGED, 605, RESOURCE_EXHAUSTED)                                                                     \
        X(TOO_MANY_STREAMS, 606, RESOURCE_EXHAUSTED)                                                                   \
        X(HOST_EXHAUSTED, 607, RESOURCE_EXHAUSTED)                                                                     \
        X(STARTING, 700, UNAVAILABLE)                                                                                  \
        X(DRAINING, 701, UNAVAILABLE)                                                                                  \
        X(DAEMON_UNREACHABLE, 702, UNAVAILABLE)                                                                        \
        X(RUNTIME_UNAVAILABLE, 703, UNAVAILABLE)                                                                       \
        X(KEEPER_UNAVAILABLE, 704, UNAVAILABLE)                                                                        \
        X(STORE_UNAVAILABLE, 705, UNAVAILABLE)                                                                         \
        X(CALLER_NOT_ALLOWED, 800, PERMISSION_DENIED)                                                                  \
        X(SOURCE_NOT_ALLOWED, 801, PERMISSION_DENIED)                                                                  \
        X(FILE_PERMISSION, 802, PERMISSION_DENIED)                                                                     \
        X(FILE_READ_ONLY, 803, PERMISSION_DENIED)                                                                      \
        X(EGRESS_DENIED, 804, PERMISSION_DENIED)                                                                       \
        X(ADDRESS_REFUSED, 805, PERMISSION_DENIED)                                                                     \
        X(CREDENTIALS_MISSING, 900, UNAUTHENTICATED)                                                                   \
        X(CREDENTIALS_INVALID, 901, UNAUTHENTICATED)                                                                   \
        X(CREDENTIALS_EXPIRED, 902, UNAUTHENTICATED)                                                                   \
        X(METHOD_UNIMPLEMENTED, 1000, UNIMPLEMENTED)                                                                   \
        X(DEADLINE_EXCEEDED, 1100, DEADLINE_EXCEEDED)                                                                  \
        X(CALL_CANCELLED, 1200, CANCELLED)                                                                             \
        X(INTERNAL, 1300, INTERNAL)                                                                                    \
        X(IO_ERROR, 1301, INTERNAL)                                                                                    \
        X(STREAM_INCOMPLETE, 1400, DATA_LOSS)

typedef enum Reason {
        REASON_UNSPECIFIED = 0,
#define X(name, number, code) REASON_##name = (number),
        REASONS(X)
#undef X
} Reason;

/* The name of @reason ("PATH_EMPTY"); "UNSPECIFIED" for a number that is none of them. */
const char *reason_name(Reason reason);

/* The status code that @reason belongs to; STATUS_UNKNOWN when it is REASON_UNSPECIFIED or none of them. */
StatusCode reason_status_code(Reason reason);

/* The reason of that name; REASON_UNSPECIFIED when there is none. */
Reason reason_from_name(const char *name) __attribute__((nonnull));

/* What the negative errno @r of file work in a sandbox becomes for the caller:
 *
 *   FILE_NOT_FOUND        ENOENT                           FILE_TOO_LARGE       EFBIG
 *   FILE_EXISTS           EEXIST                           PATH_TOO_LONG        ENAMETOOLONG
 *   FILE_PERMISSION       EACCES EPERM                     HOST_EXHAUSTED       EMFILE ENFILE ENOMEM
 *   FILE_READ_ONLY        EROFS                            ARGUMENTS_TOO_LARGE  E2BIG
 *   NOT_A_DIRECTORY       ENOTDIR                          NOT_A_REGULAR_FILE   ENXIO ENODEV
 *   IS_A_DIRECTORY        EISDIR                           FEATURE_UNSUPPORTED  EOPNOTSUPP
 *   DIRECTORY_NOT_EMPTY   ENOTEMPTY                        DEADLINE_EXCEEDED    ETIMEDOUT
 *   SYMLINK_LOOP          ELOOP                            CALL_CANCELLED       ECANCELED
 *   CROSS_MOUNT           EXDEV                            IO_ERROR             EIO
 *   FILE_BUSY             ETXTBSY EBUSY                    INTERNAL             everything else
 *   DISK_FULL             ENOSPC EDQUOT */
Reason reason_from_errno(int r);

/* Sets @err, which may be NULL, to @reason with its status code, the negative errno @r and a sentence. Evaluates to @r.
 * @reason is evaluated twice. */
#define reason_set(err, r, reason, ...)                                                                                \
        error_set_code((err), reason_status_code(reason), (r), reason_name(reason), __VA_ARGS__)

/* Adds the name and value of the limit that was passed to @err, which may be NULL. Returns @r. */
int reason_add_limit(HutchError *err, const char *limit, uint64_t value, int r);
