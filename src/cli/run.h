/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hutch run [--socket PATH] [--] COMMAND [ARGUMENT]...: runs a command in a fresh sandbox and removes the sandbox.
 * @argv begins with "run". Returns the exit code: the command's own, or 125 when Hutch itself failed. */
int command_run(int argc, char *argv[]);
