/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* One daemon to one state folder. */

/* Locks @folder. Returns a descriptor that holds the lock until it is closed; -EBUSY when another daemon has it, whose
 * pid the message tells. */
int instance_lock(const char *folder, HutchError *err) __attribute__((nonnull(1)));
