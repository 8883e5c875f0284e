/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/native/sandbox.h"

/* Questions for what a sandbox uses: each is answered once, unless the sandbox is let go of before. */

/* The verb. */
void usages_get(RuntimeSandbox *sandbox, void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user),
                void *user);

/* Tells whoever asked that there is no answer: @all of them, or only those for whom the keeper was not asked. */
void usages_fail(NativeSandbox *sandbox, bool all) __attribute__((nonnull));

void usages_free(NativeSandbox *sandbox) __attribute__((nonnull));
