/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/native/keeper-client.h"
#include "runtime/runtime.h"

/* Ways into execs: the keeper's SendInput, one call each. */

typedef struct NativeInput NativeInput;
typedef struct NativeSandbox NativeSandbox;

/* The verb. While there is no connection it takes nothing, as one that broke. */
RuntimeInput *native_input_open(RuntimeSandbox *sandbox, const char *exec_id, const RuntimeInputEvents *events,
                                void *user) __attribute__((nonnull(1, 2, 3)));

/* Tells of those that broke, once the keeper can be asked again: until then it may turn out that their execs have
 * ended, or the sandbox with them. */
void native_inputs_tell_broken(NativeSandbox *sandbox) __attribute__((nonnull));

/* The exec has ended: nothing more goes to it. Its inputs are about to be closed. */
void native_inputs_end(NativeSandbox *sandbox, const char *exec_id) __attribute__((nonnull));

/* The sandbox ends before its inputs do: nothing is told of them any more. */
void native_inputs_detach(NativeSandbox *sandbox) __attribute__((nonnull));

/* What was sent before still gets there. */
void native_input_free(RuntimeInput *input) __attribute__((nonnull));

int native_input_send(RuntimeInput *input, const void *bytes, size_t len) __attribute__((nonnull(1)));
bool native_input_is_writable(const RuntimeInput *input) __attribute__((nonnull));
int native_input_close_stdin(RuntimeInput *input) __attribute__((nonnull));
int native_input_resize(RuntimeInput *input, uint32_t rows, uint32_t columns) __attribute__((nonnull));
int native_input_signal(RuntimeInput *input, uint32_t number) __attribute__((nonnull));
