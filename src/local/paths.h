/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Where the daemon listens, keeps its state and finds its configuration: its clients must know too. A flag comes before
 * an environment variable (HUTCH_SOCKET, HUTCH_STATE, HUTCH_CONFIG), that before the configuration, and that before the
 * default of the user who runs it:
 *
 *                   root                       others
 *   socket          /run/hutch/hutchd.sock     $XDG_RUNTIME_DIR/hutch/hutchd.sock
 *   state           /var/lib/hutch             $XDG_STATE_HOME/hutch   (~/.local/state/hutch)
 *   configuration   /etc/hutch/hutchd.yaml     $XDG_CONFIG_HOME/hutch/hutchd.yaml   (~/.config/hutch/hutchd.yaml)
 *
 * An XDG_RUNTIME_DIR that is no absolute path, or is a folder of somebody else's, counts as not set. Without it the
 * socket is /run/user/UID/hutch/hutchd.sock where /run/user/UID is the user's folder, and /tmp/hutch-UID/hutchd.sock
 * elsewhere. */

/* Each returns an absolute path, which the caller frees, or NULL and @err. @flag and @configured may be NULL. */
char *path_of_socket(const char *flag, const char *configured, HutchError *err);
char *path_of_state(const char *flag, const char *configured, HutchError *err);

/* The default socket of a user other than root; @sessions is "/run/user" and @shared "/tmp", but for tests. It makes
 * /tmp/hutch-UID for this user alone (0700) when that is the place. FILE_PERMISSION: it cannot, or somebody else has
 * made it. So nobody who has the path connects to somebody else's daemon. */
char *path_of_user_socket(const char *sessions, const char *shared, HutchError *err) __attribute__((nonnull(1, 2)));

/* The same as the first; *@ret_explicit: somebody named the file, so it must be there. */
char *path_of_configuration(const char *flag, bool *ret_explicit, HutchError *err) __attribute__((nonnull(2)));

/* The contexts file of this user, $XDG_CONFIG_HOME/hutch/contexts.json (~/.config/hutch/contexts.json). */
char *path_of_contexts(HutchError *err);

/* Makes the folder @path with its parents, for the daemon's user only (0700). One that is there must be the user's own
 * and nobody else's to write: else -EPERM. */
int make_private_folder(const char *path, HutchError *err) __attribute__((nonnull(1)));
