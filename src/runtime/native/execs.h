/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/native/keeper-messages.h"
#include "runtime/native/sandbox.h"

/* The execs of a sandbox: what was asked of the keeper and not answered, and what has been told about each. Whatever
 * the keeper says may come in any order, twice, by the watch, by answers or by a description: it is told once, the
 * start before the end. */

/* Verbs. */
void execs_expect(RuntimeSandbox *sandbox, const char *user);
void execs_start(RuntimeSandbox *sandbox, const RuntimeExec *exec);
void execs_cancel(RuntimeSandbox *sandbox, const char *exec_id, uint64_t grace);
void execs_forget(RuntimeSandbox *sandbox, const char *exec_id);
int execs_open_output(RuntimeSandbox *sandbox, const char *exec_id, int stream);
int execs_drop_output(RuntimeSandbox *sandbox, const char *exec_id);
void execs_follow_output(RuntimeSandbox *sandbox, const char *exec_id, bool follow);

/* The keeper was started, and is told what start() said of an exec to come. */
void execs_expect_start(NativeSandbox *sandbox) __attribute__((nonnull));

/* recover() wants to know of it. */
void execs_ask(NativeSandbox *sandbox, const char *exec_id) __attribute__((nonnull));

/* start() names it: it is none of nobody's, unless nobody has asked for it when that is done. */
void execs_spare(NativeSandbox *sandbox, const char *exec_id) __attribute__((nonnull));
void execs_end_spared(NativeSandbox *sandbox) __attribute__((nonnull));

/* The keeper says this of one; it may be of nobody's. */
void execs_take(NativeSandbox *sandbox, const KeeperExec *told) __attribute__((nonnull));

/* These are all the keeper knows. Those that nobody here knows are ended and forgotten, and of those that it does not
 * know that is told. */
void execs_take_all(NativeSandbox *sandbox, KeeperExec *const *told, size_t n_told) __attribute__((nonnull(1)));

/* Whether it is one that is known here, and this is the first hit of that limit, a number below 32. */
bool execs_take_hit(NativeSandbox *sandbox, const char *exec_id, unsigned limit) __attribute__((nonnull));

/* The keeper can be asked: for everything that has not been answered. */
void execs_sync(NativeSandbox *sandbox) __attribute__((nonnull));

/* The connection is gone, and so are the calls. */
void execs_disconnect(NativeSandbox *sandbox) __attribute__((nonnull));

/* The keeper is gone, and what it knew. */
void execs_reset(NativeSandbox *sandbox) __attribute__((nonnull));

/* Tells what verbs could not tell themselves. */
void execs_run(NativeSandbox *sandbox) __attribute__((nonnull));

/* The sandbox is let go of. What is left is freed by execs_free(), when nobody is at work with it any more. */
void execs_detach(NativeSandbox *sandbox) __attribute__((nonnull));
void execs_free(NativeSandbox *sandbox) __attribute__((nonnull));
