/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a channel to a keeper, its watch and its calls. What does not: what the answers mean (sandbox.c,
 * execs.c), coming back after a break (sandbox.c). */

#include "runtime/native/keeper-client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define SERVICE "/hutch.keeper.v1.KeeperService/"
#define REPLY_CAP ((size_t) 32 << 20) /* bytes of memory of one decoded message */
#define METADATA_MAX 4096

/* A page of a listing may have 8 MiB. Calls whose reader is slow hold their window: many of them together must not hold
 * up the connection, which has the keeper's other answers. */
#define MESSAGE_MAX ((size_t) 9 << 20)
#define STREAM_WINDOW (256 << 10)

typedef struct KeeperCall {
        KeeperClient *client;
        const ProtobufCMessageDescriptor *type;
        ProtobufCMessage *reply;
        KeeperReply done;
        void *user;
} KeeperCall;

struct KeeperClient {
        Channel *channel;
        int socket_path; /* until the connection stands; -1 */
        uint64_t answer_timeout;
        const KeeperClientEvents *events;
        void *user;
        ChannelCall *watch;
        bool broken;
        bool freed;
};

void keeper_status_error(const ClientStatus *status, HutchError *err) {
        const char *reason = reason_from_name(status->reason) == REASON_UNSPECIFIED ? "INTERNAL" : status->reason;
        bool readable = utf8_valid(status->message, strlen(status->message));

        (void) error_set_code(err, status->code, -EIO, reason, "%s", readable ? status->message : "");
}

/* The connection is of no use any more. */
static void set_broken(KeeperClient *client, const HutchError *err) {
        if (client->broken || client->freed)
                return;

        client->broken = true;
        client->events->broken(client->user, err);
}

static void on_reply(ChannelCall *channel_call, const uint8_t *message, size_t len) {
        KeeperCall *call = channel_call_user(channel_call);

        if (!call->reply)
                (void) protobuf_unpack(call->type, message, len, REPLY_CAP, &call->reply);
        /* For the status, which is read behind the last message. */
        channel_call_read(channel_call);
}

/* What the keeper itself says is an answer. That it cannot be had is none, whoever noticed. */
static bool is_answer(const KeeperCall *call, const ClientStatus *status) {
        if (status->code == STATUS_OK)
                return call->reply;

        return status->from_server && status->code != STATUS_DEADLINE_EXCEEDED && status->code != STATUS_UNAVAILABLE;
}

static void on_call_ended(ChannelCall *channel_call, const ClientStatus *status) {
        _cleanup_(error_clear) HutchError err = {};
        KeeperCall *call = channel_call_user(channel_call);
        KeeperClient *client = call->client;

        if (!is_answer(call, status)) {
                (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE, "the keeper does not answer: %s",
                                  status->code == STATUS_OK ? "what it says cannot be read" : status->message);
                set_broken(client, &err);
        } else if (!client->freed && !client->broken) {
                if (status->code != STATUS_OK)
                        keeper_status_error(status, &err);
                call->done(call->user, err.error ? NULL : call->reply, err.error ? &err : NULL);
        }
        protobuf_free(call->reply);
        free(call);
}

static const ChannelEvents call_events = {
        .message = on_reply,
        .ended = on_call_ended,
};

static void on_described(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        KeeperClient *client = user;

        if (err)
                set_broken(client, err);
        else
                client->events->described(client->user, (const Hutch__Keeper__V1__DescribeResponse *) reply);
}

static ChannelCall *start_call(KeeperClient *client, const char *method, uint64_t timeout, const ChannelEvents *events,
                               void *user) {
        char path[sizeof(SERVICE) + 32];
        ChannelCall *call;

        (void) snprintf(path, sizeof(path), SERVICE "%s", method);
        call = channel_call_start(client->channel,
                                  &(ChannelRequest){
                                          .path = path,
                                          .deadline = timeout == UINT64_MAX ? DEADLINE_NONE : uv_hrtime() + timeout,
                                  },
                                  events, user);
        /* Only small things are allocated before a message is sent. */
        if (!call)
                abort();
        return call;
}

void keeper_client_call_encoded(KeeperClient *client, const char *method, const void *request, size_t len,
                                const ProtobufCMessageDescriptor *type, uint64_t extra_time, KeeperReply done,
                                void *user) {
        KeeperCall *call = new0(KeeperCall, 1);
        ChannelCall *channel_call;

        *call = (KeeperCall){ .client = client, .type = type, .done = done, .user = user };
        channel_call = start_call(client, method, client->answer_timeout + extra_time, &call_events, call);
        if (channel_call_send(channel_call, request, len) < 0) {
                /* `ended` tells. */
                channel_call_cancel(channel_call);
                return;
        }
        channel_call_end(channel_call);
        channel_call_read(channel_call);
}

void keeper_client_call(KeeperClient *client, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *type, uint64_t extra_time, KeeperReply done, void *user) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        if (protobuf_pack(request, &bytes, &len) < 0)
                abort();
        keeper_client_call_encoded(client, method, bytes, len, type, extra_time, done, user);
}

static void describe(KeeperClient *client, uint64_t extra_time) {
        const Hutch__Keeper__V1__DescribeRequest request = HUTCH__KEEPER__V1__DESCRIBE_REQUEST__INIT;

        keeper_client_call(client, "Describe", &request.base, &hutch__keeper__v1__describe_response__descriptor,
                           extra_time, on_described, client);
}

void keeper_client_describe(KeeperClient *client) {
        describe(client, 0);
}

ChannelCall *keeper_client_send_input(KeeperClient *client, const ChannelEvents *events, void *user) {
        return start_call(client, "SendInput", UINT64_MAX, events, user);
}

ChannelCall *keeper_client_carry(KeeperClient *client, const char *path, const char *user_name, const char *key,
                                 uint64_t deadline, const ChannelEvents *events, void *user) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = METADATA_MAX };

        if (metadata_add(&metadata, "hutch-user", user_name, strlen(user_name)) < 0 ||
            (key && metadata_add(&metadata, "hutch-key", key, strlen(key)) < 0))
                return NULL;
        return channel_call_start(client->channel,
                                  &(ChannelRequest){ .path = path, .metadata = &metadata, .deadline = deadline },
                                  events, user);
}

static void on_watched(ChannelCall *call, const uint8_t *message, size_t len) {
        KeeperClient *client = channel_call_user(call);
        _cleanup_(protobuf_freep) ProtobufCMessage *decoded = NULL;
        const Hutch__Keeper__V1__WatchKeeperResponse *what;

        if (client->freed || client->broken)
                return;

        if (protobuf_unpack(&hutch__keeper__v1__watch_keeper_response__descriptor, message, len, REPLY_CAP, &decoded) <
            0) {
                channel_call_cancel(call);
                return;
        }
        what = (const Hutch__Keeper__V1__WatchKeeperResponse *) decoded;

        channel_call_read(call);
        if (what->item_case == HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_SYNCED)
                client->socket_path = fd_close(client->socket_path);
        else
                client->events->happened(client->user, what);
}

static void on_watch_ended(ChannelCall *call, const ClientStatus *status) {
        _cleanup_(error_clear) HutchError err = {};
        KeeperClient *client = channel_call_user(call);

        client->watch = NULL;
        (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE, "the connection to the keeper broke: %s",
                          status->code == STATUS_OK ? "it ended the watch" : status->message);
        set_broken(client, &err);
}

static const ChannelEvents watch_events = {
        .message = on_watched,
        .ended = on_watch_ended,
};

int keeper_client_new(ChannelHub *hub, int socket_path, uint64_t answer_timeout, uint64_t extra_time,
                      const KeeperClientEvents *events, void *user, KeeperClient **ret_client, HutchError *err) {
        /* The path means this socket only until the connection stands: it is never connected anew. */
        const RetryPolicy once = { .attempts = 1 };
        SessionLimits limits = session_limits_default;
        ChannelOptions options = channel_options_default;
        KeeperClient *client = new0(KeeperClient, 1);
        char target[64];
        int r;

        *client = (KeeperClient){
                .socket_path = socket_path,
                .answer_timeout = answer_timeout,
                .events = events,
                .user = user,
        };
        (void) snprintf(target, sizeof(target), "unix:/proc/self/fd/%d", socket_path);
        options.target = target;
        options.retry = &once;
        options.connect_timeout = answer_timeout;
        limits.max_message = MESSAGE_MAX;
        limits.stream_window = STREAM_WINDOW;
        options.limits = &limits;
        r = channel_new(hub, &options, &client->channel, err);
        if (r < 0) {
                fd_close(socket_path);
                free(client);
                return r;
        }

        client->watch = start_call(client, "WatchKeeper", UINT64_MAX, &watch_events, client);
        if (channel_call_send(client->watch, "", 0) < 0)
                abort();
        channel_call_end(client->watch);
        channel_call_read(client->watch);
        /* The keeper takes calls in the order that they come in: it watches when it reads this. */
        describe(client, extra_time);
        *ret_client = client;
        return 0;
}

static void on_channel_gone(void *user) {
        free(user);
}

KeeperClient *keeper_client_free(KeeperClient *client) {
        if (client) {
                client->freed = true;
                client->socket_path = fd_close(client->socket_path);
                channel_free(client->channel, on_channel_gone, client);
        }
        return NULL;
}
