/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>

#include "base/memory.h"
#include "client/failure.h"
#include "contract/hutch/v1/sandbox.pb-c.h"

/* Watches: events, over as many calls as it takes. */

/* Watches as @request says, of which nothing is needed afterwards. @timeout is for the whole: 0 is none. */
int watch_new(HutchClient *client, const Hutch__V1__WatchEventsRequest *request, uint64_t timeout, void *user,
              HutchWatch **ret_watch, Failure *failure) __attribute__((nonnull(1, 2, 5, 6)));

/* As hutch_watch_next(); the event itself, valid until the next call. NULL: it is a sandbox of a snapshot. */
int watch_next(HutchWatch *watch, bool wait, const Hutch__V1__Event **ret_event, Failure *failure)
        __attribute__((nonnull));

HutchWatch *watch_free(HutchWatch *watch);
DEFINE_CLEANUP(HutchWatch *, watch_free);
