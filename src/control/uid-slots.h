/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which ranges of uids are taken. Each sandbox has one, by its number, the slot; so have the warm ones, and what is
 * left of sandboxes until it is removed. */

typedef struct UidSlots {
        uint64_t *words; /* bits */
        size_t n;
} UidSlots;

/* Takes the lowest free slot. */
uint32_t uid_slots_take(UidSlots *slots) __attribute__((nonnull));

void uid_slots_mark(UidSlots *slots, uint32_t slot, bool used) __attribute__((nonnull));
bool uid_slots_has(const UidSlots *slots, uint32_t slot) __attribute__((nonnull));
void uid_slots_clear(UidSlots *slots) __attribute__((nonnull));
