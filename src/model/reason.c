/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what belongs to each reason. What does not: how a reason travels to a client (api). */

#include "model/reason.h"

#include <errno.h>
#include <inttypes.h>

#include "base/strings.h"

const char *reason_name(Reason reason) {
        switch (reason) {
#define X(name, number, code)                                                                                          \
        case REASON_##name:                                                                                            \
                return #name;
                REASONS(X)
#undef X
        case REASON_UNSPECIFIED:
                break;
        }

        return "UNSPECIFIED";
}

StatusCode reason_status_code(Reason reason) {
        switch (reason) {
#define X(name, number, code)                                                                                          \
        case REASON_##name:                                                                                            \
                return STATUS_##code;
                REASONS(X)
#undef X
        case REASON_UNSPECIFIED:
                break;
        }

        return STATUS_UNKNOWN;
}

Reason reason_from_name(const char *name) {
        static const Reason reasons[] = {
#define X(name, number, code) REASON_##name,
                REASONS(X)
#undef X
        };

        for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
                if (str_equal(name, reason_name(reasons[i])))
                        return reasons[i];

        return REASON_UNSPECIFIED;
}

Reason reason_from_errno(int r) {
        switch (r) {
        case -ENOENT:
                return REASON_FILE_NOT_FOUND;
        case -EEXIST:
                return REASON_FILE_EXISTS;
        case -EACCES:
        case -EPERM:
                return REASON_FILE_PERMISSION;
        case -EROFS:
                return REASON_FILE_READ_ONLY;
        case -ENOTDIR:
                return REASON_NOT_A_DIRECTORY;
        case -EISDIR:
                return REASON_IS_A_DIRECTORY;
        case -ENOTEMPTY:
                return REASON_DIRECTORY_NOT_EMPTY;
        case -ELOOP:
                return REASON_SYMLINK_LOOP;
        case -EXDEV:
                return REASON_CROSS_MOUNT;
        case -ETXTBSY:
        case -EBUSY:
                return REASON_FILE_BUSY;
        case -ENOSPC:
        case -EDQUOT:
                return REASON_DISK_FULL;
        case -EFBIG:
                return REASON_FILE_TOO_LARGE;
        case -ENAMETOOLONG:
                return REASON_PATH_TOO_LONG;
        case -EMFILE:
        case -ENFILE:
        case -ENOMEM:
                return REASON_HOST_EXHAUSTED;
        case -E2BIG:
                return REASON_ARGUMENTS_TOO_LARGE;
        case -ENXIO:
        case -ENODEV:
                return REASON_NOT_A_REGULAR_FILE;
        case -EOPNOTSUPP:
                return REASON_FEATURE_UNSUPPORTED;
        case -ETIMEDOUT:
                return REASON_DEADLINE_EXCEEDED;
        case -ECANCELED:
                return REASON_CALL_CANCELLED;
        case -EIO:
                return REASON_IO_ERROR;
        default:
                return REASON_INTERNAL;
        }
}

int reason_add_limit(HutchError *err, const char *limit, uint64_t value, int r) {
        error_add_pair(err, "limit", "%s", limit);
        error_add_pair(err, "value", "%" PRIu64, value);
        return r;
}
