/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "keeper/execs/exec.h"

/* The messages of hutch.keeper.v1 and what the keeper makes of them. */

/* Times of protobuf and nanoseconds. A duration that is negative is 0, one that is too long is UINT64_MAX - 1, and one
 * that is unset is @unset. */
uint64_t duration_to_ns(const Google__Protobuf__Duration *duration, uint64_t unset);
Google__Protobuf__Duration duration_from_ns(uint64_t nanoseconds);
Google__Protobuf__Timestamp timestamp_from_ns(uint64_t nanoseconds);

/* A failure, which borrows its texts. */
Hutch__Keeper__V1__KeeperFailure failure_message(const Failure *failure) __attribute__((nonnull));

/* An exec with all that its message points to. */
typedef struct ExecMessage {
        Hutch__Keeper__V1__KeeperExec exec;
        Hutch__Keeper__V1__KeeperExecEnd end;
        Hutch__Keeper__V1__KeeperFailure failure;
        Google__Protobuf__Timestamp start_time, end_time;
        Google__Protobuf__Duration cpu_time;
} ExecMessage;

/* Fills @message, which must then stay where it is, and borrows from @exec. */
void exec_message_init(ExecMessage *message, const KeptExec *exec) __attribute__((nonnull));

/* What to run, checked as far as the keeper's safety depends on it. Borrows from @request. */
typedef struct ExecOrder {
        ExecPlan plan;
        char **argv;
        char **environment;
} ExecOrder;

int exec_order_init(ExecOrder *order, const Hutch__Keeper__V1__StartExecRequest *request, HutchError *err)
        __attribute__((nonnull(1, 2)));
void exec_order_clear(ExecOrder *order) __attribute__((nonnull));
