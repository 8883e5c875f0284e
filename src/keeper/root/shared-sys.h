/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <unistd.h>

/* The /sys that sandboxes of one daemon share. What a sysfs shows depends on its network namespace alone, and there all
 * sandboxes look the same: they have nothing but the loopback. One for each would take memory in every cgroup that
 * counts it, and the kernel goes through all of them whenever one is made. So the nest is in a network namespace with
 * nothing but a loopback, and has that one's sysfs as its standard input. Keepers that are forked from it stay in that
 * namespace, for they have nothing to do with any network, and clone the sysfs.
 *
 * Without root, in keepers that were executed, and before Linux 6.15 there is none: then each sandbox has its own. */

#define SHARED_SYS_FD STDIN_FILENO

/* In the nest; only root can do it. */
void shared_sys_make(void);

/* In a keeper, before it gives up anything: has a clone in the place of what the nest has. It is read-only. Tells
 * whether there is one to be mounted. */
bool shared_sys_clone(void);

/* Has standard input be what it is elsewhere. */
void shared_sys_close(void);
