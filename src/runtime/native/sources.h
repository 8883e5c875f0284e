/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "policy/sources.h"
#include "runtime/runtime.h"

/* The host's files that a sandbox is started with: open, in the order in which its keeper gets them. */
typedef struct NativeSources {
        Source *list;
        size_t n;
} NativeSources;

/* Opens what @spec has of the host, by @rules as they are now; NULL: nothing is allowed. First what is mounted, then,
 * when @copies, what is copied. All or none. */
int native_sources_open(const SourceRules *rules, const RuntimeSpec *spec, bool copies, NativeSources *ret_sources,
                        HutchError *err) __attribute__((nonnull(2, 4)));
void native_sources_clear(NativeSources *sources) __attribute__((nonnull));
