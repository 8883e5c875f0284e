/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "host/id-map.h"

/* The ids that /etc/subuid and /etc/subgid give to a user beside its own, as `name:first:count` or `uid:first:count`.
 *
 * A sandbox takes SUBORDINATE_IDS_SIZE of them at once, for 1 to 65535 inside; 0 is the user itself. Ranges are cut
 * into such slots, in the order of the files. */

#define SUBORDINATE_IDS_SIZE 65535u

/* The ranges in the text of such a file that are @name's (NULL: nobody's) or @uid's. Lines that are none are left out,
 * and so are ranges that could not be mapped: with root's id, with @own, which is mapped already, beyond the last id,
 * or with ids of an earlier one. */
void subordinate_ids_parse(const char *text, const char *name, uint32_t uid, uint32_t own, IdRanges *ret_ranges)
        __attribute__((nonnull(1, 5)));

/* Finds what the calling user has. Sets all of @ret_map that is there, also when it fails, because there is not enough
 * for one slot or a program is missing: @err says what. */
int subordinate_ids_find(IdMap *ret_map, HutchError *err) __attribute__((nonnull(1)));

/* How many slots there are, and the map for one of them; beyond the last, they begin again. It borrows its
 * programs from @map. */
uint32_t subordinate_ids_count_slots(const IdRanges *ranges) __attribute__((nonnull));
IdMap subordinate_ids_of_slot(const IdMap *map, uint32_t slot) __attribute__((nonnull));
