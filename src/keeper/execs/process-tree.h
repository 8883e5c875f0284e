/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The processes that come from one, where there are no cgroups: its descendants and its session, as /proc tells them.
 *
 * The first process is the leader of a session and a subreaper, so while it lives nothing that comes from it can get
 * out of its tree. After its end only its session is known: what left both is found by nobody and goes with the
 * sandbox. */

/* Sends @number to each. */
int process_tree_signal(pid_t main_pid, int number);

/* KILLs them all, the first process last, so that what they make meanwhile is found too. */
int process_tree_kill(pid_t main_pid);

/* Whether any is left that is not a zombie. */
bool process_tree_is_populated(pid_t main_pid);
