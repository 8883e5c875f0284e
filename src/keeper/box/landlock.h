/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Landlock: a wall of the kernel's around files, behind which also signals and abstract sockets reach only those that
 * are behind it too (from Linux 6.12 on). It is a second one: whoever has come around namespaces and users, say by a
 * descriptor that leads out of the sandbox, still gets at nothing.
 *
 * Irrevocable, for the calling process and what it starts, all of which are behind one and the same wall: they can
 * signal and trace each other, as far as their users may. */

/* What may be done with what is below a folder. */
typedef enum LandlockUse {
        LANDLOCK_USE_ALL,     /* anything, but for connecting to sockets that are from outside of the wall */
        LANDLOCK_USE_SOCKETS, /* anything */
        LANDLOCK_USE_FILES,   /* reading, writing, making and removing files */
        LANDLOCK_USE_FOLDERS, /* reading, writing files that are there; making and removing folders */
        LANDLOCK_USE_READ,    /* reading */
} LandlockUse;

typedef struct LandlockRule {
        int folder; /* -1: it is left out */
        LandlockUse use;
} LandlockRule;

/* Leaves what @rules say, and nothing else. Needs that no new privileges can be had. Returns 1, or 0 where the kernel
 * has no Landlock that would do, and nothing changes. */
int landlock_restrict(const LandlockRule *rules, size_t n_rules);

/* Whether the kernel's Landlock can keep sockets that have names (from Linux 7.1 on). */
bool landlock_knows_sockets(void);
