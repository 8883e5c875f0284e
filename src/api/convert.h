/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/wire-buffer.h"
#include "control/control.h"
#include "model/exec.h"
#include "runtime/runtime.h"

/* Sandboxes, execs and events as the contract shows them. */

/* Puts a hutch.v1.Sandbox into @field; @usage NULL: none. */
void put_sandbox(WireBuffer *buffer, unsigned field, const SandboxView *view, const RuntimeUsage *usage)
        __attribute__((nonnull(1, 3)));

/* Puts a hutch.v1.Exec into @field. */
void put_exec(WireBuffer *buffer, unsigned field, const ExecView *view) __attribute__((nonnull));

/* Puts a hutch.v1.ExecResult into @field. */
void put_exec_result(WireBuffer *buffer, unsigned field, const ExecResult *result) __attribute__((nonnull));

/* Encodes a hutch.v1.Event; the caller frees it. -ENOMEM. */
int event_encode(const Event *event, uint8_t **ret_bytes, size_t *ret_len) __attribute__((nonnull));

/* States by their numbers in the contract, which begin with an unset one. -EINVAL: there is no such state. */
int sandbox_state_from_message(int number, SandboxState *ret_state) __attribute__((nonnull));
int exec_state_from_message(int number, ExecState *ret_state) __attribute__((nonnull));
