/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/error.h"
#include "cli/options.h"

/* The options of `run` and `create` that describe a sandbox, each with the field of SandboxSpec that it sets. */

typedef struct SpecField {
        const char *path; /* "limits.memory_bytes" */
        /* Sets it from what was given. */
        int (*apply)(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err);
} SpecField;

extern const Option spec_options[];

/* The SandboxSpec that they describe: that of --file, and over it the options in the order they came. */
int spec_from_arguments(const Arguments *arguments, ProtobufCMessage **ret_spec, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Sets the fields of @message, a SandboxSpec or something with fields of the same names, by the options. */
int fields_from_arguments(const Arguments *arguments, ProtobufCMessage *message, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Reads the variables of --env and --env-file, as "NAME=VALUE" in an array that ends with NULL, for strv_free(). */
int environment_from_arguments(const Arguments *arguments, char ***ret_env, HutchError *err)
        __attribute__((nonnull(1, 2)));
