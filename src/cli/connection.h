/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "cli/options.h"

/* The daemon that a command talks to: the one that --socket, --address or --context name, or else as libhutch finds
 * it. */

DEFINE_CLEANUP(HutchClient *, hutch_client_free);
DEFINE_CLEANUP(HutchSandbox *, hutch_sandbox_free);
DEFINE_CLEANUP(HutchExec *, hutch_exec_free);

/* Opens it, and starts a daemon where none is: that is told on stderr, unless --quiet was given. */
int connection_open(const Arguments *arguments, HutchClient **ret_client, HutchError **ret_error)
        __attribute__((nonnull));

/* The same with one that must be there: -ECONNREFUSED, without an error, when none listens. @timeout is for each of its
 * calls; 0: as usual. */
int connection_open_running(const Arguments *arguments, uint64_t timeout, HutchClient **ret_client,
                            HutchError **ret_error) __attribute__((nonnull(1, 3)));

/* The path of the Unix socket that they name, which the caller frees; NULL, and @err, when it is none. */
char *connection_socket(const Arguments *arguments, HutchError *err) __attribute__((nonnull(1)));

/* Makes a call with messages of its method's types. The caller frees the reply. */
int connection_call(HutchClient *client, const char *method, const ProtobufCMessage *request,
                    ProtobufCMessage **ret_reply, HutchError **ret_error) __attribute__((nonnull(1, 2, 3, 4)));

/* An empty message of the contract ("SandboxSpec"), and one out of what libhutch gives. */
ProtobufCMessage *contract_message(const char *name) __attribute__((nonnull, returns_nonnull));
ProtobufCMessage *contract_decode(const char *name, const void *bytes, size_t len)
        __attribute__((nonnull(1), returns_nonnull));

/* The message at @path of @message, of the type @name. */
ProtobufCMessage *contract_part(const ProtobufCMessage *message, const char *path, const char *name)
        __attribute__((nonnull, returns_nonnull));
