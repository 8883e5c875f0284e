/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>

#include "client/failure.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"

/* Begins a one-shot, of a request that was checked. */
int exec_stream_once(HutchClient *client, const Hutch__V1__ExecRequest *request, void *user,
                     HutchExecStream **ret_stream, Failure *failure) __attribute__((nonnull(1, 2, 4, 5)));
