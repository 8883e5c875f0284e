/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/sandbox-spec.h"
#include "api/violations.h"
#include "model/sandbox.h"

/* What a spec has of the host's files: mounts, the workspace when it is one, copies and tools. */

typedef struct Hutch__V1__SandboxSpec Hutch__V1__SandboxSpec;

/* Checks them, and that their sources may be had now. */
void spec_mounts_check(const Hutch__V1__SandboxSpec *message, const SandboxRules *rules, Violations *violations)
        __attribute__((nonnull));

/* Adds them to @spec, which has its workspace. -EBADMSG, -ENOMEM. */
int spec_mounts_build(const Hutch__V1__SandboxSpec *message, SandboxSpec *spec) __attribute__((nonnull));
