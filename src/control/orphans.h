/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "control/control.h"
#include "runtime/runtime.h"

/* What a runtime has of sandboxes that nobody knows any more: of a create that was taken back, of the warm pool, of a
 * daemon that crashed. It is removed; its uid slot is nobody else's until then. */

typedef struct Orphan Orphan;

/* Of orphans: nothing that the runtime tells matters but that one is removed. */
extern const RuntimeEvents orphan_runtime_events;

bool orphan_is_there(const Control *control, const char *id) __attribute__((nonnull));

/* Has what is there of a sandbox removed. @remote is taken over. */
void orphan_add(Control *control, const char *id, RuntimeSandbox *remote, uint32_t uid_slot) __attribute__((nonnull));

/* At the daemon's start: asks the runtimes for what the store does not know. */
int orphans_find(Control *control, HutchError *err) __attribute__((nonnull(1)));

/* Frees those that are removed; with @all, all of them. */
void orphans_free(Control *control, bool all) __attribute__((nonnull));
