/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/memory.h"
#include "keeper/box/sandbox.h"

/* A process that waits in the sandbox for the program it is to execute: what is the same for all programs of a user was
 * done before one was asked for. It waits with nothing but the rights of that user, who could signal it as any other of
 * his processes: so there is to be one only while nothing else runs in the sandbox. */

typedef struct Starter Starter;

/* Starts one in @group, which becomes @user. What sandbox_spawn() says. */
int starter_new(KeptSandbox *sandbox, ExecGroup *group, const char *user, Starter **ret_starter, HutchError *err)
        __attribute__((nonnull(1, 2, 3, 4)));

/* Kills it, waits for that and frees it. Takes NULL. Returns NULL. */
Starter *starter_free(Starter *starter);
DEFINE_CLEANUP(Starter *, starter_free);

/* Readable when it has ended; borrowed. */
int starter_pidfd(const Starter *starter) __attribute__((nonnull));

/* Whether it is what a process that is started now would be: of @user, as he is known by now. */
bool starter_fits(const Starter *starter, const char *user) __attribute__((nonnull));

/* Has it do what sandbox_spawn() would, with the same outcome, for a plan without a terminal, and frees it. When that
 * fails it is still there: -EMSGSIZE: @plan is too long; -EPIPE and others: it has ended. */
pid_t starter_start(Starter *starter, const SpawnPlan *plan, int *ret_pidfd, int *ret_error_fd)
        __attribute__((nonnull));
