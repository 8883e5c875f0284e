/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/config.h"

/* Giving up what a process may do. Irrevocable. */

/* Sanitizers read /proc, write reports and take memory when that could not be done any more. */
#ifdef __has_feature
#define IS_SANITIZED __has_feature(address_sanitizer)
#else
#define IS_SANITIZED 0
#endif

/* Leaves the session's keyring for a new one, which whoever is started later has too, and nobody else. */
int keyring_leave(void);

/* Becomes the user and the group @id, and no others, and keeps all capabilities. */
int user_become(uid_t id);

/* Takes away the way to get a capability by executing a program, but for those whose bits are in @kept. Before
 * becoming somebody else: who was root in a user namespace, and is not any more, may not. */
int privileges_bound(uint64_t kept);

/* Has nobody of its user look at the calling process, which gets no more rights than it has, also not by executing a
 * program. */
int privileges_seal(bool has_capabilities);

/* Removes every capability that is not in @kept. Root keeps those when executing a program. After
 * privileges_bound(). */
int privileges_drop(uint64_t kept);

/* Lets this process, and whatever it executes, ask of the kernel only what the filter allows. Needs that no new
 * privileges can be had. */
int filter_install(const Filter *filter) __attribute__((nonnull));

/* Sets all signals to what they do by default. They stay blocked as they are. */
void signals_reset(void);
