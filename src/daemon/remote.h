/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "api/api.h"
#include "base/error.h"
#include "daemon/config.h"
#include "rpc/server.h"

/* Callers over TCP: the files that say who the daemon is and who they are, and the listeners. */

typedef struct Remote {
        TlsContext *tls; /* NULL: clear text, or no TCP */
        Tokens *tokens;  /* NULL: none are looked at */
} Remote;

/* Reads the certificates and tokens of @config, with @state as the state folder, and refuses what would be insecure
 * without that being said. Without a listener there is nothing to do. */
int remote_open(Remote *ret_remote, const Config *config, const char *state, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));
void remote_close(Remote *remote) __attribute__((nonnull));

/* Listens on all addresses. */
int remote_listen(const Remote *remote, const Config *config, Server *server, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Takes the certificates as @config has them now, for new connections, and reads the tokens again. What cannot be read
 * stays as it was, and is logged. Returns whether the certificates could be read. */
bool remote_reload(Remote *remote, const Config *config, Server *server) __attribute__((nonnull));

/* The file of the tokens, which the caller frees. */
char *remote_tokens_file(const Config *config, const char *state) __attribute__((nonnull, returns_nonnull));

/* What callers are asked for, by @config, as long as that. */
ApiRemote remote_rules(const Remote *remote, const Config *config) __attribute__((nonnull));
