/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* The capabilities that a sandbox may ask for, for root's processes inside: those with which root does what root is
 * expected to do to files and users that are the sandbox's own. Those that the walls stand on are not among them. */

#define CAPABILITIES_MAX 7

/* The kernel's number of the capability: "CHOWN", or "CAP_CHOWN". -EINVAL: there is no such, or sandboxes have it
 * never. */
int capability_find(const char *name, HutchError *err) __attribute__((nonnull(1)));

/* Whether a profile of this name lets sandboxes have any. */
bool capabilities_fit_profile(const char *profile) __attribute__((nonnull));
