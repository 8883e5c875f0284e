/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <pthread.h>
#include <sys/types.h>
#include <uv.h>

#include "rpc/channel-hub.h"
#include "rpc/channel.h"

/* Clients: a loop with one channel, which whoever waits runs.
 *
 * The client has no thread. All of it is behind its mutex. Of the threads that wait one leads: it waits for the loop's
 * descriptor, without the mutex, and then runs the loop; the others follow, each waiting to be told. Whoever changes
 * something runs the loop at once, which waits for nothing. What others wait for may be taken from the loop so: then
 * they are woken, each by a descriptor of its own, which nobody else reads. A program with a loop of its own waits
 * beside the leader, in the same way. */

typedef struct Waiter Waiter; /* a thread that waits for something about a call */
typedef struct Failure Failure;

struct HutchClient {
        pthread_mutex_t mutex;
        pid_t pid; /* of the process that made it: after a fork() the child leaves it alone */

        uv_loop_t loop;
        uv_async_t alive; /* never sent: with it the loop runs also where there is no connection */
        ChannelHub *hub;
        Channel *channel;

        Waiter *waiters;
        Waiter *leader;        /* of these, who waits for the loop's descriptor */
        int wake_fd;           /* an eventfd, which only the leader reads: it ends its wait */
        uint64_t leader_until; /* milliseconds of uv_hrtime(): when the leader looks again by itself */

        /* For a program with a loop of its own. */
        int caller_fd;         /* that it waits for: can be read when the loop's descriptor or @poke_fd can; -1: none */
        int poke_fd;           /* an eventfd, which only hutch_client_dispatch() reads; -1: none */
        uint64_t caller_until; /* as @leader_until; 0: it does not wait, or was poked */

        HutchCall *ready_first, *ready_last; /* have news for hutch_client_next() */
        size_t n_parting;                    /* calls that are to be finished though nobody waits for them */

        char *address;
        bool started_daemon;
        uint64_t timeout;   /* of a call with one message each way */
        size_t max_request; /* bytes of a message */
        uint64_t max_file;  /* bytes of a file or archive; 0: not known */
        bool asked_limits;  /* the daemon, for these */
};

/* Tells whether this process made @client. */
bool client_is_ours(const HutchClient *client) __attribute__((nonnull));

static inline void client_lock(HutchClient *client) {
        (void) pthread_mutex_lock(&client->mutex);
}

static inline void client_unlock(HutchClient *client) {
        (void) pthread_mutex_unlock(&client->mutex);
}

/* The rest is called with the mutex held. */

/* Does what can be done now: after anything was asked of the channel. */
void client_turn(HutchClient *client) __attribute__((nonnull));

/* Waits until @done says so of @call. */
void client_wait(HutchCall *call, bool (*done)(const HutchCall *call)) __attribute__((nonnull));

/* @call has news: tells those who wait for it. */
void client_tell(HutchCall *call) __attribute__((nonnull));

/* @call will have no news any more. */
void client_forget(HutchCall *call) __attribute__((nonnull));

/* The moment @timeout from now, as channels take it: 0 is the client's own, HUTCH_FOREVER never. */
uint64_t client_deadline(const HutchClient *client, uint64_t timeout) __attribute__((nonnull));
