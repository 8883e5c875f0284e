/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* KeeperService.SendInput: a stream of input, of which the next message is read when the process took the last. */

typedef struct Call Call;

/* The method's start(); @context is the Keeper. */
void service_send_input(Call *call, void *context) __attribute__((nonnull));

/* Ends @call: there is no exec of that id. */
void call_fail_unknown_exec(Call *call, const char *exec_id) __attribute__((nonnull));
