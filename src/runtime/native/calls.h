/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/native/keeper-client.h"
#include "runtime/runtime.h"

/* Calls that are carried to the keeper as they are: the verbs for them. What the messages mean is known to who makes
 * the call and to the keeper. */

typedef struct NativeCall NativeCall;
typedef struct NativeSandbox NativeSandbox;

/* While there is no connection, one that broke at once. */
RuntimeCall *native_call_open(RuntimeSandbox *sandbox, const RuntimeCallRequest *request,
                              const RuntimeCallEvents *events, void *user) __attribute__((nonnull(1, 2, 3)));

/* Cancels it when it has not ended. */
void native_call_free(RuntimeCall *call) __attribute__((nonnull));

int native_call_send(RuntimeCall *call, const void *bytes, size_t len) __attribute__((nonnull(1)));
int native_call_send_taken(RuntimeCall *call, uint8_t *bytes, size_t len) __attribute__((nonnull));
bool native_call_is_writable(const RuntimeCall *call) __attribute__((nonnull));
void native_call_end(RuntimeCall *call) __attribute__((nonnull));
void native_call_read(RuntimeCall *call) __attribute__((nonnull));

/* From the loop: tells of those that could not be made. */
void native_calls_tell_broken(NativeSandbox *sandbox) __attribute__((nonnull));

/* The sandbox ends before its calls do: nothing is told of them any more. */
void native_calls_detach(NativeSandbox *sandbox) __attribute__((nonnull));
