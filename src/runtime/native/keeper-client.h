/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "base/error.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "rpc/channel.h"

/* One connection to a keeper: watches it, asks what it knows, carries calls. When the connection breaks the client is
 * of no more use: who still wants the keeper makes another, and asks for what was not answered again. */

typedef struct KeeperClient KeeperClient;

/* What happens. All are needed; none comes from within a function of this. */
typedef struct KeeperClientEvents {
        /* All that the keeper knew when the watch stood. Then again for each keeper_client_describe(). */
        void (*described)(void *user, const Hutch__Keeper__V1__DescribeResponse *all);
        /* Something happened, before or after the first description. */
        void (*happened)(void *user, const Hutch__Keeper__V1__WatchKeeperResponse *what);
        /* The connection is broken, or the keeper does not answer. Told once, and the last: calls without an answer are
         * not told. */
        void (*broken)(void *user, const HutchError *err);
} KeeperClientEvents;

/* Connects to the keeper whose socket @socket_path is, of keeper_process_open_socket(), which is taken over, also when
 * it fails. Calls are answered within @answer_timeout, or the connection is broken; the first description may take
 * @extra_time beside that. */
int keeper_client_new(ChannelHub *hub, int socket_path, uint64_t answer_timeout, uint64_t extra_time,
                      const KeeperClientEvents *events, void *user, KeeperClient **ret_client, HutchError *err)
        __attribute__((nonnull(1, 5, 7)));

/* Closes it; nothing is told any more, also not of calls. @client may be NULL. Returns NULL. */
KeeperClient *keeper_client_free(KeeperClient *client);

/* What the keeper answers: @reply, or @err. */
typedef void (*KeeperReply)(void *user, const ProtobufCMessage *reply, const HutchError *err);

/* Calls @method ("StartExec") and has its answer, a message of @type, told to @done, once. The keeper may take
 * @extra_time to answer, beside the usual. */
void keeper_client_call(KeeperClient *client, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *type, uint64_t extra_time, KeeperReply done, void *user)
        __attribute__((nonnull(1, 2, 3, 4, 6)));

/* The same with a request that is encoded already. */
void keeper_client_call_encoded(KeeperClient *client, const char *method, const void *request, size_t len,
                                const ProtobufCMessageDescriptor *type, uint64_t extra_time, KeeperReply done,
                                void *user) __attribute__((nonnull(1, 2, 5, 7)));

/* Asks what the keeper knows, again. */
void keeper_client_describe(KeeperClient *client) __attribute__((nonnull));

/* Starts SendInput, the one call that streams; by the channel's own rules. */
ChannelCall *keeper_client_send_input(KeeperClient *client, const ChannelEvents *events, void *user)
        __attribute__((nonnull(1, 2)));

/* Starts a call of another service of the keeper's, by its whole path, as the user of that name; @key may be NULL.
 * @deadline: of uv_hrtime(). NULL: the metadata is malformed. */
ChannelCall *keeper_client_carry(KeeperClient *client, const char *path, const char *user_name, const char *key,
                                 uint64_t deadline, const ChannelEvents *events, void *user)
        __attribute__((nonnull(1, 2, 3, 6)));

/* Sets @err to what @status says, with the reasons that exist. */
void keeper_status_error(const ClientStatus *status, HutchError *err) __attribute__((nonnull));
