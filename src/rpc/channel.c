/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client's connections and its calls over time: connecting, waiting, trying again. What does not:
 * gRPC (client-session.c), the schedule of retries (base/retry.c), resolving and connecting (connector.c).
 *
 * Events only note what is to be done; all of it is done in one place, run(): after the loop has waited, so that who
 * runs it once returns with what came, and before it waits again, for what was asked meanwhile. */

#include "rpc/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "rpc/connector.h"
#include "rpc/socket.h"
#include "rpc/tls.h"

#define REPLAY_MAX ((size_t) 4 << 20) /* bytes of messages that are kept so that a call can be tried again */
#define DISPATCH_BUDGET 256           /* calls of a connection before others have their turn */
#define OUTPUT_SIZE ((size_t) 256 << 10)

const ChannelOptions channel_options_default = {
        .retry = &retry_policy_default,
        .limits = &session_limits_default,
        .connect_timeout = 20 * NSEC_PER_SEC,
};

/* A connection. */
typedef struct Link Link;
struct Link {
        Channel *channel;
        Link *prev, *next;
        Socket *socket;
        ClientSession *session; /* NULL: TLS is not established yet, or it is closing */
        bool heard;             /* of the server */
        bool closing;
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
        bool answered;       /* the caller heard of the server: what follows cannot be repeated */
        bool cancelled;
};

struct Channel {
        uv_loop_t *loop;
        Target target;
        TlsContext *tls;
        char *server_name;
        char *authority;
        char *authorization;
        char *user_agent;
        RetryPolicy retry;
        SessionLimits limits;
        uint64_t connect_timeout;

        Connector *connector; /* NULL: not connecting */
        Link *links;          /* all connections */
        Link *link;           /* the one for new calls; NULL: none */
        ChannelCall *waiting; /* calls without an attempt */
        ChannelCall *active;
        size_t n_calls; /* while there are any, the loop goes on */
        bool stale;     /* run() has something to do */
        bool running;   /* it is at work */
        bool told;      /* callers heard something */

        uv_prepare_t prepare;
        uv_check_t check;
        uv_timer_t timer;
        unsigned n_open; /* handles and links that are not closed */
        bool freed;
        void (*done)(void *user);
        void *done_user;

        SocketScratch scratch;
        uint8_t output[OUTPUT_SIZE];
};

/* There is something to do for run(). */
static void touch(Channel *channel) {
        channel->stale = true;
}

static void list_add(ChannelCall **list, ChannelCall *call) {
        call->prev = NULL;
        call->next = *list;
        if (call->next)
                call->next->prev = call;
        *list = call;
}

static void list_remove(ChannelCall **list, ChannelCall *call) {
        *(call->prev ? &call->prev->next : list) = call->next;
        if (call->next)
                call->next->prev = call->prev;
}

static ChannelCall *list_pop(ChannelCall **list) {
        ChannelCall *call = *list;

        *list = call->next;
        if (call->next)
                call->next->prev = NULL;
        return call;
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
        if (--call->channel->n_calls == 0)
                uv_unref((uv_handle_t *) &call->channel->prepare);
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

static void call_end_here(ChannelCall *call, StatusCode code, const char *message) {
        static const Metadata none;

        call_end(call, &(ClientStatus){ .code = code, .message = message, .trailing = &none, .not_processed = true });
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

        call->answered = true;
        call->channel->told = true;
        forget_replay(call);
        if (call->events->headers)
                call->events->headers(call, metadata);
}

static void on_attempt_message(ClientCall *attempt, const uint8_t *message, size_t len) {
        ChannelCall *call = client_call_user(attempt);

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

/* Tries @call, which is in no list, on the connection. */
static void attempt(ChannelCall *call) {
        Channel *channel = call->channel;
        const ClientRequest request = {
                .path = call->path,
                .metadata = &call->metadata,
                .authorization = channel->authorization,
                .deadline = call->deadline,
                .compresses = call->compresses,
        };

        session_tick(client_session_base(channel->link->session), uv_hrtime());
        call->attempt = client_call_start(channel->link->session, &request, &attempt_events, call);
        if (!call->attempt) {
                call_end_here(call, STATUS_RESOURCE_EXHAUSTED, "no memory for a call");
                return;
        }

        list_add(&channel->active, call);
        if (replay(call) < 0)
                channel_call_cancel(call);
}

/* Closes the connection; its calls hear of it. */
static void link_close(Link *link) {
        Channel *channel = link->channel;

        if (link->closing)
                return;

        link->closing = true;
        if (channel->link == link)
                channel->link = NULL;
        client_session_free(TAKE_PTR(link->session));
        socket_close(link->socket);
        touch(channel);
}

/* Every call that waits for a connection has tried in vain. */
static void connection_failed(Channel *channel, const HutchError *err) {
        static const Metadata none;
        ChannelCall *waiting = TAKE_PTR(channel->waiting);
        uint64_t now = uv_hrtime();

        while (waiting) {
                ChannelCall *call = list_pop(&waiting);

                if (call->not_before > now)
                        list_add(&channel->waiting, call);
                else
                        call_failed(call, &(ClientStatus){
                                                  .code = err->code,
                                                  .message = error_message(err),
                                                  .trailing = &none,
                                                  .not_processed = true,
                                          });
        }
        touch(channel);
}

static void on_link_established(void *user) {
        Link *link = user;
        Channel *channel = link->channel;
        const ClientIdentity identity = {
                .authority = channel->authority,
                .user_agent = channel->user_agent,
                .encrypted = channel->tls,
        };

        link->session = client_session_new(&identity, &channel->limits, uv_hrtime());
        if (link->session) {
                channel->link = link;
                touch(channel);
                return;
        }

        link_close(link);
        connection_failed(channel, &(HutchError){ .code = STATUS_RESOURCE_EXHAUSTED, .error = ENOMEM });
}

static void on_link_received(void *user, const uint8_t *bytes, size_t len) {
        Link *link = user;

        link->heard = true;
        if (link->session)
                (void) session_receive(client_session_base(link->session), bytes, len, uv_hrtime());
        touch(link->channel);
}

static void on_link_drained(void *user) {
        Link *link = user;

        touch(link->channel);
}

/* Why the connection is no more. Not every server tells who is not welcome. */
static const char *why_lost(const Link *link, const HutchError *err) {
        if (link->heard || err->error == EPROTO)
                return error_message(err);

        return link->channel->tls ? "the server closed the connection without a word: it may require a certificate of "
                                    "ours that it trusts"
                                  : "the server closed the connection without a word: it may expect TLS";
}

static void on_link_failed(void *user, const HutchError *err) {
        Link *link = user;
        bool established = link->session;

        if (established)
                client_session_set_lost(link->session, why_lost(link, err));
        link_close(link);
        if (!established)
                connection_failed(link->channel, err);
}

static void channel_release(Channel *channel) {
        void (*done)(void *user) = channel->done;
        void *user = channel->done_user;

        if (--channel->n_open > 0)
                return;

        target_clear(&channel->target);
        tls_context_unref(channel->tls);
        free(channel->server_name);
        free(channel->authority);
        free(channel->authorization);
        free(channel->user_agent);
        free(channel);
        if (done)
                done(user);
}

static void on_link_closed(void *user) {
        Link *link = user;
        Channel *channel = link->channel;

        *(link->prev ? &link->prev->next : &channel->links) = link->next;
        if (link->next)
                link->next->prev = link->prev;
        free(link);
        channel_release(channel);
}

static const SocketEvents link_events = {
        .established = on_link_established,
        .received = on_link_received,
        .drained = on_link_drained,
        .failed = on_link_failed,
        .closed = on_link_closed,
};

static void link_open(Channel *channel, int fd) {
        _cleanup_(error_clear) HutchError err = {};
        Link *link = try_new0(Link, 1);
        Tls *tls = NULL;
        int r = link ? 0 : -ENOMEM;

        if (r == 0 && channel->tls)
                r = tls_new(channel->tls, channel->server_name, &tls);
        if (r == 0)
                r = socket_new(channel->loop, fd, tls, &channel->scratch, &link_events, link, &link->socket);
        else
                close(fd);
        if (r < 0) {
                free(link);
                (void) error_set_code(&err, STATUS_UNAVAILABLE, r, "DAEMON_UNREACHABLE", "cannot connect: %s",
                                      strerror(-r));
                connection_failed(channel, &err);
                return;
        }

        link->channel = channel;
        link->next = channel->links;
        if (link->next)
                link->next->prev = link;
        channel->links = link;
        channel->n_open++;
        if (!channel->tls)
                on_link_established(link);
}

static void on_connected(void *user, ConnectorResult result) {
        Channel *channel = user;

        channel->connector = NULL;
        if (result.fd < 0)
                connection_failed(channel, result.err);
        else
                link_open(channel, result.fd);
}

/* Tells whether a connection is being made. */
static bool is_connecting(const Channel *channel) {
        if (channel->connector)
                return true;
        for (const Link *link = channel->links; link; link = link->next)
                if (!link->session && !link->closing)
                        return true;

        return false;
}

/* Deals with the calls that wait. */
static void run_waiting(Channel *channel) {
        ChannelCall *waiting = TAKE_PTR(channel->waiting);
        uint64_t now = uv_hrtime();
        bool wanted = false;

        while (waiting) {
                ChannelCall *call = list_pop(&waiting);

                if (call->cancelled) {
                        call_end_here(call, STATUS_CANCELLED, "the call was cancelled");
                } else if (call->deadline <= now) {
                        call_end_here(call, STATUS_DEADLINE_EXCEEDED, "the deadline of the call has passed");
                } else if (call->not_before <= now && channel->link) {
                        attempt(call);
                } else {
                        wanted |= call->not_before <= now;
                        list_add(&channel->waiting, call);
                }
        }

        if (wanted && !is_connecting(channel) &&
            connector_new(channel->loop, &channel->target, channel->connect_timeout, on_connected, channel,
                          &channel->connector) < 0)
                connection_failed(channel, &(HutchError){ .code = STATUS_RESOURCE_EXHAUSTED, .error = ENOMEM });
}

/* Moves what a connection has to move. Returns false when it is over. */
static bool link_run(Link *link) {
        Channel *channel = link->channel;
        Session *session = client_session_base(link->session);
        uint64_t now = uv_hrtime();
        bool finished;

        if (session_deadline(session) <= now)
                session_tick(session, now);
        if (session_dispatch(session, DISPATCH_BUDGET))
                touch(channel);

        while (socket_pending(link->socket) == 0) {
                ssize_t n = session_produce(session, channel->output, sizeof(channel->output));
                int r = n > 0 ? socket_write(link->socket, channel->output, (size_t) n) : 0;

                if (r == -ENOMEM)
                        return false;
                /* What failed, the socket tells later: it may have heard why. */
                if (n <= 0 || r < 0)
                        break;
        }

        if (session->ready_first)
                touch(channel);
        if (!client_session_is_open(link->session) && channel->link == link)
                channel->link = NULL;
        finished = session_is_finished(session);
        if (session->dead)
                client_session_set_lost(link->session, "the server does not answer any more");
        else if (finished && !session->peer_draining)
                client_session_set_lost(link->session, "the server does not keep to HTTP/2");
        return !finished && !(session->peer_draining && session->n_streams == 0);
}

static void arm_timer(Channel *channel, bool at_once);

static void run(Channel *channel) {
        enum { ROUNDS = 16 };

        for (unsigned i = 0; i < ROUNDS && channel->stale && !channel->freed; i++) {
                channel->stale = false;
                run_waiting(channel);
                for (Link *link = channel->links, *next; link; link = next) {
                        next = link->next;
                        if (link->session && !link_run(link))
                                link_close(link);
                }
        }
}

static void on_handle_closed(uv_handle_t *handle) {
        channel_release(handle->data);
}

/* Ends and closes everything. */
static void teardown(Channel *channel) {
        if (channel->connector)
                connector_cancel(TAKE_PTR(channel->connector));
        while (channel->waiting)
                call_end_here(list_pop(&channel->waiting), STATUS_CANCELLED, "the channel was closed");
        for (Link *link = channel->links; link; link = link->next)
                link_close(link);
        uv_close((uv_handle_t *) &channel->prepare, on_handle_closed);
        uv_close((uv_handle_t *) &channel->check, on_handle_closed);
        uv_close((uv_handle_t *) &channel->timer, on_handle_closed);
}

/* Runs what is to be done; @waits: the loop will wait afterwards. */
static void run_and_look_ahead(Channel *channel, bool waits) {
        if (!channel->stale)
                return;

        channel->running = true;
        channel->told = false;
        run(channel);
        channel->running = false;

        if (channel->freed)
                teardown(channel);
        else
                arm_timer(channel, waits && channel->told);
}

static void on_check(uv_check_t *check) {
        run_and_look_ahead(check->data, false);
}

static void on_prepare(uv_prepare_t *prepare) {
        run_and_look_ahead(prepare->data, true);
}

static void on_timer(uv_timer_t *timer) {
        touch(timer->data);
}

/* Wakes the loop when something is due: @at_once when callers heard something, and may want to act on it before the
 * loop waits. */
static void arm_timer(Channel *channel, bool at_once) {
        uint64_t now = uv_hrtime(), due = channel->stale || at_once ? now : DEADLINE_NONE;

        for (const ChannelCall *call = channel->waiting; call; call = call->next) {
                uint64_t next =
                        call->not_before > now && call->not_before < call->deadline ? call->not_before : call->deadline;
                due = next < due ? next : due;
        }
        for (const Link *link = channel->links; link; link = link->next)
                if (link->session) {
                        uint64_t deadline = session_deadline(client_session_base(link->session));

                        due = deadline < due ? deadline : due;
                }

        if (due == DEADLINE_NONE)
                (void) uv_timer_stop(&channel->timer);
        else
                (void) uv_timer_start(&channel->timer, on_timer,
                                      due > now ? (due - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC : 0, 0);
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
        if (options->token && !options->tls && !channel->target.path && !options->token_in_clear)
                return error_set_code(err, STATUS_FAILED_PRECONDITION, -EPERM, "TOKEN_IN_CLEAR_TEXT",
                                      "a token is not sent to %s without TLS", options->target);

        channel->tls = options->tls ? tls_context_ref(options->tls) : NULL;
        channel->retry = *options->retry;
        channel->limits = *options->limits;
        channel->connect_timeout = options->connect_timeout;
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
        return r < 0 ? error_set(err, r, "HOST_EXHAUSTED", "no memory for a channel") : 0;
}

int channel_new(uv_loop_t *loop, const ChannelOptions *options, Channel **ret_channel, HutchError *err) {
        Channel *channel = calloc(1, sizeof(*channel));
        int r;

        if (!channel)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory for a channel");

        channel->n_open = 1;
        r = configure(channel, options, err);
        if (r < 0) {
                channel_release(channel);
                return r;
        }

        channel->loop = loop;
        channel->n_open = 3;
        channel->prepare.data = channel->check.data = channel->timer.data = channel;
        (void) uv_timer_init(loop, &channel->timer);
        (void) uv_prepare_init(loop, &channel->prepare);
        (void) uv_prepare_start(&channel->prepare, on_prepare);
        uv_unref((uv_handle_t *) &channel->prepare);
        (void) uv_check_init(loop, &channel->check);
        (void) uv_check_start(&channel->check, on_check);
        uv_unref((uv_handle_t *) &channel->check);

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
        ChannelCall *call = try_new0(ChannelCall, 1);

        if (!call)
                return NULL;

        if (channel->n_calls++ == 0)
                uv_ref((uv_handle_t *) &channel->prepare);
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

int channel_call_send(ChannelCall *call, const void *message, size_t len) {
        int r = 0;

        if (call->ended || call->cancelled)
                return -EPIPE;

        /* What was sent and is too much to keep cannot be sent again; what was not sent yet must be kept. */
        if (call->attempt && call->keeps_replay && call->replay_bytes + len > REPLAY_MAX)
                forget_replay(call);
        if (call->keeps_replay)
                r = keep(call, message, len);
        if (r == 0 && call->attempt)
                r = client_call_send(call->attempt, message, len);
        touch(call->channel);
        return r;
}

bool channel_call_is_writable(const ChannelCall *call) {
        return call->attempt ? client_call_is_writable(call->attempt)
                             : call->replay_bytes < call->channel->limits.high_water;
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

bool channel_call_message_was_compressed(const ChannelCall *call) {
        return call->attempt && client_call_message_was_compressed(call->attempt);
}

void channel_call_cancel(ChannelCall *call) {
        call->cancelled = true;
        if (call->attempt)
                client_call_cancel(call->attempt);
        touch(call->channel);
}
