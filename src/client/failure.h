/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>

#include "base/error.h"
#include "rpc/core/client-session.h"
#include "rpc/core/status-details.h"

/* Failures: errors of libhutch on their way to the caller.
 *
 *         _cleanup_(failure_clear) Failure failure = {};
 *         int r = outcall_unary(client, …, &failure);
 *
 *         return failure_tell(&failure, r, ret_error);
 *
 * What fails for want of memory alone need not say so: failure_tell() knows. */

typedef struct Failure {
        HutchError error;       /* first: an error that a caller has is a failure */
        StatusDetails *details; /* facts and violations; NULL: none beside those of @error */
} Failure;

void failure_clear(Failure *failure) __attribute__((nonnull));

/* Sets @failure from how a call ended, and returns the negative errno that stands for its code. -ENOMEM. */
int failure_set_status(Failure *failure, const ClientStatus *status) __attribute__((nonnull));

/* Hands @failure to the caller, who may not want it, when @r is negative. Returns @r, or -ENOMEM. */
int failure_tell(Failure *failure, int r, HutchError **ret_error) __attribute__((nonnull(1)));
