/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: addresses of daemons. What does not: connecting (rpc/connector.c), and the default socket
 * (base/paths.c). */

#include "client/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/paths.h"
#include "base/strings.h"
#include "client/user-daemon.h"

/* gRPC's names for what is a host and a port here. */
static const char *without_scheme(const char *address) {
        if (str_has_prefix(address, "dns:///"))
                return address + strlen("dns:///");
        if (str_has_prefix(address, "dns:"))
                return address + strlen("dns:");
        return address;
}

int address_find(const char *given, char **ret_address, HutchError *err) {
        const char *variable = getenv("HUTCH_ADDRESS");
        _cleanup_free_ char *socket = NULL;

        if (!given && variable && *variable)
                given = variable;
        if (given) {
                *ret_address = strdup(without_scheme(given));
                return *ret_address ? 0 : -ENOMEM;
        }

        socket = path_of_socket(NULL, NULL, err);
        if (!socket)
                return err && err->error > 0 ? -err->error : -ENOMEM;
        return asprintf(ret_address, "unix:%s", socket) < 0 ? -ENOMEM : 0;
}

int address_start_daemon(const char *address, bool *ret_started, Failure *failure) {
        int r = str_has_prefix(address, "unix:") ? user_daemon_start(address + strlen("unix:"), failure) : 0;

        if (r < 0)
                return r;

        *ret_started = r > 0;
        return 0;
}
