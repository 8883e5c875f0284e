/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls on a client's channel. What does not: waiting (client.c), what is asked and answered
 * (sandbox.c, exec.c, …), trying again (rpc/channel.c). */

#include "client/outcall.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/methods.h"
#include "client/request-id.h"
#include "contract/hutch/v1/system.pb-c.h"

#define PATH_MAX_LEN 128
#define DECODED_MAX ((size_t) 64 << 20) /* bytes in memory that an answer may unfold to */

static void on_message(ChannelCall *channel_call, const uint8_t *message, size_t len) {
        HutchCall *call = channel_call_user(channel_call);

        (void) message;
        call->answered = true;
        call->inbox[(call->inbox_first + call->n_inbox++) % OUTCALL_INBOX] =
                (HutchBuffer){ channel_call_take_message(channel_call), len };
        client_tell(call);
}

static void on_writable(ChannelCall *channel_call) {
        client_tell(channel_call_user(channel_call));
}

/* Frees @call, which is over. */
static void outcall_destroy(HutchCall *call) {
        client_forget(call);
        for (; call->n_inbox > 0; call->n_inbox--)
                free(call->inbox[call->inbox_first++ % OUTCALL_INBOX].data);
        free(call->message);
        free(call->details);
        free(call);
}

/* Keeps how the call ended. */
static int keep_status(HutchCall *call, const ClientStatus *status) {
        call->code = status->code;
        snprintf(call->reason, sizeof(call->reason), "%s", status->reason);
        call->message = strdup(status->message);
        if (!call->message || call->no_memory)
                return -ENOMEM;
        if (status->details_len == 0)
                return 0;

        call->details = malloc(status->details_len);
        if (!call->details)
                return -ENOMEM;
        memcpy(call->details, status->details, status->details_len);
        call->details_len = status->details_len;
        return 0;
}

static void on_ended(ChannelCall *channel_call, const ClientStatus *status) {
        HutchCall *call = channel_call_user(channel_call);

        call->channel_call = NULL;
        if (call->parting)
                call->client->n_parting--;
        if (call->orphan) {
                outcall_destroy(call);
                return;
        }

        call->no_memory = keep_status(call, status) < 0;
        client_tell(call);
}

static int start(HutchCall *call, const OutcallOptions *options, const MethodInfo *method) {
        static const ChannelEvents events = { .message = on_message, .writable = on_writable, .ended = on_ended };
        HutchClient *client = call->client;
        char path[PATH_MAX_LEN];
        const ChannelRequest request = {
                .path = path,
                .deadline = options->timeout == 0 && method->streams ? DEADLINE_NONE
                                                                     : client_deadline(client, options->timeout),
                .safe = options->safe || method->safe,
        };

        snprintf(path, sizeof(path), "/hutch.v1.%s", options->method);
        call->channel_call = channel_call_start(client->channel, &request, &events, call);
        if (!call->channel_call)
                return -ENOMEM;

        for (size_t i = 0; i < OUTCALL_INBOX; i++)
                channel_call_read(call->channel_call);
        return 0;
}

int outcall_new(HutchClient *client, const OutcallOptions *options, HutchCall **ret_call, Failure *failure) {
        HutchCall *call;
        MethodInfo method;
        int r;

        if (!client_is_ours(client)) {
                (void) error_set(&failure->error, -ESTALE, "CLIENT_FORKED",
                                 "a client is of no use in a child of the process that made it; make another");
                return -ESTALE;
        }
        if (!method_find(options->method, &method)) {
                (void) error_set(&failure->error, -EOPNOTSUPP, "METHOD_UNIMPLEMENTED", "there is no method %s",
                                 options->method);
                return -EOPNOTSUPP;
        }

        call = try_new0(HutchCall, 1);
        if (!call)
                return -ENOMEM;
        call->client = client;
        call->user = options->user;
        call->request_id = method.request_id;

        client_lock(client);
        r = start(call, options, &method);
        client_unlock(client);
        if (r < 0) {
                free(call);
                return r;
        }

        *ret_call = call;
        return 0;
}

HutchCall *outcall_free(HutchCall *call) {
        HutchClient *client = call ? call->client : NULL;

        if (!call || !client_is_ours(client))
                return NULL;

        client_lock(client);
        client_forget(call);
        call->user = NULL;
        call->orphan = true;
        if (call->channel_call) {
                channel_call_cancel(call->channel_call);
                client_turn(client);
        } else {
                outcall_destroy(call);
        }
        client_unlock(client);
        return NULL;
}

void outcall_cancel(HutchCall *call) {
        client_lock(call->client);
        if (call->channel_call)
                channel_call_cancel(call->channel_call);
        client_turn(call->client);
        client_unlock(call->client);
}

/* Asks the daemon how large a message may be. That it does not tell is no failure: what is too large, it refuses. */
static void ask_limits(HutchClient *client) {
        Hutch__V1__GetInfoRequest request = HUTCH__V1__GET_INFO_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        const Hutch__V1__GetInfoResponse *info;

        if (outcall_unary_message(client, "SystemService/GetInfo", &request.base, 0, &reply, &failure) < 0)
                return;

        info = (const Hutch__V1__GetInfoResponse *) reply;
        client_lock(client);
        client->asked_limits = true;
        if (info->limits)
                client->max_request = info->limits->max_request_bytes > 0 ? info->limits->max_request_bytes : SIZE_MAX;
        if (info->limits)
                client->max_file = info->limits->max_file_bytes;
        client_unlock(client);
}

uint64_t outcall_size_limit(HutchClient *client, uint64_t max_size) {
        bool asked;
        uint64_t limit;

        if (max_size < UINT64_MAX)
                return max_size;

        client_lock(client);
        asked = client->asked_limits;
        client_unlock(client);
        if (!asked)
                ask_limits(client);

        client_lock(client);
        limit = client->max_file;
        client_unlock(client);
        return limit;
}

static bool needs_limits(HutchClient *client, size_t len) {
        bool needed;

        client_lock(client);
        needed = len > client->max_request && !client->asked_limits;
        client_unlock(client);
        return needed;
}

/* @client is locked. */
static int check_size(const HutchClient *client, size_t len, Failure *failure) {
        if (len <= client->max_request)
                return 0;

        (void) error_set_code(&failure->error, STATUS_RESOURCE_EXHAUSTED, -EMSGSIZE, "MESSAGE_TOO_LARGE",
                              "the message has %zu bytes, and the daemon takes %zu", len, client->max_request);
        error_add_pair(&failure->error, "limit", "max_request_bytes");
        error_add_pair(&failure->error, "value", "%zu", client->max_request);
        return -EMSGSIZE;
}

/* Gives a message to the channel, for what it was asked. @call's client is locked. */
static int queue(HutchCall *call, const void *message, size_t len, Failure *failure) {
        _cleanup_free_ uint8_t *with_id = NULL;
        int r;

        if (!call->channel_call)
                return -EPIPE;

        if (call->request_id) {
                r = request_id_add(call->request_id, message, len, &with_id, &len);
                if (r < 0)
                        return r == -EIO ? error_set(&failure->error, r, "INTERNAL", "there are no random numbers") : r;
                call->request_id = NULL;
        }
        r = check_size(call->client, len, failure);
        if (r < 0)
                return r;
        return channel_call_send(call->channel_call, with_id ? with_id : len > 0 ? message : "", len);
}

static bool is_writable_or_over(const HutchCall *call) {
        return !call->channel_call || channel_call_is_writable(call->channel_call);
}

int outcall_send(HutchCall *call, bool wait, const void *message, size_t len, Failure *failure) {
        HutchClient *client = call->client;
        int r;

        client_lock(client);
        if (!wait && !is_writable_or_over(call))
                client_turn(client);
        if (!wait && !is_writable_or_over(call))
                r = -EAGAIN;
        else
                r = queue(call, message, len, failure);
        if (r == 0) {
                client_turn(client);
                if (wait)
                        client_wait(call, is_writable_or_over);
        }
        client_unlock(client);
        return r;
}

int outcall_queue_taken(HutchCall *call, uint8_t *message, size_t len, Failure *failure) {
        _cleanup_free_ uint8_t *taken = message;
        int r;

        client_lock(call->client);
        r = call->channel_call ? check_size(call->client, len, failure) : -EPIPE;
        if (r == 0 && channel_call_keeps(call->channel_call, len))
                r = channel_call_send(call->channel_call, message, len);
        else if (r == 0)
                r = channel_call_send_taken(call->channel_call, TAKE_PTR(taken), len);
        client_turn(call->client);
        client_unlock(call->client);
        return r;
}

int outcall_queue(HutchCall *call, const ProtobufCMessage *message, Failure *failure) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r = protobuf_pack(message, &bytes, &len);

        if (r < 0)
                return r;

        client_lock(call->client);
        r = queue(call, bytes, len, failure);
        client_turn(call->client);
        client_unlock(call->client);
        return r;
}

void outcall_wait_for_room(HutchCall *call) {
        client_lock(call->client);
        client_wait(call, is_writable_or_over);
        client_unlock(call->client);
}

static bool takes_input(const HutchCall *call) {
        return call->channel_call && call->answered && channel_call_is_writable(call->channel_call);
}

static bool takes_input_or_is_over(const HutchCall *call) {
        return !call->channel_call || takes_input(call);
}

bool outcall_takes_input(const HutchCall *call) {
        bool takes;

        client_lock(call->client);
        takes = takes_input(call);
        client_unlock(call->client);
        return takes;
}

bool outcall_wait_for_input(HutchCall *call) {
        bool takes;

        client_lock(call->client);
        client_wait(call, takes_input_or_is_over);
        takes = takes_input(call);
        client_unlock(call->client);
        return takes;
}

static bool is_answered_or_over(const HutchCall *call) {
        return !call->channel_call || call->answered;
}

void outcall_wait_for_answer(HutchCall *call) {
        client_lock(call->client);
        client_wait(call, is_answered_or_over);
        client_unlock(call->client);
}

bool outcall_is_over(const HutchCall *call) {
        bool over;

        client_lock(call->client);
        over = !call->channel_call;
        client_unlock(call->client);
        return over;
}

static bool has_something(const HutchCall *call) {
        return call->n_inbox > 0 || !call->channel_call;
}

/* Tells how @call ended. */
static int tell_end(const HutchCall *call, Failure *failure) {
        const ClientStatus status = {
                .code = call->code,
                .reason = call->reason,
                .message = call->message,
                .details = call->details,
                .details_len = call->details_len,
        };

        if (call->no_memory)
                return -ENOMEM;
        return call->code == STATUS_OK ? 0 : failure_set_status(failure, &status);
}

int outcall_receive(HutchCall *call, bool wait, HutchBuffer *ret_message, Failure *failure) {
        HutchClient *client = call->client;
        int r = 1;

        client_lock(client);
        if (wait)
                client_wait(call, has_something);
        else if (!has_something(call))
                client_turn(client);

        if (call->n_inbox > 0) {
                *ret_message = call->inbox[call->inbox_first];
                call->inbox_first = (call->inbox_first + 1) % OUTCALL_INBOX;
                call->n_inbox--;
                if (call->channel_call)
                        channel_call_read(call->channel_call);
        } else {
                r = call->channel_call ? -EAGAIN : tell_end(call, failure);
        }
        client_unlock(client);
        return r;
}

int outcall_decode(const ProtobufCMessageDescriptor *type, const HutchBuffer *buffer, ProtobufCMessage **ret_message,
                   Failure *failure) {
        int r = protobuf_unpack(type, buffer->data, buffer->len, DECODED_MAX, ret_message);

        if (r == 0 || r == -ENOMEM)
                return r;
        return error_set_code(&failure->error, STATUS_INTERNAL, r, "INTERNAL", "the daemon's answer cannot be read");
}

int outcall_receive_message(HutchCall *call, bool wait, const ProtobufCMessageDescriptor *type,
                            ProtobufCMessage **ret_message, Failure *failure) {
        _cleanup_(hutch_buffer_clear) HutchBuffer buffer = {};
        int r = outcall_receive(call, wait, &buffer, failure);

        if (r <= 0)
                return r;

        r = outcall_decode(type, &buffer, ret_message, failure);
        return r < 0 ? r : 1;
}

/* Sends the only message of @call. */
static int send_only(HutchCall *call, const void *message, size_t len, Failure *failure) {
        int r;

        client_lock(call->client);
        r = queue(call, message, len, failure);
        if (r == 0)
                channel_call_end(call->channel_call);
        client_turn(call->client);
        client_unlock(call->client);
        return r == -EPIPE ? 0 : r; /* why it is over, receiving tells */
}

int outcall_unary(HutchClient *client, const char *method, const void *request, size_t len, uint64_t timeout,
                  HutchBuffer *ret_reply, Failure *failure) {
        _cleanup_(outcall_freep) HutchCall *call = NULL;
        _cleanup_(hutch_buffer_clear) HutchBuffer reply = {}, more = {};
        int r;

        if (needs_limits(client, len))
                ask_limits(client);
        r = outcall_new(client, &(OutcallOptions){ .method = method, .timeout = timeout }, &call, failure);
        if (r == 0)
                r = send_only(call, request, len, failure);
        if (r == 0)
                r = outcall_receive(call, true, &reply, failure);
        if (r < 0)
                return r;

        r = r == 1 ? outcall_receive(call, true, &more, failure) : 1;
        if (r < 0)
                return r;
        if (r > 0)
                return error_set_code(&failure->error, STATUS_INTERNAL, -EPROTO, "INTERNAL",
                                      "the daemon sent %s where one message is the answer",
                                      more.data ? "more" : "none");

        *ret_reply = reply;
        reply = (HutchBuffer){};
        return 0;
}

int outcall_unary_message(HutchClient *client, const char *method, const ProtobufCMessage *request, uint64_t timeout,
                          ProtobufCMessage **ret_reply, Failure *failure) {
        _cleanup_(hutch_buffer_clear) HutchBuffer reply = {};
        _cleanup_free_ uint8_t *bytes = NULL;
        MethodInfo info;
        size_t len;
        int r = protobuf_pack(request, &bytes, &len);

        if (r == 0)
                r = outcall_unary(client, method, bytes, len, timeout, &reply, failure);
        if (r < 0)
                return r;

        (void) method_find(method, &info);
        return outcall_decode(info.reply, &reply, ret_reply, failure);
}

void outcall_part(HutchClient *client, const char *method, const ProtobufCMessage *request, uint64_t timeout) {
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_free_ uint8_t *bytes = NULL;
        HutchCall *call;
        size_t len;

        if (protobuf_pack(request, &bytes, &len) < 0 ||
            outcall_new(client, &(OutcallOptions){ .method = method, .timeout = timeout }, &call, &failure) < 0)
                return;

        client_lock(client);
        if (!call->channel_call) { /* another thread has seen its end already */
                outcall_destroy(call);
                client_unlock(client);
                return;
        }
        call->orphan = call->parting = true;
        client->n_parting++;
        if (queue(call, bytes, len, &failure) < 0)
                channel_call_cancel(call->channel_call);
        else
                channel_call_end(call->channel_call);
        client_turn(client);
        client_unlock(client);
}

/* ---- The public functions ---- */

void hutch_buffer_clear(HutchBuffer *buffer) {
        free(buffer->data);
        *buffer = (HutchBuffer){};
}

int hutch_call_unary(HutchClient *client, const char *method, const void *request, size_t request_len, uint64_t timeout,
                     HutchBuffer *ret_reply, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = outcall_unary(client, method, request, request_len, timeout, ret_reply, &failure);

        return failure_tell(&failure, r, ret_error);
}

int hutch_call_new(HutchClient *client, const char *method, uint64_t timeout, void *user, HutchCall **ret_call,
                   HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        const OutcallOptions options = { .method = method, .timeout = timeout, .user = user };
        int r = outcall_new(client, &options, ret_call, &failure);

        return failure_tell(&failure, r, ret_error);
}

int hutch_call_send(HutchCall *call, bool wait, const void *message, size_t len, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = outcall_send(call, wait, message, len, &failure);

        return r == -EAGAIN || r == -EPIPE ? r : failure_tell(&failure, r, ret_error);
}

bool hutch_call_is_writable(const HutchCall *call) {
        bool writable;

        client_lock(call->client);
        writable = call->channel_call && channel_call_is_writable(call->channel_call);
        client_unlock(call->client);
        return writable;
}

void hutch_call_end(HutchCall *call) {
        client_lock(call->client);
        if (call->channel_call) {
                channel_call_end(call->channel_call);
                client_turn(call->client);
        }
        client_unlock(call->client);
}

int hutch_call_receive(HutchCall *call, bool wait, HutchBuffer *ret_message, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = outcall_receive(call, wait, ret_message, &failure);

        return r == -EAGAIN ? r : failure_tell(&failure, r, ret_error);
}

void hutch_call_free(HutchCall *call) {
        (void) outcall_free(call);
}
