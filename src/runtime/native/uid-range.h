/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ranges of uids that sandboxes of root's daemon have, by their slots. The last of a range is the keeper's own, and
 * the owner of the sandbox's folder. */
#define UID_RANGE_FIRST 0x70000000u
#define UID_RANGE_SIZE 65536u
