/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "runtime/runtime.h"

/* Between the keeper protocol and the rest of the daemon. What keepers say is not believed: times lie in the past and
 * after the year 2000, counts are what can be, texts are UTF-8, reasons are those that exist. */

#define KEEPER_EXIT_UNKNOWN (255 << 8) /* as wait(2) would say it */

typedef Hutch__Keeper__V1__KeeperExec KeeperExec;
typedef Hutch__Keeper__V1__KeeperFailure KeeperFailure;

/* Nanoseconds. A time that cannot be is @now. */
uint64_t keeper_time(const Google__Protobuf__Timestamp *time, uint64_t now);
uint64_t keeper_duration(const Google__Protobuf__Duration *duration);
Google__Protobuf__Duration keeper_duration_of(uint64_t nanoseconds);

/* Sets @err to what the keeper says, or to an INTERNAL one when it says nothing that can be used. */
void keeper_failure(const KeeperFailure *failure, HutchError *err) __attribute__((nonnull(2)));

/* How @exec, which has ended, did. @failure is where the reason is kept for one that was not started. */
RuntimeExecEnd keeper_exec_end(const KeeperExec *exec, uint64_t now, HutchError *failure) __attribute__((nonnull));
