/* SPDX-License-Identifier: Apache-2.0 */

/* Reads one call of Download with the client of src/rpc for a while, and prints how many bytes came in a second.
 *
 *         stream-client PATH SIZE SECONDS */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "echo.pb-c.h"
#include "rpc/channel-hub.h"
#include "rpc/channel.h"

typedef struct Reader {
        Channel *channel;
        uint64_t started; /* when the first message came; 0: none has */
        uint64_t duration;
        uint64_t bytes; /* after the first message */
        bool measured;
} Reader;

static void on_message(ChannelCall *call, const uint8_t *message, size_t len) {
        Reader *reader = channel_call_user(call);
        Bench__Message *unpacked = bench__message__unpack(NULL, len, message);
        uint64_t now = uv_hrtime();

        if (!unpacked) {
                channel_call_cancel(call);
                return;
        }
        if (reader->started == 0)
                reader->started = now;
        else
                reader->bytes += unpacked->payload.len;
        bench__message__free_unpacked(unpacked, NULL);

        if (now - reader->started < reader->duration) {
                channel_call_read(call);
                return;
        }
        printf("%.0f\n", (double) reader->bytes * NSEC_PER_SEC / (double) (now - reader->started));
        reader->measured = true;
        channel_call_cancel(call);
}

static void on_ended(ChannelCall *call, const ClientStatus *status) {
        Reader *reader = channel_call_user(call);

        if (!reader->measured)
                fprintf(stderr, "stream-client: the call ended with status %d\n", (int) status->code);
        channel_free(reader->channel, NULL, NULL);
}

static int measure(const char *path, uint32_t size, uint64_t duration, Reader *reader, HutchError *err) {
        static const ChannelEvents events = { .message = on_message, .ended = on_ended };
        Bench__DownloadRequest request = BENCH__DOWNLOAD_REQUEST__INIT;
        ChannelOptions options = channel_options_default;
        uv_loop_t *loop = uv_default_loop();
        ChannelHub *hub;
        char target[256];
        uint8_t packed[16];
        ChannelCall *call;
        int r;

        (void) snprintf(target, sizeof(target), "unix:%s", path);
        options.target = target;
        reader->duration = duration;
        r = channel_hub_new(loop, &hub);
        if (r < 0)
                return error_set(err, r, "HOST_EXHAUSTED", "no memory for a channel");
        r = channel_new(hub, &options, &reader->channel, err);
        channel_hub_free(hub); /* with its channel */
        if (r < 0)
                return r;

        request.size = size;
        call = channel_call_start(reader->channel,
                                  &(ChannelRequest){ .path = "/bench.Echo/Download",
                                                     .deadline = uv_hrtime() + duration + 10 * NSEC_PER_SEC },
                                  &events, reader);
        if (!call)
                return -ENOMEM;
        (void) channel_call_send(call, packed, bench__download_request__pack(&request, packed));
        channel_call_end(call);
        channel_call_read(call);
        return uv_run(loop, UV_RUN_DEFAULT);
}

int main(int argc, char *argv[]) {
        HutchError err = { 0 };
        Reader reader = { 0 };

        if (argc != 4) {
                fprintf(stderr, "usage: stream-client PATH SIZE SECONDS\n");
                return 2;
        }

        if (measure(argv[1], (uint32_t) strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10) * NSEC_PER_SEC, &reader,
                    &err) < 0) {
                fprintf(stderr, "stream-client: %s\n", error_message(&err));
                return 1;
        }
        return reader.measured ? 0 : 1;
}
