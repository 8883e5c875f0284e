/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* SHA-256, as libcrypto has it for each processor. */

#define SHA256_SIZE 32

typedef struct Sha256 {
        uint32_t state[28]; /* libcrypto's */
} Sha256;

void sha256_init(Sha256 *hash) __attribute__((nonnull));
void sha256_add(Sha256 *hash, const void *bytes, size_t len) __attribute__((nonnull(1)));
void sha256_finish(Sha256 *hash, uint8_t ret_digest[static SHA256_SIZE]) __attribute__((nonnull));
