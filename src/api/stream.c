/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what calls that go on have in common: they are counted, can be ended all at once, and fail in one
 * way. What does not: what they send (watch.c, exec-stream.c, run-command.c). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/service.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"

#define TICK_MS 5000

struct CallerStreams {
        CallerStreams *next;
        char name[CALLER_NAME_SIZE];
        uint32_t n;
};

static CallerStreams *find_caller(Api *api, const char *name) {
        CallerStreams *streams = api->caller_streams;

        while (streams && !str_equal(streams->name, name))
                streams = streams->next;
        if (streams)
                return streams;

        streams = new0(CallerStreams, 1);
        memcpy(streams->name, name, strlen(name) + 1);
        streams->next = api->caller_streams;
        api->caller_streams = streams;
        return streams;
}

static void drop_caller(Api *api, CallerStreams *streams) {
        CallerStreams **at = &api->caller_streams;

        while (*at != streams)
                at = &(*at)->next;
        *at = streams->next;
        free(streams);
}

static void tick(uv_timer_t *timer) {
        Api *api = timer->data;
        uint64_t now = clock_monotonic_ns();

        for (ApiStream *stream = api->streams; stream; stream = stream->next)
                if (stream->tick && !stream->finished)
                        stream->tick(stream, now);
}

int api_stream_begin(ApiStream *stream, Api *api, Call *call, const Caller *caller, bool counted, HutchError *err) {
        uint32_t max = api->limits.streams_per_caller;

        if (api->shut_down)
                return reason_set(err, -ECONNREFUSED, REASON_DRAINING, "the daemon is shutting down; try again");

        if (counted) {
                CallerStreams *streams = find_caller(api, caller->name);

                if (max > 0 && streams->n >= max) {
                        (void) reason_set(err, -EMFILE, REASON_TOO_MANY_STREAMS,
                                          "%u streams are open already: close some, streams_per_caller is %u",
                                          streams->n, max);
                        error_add_pair(err, "limit", "streams_per_caller");
                        error_add_pair(err, "value", "%u", max);
                        return -EMFILE;
                }
                streams->n++;
                stream->counted = streams;
        }

        if (!api->streams)
                (void) uv_timer_start(&api->timer, tick, TICK_MS, TICK_MS);
        stream->api = api;
        stream->call = call;
        stream->next = api->streams;
        if (stream->next)
                stream->next->prev = stream;
        api->streams = stream;
        return 0;
}

void api_stream_end_of_call(ApiStream *stream) {
        Api *api = stream->api;

        if (stream->prev)
                stream->prev->next = stream->next;
        else
                api->streams = stream->next;
        if (stream->next)
                stream->next->prev = stream->prev;
        if (!api->streams)
                (void) uv_timer_stop(&api->timer);

        if (stream->counted && --stream->counted->n == 0)
                drop_caller(api, stream->counted);
}

void api_stream_fail(ApiStream *stream, const HutchError *err) {
        if (stream->finished)
                return;

        stream->finished = true;
        api_fail(stream->call, err, NULL);
}

void api_stream_finish(ApiStream *stream) {
        if (stream->finished)
                return;

        stream->finished = true;
        call_finish(stream->call, STATUS_OK, NULL);
}

static void fail_out_of_memory(ApiStream *stream) {
        _cleanup_(error_clear) HutchError err = {};

        (void) reason_set(&err, -ENOMEM, REASON_HOST_EXHAUSTED, "the daemon is out of memory");
        api_stream_fail(stream, &err);
}

void api_stream_send_bytes(ApiStream *stream, const void *bytes, size_t len) {
        int r = stream->finished ? -EPIPE : call_send(stream->call, bytes, len);

        if (r < 0 && r != -EPIPE)
                fail_out_of_memory(stream);
}

void api_stream_send_taken(ApiStream *stream, uint8_t *bytes, size_t len) {
        _cleanup_free_ uint8_t *taken = bytes;
        int r = stream->finished ? -EPIPE : call_send_taken(stream->call, TAKE_PTR(taken), len);

        if (r < 0 && r != -EPIPE)
                fail_out_of_memory(stream);
}

void api_stream_put(ApiStream *stream, const WireBuffer *buffer) {
        if (buffer->failed)
                fail_out_of_memory(stream);
        else
                api_stream_send_bytes(stream, buffer->bytes, buffer->len);
}

void api_shut_down(Api *api) {
        _cleanup_(error_clear) HutchError err = {};

        api->shut_down = true;
        (void) reason_set(&err, -ECONNREFUSED, REASON_DRAINING, "the daemon is shutting down; connect again");
        for (ApiStream *stream = api->streams; stream; stream = stream->next)
                api_stream_fail(stream, &err);
}
