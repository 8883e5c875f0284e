/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "rpc/core/call.h"
#include "rpc/core/method-table.h"
#include "rpc/server.h"

/* A server for tests of channels, at a Unix socket. Its methods, all of /t.T/:
 *
 *   Echo        answers with what came
 *   Hang        never answers
 *   Flaky       fails with UNAVAILABLE as often as `failures` says, and then answers with what came
 *   Whoami      answers with the field "authorization"
 *   Converse    streams back what comes
 *   Inspect     answers each message with whether it was compressed; fails at first as Flaky does
 *   Pour        answers with CHANNEL_SERVER_POURS messages of 1000 bytes
 *   PourAndDie  the same, and then ends the process
 *   Fail        fails with SANDBOX_NOT_FOUND */

#define CHANNEL_SERVER_POURS 100 /* more than are handed out in one turn */

typedef struct ChannelServer {
        Server *server;
        MethodTable *methods;
        int failures;
        Method list[9];
} ChannelServer;

/* Where it listens, and how a channel calls that. */
extern char channel_socket[64], channel_target[80];

/* For a group of tests: the folder of the socket. */
int channel_server_set_up(void **state);
int channel_server_tear_down(void **state);

/* Starts one on @loop; the caller frees what it holds. */
void channel_server_start(ChannelServer *server, uv_loop_t *loop);

/* Starts one in a child, with two failures to come. It may listen only some time later. */
pid_t channel_server_fork(void);
