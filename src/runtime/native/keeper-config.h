/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/native/sandbox.h"

/* Makes the KeeperConfig of the sandbox @id, encoded, which the caller frees. Of mounts it has those with a source. */
void keeper_config_encode(const NativeRuntime *runtime, const char *id, const RuntimeSpec *spec,
                          const NativeSources *sources, uint8_t **ret_bytes, size_t *ret_len) __attribute__((nonnull));
