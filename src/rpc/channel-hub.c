/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: whose turn it is on a loop with many channels. What does not: what they do then (channel.c). */

#include "rpc/channel-hub.h"

#include <errno.h>
#include <stdlib.h>

#define ROUNDS 16 /* of all that is queued, before the loop has its turn */

void channel_hub_queue(ChannelHub *hub, HubTask *task) {
        if (task->queued)
                return;

        task->queued = true;
        task->next = NULL;
        task->prev = hub->last;
        *(hub->last ? &hub->last->next : &hub->first) = task;
        hub->last = task;
        hub->n_queued++;
}

void channel_hub_dequeue(ChannelHub *hub, HubTask *task) {
        if (!task->queued)
                return;

        task->queued = false;
        *(task->prev ? &task->prev->next : &hub->first) = task->next;
        *(task->next ? &task->next->prev : &hub->last) = task->prev;
        hub->n_queued--;
}

/* Runs what is queued, and what that queues. Returns whether the loop must not wait now. */
static bool run(ChannelHub *hub) {
        bool told = false;

        for (unsigned i = 0; i < ROUNDS && hub->first; i++)
                for (size_t n = hub->n_queued; n > 0 && hub->first; n--) {
                        HubTask *task = hub->first;

                        channel_hub_dequeue(hub, task);
                        told |= task->run(task);
                }

        return told || hub->first;
}

static void on_idle(uv_idle_t *idle) {
        (void) idle;
}

void channel_hub_run(ChannelHub *hub) {
        if (run(hub))
                (void) uv_idle_start(&hub->idle, on_idle);
}

static void on_prepare(uv_prepare_t *prepare) {
        channel_hub_run(prepare->data);
}

static void on_check(uv_check_t *check) {
        ChannelHub *hub = check->data;

        (void) uv_idle_stop(&hub->idle);
        (void) run(hub);
}

int channel_hub_new(uv_loop_t *loop, ChannelHub **ret_hub) {
        ChannelHub *hub = calloc(1, sizeof(*hub));

        if (!hub)
                return -ENOMEM;

        hub->loop = loop;
        hub->prepare.data = hub->check.data = hub->idle.data = hub;
        (void) uv_prepare_init(loop, &hub->prepare);
        (void) uv_prepare_start(&hub->prepare, on_prepare);
        uv_unref((uv_handle_t *) &hub->prepare);
        (void) uv_check_init(loop, &hub->check);
        (void) uv_check_start(&hub->check, on_check);
        uv_unref((uv_handle_t *) &hub->check);
        (void) uv_idle_init(loop, &hub->idle);
        uv_unref((uv_handle_t *) &hub->idle);
        hub->n_open = 3;

        *ret_hub = hub;
        return 0;
}

static void on_closed(uv_handle_t *handle) {
        ChannelHub *hub = handle->data;

        if (--hub->n_open == 0)
                free(hub);
}

static void close_if_unused(ChannelHub *hub) {
        if (!hub->freed || hub->n_channels > 0)
                return;

        uv_close((uv_handle_t *) &hub->prepare, on_closed);
        uv_close((uv_handle_t *) &hub->check, on_closed);
        uv_close((uv_handle_t *) &hub->idle, on_closed);
}

void channel_hub_free(ChannelHub *hub) {
        hub->freed = true;
        close_if_unused(hub);
}

void channel_hub_join(ChannelHub *hub) {
        hub->n_channels++;
}

void channel_hub_leave(ChannelHub *hub) {
        hub->n_channels--;
        close_if_unused(hub);
}

void channel_hub_begin_call(ChannelHub *hub) {
        if (hub->n_calls++ == 0)
                uv_ref((uv_handle_t *) &hub->prepare);
}

void channel_hub_end_call(ChannelHub *hub) {
        if (--hub->n_calls == 0)
                uv_unref((uv_handle_t *) &hub->prepare);
}
