/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: error objects, and the one mapping of errno to status codes. What does not: how an error travels to
 * a client (rpc, api), and which reasons there are (the contract). Never aborts: libhutch uses it. */

#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_code_names[] = {
        [STATUS_OK] = "OK",
        [STATUS_CANCELLED] = "CANCELLED",
        [STATUS_UNKNOWN] = "UNKNOWN",
        [STATUS_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [STATUS_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
        [STATUS_NOT_FOUND] = "NOT_FOUND",
        [STATUS_ALREADY_EXISTS] = "ALREADY_EXISTS",
        [STATUS_PERMISSION_DENIED] = "PERMISSION_DENIED",
        [STATUS_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [STATUS_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [STATUS_ABORTED] = "ABORTED",
        [STATUS_OUT_OF_RANGE] = "OUT_OF_RANGE",
        [STATUS_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [STATUS_INTERNAL] = "INTERNAL",
        [STATUS_UNAVAILABLE] = "UNAVAILABLE",
        [STATUS_DATA_LOSS] = "DATA_LOSS",
        [STATUS_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *status_code_name(StatusCode code) {
        /* The number may come from a peer. */
        if ((unsigned) code >= sizeof(status_code_names) / sizeof(status_code_names[0]))
                code = STATUS_UNKNOWN;

        return status_code_names[code];
}

StatusCode status_code_from_errno(int r) {
        if (r >= 0)
                return STATUS_OK;
        if (r == INT_MIN)
                return STATUS_INTERNAL; /* no errno, and has no negative */

        switch (-r) {
        case EINVAL:
        case ENAMETOOLONG:
        case EILSEQ:
        case EDOM:
        case EBADMSG:
                return STATUS_INVALID_ARGUMENT;
        case ENOENT:
        case ESRCH:
                return STATUS_NOT_FOUND;
        case EEXIST:
                return STATUS_ALREADY_EXISTS;
        case EPERM:
        case EACCES:
        case EROFS:
                return STATUS_PERMISSION_DENIED;
        case ENOTDIR:
        case EISDIR:
        case ENOTEMPTY:
        case EBUSY:
        case ELOOP:
        case EXDEV:
        case ETXTBSY:
        case ESTALE:
                return STATUS_FAILED_PRECONDITION;
        case ENOSPC:
        case EDQUOT:
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case E2BIG:
        case EFBIG:
        case EMLINK:
        case EOVERFLOW:
                return STATUS_RESOURCE_EXHAUSTED;
        case ERANGE:
                return STATUS_OUT_OF_RANGE;
        case EOPNOTSUPP:
        case ENOSYS:
                return STATUS_UNIMPLEMENTED;
        case EAGAIN:
        case ECONNREFUSED:
        case ECONNRESET:
        case EPIPE:
        case ENOTCONN:
                return STATUS_UNAVAILABLE;
        case ETIMEDOUT:
                return STATUS_DEADLINE_EXCEEDED;
        case ECANCELED:
                return STATUS_CANCELLED;
        default:
                return STATUS_INTERNAL;
        }
}

/* The byte that became the NUL of a text that was cut is unknown, so its last character may be cut: drops it whole. */
static void drop_last(char *text) {
        size_t len = strlen(text);

        if (len > 0)
                len--;
        while (len > 0 && ((unsigned char) text[len] & 0xc0) == 0x80)
                len--;
        text[len] = '\0';
}

__attribute__((format(printf, 1, 0))) static char *format_message(const char *format, va_list args) {
        char text[ERROR_MESSAGE_MAX + 1];
        int len = vsnprintf(text, sizeof(text), format, args);

        if (len < 0)
                return NULL;
        if (len > ERROR_MESSAGE_MAX)
                drop_last(text);
        return strdup(text);
}

__attribute__((format(printf, 5, 0))) static void error_setv(HutchError *err, StatusCode code, int r,
                                                             const char *reason, const char *format, va_list args) {
        HutchError set = { .code = code, .error = -r };

        if (!err)
                return;

        /* Both may be read from the error that is replaced. */
        snprintf(set.reason, sizeof(set.reason), "%s", reason);
        set.message = format_message(format, args);

        error_clear(err);
        *err = set;
}

int error_set(HutchError *err, int r, const char *reason, const char *format, ...) {
        va_list args;

        assert(r < 0);

        va_start(args, format);
        error_setv(err, status_code_from_errno(r), r, reason, format, args);
        va_end(args);
        return r;
}

int error_set_code(HutchError *err, StatusCode code, int r, const char *reason, const char *format, ...) {
        va_list args;

        assert(r < 0);

        va_start(args, format);
        error_setv(err, code, r, reason, format, args);
        va_end(args);
        return r;
}

void error_add_pair(HutchError *err, const char *key, const char *format, ...) {
        ErrorPair *pair;
        va_list args;

        if (!err || err->n_pairs == ERROR_PAIRS_MAX)
                return;

        pair = &err->pairs[err->n_pairs++];
        snprintf(pair->key, sizeof(pair->key), "%s", key);
        va_start(args, format);
        if (vsnprintf(pair->value, sizeof(pair->value), format, args) >= (int) sizeof(pair->value))
                drop_last(pair->value);
        va_end(args);
}

const char *error_message(const HutchError *err) {
        return err->message ? err->message : status_code_name(err->code);
}

void error_clear(HutchError *err) {
        free(err->message);
        *err = (HutchError){};
}
