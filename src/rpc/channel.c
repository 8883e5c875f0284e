/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client's calls over time: connecting, waiting, trying again. What does not: gRPC
 * (client-session.c), a connection (link.c), the schedule of retries (base/retry.c), resolving and connecting
 * (connector.c).
 *
 * Events only note what is to be done; all of it is done in one place, run(), when the hub says so (channel-hub.h). */

#include "rpc/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "rpc/channel-hub.h"
#include "rpc/connector.h"
#include "rpc/link.h"
#include "rpc/tls.h"

#define REPLAY_MAX ((size_t) 4 << 20) /* bytes of messages that are kept so that a call can be tried again */

const ChannelOptions channel_options_default = {
        .retry = &retry_policy_default,
        .limits = &session_limits_default,
        .connect_timeout = 20 * NSEC_PER_SEC,
};

/* A message that is kept. */
typedef struct Replay Replay;
struct Replay {
        Replay *next;
        bool compress;
        size_t len;
        uint8_t message[];
};

struct ChannelCall {
        Channel *channel;
        ChannelCall *prev, *next; /* among those that wait, or those that do not */
        const ChannelEvents *events;
        void *user;

        /* The request, for as long as it may have to be sent again. */
        char *path;
        Metadata metadata;
        uint64_t deadline;
        bool safe;
        bool compresses;
        bool compress; /* the messages that follow */
        Replay *replay_first, *replay_last;
        size_t replay_bytes;
        bool keeps_replay;
        bool ended;      /* channel_call_end() was called */
        uint32_t demand; /* messages asked for and not received */

        ClientCall *attempt; /* NULL: it waits for a connection, or for its time */
        unsigned tries;      /* that failed */
        uint64_t not_before; /* when to try again */
        bool answered;       /* the caller heard from the server: what follows cannot be repeated */
        bool cancelled;
};

typedef struct CallList {
        ChannelCall *first, *last;
} CallList;

struct Channel {
        HubTask task; /* first: a channel is its task */
        ChannelHub *hub;
        Target target;
        char *server_name;
        char *authority;
        char *authorization;
        char *(*get_token)(void *user); /* NULL: @authorization is for all calls */
        void *token_user;
        char *user_agent;
        LinkOptions link_options;
        RetryPolicy retry;
        uint64_t connect_timeout;

        Connector *connector; /* NULL: not connecting */
        Link *links;
        CallList waiting; /* calls without an attempt */
        CallList active;
        bool running; /* run() is at work */
        bool told;    /* callers heard something */

        uv_timer_t timer;
        unsigned n_open; /* the timer, and links that are not closed */
        bool freed;
        void (*done)(void *user);
        void *done_user;
};

/* There is something to do for run(). */
static void touch(Channel *channel) {
        if (!channel->freed)
                channel_hub_queue(channel->hub, &channel->task);
}

/* Behind those that are there: calls are made in the order they were asked for. */
static void list_add(CallList *list, ChannelCall *call) {
        call->prev = list->last;
        call->next = NULL;
        *(list->last ? &list->last->next : &list->first) = call;
        list->last = call;
}

static void list_remove(CallList *list, ChannelCall *call) {
        *(call->prev ? &call->prev->next : &list->first) = call->next;
        *(call->next ? &call->next->prev : &list->last) = call->prev;
}

static ChannelCall *list_pop(CallList *list) {
        ChannelCall *call = list->first;

        list->first = call->next;
        *(call->next ? &call->next->prev : &list->last) = NULL;
        return call;
}

static CallList list_take(CallList *list) {
        CallList taken = *list;

        *list = (CallList){};
        return taken;
}

static void forget_replay(ChannelCall *call) {
        call->keeps_replay = false;
        while (call->replay_first) {
                Replay *next = call->replay_first->next;

                free(call->replay_first);
                call->replay_first = next;
        }
        call->replay_last = NULL;
        call->replay_bytes = 0;
}

/* Frees @call, which is in no list. */
static void call_free(ChannelCall *call) {
        channel_hub_end_call(call->channel->hub);
        forget_replay(call);
        metadata_clear(&call->metadata);
        free(call->path);
        free(call);
}

/* Ends @call, which is in no list. */
static void call_end(ChannelCall *call, const ClientStatus *status) {
        call->channel->told = true;
        if (call->events->ended)
                call->events->ended(call, status);
        call_free(call);
}

/* A status that is made here, of a call that the server has not seen. */
static ClientStatus status_here(StatusCode code, const char *reason, const char *message) {
        static const Metadata none;

        return (ClientStatus){
                .code = code,
                .reason = reason,
                .message = message,
                .trailing = &none,
                .not_processed = true,
        };
}

static void call_end_here(ChannelCall *call, StatusCode code, const char *reason, const char *message) {
        ClientStatus status = status_here(code, reason, message);

        call_end(call, &status);
}

static uint32_t random32(void) {
        uint32_t random;

        /* Without random numbers the pauses are merely not spread. */
        return getrandom(&random, sizeof(random), GRND_NONBLOCK) == sizeof(random) ? random : 0;
}

/* @call is in no list, and a try has failed. Plans the next, or ends it. */
static void call_failed(ChannelCall *call, const ClientStatus *status) {
        RetryOutcome outcome = {
                .code = status->code,
                .connection_lost = status->lost,
                .sent = !status->not_processed,
                .safe = call->safe,
                .answered = call->answered,
        };
        uint64_t now = uv_hrtime(), pause_ms;
        uint64_t deadline_ms = call->deadline == DEADLINE_NONE ? RETRY_NO_DEADLINE : call->deadline / NSEC_PER_MSEC;

        call->tries++;
        if (call->cancelled || call->channel->freed || !call->keeps_replay || !retry_allowed(&outcome) ||
            !retry_next(&call->channel->retry, call->tries, now / NSEC_PER_MSEC, deadline_ms, random32(), &pause_ms)) {
                call_end(call, status);
                return;
        }

        call->not_before = now + pause_ms * NSEC_PER_MSEC;
        list_add(&call->channel->waiting, call);
        touch(call->channel);
}

static void on_attempt_headers(ClientCall *attempt, const Metadata *metadata) {
        ChannelCall *call = client_call_user(attempt);

        /* Who does not ask for them has heard nothing yet. */
        if (!call->events->headers)
                return;

        call->answered = true;
        call->channel->told = true;
        forget_replay(call);
        call->events->headers(call, metadata);
}

static void on_attempt_message(ClientCall *attempt, const uint8_t *message, size_t len) {
        ChannelCall *call = client_call_user(attempt);

        if (!call->answered)
                forget_replay(call);
        call->answered = true;
        call->channel->told = true;
        call->demand--;
        if (call->events->message)
                call->events->message(call, message, len);
}

static void on_attempt_writable(ClientCall *attempt) {
        ChannelCall *call = client_call_user(attempt);

        call->channel->told = true;
        if (call->events->writable)
                call->events->writable(call);
}

static void on_attempt_ended(ClientCall *attempt, const ClientStatus *status) {
        ChannelCall *call = client_call_user(attempt);

        call->attempt = NULL;
        list_remove(&call->channel->active, call);
        if (status->code == STATUS_OK)
                call_end(call, status);
        else
                call_failed(call, status);
}

static const ClientEvents attempt_events = {
        .headers = on_attempt_headers,
        .message = on_attempt_message,
        .writable = on_attempt_writable,
        .ended = on_attempt_ended,
};

/* Sends what the caller has sent so far. */
static int replay(const ChannelCall *call) {
        for (const Replay *kept = call->replay_first; kept; kept = kept->next) {
                int r;

                client_call_set_compression(call->attempt, kept->compress);
                r = client_call_send(call->attempt, kept->message, kept->len);
                if (r < 0)
                        return r;
        }

        client_call_set_compression(call->attempt, call->compress);
        if (call->ended)
                client_call_end(call->attempt);
        for (uint32_t i = 0; i < call->demand; i++)
                client_call_read(call->attempt);
        return 0;
}

/* What the callback gives for a call, which the caller frees; NULL: nothing. */
static char *ask_authorization(const Channel *channel) {
        _cleanup_free_ char *token = channel->get_token(channel->token_user);
        char *text = NULL;

        return token && asprintf(&text, "Bearer %s", token) >= 0 ? text : NULL;
}

/* Tries @call, which is in no list. */
static void attempt(ChannelCall *call, ClientSession *session) {
        Channel *channel = call->channel;
        _cleanup_free_ char *asked = channel->get_token ? ask_authorization(channel) : NULL;
        const ClientRequest request = {
                .path = call->path,
                .metadata = &call->metadata,
                .authorization = channel->get_token ? asked : channel->authorization,
                .deadline = call->deadline,
                .compresses = call->compresses,
        };

        if (channel->get_token && !asked) {
                call_end_here(call, STATUS_UNAUTHENTICATED, "CREDENTIALS_MISSING", "there is no token for this call");
                return;
        }
        session_tick(client_session_base(session), uv_hrtime());
        call->attempt = client_call_start(session, &request, &attempt_events, call);
        if (!call->attempt) {
                call_end_here(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory for a call");
                return;
        }

        list_add(&channel->active, call);
        if (replay(call) < 0)
                channel_call_cancel(call);
}

/* Every call that waits for a connection has tried in vain. */
static void connection_failed(Channel *channel, const HutchError *err) {
        const ClientStatus status = status_here(err->code, err->reason, error_message(err));
        CallList waiting = list_take(&channel->waiting);
        uint64_t now = uv_hrtime();

        while (waiting.first) {
                ChannelCall *call = list_pop(&waiting);

                if (call->not_before > now)
                        list_add(&channel->waiting, call);
                else
                        call_failed(call, &status);
        }
        touch(channel);
}

static void channel_release(Channel *channel) {
        void (*done)(void *user) = channel->done;
        void *user = channel->done_user;

        if (--channel->n_open > 0)
                return;

        channel_hub_leave(channel->hub);
        target_clear(&channel->target);
        tls_context_unref(channel->link_options.tls);
        free(channel->server_name);
        free(channel->authority);
        free(channel->authorization);
        free(channel->user_agent);
        free(channel);
        if (done)
                done(user);
}

static void on_link_touched(void *user) {
        touch(user);
}

static void on_link_failed(void *user, const HutchError *err) {
        connection_failed(user, err);
}

static void on_link_closed(void *user, Link *link) {
        Channel *channel = user;

        *(link->prev ? &link->prev->next : &channel->links) = link->next;
        if (link->next)
                link->next->prev = link->prev;
        channel_release(channel);
}

static void open_link(Channel *channel, int fd) {
        static const LinkEvents events = {
                .touched = on_link_touched,
                .failed = on_link_failed,
                .closed = on_link_closed,
        };
        _cleanup_(error_clear) HutchError err = {};
        Link *link;
        int r = link_new(&channel->link_options, fd, &events, channel, &link);

        if (r < 0) {
                (void) error_set_code(&err, STATUS_UNAVAILABLE, r, "DAEMON_UNREACHABLE", "cannot connect: %s",
                                      strerror(-r));
                connection_failed(channel, &err);
                return;
        }

        link->next = channel->links;
        if (link->next)
                link->next->prev = link;
        channel->links = link;
        channel->n_open++;
        touch(channel);
}

static void on_connected(void *user, ConnectorResult result) {
        Channel *channel = user;

        channel->connector = NULL;
        if (result.fd < 0)
                connection_failed(channel, result.err);
        else
                open_link(channel, result.fd);
}

/* Tells whether a connection is being made. */
static bool is_connecting(const Channel *channel) {
        if (channel->connector)
                return true;
        for (const Link *link = channel->links; link; link = link->next)
                if (link_is_opening(link))
                        return true;

        return false;
}

/* The connection for new calls; NULL: none. */
static Link *find_open_link(const Channel *channel) {
        Link *link = channel->links;

        while (link && !link_is_open(link))
                link = link->next;
        return link;
}

/* Deals with the calls that wait. */
static void run_waiting(Channel *channel) {
        const Link *link = find_open_link(channel);
        CallList waiting = list_take(&channel->waiting);
        uint64_t now = uv_hrtime();
        bool wanted = false;

        while (waiting.first) {
                ChannelCall *call = list_pop(&waiting);

                if (call->cancelled) {
                        call_end_here(call, STATUS_CANCELLED, "CALL_CANCELLED", "the call was cancelled");
                } else if (call->deadline <= now) {
                        call_end_here(call, STATUS_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED",
                                      "the deadline of the call has passed");
                } else if (call->not_before <= now && link) {
                        attempt(call, link->session);
                } else {
                        wanted |= call->not_before <= now;
                        list_add(&channel->waiting, call);
                }
        }

        if (wanted && !is_connecting(channel) &&
            connector_new(channel->hub->loop, &channel->target, channel->connect_timeout, on_connected, channel,
                          &channel->connector) < 0)
                connection_failed(channel, &(HutchError){ .code = STATUS_RESOURCE_EXHAUSTED,
                                                          .error = ENOMEM,
                                                          .reason = "HOST_EXHAUSTED" });
}

static void on_timer_closed(uv_handle_t *handle) {
        channel_release(handle->data);
}

/* Ends and closes everything. */
static void teardown(Channel *channel) {
        channel_hub_dequeue(channel->hub, &channel->task);
        if (channel->connector)
                connector_cancel(TAKE_PTR(channel->connector));
        while (channel->waiting.first)
                call_end_here(list_pop(&channel->waiting), STATUS_CANCELLED, "CALL_CANCELLED",
                              "the channel was closed");
        for (ChannelCall *call = channel->active.first; call; call = call->next)
                channel_call_cancel(call);
        for (Link *link = channel->links, *next; link; link = next) {
                next = link->next;
                link_close(link);
        }
        uv_close((uv_handle_t *) &channel->timer, on_timer_closed);
}

static void on_timer(uv_timer_t *timer) {
        touch(timer->data);
}

/* Wakes the loop when something is due. */
static void arm_timer(Channel *channel) {
        uint64_t now = uv_hrtime(), due = DEADLINE_NONE;

        for (const ChannelCall *call = channel->waiting.first; call; call = call->next) {
                uint64_t next =
                        call->not_before > now && call->not_before < call->deadline ? call->not_before : call->deadline;
                due = next < due ? next : due;
        }
        for (const Link *link = channel->links; link; link = link->next) {
                uint64_t deadline = link_deadline(link);

                due = deadline < due ? deadline : due;
        }

        if (due == DEADLINE_NONE)
                (void) uv_timer_stop(&channel->timer);
        else
                (void) uv_timer_start(&channel->timer, on_timer,
                                      due > now ? (due - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 0, 0);
}

static bool run(HubTask *task) {
        Channel *channel = (Channel *) task;
        bool told;

        channel->running = true;
        run_waiting(channel);
        for (Link *link = channel->links, *next; link && !channel->freed; link = next) {
                next = link->next;
                link_run(link);
        }
        channel->running = false;

        told = channel->told;
        channel->told = false;
        if (channel->freed)
                teardown(channel);
        else
                arm_timer(channel);
        return told;
}

static int copy_text(const char *text, char **ret_copy) {
        if (!text)
                return 0;

        *ret_copy = strdup(text);
        return *ret_copy ? 0 : -ENOMEM;
}

/* Whom requests are for. */
static const char *authority_of(const ChannelOptions *options, const Target *target) {
        if (options->server_name)
                return options->server_name;

        return target->path ? "localhost" : options->target;
}

static int configure(Channel *channel, const ChannelOptions *options, HutchError *err) {
        int r = target_parse(options->target, &channel->target, err);

        if (r < 0)
                return r;
        if ((options->token || options->get_token) && !options->tls && !channel->target.path &&
            !options->token_in_clear)
                return error_set_code(err, STATUS_FAILED_PRECONDITION, -EPERM, "TOKEN_IN_CLEAR_TEXT",
                                      "a token is not sent to %s without TLS", options->target);

        channel->link_options.tls = options->tls ? tls_context_ref(options->tls) : NULL;
        channel->retry = *options->retry;
        channel->connect_timeout = options->connect_timeout;
        channel->get_token = options->get_token;
        channel->token_user = options->token_user;
        if (options->token && asprintf(&channel->authorization, "Bearer %s", options->token) < 0) {
                channel->authorization = NULL;
                r = -ENOMEM;
        }
        if (r == 0)
                r = copy_text(options->user_agent ? options->user_agent : "hutch", &channel->user_agent);
        if (r == 0)
                r = copy_text(options->server_name ? options->server_name : channel->target.host,
                              &channel->server_name);
        if (r == 0)
                r = copy_text(authority_of(options, &channel->target), &channel->authority);
        if (r < 0)
                return error_set(err, r, "HOST_EXHAUSTED", "no memory for a channel");

        channel->link_options.hub = channel->hub;
        channel->link_options.server_name = channel->server_name;
        channel->link_options.limits = *options->limits;
        channel->link_options.identity = (ClientIdentity){
                .authority = channel->authority,
                .user_agent = channel->user_agent,
                .encrypted = options->tls,
        };
        return 0;
}

int channel_new(ChannelHub *hub, const ChannelOptions *options, Channel **ret_channel, HutchError *err) {
        Channel *channel = calloc(1, sizeof(*channel));
        int r;

        if (!channel)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory for a channel");

        channel_hub_join(hub);
        channel->task.run = run;
        channel->hub = hub;
        channel->n_open = 1;
        r = configure(channel, options, err);
        if (r < 0) {
                channel_release(channel);
                return r;
        }

        channel->timer.data = channel;
        (void) uv_timer_init(hub->loop, &channel->timer);

        *ret_channel = channel;
        return 0;
}

void channel_free(Channel *channel, void (*done)(void *user), void *user) {
        if (channel->freed)
                return;

        channel->freed = true;
        channel->done = done;
        channel->done_user = user;
        if (!channel->running)
                teardown(channel);
}

ChannelCall *channel_call_start(Channel *channel, const ChannelRequest *request, const ChannelEvents *events,
                                void *user) {
        ChannelCall *call = channel->freed ? NULL : try_new0(ChannelCall, 1);

        if (!call)
                return NULL;

        channel_hub_begin_call(channel->hub);
        call->channel = channel;
        call->events = events;
        call->user = user;
        call->deadline = request->deadline;
        call->safe = request->safe;
        call->compresses = call->compress = request->compresses;
        call->keeps_replay = true;
        if (copy_text(request->path, &call->path) < 0 ||
            (request->metadata && metadata_copy(&call->metadata, request->metadata) < 0)) {
                call_free(call);
                return NULL;
        }

        list_add(&channel->waiting, call);
        touch(channel);
        return call;
}

void *channel_call_user(const ChannelCall *call) {
        return call->user;
}

static int keep(ChannelCall *call, const void *message, size_t len) {
        Replay *kept = malloc(sizeof(Replay) + len);

        if (!kept)
                return -ENOMEM;

        kept->next = NULL;
        kept->compress = call->compress;
        kept->len = len;
        memcpy(kept->message, message, len);
        *(call->replay_last ? &call->replay_last->next : &call->replay_first) = kept;
        call->replay_last = kept;
        call->replay_bytes += len;
        return 0;
}

void channel_call_set_compression(ChannelCall *call, bool compress) {
        call->compress = compress;
        if (call->attempt)
                client_call_set_compression(call->attempt, compress);
}

bool channel_call_keeps(const ChannelCall *call, size_t len) {
        return call->keeps_replay && (!call->attempt || call->replay_bytes + len <= REPLAY_MAX);
}

int channel_call_send(ChannelCall *call, const void *message, size_t len) {
        int r = 0;

        if (call->ended || call->cancelled)
                return -EPIPE;

        /* What was sent and is too much to keep cannot be sent again; what was not sent yet must be kept. */
        if (call->keeps_replay && !channel_call_keeps(call, len))
                forget_replay(call);
        if (call->keeps_replay)
                r = keep(call, message, len);
        if (r == 0 && call->attempt)
                r = client_call_send(call->attempt, message, len);
        touch(call->channel);
        return r;
}

int channel_call_send_taken(ChannelCall *call, uint8_t *message, size_t len) {
        _cleanup_free_ uint8_t *taken = message;
        int r;

        if (!call->attempt || call->ended || call->cancelled)
                return channel_call_send(call, message, len);

        forget_replay(call);
        r = client_call_send_taken(call->attempt, TAKE_PTR(taken), len);
        touch(call->channel);
        return r;
}

bool channel_call_is_writable(const ChannelCall *call) {
        return call->attempt ? client_call_is_writable(call->attempt)
                             : call->replay_bytes < call->channel->link_options.limits.high_water;
}

void channel_call_end(ChannelCall *call) {
        call->ended = true;
        if (call->attempt)
                client_call_end(call->attempt);
        touch(call->channel);
}

void channel_call_read(ChannelCall *call) {
        call->demand++;
        if (call->attempt)
                client_call_read(call->attempt);
        touch(call->channel);
}

uint8_t *channel_call_take_message(ChannelCall *call) {
        return client_call_take_message(call->attempt);
}

bool channel_call_message_was_compressed(const ChannelCall *call) {
        return call->attempt && client_call_message_was_compressed(call->attempt);
}

void channel_call_cancel(ChannelCall *call) {
        call->cancelled = true;
        if (call->attempt)
                client_call_cancel(call->attempt);
        touch(call->channel);
}
