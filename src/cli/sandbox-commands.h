/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "cli/options.h"

/* The commands that make, show, change and end sandboxes. Each returns the exit code. */

int command_create(const Arguments *arguments);
int command_list(const Arguments *arguments);
int command_get(const Arguments *arguments);
int command_update(const Arguments *arguments);
int command_stop(const Arguments *arguments);
int command_resume(const Arguments *arguments);
int command_pause(const Arguments *arguments);
int command_unpause(const Arguments *arguments);
int command_delete(const Arguments *arguments);
int command_wait(const Arguments *arguments);

/* Reads states ("READY,STOPPED", in any case) as bits 1 << state. -EINVAL. */
int parse_sandbox_states(const char *text, uint32_t *ret_states, HutchError *err) __attribute__((nonnull(1, 2)));

/* Tells on stderr which limits are not in force as @spec asked for them. */
void note_limits(const HutchSandbox *sandbox, const ProtobufCMessage *spec) __attribute__((nonnull));
/* The same of a message that has them at these paths. */
void note_effective(const ProtobufCMessage *message, const char *clamped_path, const char *not_enforced_path,
                    const ProtobufCMessage *spec) __attribute__((nonnull));
