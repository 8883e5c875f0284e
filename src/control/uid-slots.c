/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the bits of the slots. What does not: which uids a slot has (the runtime). */

#include "control/uid-slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void uid_slots_mark(UidSlots *slots, uint32_t slot, bool used) {
        size_t word = slot / 64, n = slots->n;

        if (word >= n) {
                slots->n = word + 1;
                slots->words = xreallocarray(slots->words, word + 1, sizeof(uint64_t));
                memset(slots->words + n, 0, (word + 1 - n) * sizeof(uint64_t));
        }
        if (used)
                slots->words[word] |= UINT64_C(1) << (slot % 64);
        else
                slots->words[word] &= ~(UINT64_C(1) << (slot % 64));
}

bool uid_slots_has(const UidSlots *slots, uint32_t slot) {
        return slot / 64 < slots->n && slots->words[slot / 64] >> slot % 64 & 1;
}

uint32_t uid_slots_take(UidSlots *slots) {
        size_t word = 0;
        uint32_t slot;

        while (word < slots->n && slots->words[word] == UINT64_MAX)
                word++;
        slot = (uint32_t) (64 * word);
        if (word < slots->n)
                slot += (uint32_t) __builtin_ctzll(~slots->words[word]);

        uid_slots_mark(slots, slot, true);
        return slot;
}

void uid_slots_clear(UidSlots *slots) {
        free(slots->words);
        *slots = (UidSlots){};
}
