/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which daemon is meant. What does not: connecting (rpc/connector.c), the default socket
 * (local/paths.c), and the contexts file (local/contexts.c). */

#include "client/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "client/user-daemon.h"
#include "local/contexts.h"
#include "local/paths.h"
#include "local/token-file.h"

#define UNIX_PREFIX "unix:"

void endpoint_clear(Endpoint *endpoint) {
        free(endpoint->address);
        free(endpoint->ca_file);
        free(endpoint->certificate_file);
        free(endpoint->key_file);
        free(endpoint->server_name);
        free(endpoint->token);
        *endpoint = (Endpoint){};
}

/* A variable that is empty is not there. */
static const char *variable(const char *name) {
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

/* gRPC's names for what is a host and a port here. */
static const char *without_scheme(const char *address) {
        if (str_has_prefix(address, "dns:///"))
                return address + strlen("dns:///");
        if (str_has_prefix(address, "dns:"))
                return address + strlen("dns:");
        return address;
}

static int error_of(const HutchError *err) {
        return err && err->error > 0 ? -err->error : -ENOMEM;
}

/* Copies @text, which may be NULL. */
static int put(char **ret_copy, const char *text) {
        *ret_copy = text ? strdup(text) : NULL;
        return text && !*ret_copy ? -ENOMEM : 0;
}

static int put_token(Endpoint *endpoint, const HutchClientOptions *options, const char *found, HutchError *err) {
        if (options->token)
                return put(&endpoint->token, options->token);
        return options->token_file ? token_load(options->token_file, &endpoint->token, err)
                                   : put(&endpoint->token, found);
}

/* What the caller gives comes before @found, one by one; certificate and key belong together. */
static int fill(Endpoint *endpoint, const HutchClientOptions *options, const Context *found, HutchError *err) {
        bool own = options->certificate_file || options->key_file;
        int r = put(&endpoint->address, without_scheme(found->address));

        if (r == 0)
                r = put(&endpoint->ca_file, options->ca_file ? options->ca_file : found->ca_file);
        if (r == 0)
                r = put(&endpoint->certificate_file, own ? options->certificate_file : found->certificate_file);
        if (r == 0)
                r = put(&endpoint->key_file, own ? options->key_file : found->key_file);
        if (r == 0)
                r = put(&endpoint->server_name, options->server_name ? options->server_name : found->server_name);
        if (r == 0)
                r = put_token(endpoint, options, found->token, err);
        return r;
}

static int fill_address(Endpoint *endpoint, const HutchClientOptions *options, const char *address, HutchError *err) {
        const Context found = {
                .address = (char *) address,
                .ca_file = (char *) variable("HUTCH_CA_FILE"),
                .certificate_file = (char *) variable("HUTCH_CERTIFICATE_FILE"),
                .key_file = (char *) variable("HUTCH_KEY_FILE"),
                .token = (char *) variable("HUTCH_TOKEN"),
        };

        return fill(endpoint, options, &found, err);
}

static int fill_socket(Endpoint *endpoint, const HutchClientOptions *options, HutchError *err) {
        _cleanup_free_ char *socket = path_of_socket(NULL, NULL, err), *address = NULL;

        if (!socket)
                return error_of(err);
        if (asprintf(&address, UNIX_PREFIX "%s", socket) < 0)
                return -ENOMEM;
        return fill(endpoint, options, &(Context){ .address = address }, err);
}

/* Goes by the context @name, NULL: by the current one. Returns 1, or 0 when there is none. */
static int fill_context(Endpoint *endpoint, const HutchClientOptions *options, const char *name, HutchError *err) {
        _cleanup_(contexts_clear) Contexts contexts = {};
        _cleanup_free_ char *path = NULL;
        const Context *context;
        int r;

        /* Who has no home has no contexts, either. */
        path = path_of_contexts(name ? err : NULL);
        if (!path)
                return name ? error_of(err) : 0;
        r = contexts_read(&contexts, path, err);
        if (r < 0)
                return r;

        if (!name)
                name = contexts.current;
        if (!name)
                return 0;
        context = contexts_find(&contexts, name);
        if (!context)
                return error_set(err, -ENOENT, "CONTEXT_NOT_FOUND", "there is no context '%s' in %s", name, path);
        r = fill(endpoint, options, context, err);
        return r < 0 ? r : 1;
}

static int find(Endpoint *endpoint, const HutchClientOptions *options, HutchError *err) {
        const char *address = options->context ? NULL : options->address;
        int r;

        if (options->address && options->context)
                return error_set(err, -EINVAL, "FIELD_CONFLICT", "an address and a context exclude each other");
        if (!options->context && !address)
                address = variable("HUTCH_ADDRESS");
        if (address)
                return fill_address(endpoint, options, address, err);
        if (!options->context && variable("HUTCH_SOCKET"))
                return fill_socket(endpoint, options, err);

        r = fill_context(endpoint, options, options->context ? options->context : variable("HUTCH_CONTEXT"), err);
        return r == 0 ? fill_socket(endpoint, options, err) : r < 0 ? r : 0;
}

int endpoint_find(const HutchClientOptions *options, Endpoint *ret_endpoint, HutchError *err) {
        Endpoint endpoint = {};
        int r = find(&endpoint, options, err);

        if (r < 0)
                endpoint_clear(&endpoint);
        *ret_endpoint = endpoint;
        return r;
}

bool endpoint_is_local(const Endpoint *endpoint) {
        return str_has_prefix(endpoint->address, UNIX_PREFIX);
}

int endpoint_start_daemon(const Endpoint *endpoint, bool *ret_started, Failure *failure) {
        int r = endpoint_is_local(endpoint) ? user_daemon_start(endpoint->address + strlen(UNIX_PREFIX), failure) : 0;

        if (r < 0)
                return r;

        *ret_started = r > 0;
        return 0;
}
