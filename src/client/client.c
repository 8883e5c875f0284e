/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client's loop, who runs it, and who is told. What does not: calls (outcall.c), and which daemon
 * is meant (endpoint.c). */

#include "client/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "client/endpoint.h"
#include "client/failure.h"
#include "client/outcall.h"
#include "rpc/tls.h"

#define TIMEOUT_DEFAULT (60 * NSEC_PER_SEC)
#define REQUEST_MAX ((size_t) 4 << 20) /* of daemons that are not configured otherwise */
#define REPLY_MAX ((size_t) 17 << 20)

struct Waiter {
        const HutchCall *call;
        pthread_cond_t told;
        Waiter *prev, *next;
};

bool client_is_ours(const HutchClient *client) {
        return client->pid == getpid();
}

uint64_t client_deadline(const HutchClient *client, uint64_t timeout) {
        uint64_t now = uv_hrtime();

        if (timeout == 0)
                timeout = client->timeout;
        return timeout < DEADLINE_NONE - now ? now + timeout : DEADLINE_NONE;
}

/* How long one may wait for the loop's descriptor, in milliseconds; -1: for ever. */
static int wait_limit(HutchClient *client) {
        if (client->hub->first)
                return 0;

        uv_update_time(&client->loop);
        return uv_backend_timeout(&client->loop);
}

/* The moment that wait_limit() ends at. */
static uint64_t wait_end(int limit) {
        return limit < 0 ? UINT64_MAX : uv_hrtime() / NSEC_PER_MSEC + (uint64_t) limit;
}

/* Has a program that waits in its own loop look again. */
static void poke_caller(HutchClient *client) {
        if (client->caller_until == 0)
                return;

        client->caller_until = 0;
        (void) eventfd_write(client->poke_fd, 1);
}

void client_turn(HutchClient *client) {
        uint64_t end;

        (void) uv_run(&client->loop, UV_RUN_NOWAIT);
        end = wait_end(wait_limit(client));
        if (client->leader && end < client->leader_until)
                (void) eventfd_write(client->wake_fd, 1);
        if (end < client->caller_until)
                poke_caller(client);
}

static void lead(HutchClient *client, Waiter *waiter) {
        struct pollfd fds[] = {
                { .fd = uv_backend_fd(&client->loop), .events = POLLIN },
                { .fd = client->wake_fd, .events = POLLIN },
        };
        int limit = wait_limit(client);
        eventfd_t n;

        if (limit != 0) {
                client->leader = waiter;
                client->leader_until = wait_end(limit);
                client_unlock(client);
                (void) poll(fds, 2, limit); /* interrupted or not, the loop knows what there is to do */
                client_lock(client);
                client->leader = NULL;
                (void) eventfd_read(client->wake_fd, &n);
        }

        client_turn(client);
}

void client_wait(HutchCall *call, bool (*done)(const HutchCall *call)) {
        HutchClient *client = call->client;
        Waiter waiter = { .call = call, .told = PTHREAD_COND_INITIALIZER };

        if (done(call))
                return;

        waiter.next = client->waiters;
        if (waiter.next)
                waiter.next->prev = &waiter;
        client->waiters = &waiter;

        while (!done(call))
                if (client->leader)
                        (void) pthread_cond_wait(&waiter.told, &client->mutex);
                else
                        lead(client, &waiter);

        *(waiter.prev ? &waiter.prev->next : &client->waiters) = waiter.next;
        if (waiter.next)
                waiter.next->prev = waiter.prev;
        (void) pthread_cond_destroy(&waiter.told);

        /* Somebody else must lead now. */
        if (!client->leader && client->waiters)
                (void) pthread_cond_signal(&client->waiters->told);
}

void client_tell(HutchCall *call) {
        HutchClient *client = call->client;

        for (Waiter *waiter = client->waiters; waiter; waiter = waiter->next)
                if (waiter->call == call && waiter == client->leader)
                        (void) eventfd_write(client->wake_fd, 1);
                else if (waiter->call == call)
                        (void) pthread_cond_signal(&waiter->told);

        if (!call->user || call->ready)
                return;
        call->ready = true;
        call->ready_next = NULL;
        call->ready_prev = client->ready_last;
        *(client->ready_last ? &client->ready_last->ready_next : &client->ready_first) = call;
        client->ready_last = call;
        poke_caller(client);
}

void client_forget(HutchCall *call) {
        HutchClient *client = call->client;

        if (!call->ready)
                return;

        call->ready = false;
        *(call->ready_prev ? &call->ready_prev->ready_next : &client->ready_first) = call->ready_next;
        *(call->ready_next ? &call->ready_next->ready_prev : &client->ready_last) = call->ready_prev;
}

/* Whether there are as many free descriptors as libuv opens where it aborts if it cannot. */
static int look_for_descriptors(void) {
        _cleanup_close_ int first = eventfd(0, EFD_CLOEXEC), second = eventfd(0, EFD_CLOEXEC),
                            third = eventfd(0, EFD_CLOEXEC);

        return first < 0 || second < 0 || third < 0 ? -errno : 0;
}

static int make_loop(HutchClient *client) {
        int r;

        client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (client->wake_fd < 0)
                return -errno;

        r = look_for_descriptors();
        if (r == 0)
                r = uv_loop_init(&client->loop);
        if (r < 0) {
                client->wake_fd = fd_close(client->wake_fd);
                return r;
        }

        r = uv_async_init(&client->loop, &client->alive, NULL);
        if (r == 0) {
                r = channel_hub_new(&client->loop, &client->hub);
                if (r < 0)
                        uv_close((uv_handle_t *) &client->alive, NULL);
        }
        if (r < 0) {
                (void) uv_run(&client->loop, UV_RUN_DEFAULT);
                (void) uv_loop_close(&client->loop);
                client->wake_fd = fd_close(client->wake_fd);
        }
        return r;
}

/* Closes everything, while the loop runs to its end. */
static void close_loop(HutchClient *client) {
        if (client->channel)
                channel_free(client->channel, NULL, NULL);
        channel_hub_free(client->hub);
        uv_close((uv_handle_t *) &client->alive, NULL);
        while (uv_run(&client->loop, UV_RUN_DEFAULT) != 0)
                ;
        (void) uv_loop_close(&client->loop);
        (void) fd_close(client->wake_fd);
        (void) fd_close(client->caller_fd);
        (void) fd_close(client->poke_fd);
}

static int make_tls(const Endpoint *endpoint, TlsContext **ret_context, HutchError *err) {
        const TlsClientOptions tls_options = {
                .ca_file = endpoint->ca_file,
                .certificate_file = endpoint->certificate_file,
                .key_file = endpoint->key_file,
        };

        return tls_context_new_client(&tls_options, ret_context, err);
}

static int make_channel(HutchClient *client, const HutchClientOptions *options, const Endpoint *endpoint,
                        HutchError *err) {
        _cleanup_(tls_context_unrefp) TlsContext *context = NULL;
        ChannelOptions channel_options = channel_options_default;
        SessionLimits limits = session_limits_default;
        int r = 0;

        if (!options->clear_text && !endpoint_is_local(endpoint))
                r = make_tls(endpoint, &context, err);
        if (r < 0)
                return r;

        limits.max_message = REPLY_MAX;
        /* A message is taken when the one before is on its way: the memory of more than one, which are large in
         * uploads, malloc() would give back each time and get anew. */
        limits.high_water = 1;
        channel_options.target = client->address;
        channel_options.tls = context;
        channel_options.server_name = endpoint->server_name;
        if (!endpoint_is_local(endpoint)) {
                channel_options.token = endpoint->token;
                channel_options.get_token = options->get_token;
                channel_options.token_user = options->token_user;
        }
        channel_options.token_in_clear = options->token_in_clear_text;
        channel_options.user_agent = options->user_agent ? options->user_agent : "hutch-c/" HUTCH_VERSION;
        channel_options.limits = &limits;
        return channel_new(client->hub, &channel_options, &client->channel, err);
}

/* Makes a client of @endpoint, whose address it takes over when it succeeds. */
static int client_make(const HutchClientOptions *options, Endpoint *endpoint, HutchClient **ret_client,
                       HutchError *err) {
        HutchClient *client = try_new0(HutchClient, 1);
        int r;

        if (!client)
                return -ENOMEM;

        client->pid = getpid();
        client->caller_fd = client->poke_fd = -1;
        client->address = endpoint->address;
        client->timeout = options->timeout > 0 ? options->timeout : TIMEOUT_DEFAULT;
        client->max_request = REQUEST_MAX;
        (void) pthread_mutex_init(&client->mutex, NULL);
        r = make_loop(client);
        if (r < 0) {
                (void) error_set(err, r, "HOST_EXHAUSTED", "cannot make an event loop: %s", uv_strerror(r));
        } else {
                r = make_channel(client, options, endpoint, err);
                if (r < 0)
                        close_loop(client);
        }
        if (r < 0) {
                (void) pthread_mutex_destroy(&client->mutex);
                free(client);
                return r;
        }

        endpoint->address = NULL;
        *ret_client = client;
        return 0;
}

int hutch_client_new(const HutchClientOptions *options, HutchClient **ret_client, HutchError **ret_error) {
        static const HutchClientOptions defaults;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(endpoint_clear) Endpoint endpoint = {};
        bool started = false;
        int r;

        if (!options)
                options = &defaults;

        r = endpoint_find(options, &endpoint, &failure.error);
        if (r == 0 && options->start_daemon)
                r = endpoint_start_daemon(&endpoint, &started, &failure);
        if (r == 0)
                r = client_make(options, &endpoint, ret_client, &failure.error);
        if (r == 0)
                (*ret_client)->started_daemon = started;
        return failure_tell(&failure, r, ret_error);
}

void hutch_client_free(HutchClient *client) {
        if (!client || !client_is_ours(client))
                return;

        client_lock(client);
        while (client->n_parting > 0) /* each has a deadline */
                lead(client, NULL);
        close_loop(client);
        client_unlock(client);

        (void) pthread_mutex_destroy(&client->mutex);
        free(client->address);
        free(client);
}

const char *hutch_client_address(const HutchClient *client) {
        return client->address;
}

bool hutch_client_started_daemon(const HutchClient *client) {
        return client->started_daemon;
}

const char *hutch_version(void) {
        return HUTCH_VERSION;
}

/* Makes what a program with a loop of its own waits for. */
static int make_caller_fd(HutchClient *client) {
        _cleanup_close_ int caller_fd = epoll_create1(EPOLL_CLOEXEC);
        _cleanup_close_ int poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        struct epoll_event event = { .events = EPOLLIN };

        if (caller_fd < 0 || poke_fd < 0 || epoll_ctl(caller_fd, EPOLL_CTL_ADD, poke_fd, &event) < 0 ||
            epoll_ctl(caller_fd, EPOLL_CTL_ADD, uv_backend_fd(&client->loop), &event) < 0)
                return -errno;

        client->caller_fd = TAKE_FD(caller_fd);
        client->poke_fd = TAKE_FD(poke_fd);
        return 0;
}

int hutch_client_fd(HutchClient *client) {
        int r = 0;

        client_lock(client);
        if (client->caller_fd < 0)
                r = make_caller_fd(client);
        client_unlock(client);
        return r < 0 ? r : client->caller_fd;
}

int hutch_client_timeout(HutchClient *client) {
        int limit;

        client_lock(client);
        limit = client->ready_first ? 0 : wait_limit(client);
        if (client->poke_fd >= 0)
                client->caller_until = wait_end(limit);
        client_unlock(client);
        return limit;
}

void hutch_client_dispatch(HutchClient *client) {
        eventfd_t n;

        client_lock(client);
        client->caller_until = 0;
        if (client->poke_fd >= 0)
                (void) eventfd_read(client->poke_fd, &n);
        client_turn(client);
        client_unlock(client);
}

bool hutch_client_next(HutchClient *client, void **ret_user) {
        HutchCall *call;

        client_lock(client);
        call = client->ready_first;
        if (call) {
                *ret_user = call->user;
                client_forget(call);
        }
        client_unlock(client);
        return call;
}
