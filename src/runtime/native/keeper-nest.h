/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <uv.h>

#include "base/error.h"
#include "runtime/native/child-process.h"
#include "runtime/native/keeper-program.h"

/* The nest: one process of hutch-keeper that has no sandbox, and that all others of that program are forked from:
 * keepers, and those that remove files. So a start takes neither an execve() nor the start of a C library. It is
 * started with the first of them, and ends with the daemon, however that ends. What cannot be done by it is done
 * without it, as if there were none.
 *
 *         nest = keeper_nest_new(loop, program);
 *         r = keeper_nest_spawn(nest, &(ChildOptions){ … }, on_ended, user, &child, &err);
 *         keeper_nest_free(nest);
 *
 * Processes of one nest have the same layout of memory, for that is drawn at execve(). */

typedef struct KeeperNest KeeperNest;

/* @program is the caller's, and has to outlive it. */
KeeperNest *keeper_nest_new(uv_loop_t *loop, KeeperProgram *program) __attribute__((nonnull, returns_nonnull));

/* Takes NULL. Returns NULL. What it forked stays. */
KeeperNest *keeper_nest_free(KeeperNest *nest);

/* Starts a process, which is a child of the daemon either way: by the nest, or as keeper_program_spawn() does. By the
 * nest, its standard output is its standard error in any case. */
int keeper_nest_spawn(KeeperNest *nest, const ChildOptions *options, ChildEnded ended, void *user,
                      ChildProcess **ret_child, HutchError *err) __attribute__((nonnull(1, 2, 3, 5)));
