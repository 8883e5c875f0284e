/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* The types of all messages of the contract, those within others included. */

#define CONTRACT_TYPES_MAX 512

typedef struct ContractTypes {
        const ProtobufCMessageDescriptor *types[CONTRACT_TYPES_MAX];
        size_t n_types;
} ContractTypes;

const ContractTypes *contract_types(void);

/* The type of that full name ("hutch.v1.Sandbox"); NULL: there is none. */
const ProtobufCMessageDescriptor *contract_type_find(const char *name) __attribute__((nonnull));
