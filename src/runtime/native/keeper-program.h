/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "runtime/native/child-process.h"

/* The program hutch-keeper, as it was when it was first needed: all keepers are started from a copy in memory that
 * nobody can change. So none of them leads, by its /proc/PID/exe, to the file on the host, and an upgrade of that file
 * mixes no versions: the next daemon takes the new one.
 *
 *         program = keeper_program_new("/usr/libexec/hutch/hutch-keeper");
 *         r = keeper_program_spawn(program, loop, &(ChildOptions){ .argv = argv, … }, on_ended, user, &child, &err);
 *         keeper_program_free(program); */

typedef struct KeeperProgram KeeperProgram;

/* @path, which is copied, need not be there yet. */
KeeperProgram *keeper_program_new(const char *path) __attribute__((nonnull, returns_nonnull));

/* Takes NULL. Returns NULL. */
KeeperProgram *keeper_program_free(KeeperProgram *program);

/* Copies the program unless that was done. A script is not copied: its interpreter would have to find it, too. */
int keeper_program_load(KeeperProgram *program, HutchError *err) __attribute__((nonnull(1)));

/* Whether keepers are started from a copy: it is no script. */
bool keeper_program_is_copied(const KeeperProgram *program) __attribute__((nonnull));

/* Starts it, as child_process_spawn() does; the program of @options is not read. */
int keeper_program_spawn(KeeperProgram *program, uv_loop_t *loop, const ChildOptions *options, ChildEnded ended,
                         void *user, ChildProcess **ret_child, HutchError *err) __attribute__((nonnull(1, 2, 3, 4, 6)));
