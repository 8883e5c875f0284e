/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "rpc/socket.h"

/* Hubs: what all channels of one event loop share, so that a channel with nothing to do costs no time and little
 * memory. One per loop:
 *
 *         r = channel_hub_new(&loop, &hub);
 *         r = channel_new(hub, &options, &channel, err);
 *         …
 *         channel_free(channel, NULL, NULL);
 *         channel_hub_free(hub);
 *         uv_run(&loop, UV_RUN_DEFAULT);
 *
 * A hub runs the channels that have something to do: after the loop has waited, so that who runs it once returns with
 * what came, and before it waits again, for what was asked meanwhile. */

typedef struct ChannelHub ChannelHub;
typedef struct HubTask HubTask;

/* -ENOMEM. */
int channel_hub_new(uv_loop_t *loop, ChannelHub **ret_hub) __attribute__((nonnull));

/* Frees @hub, while the loop runs on, when the last of its channels is gone. */
void channel_hub_free(ChannelHub *hub) __attribute__((nonnull));

/* Runs them now: what was asked goes out before the caller does something that takes time. Not from within an event of
 * a channel. */
void channel_hub_run(ChannelHub *hub) __attribute__((nonnull));

/* The rest is for channel.c and link.c. */

#define HUB_OUTPUT_SIZE ((size_t) 256 << 10)

/* Something that has something to do now and then. Whoever it is embeds it. */
struct HubTask {
        /* Does it. Returns whether callers heard something: they may want to act on it before the loop waits. */
        bool (*run)(HubTask *task);
        HubTask *prev, *next; /* of the queue */
        bool queued;
};

struct ChannelHub {
        uv_loop_t *loop;
        uv_prepare_t prepare;
        uv_check_t check;
        uv_idle_t idle; /* active: the loop does not wait */
        unsigned n_open;
        HubTask *first, *last; /* those to run */
        size_t n_queued;
        size_t n_channels;
        size_t n_calls;
        bool freed;

        /* Buffers for whoever is at work. */
        SocketScratch scratch;
        uint8_t output[HUB_OUTPUT_SIZE];
};

/* A channel of @hub begins and ends; the hub lives as long. */
void channel_hub_join(ChannelHub *hub) __attribute__((nonnull));
void channel_hub_leave(ChannelHub *hub) __attribute__((nonnull));

/* A call begins and ends. While there are any, the loop goes on. */
void channel_hub_begin_call(ChannelHub *hub) __attribute__((nonnull));
void channel_hub_end_call(ChannelHub *hub) __attribute__((nonnull));

/* @task has something to do; or not any more. */
void channel_hub_queue(ChannelHub *hub, HubTask *task) __attribute__((nonnull));
void channel_hub_dequeue(ChannelHub *hub, HubTask *task) __attribute__((nonnull));
