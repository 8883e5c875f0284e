/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Errors: what failed, why, and what a caller may do about it.
 *
 * Functions return 0 (or a count) or a negative errno. One that crosses rooms also takes a `HutchError *err` last,
 * which may be NULL, and fills it on failure only. An error object lives on the stack:
 *
 *         _cleanup_(error_clear) HutchError err = {};
 *         int r = path_parse(text, &path, &err);
 *         if (r < 0)
 *                 log_warning("path refused", LOG_STR("reason", err.reason), LOG_STR("error", error_message(&err)));
 */

/* The status codes of gRPC, with its numbers. */
typedef enum StatusCode {
        STATUS_OK = 0,
        STATUS_CANCELLED = 1,
        STATUS_UNKNOWN = 2,
        STATUS_INVALID_ARGUMENT = 3,
        STATUS_DEADLINE_EXCEEDED = 4,
        STATUS_NOT_FOUND = 5,
        STATUS_ALREADY_EXISTS = 6,
        STATUS_PERMISSION_DENIED = 7,
        STATUS_RESOURCE_EXHAUSTED = 8,
        STATUS_FAILED_PRECONDITION = 9,
        STATUS_ABORTED = 10,
        STATUS_OUT_OF_RANGE = 11,
        STATUS_UNIMPLEMENTED = 12,
        STATUS_INTERNAL = 13,
        STATUS_UNAVAILABLE = 14,
        STATUS_DATA_LOSS = 15,
        STATUS_UNAUTHENTICATED = 16,
} StatusCode;

#define ERROR_REASON_MAX 63    /* bytes; a longer reason is cut */
#define ERROR_MESSAGE_MAX 1024 /* bytes; a longer message is cut, between characters, so that it fits into a trailer */

#define ERROR_PAIRS_MAX 2

/* A fact that belongs to an error, for programs: the limit that was hit, the state that something is in. */
typedef struct ErrorPair {
        char key[16];
        char value[256]; /* a longer one is cut, between characters */
} ErrorPair;

typedef struct HutchError {
        StatusCode code;
        int error;                         /* the errno, positive; 0: no error is set */
        char reason[ERROR_REASON_MAX + 1]; /* UPPER_SNAKE, stable: clients act on it */
        char *message;                     /* a sentence for people; owned; read it with error_message() */
        ErrorPair pairs[ERROR_PAIRS_MAX];
        unsigned n_pairs;
} HutchError;

/* The name of @code as gRPC writes it ("NOT_FOUND"). "UNKNOWN" for a number that is none of them. */
const char *status_code_name(StatusCode code);

/* The status code of the negative errno @r:
 *
 *   INVALID_ARGUMENT     EINVAL ENAMETOOLONG EILSEQ EDOM EBADMSG
 *   NOT_FOUND            ENOENT ESRCH
 *   ALREADY_EXISTS       EEXIST
 *   PERMISSION_DENIED    EPERM EACCES EROFS
 *   FAILED_PRECONDITION  ENOTDIR EISDIR ENOTEMPTY EBUSY ELOOP EXDEV ETXTBSY ESTALE
 *   RESOURCE_EXHAUSTED   ENOSPC EDQUOT EMFILE ENFILE ENOMEM E2BIG EFBIG EMLINK EOVERFLOW
 *   OUT_OF_RANGE         ERANGE
 *   UNIMPLEMENTED        EOPNOTSUPP ENOSYS
 *   UNAVAILABLE          EAGAIN ECONNREFUSED ECONNRESET EPIPE ENOTCONN
 *   DEADLINE_EXCEEDED    ETIMEDOUT
 *   CANCELLED            ECANCELED
 *   INTERNAL             everything else
 *
 * Zero and positive numbers are STATUS_OK. */
StatusCode status_code_from_errno(int r);

/* Sets @err from the negative errno @r, and returns @r, so that a caller fails in one line. An error already in @err is
 * replaced; its message may be among the arguments. When memory is out the message is left unset, nothing else. */
int error_set(HutchError *err, int r, const char *reason, const char *format, ...)
        __attribute__((format(printf, 4, 5), nonnull(3, 4)));

/* The same with a status code other than the one @r maps to. */
int error_set_code(HutchError *err, StatusCode code, int r, const char *reason, const char *format, ...)
        __attribute__((format(printf, 5, 6), nonnull(4, 5)));

/* Adds a fact to an error that is set. @err may be NULL. */
void error_add_pair(HutchError *err, const char *key, const char *format, ...)
        __attribute__((format(printf, 3, 4), nonnull(2, 3)));

/* The message of @err; never NULL: the name of its code when it has none. */
const char *error_message(const HutchError *err) __attribute__((nonnull, returns_nonnull));

/* Frees what @err holds and sets it to no error. */
void error_clear(HutchError *err) __attribute__((nonnull));
