/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* The commands about contexts: daemons that have names. Each returns the exit code. */

int command_context_add(const Arguments *arguments);
int command_context_use(const Arguments *arguments);
int command_context_list(const Arguments *arguments);
int command_context_show(const Arguments *arguments);
int command_context_remove(const Arguments *arguments);

/* Calls @offer with the name and address of each, for completion. */
void contexts_offer(void (*offer)(const char *name, const char *typed, const char *about), const char *typed)
        __attribute__((nonnull));
