/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* The program hutch-keeper, as it was when it was first needed: all keepers are started from a copy in memory that
 * nobody can change. So none of them leads, by its /proc/PID/exe, to the file on the host, and an upgrade of that file
 * mixes no versions: the next daemon takes the new one.
 *
 *         program = keeper_program_new("/usr/libexec/hutch/hutch-keeper");
 *         r = keeper_program_load(program, &path, &err);
 *         … executes path, as long as program is there
 *         keeper_program_free(program); */

typedef struct KeeperProgram KeeperProgram;

/* @path, which is copied, need not be there yet. */
KeeperProgram *keeper_program_new(const char *path) __attribute__((nonnull, returns_nonnull));

/* Takes NULL. Returns NULL. */
KeeperProgram *keeper_program_free(KeeperProgram *program);

/* Copies the program unless that was done. @ret_path, borrowed, is what this process and its children can execute. A
 * script is not copied: its interpreter would have to find it, too. */
int keeper_program_load(KeeperProgram *program, const char **ret_path, HutchError *err) __attribute__((nonnull(1, 2)));
