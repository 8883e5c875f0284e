/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* The methods of the contract, and what a client must know of each. */

typedef struct MethodInfo {
        const ProtobufCMessageDescriptor *request;
        const ProtobufCMessageDescriptor *reply;
        const ProtobufCFieldDescriptor *request_id; /* of the request; NULL: it has none */
        bool streams;                               /* messages, either way */
        bool safe;                                  /* may be repeated: it only reads, or carries a request id */
} MethodInfo;

/* Finds "Service/Method". Returns whether there is one. */
bool method_find(const char *name, MethodInfo *ret_method) __attribute__((nonnull));
