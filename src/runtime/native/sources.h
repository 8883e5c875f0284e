/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "host/sources.h"
#include "runtime/runtime.h"

/* A folder or file of the host that a sandbox is started with. */
typedef struct NativeSource {
        Source source;
        char *target;
        bool writable;
        bool sockets;            /* of the host in it are not looked for */
        const SandboxCopy *copy; /* what it is copied for, as long as the spec; NULL: it is mounted */
} NativeSource;

/* All of them, open, in the order in which the keeper gets them: what is mounted, outer targets first, then what is
 * copied. */
typedef struct NativeSources {
        NativeSource *list;
        size_t n;
} NativeSources;

/* Opens what @spec has of the host, by @rules as they are now; NULL: nothing is allowed. What is copied only when
 * @copies; what there is of its tools. All or none. */
int native_sources_open(const SourceRules *rules, const RuntimeSpec *spec, bool copies, NativeSources *ret_sources,
                        HutchError *err) __attribute__((nonnull(2, 4)));
void native_sources_clear(NativeSources *sources) __attribute__((nonnull));
