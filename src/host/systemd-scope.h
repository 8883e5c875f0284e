/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* A scope of systemd: a cgroup that systemd makes, and leaves to whoever asked for it (Delegate=yes). Used by
 * host/cgroups.c alone, and by tests.
 *
 * systemd is asked over D-Bus, by its own program busctl: that is where systemd is, so no library is needed, and the
 * daemon speaks no second protocol. It happens once, before the daemon serves.
 *
 * A scope is there as long as there are processes in it. Root's daemon has a child for that, the anchor, which only
 * waits: the daemon itself stays in the cgroup of its service. An ordinary user's daemon moves to the scope itself,
 * because the kernel lets users move processes only within what is theirs. */

/* Tells whether systemd is PID 1. */
bool systemd_is_running(void);

/* Finds the folder of the calling user's own systemd, and tells whether that runs. The caller frees @ret_folder. */
bool systemd_has_session(char **ret_folder) __attribute__((nonnull));

typedef struct SystemdScope {
        pid_t process; /* that is in it: the anchor, or this one */
        int anchor;    /* ends the anchor when it is closed, or -1 */
} SystemdScope;

/* Makes the scope @name, or joins it when it is there. Negative, with the reason, which the caller frees, when systemd
 * does not answer in time, or refuses. */
int systemd_scope_take(const char *name, bool is_root, SystemdScope *ret_scope, char **ret_error)
        __attribute__((nonnull));

/* Ends the anchor. The scope stays while sandboxes are in it. */
void systemd_scope_release(SystemdScope *scope) __attribute__((nonnull));
