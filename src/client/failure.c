/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: errors as callers of libhutch have them. What does not: how errors travel (rpc/status-details.c). */

#include "client/failure.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/strings.h"

/* There may be no memory to tell that memory is out. */
static Failure no_memory = {
        .error = {
                .code = STATUS_RESOURCE_EXHAUSTED,
                .error = ENOMEM,
                .reason = "HOST_EXHAUSTED",
                .message = (char *) "memory is out",
        },
};

/* The errno that stands for a code in what functions return. */
static const int errnos[] = {
        [STATUS_CANCELLED] = ECANCELED,
        [STATUS_UNKNOWN] = EIO,
        [STATUS_INVALID_ARGUMENT] = EINVAL,
        [STATUS_DEADLINE_EXCEEDED] = ETIMEDOUT,
        [STATUS_NOT_FOUND] = ENOENT,
        [STATUS_ALREADY_EXISTS] = EEXIST,
        [STATUS_PERMISSION_DENIED] = EACCES,
        [STATUS_RESOURCE_EXHAUSTED] = ENOSPC,
        [STATUS_FAILED_PRECONDITION] = EBUSY,
        [STATUS_ABORTED] = EBUSY,
        [STATUS_OUT_OF_RANGE] = ERANGE,
        [STATUS_UNIMPLEMENTED] = EOPNOTSUPP,
        [STATUS_INTERNAL] = EIO,
        [STATUS_UNAVAILABLE] = ECONNREFUSED,
        [STATUS_DATA_LOSS] = EIO,
        [STATUS_UNAUTHENTICATED] = EACCES,
};

void failure_clear(Failure *failure) {
        error_clear(&failure->error);
        failure->details = status_details_free(failure->details);
}

int failure_set_status(Failure *failure, const ClientStatus *status) {
        size_t code = (size_t) status->code < sizeof(errnos) / sizeof(errnos[0]) ? status->code : STATUS_UNKNOWN;
        int r;

        failure_clear(failure);
        r = status->details_len > 0 ? status_details_decode(status->details, status->details_len, &failure->details)
                                    : 0;
        if (r == -ENOMEM) /* others: the daemon's details cannot be read, and the rest will do */
                return r;
        return error_set_code(&failure->error, status->code, -errnos[code], status->reason, "%s", status->message);
}

/* The failure that a caller is given; it takes over what @failure holds. */
static Failure *failure_keep(Failure *failure, int r) {
        Failure *kept = r == -ENOMEM && failure->error.error == 0 ? NULL : try_new0(Failure, 1);

        if (!kept)
                return &no_memory;

        if (failure->error.error == 0)
                (void) error_set_code(&failure->error, STATUS_INTERNAL, r, "INTERNAL", "an unexpected error: %d", -r);
        *kept = *failure;
        *failure = (Failure){};
        return kept;
}

int failure_tell(Failure *failure, int r, HutchError **ret_error) {
        Failure *kept;

        if (r >= 0 || !ret_error)
                return r;

        kept = failure_keep(failure, r);
        *ret_error = &kept->error;
        return kept == &no_memory ? -ENOMEM : r;
}

/* What an error holds; that of none is empty. */
static const Failure *failure_of(const HutchError *error) {
        static const Failure none;

        return error ? (const Failure *) error : &none;
}

void hutch_error_free(HutchError *error) {
        if (!error || error == &no_memory.error)
                return;

        failure_clear((Failure *) error);
        free(error);
}

HutchCode hutch_error_code(const HutchError *error) {
        return (HutchCode) failure_of(error)->error.code;
}

const char *hutch_error_code_name(const HutchError *error) {
        return status_code_name(failure_of(error)->error.code);
}

const char *hutch_error_reason(const HutchError *error) {
        return failure_of(error)->error.reason;
}

const char *hutch_error_message(const HutchError *error) {
        return error_message(&failure_of(error)->error);
}

bool hutch_error_pair(const HutchError *error, size_t i, const char **ret_key, const char **ret_value) {
        const Failure *failure = failure_of(error);
        size_t n_told = failure->details ? failure->details->n_pairs : 0;

        if (i < n_told) {
                *ret_key = failure->details->pairs[i].key;
                *ret_value = failure->details->pairs[i].value;
                return true;
        }

        i -= n_told;
        if (i >= failure->error.n_pairs)
                return false;
        *ret_key = failure->error.pairs[i].key;
        *ret_value = failure->error.pairs[i].value;
        return true;
}

const char *hutch_error_get(const HutchError *error, const char *key) {
        const char *found, *value;

        for (size_t i = 0; hutch_error_pair(error, i, &found, &value); i++)
                if (str_equal(found, key))
                        return value;

        return NULL;
}

bool hutch_error_violation(const HutchError *error, size_t i, HutchViolation *ret_violation) {
        const Failure *failure = failure_of(error);

        if (!failure->details || i >= failure->details->n_violations)
                return false;

        *ret_violation = (HutchViolation){
                .field = failure->details->violations[i].field,
                .reason = failure->details->violations[i].reason,
                .message = failure->details->violations[i].description,
        };
        return true;
}
