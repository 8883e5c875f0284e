/* SPDX-License-Identifier: Apache-2.0 */

/* The server of echo.proto on src/rpc, which the benchmarks compare with others.
 *
 *         echo-server PORT PATH
 *
 * Listens on that port of 127.0.0.1 and on the Unix socket until it is killed. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "base/error.h"
#include "base/memory.h"
#include "echo.pb-c.h"
#include "rpc/core/call.h"
#include "rpc/core/method-table.h"
#include "rpc/server.h"

#define PAYLOAD_MAX (2U << 20)

/* Calls that have ended count until their handlers heard of it, so 100,000 at a time need more. */
#define STREAMS_MAX 1000000

/* A call of Download. */
typedef struct Download {
        Bench__Message message;
        uint8_t *packed; /* room for the message */
} Download;

static void unary(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_free_ uint8_t *packed = NULL;
        Bench__Message *request;

        (void) context;
        request = bench__message__unpack(NULL, len, message);
        if (!request) {
                call_finish(call, STATUS_INVALID_ARGUMENT, "no Message");
                return;
        }

        packed = new0(uint8_t, bench__message__get_packed_size(request) + 1);
        call_reply(call, packed, bench__message__pack(request, packed));
        bench__message__free_unpacked(request, NULL);
}

/* Packs the message anew each time, as a server does that sends different ones. */
static void download_run(Call *call) {
        const Download *download = call_user(call);

        while (call_is_writable(call))
                if (call_send(call, download->packed, bench__message__pack(&download->message, download->packed)) < 0)
                        return;
}

static void download_ended(Call *call, CallEnd how) {
        Download *download = call_user(call);

        (void) how;
        free(download->message.payload.data);
        free(download->packed);
        free(download);
}

static void download(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .writable = download_run, .ended = download_ended };
        Bench__DownloadRequest *request;
        Download *made;

        (void) context;
        request = bench__download_request__unpack(NULL, len, message);
        if (!request || request->size > PAYLOAD_MAX) {
                call_finish(call, STATUS_INVALID_ARGUMENT, "no DownloadRequest, or one of too much");
                return;
        }

        made = new0(Download, 1);
        bench__message__init(&made->message);
        made->message.payload = (ProtobufCBinaryData){ .data = new0(uint8_t, request->size + 1), .len = request->size };
        made->packed = new0(uint8_t, bench__message__get_packed_size(&made->message) + 1);
        bench__download_request__free_unpacked(request, NULL);
        call_set_events(call, &events, made);
        download_run(call);
}

static void hold_message(Call *call, const uint8_t *message, size_t len) {
        (void) message;
        (void) len;
        call_read(call);
}

static void hold_half_closed(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void hold(Call *call, void *context) {
        static const CallEvents events = { .message = hold_message, .half_closed = hold_half_closed };

        (void) context;
        call_set_events(call, &events, NULL);
        call_read(call);
}

static int serve(const char *port, const char *path, HutchError *err) {
        static const Method methods[] = {
                { .path = "/bench.Echo/Unary", .handle = unary },
                { .path = "/bench.Echo/Download", .handle = download },
                { .path = "/bench.Echo/Hold", .start = hold },
        };
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        uv_loop_t *loop = uv_default_loop();
        ServerOptions options = server_options_default;
        Server *server;
        int r;

        options.max_streams = STREAMS_MAX;
        if (!table)
                return -ENOMEM;
        r = method_table_add(table, methods, sizeof(methods) / sizeof(methods[0]));
        if (r < 0)
                return r;
        r = server_new(loop, table, &options, &server);
        if (r < 0)
                return r;
        r = server_listen_tcp(server, "127.0.0.1", (uint16_t) strtoul(port, NULL, 10), NULL, NULL, err);
        if (r < 0)
                return r;
        r = server_listen_unix(server, path, 0600, err);
        if (r < 0)
                return r;

        return uv_run(loop, UV_RUN_DEFAULT);
}

int main(int argc, char *argv[]) {
        HutchError err = { 0 };

        if (argc != 3) {
                fprintf(stderr, "usage: echo-server PORT PATH\n");
                return 2;
        }

        if (serve(argv[1], argv[2], &err) < 0) {
                fprintf(stderr, "echo-server: %s\n", error_message(&err));
                return 1;
        }
        return 0;
}
