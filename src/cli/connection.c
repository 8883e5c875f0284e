/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: finding the daemon, and calls by their descriptions. What does not: the calls that libhutch has. */

#include "cli/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "cli/report.h"
#include "local/paths.h"
#include "pbtext/pbtext.h"

#define UNIX_PREFIX "unix:"

/* The address that is to be used; NULL: as libhutch finds it. The caller frees it. */
static char *find_address(const Arguments *arguments) {
        const char *address = arguments_get(arguments, "address"), *path = arguments_get(arguments, "socket");
        _cleanup_free_ char *socket = path ? path_of_socket(path, NULL, NULL) : NULL;
        StringBuilder builder = {};

        if (!path)
                return address ? xstrdup(address) : NULL;
        string_builder_appendf(&builder, UNIX_PREFIX "%s", socket ? socket : path);
        return string_builder_take(&builder);
}

static int open_client(const Arguments *arguments, HutchClientOptions options, HutchClient **ret_client,
                       HutchError **ret_error) {
        _cleanup_free_ char *address = find_address(arguments);

        options.address = address;
        options.context = arguments_get(arguments, "context");
        options.ca_file = arguments_get(arguments, "ca");
        options.certificate_file = arguments_get(arguments, "cert");
        options.key_file = arguments_get(arguments, "key");
        options.server_name = arguments_get(arguments, "server-name");
        options.token_file = arguments_get(arguments, "token-file");
        return hutch_client_new(&options, ret_client, ret_error);
}

int connection_open(const Arguments *arguments, HutchClient **ret_client, HutchError **ret_error) {
        int r = open_client(arguments, (HutchClientOptions){ .start_daemon = true }, ret_client, ret_error);
        const char *address;

        if (r < 0 || !hutch_client_started_daemon(*ret_client) || arguments_have(arguments, "quiet"))
                return r;

        address = hutch_client_address(*ret_client);
        report_note("started a daemon on %s",
                    str_has_prefix(address, UNIX_PREFIX) ? address + strlen(UNIX_PREFIX) : address);
        return r;
}

int connection_open_running(const Arguments *arguments, uint64_t timeout, HutchClient **ret_client,
                            HutchError **ret_error) {
        int pid, r = open_client(arguments, (HutchClientOptions){ .timeout = timeout }, ret_client, ret_error);
        const char *address = r < 0 ? "" : hutch_client_address(*ret_client);

        /* Calls would be tried again and again, as if it came back. */
        if (!str_has_prefix(address, UNIX_PREFIX) || hutch_daemon_pid(address + strlen(UNIX_PREFIX), &pid, NULL) < 0 ||
            pid > 0)
                return r;

        hutch_client_free(*ret_client);
        *ret_client = NULL;
        return -ECONNREFUSED;
}

char *connection_socket(const Arguments *arguments, HutchError *err) {
        const char *address = arguments_get(arguments, "address"), *path = arguments_get(arguments, "socket");

        if (arguments_have(arguments, "context")) {
                (void) error_set(err, -EINVAL, "USAGE", "--context is for daemons that are there: name a --socket");
                return NULL;
        }
        if (!address)
                address = getenv("HUTCH_ADDRESS");
        if (path || !address || *address == '\0')
                return path_of_socket(path, NULL, err);
        if (str_has_prefix(address, UNIX_PREFIX))
                return path_of_socket(address + strlen(UNIX_PREFIX), NULL, err);

        (void) error_set(err, -EINVAL, "USAGE", "%s is no Unix socket: its daemon is not on this machine", address);
        return NULL;
}

int connection_call(HutchClient *client, const char *method, const ProtobufCMessage *request,
                    ProtobufCMessage **ret_reply, HutchError **ret_error) {
        const ProtobufCMessageDescriptor *request_type, *reply_type;
        _cleanup_(hutch_buffer_clear) HutchBuffer reply = {};
        _cleanup_free_ void *bytes = NULL;
        size_t len;
        int r;

        if (!hutch_method_descriptors(method, &request_type, &reply_type))
                return -ENOSYS;

        message_encode(request, &bytes, &len);
        r = hutch_call_unary(client, method, bytes, len, 0, &reply, ret_error);
        return r < 0 ? r : message_decode(reply_type, reply.data, reply.len, ret_reply, NULL);
}

ProtobufCMessage *contract_message(const char *name) {
        return message_new(hutch_message_descriptor(name));
}

ProtobufCMessage *contract_decode(const char *name, const void *bytes, size_t len) {
        ProtobufCMessage *message;

        /* libhutch has read them before. */
        if (message_decode(hutch_message_descriptor(name), bytes, len, &message, NULL) < 0)
                abort();
        return message;
}

ProtobufCMessage *contract_part(const ProtobufCMessage *message, const char *path, const char *name) {
        const ProtobufCMessageDescriptor *type = hutch_message_descriptor(name);
        _cleanup_free_ char *json = message_get(message, path);
        ProtobufCMessage *part;

        if (message_from_json(type, json, strlen(json), &part, NULL) < 0)
                part = message_new(type);
        return part;
}
