/* SPDX-License-Identifier: Apache-2.0 */

/* Many calls of every kind, and many connections that are dropped when it suits nobody, over a real server and real
 * channels in one process: afterwards memory is as large as before, and no descriptor, stream or byte is left.
 *
 *         test-soak [CALLS [CONNECTIONS]]
 *
 * Memory is not measured under a sanitizer, which keeps what was freed; but it sees leaks. */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/fd.h"
#include "rpc/channel-hub.h"
#include "rpc/channel.h"
#include "rpc/core/call.h"
#include "rpc/core/client-session.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/server.h"

#include "test.h"

#define CHANNELS 4
#define CALLS_AT_ONCE 64 /* of each channel */
#define BATCH 50         /* connections to one server before it is drained and freed */
#define GROWTH_MAX_KIB 4096
#define STALL_MS 20000 /* without progress */

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static size_t calls_wanted = 20000, connections_wanted = 500;
static char folder[] = "/tmp/hutch-soak-XXXXXX";
static char socket_path[64], target[80];
static uint8_t block[100000];

static size_t n_begun, n_over; /* calls of servers */

static size_t resident_kib(void) {
        size_t total, resident = 0;
        FILE *file = fopen("/proc/self/statm", "re");

        assert_non_null(file);
        assert_int_equal(fscanf(file, "%zu %zu", &total, &resident), 2);
        fclose(file);
        return resident * (size_t) sysconf(_SC_PAGESIZE) / 1024;
}

static size_t count_descriptors(void) {
        size_t n = 0;
        DIR *dir = opendir("/proc/self/fd");

        assert_non_null(dir);
        while (readdir(dir))
                n++;
        closedir(dir);
        return n;
}

static void assert_flat(size_t before_kib, size_t after_kib) {
        if (!SANITIZED && after_kib > before_kib + GROWTH_MAX_KIB)
                fail_msg("memory grew from %zu to %zu KiB", before_kib, after_kib);
}

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) context;
        call_set_compression(call, metadata_find(call_metadata(call), "x-compress"));
        call_reply(call, message, len);
}

static void fail_call(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len, (void) context;
        call_finish_details(call, STATUS_NOT_FOUND, "not here", "details", 7);
}

static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) call, (void) message, (void) len, (void) context;
}

/* Sends as fast as the client takes it, as much as it was asked for. */
static void pour_some(Call *call) {
        while (call_is_writable(call)) {
                size_t left = (size_t) (uintptr_t) call_user(call);
                static const CallEvents events = { .writable = pour_some };

                if (left == 0) {
                        call_finish(call, STATUS_OK, NULL);
                        return;
                }
                if (call_send(call, block, 10000) < 0)
                        return;
                call_set_events(call, &events, (void *) (uintptr_t) (left - 1));
        }
}

static void pour(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .writable = pour_some };

        (void) context;
        call_set_events(call, &events, (void *) (uintptr_t) (len > 0 ? message[0] : 0));
        pour_some(call);
}

static void converse_message(Call *call, const uint8_t *message, size_t len) {
        (void) call_send(call, message, len);
        call_read(call);
}

static void converse_end(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void converse(Call *call, void *context) {
        static const CallEvents events = { .message = converse_message, .half_closed = converse_end };

        (void) context;
        call_set_events(call, &events, NULL);
        call_read(call);
}

static void refuse(Call *call, void *context) {
        (void) context;
        call_finish(call, STATUS_RESOURCE_EXHAUSTED, "no more");
}

static const Method methods[] = {
        { .path = "/s.S/Echo", .handle = echo },        { .path = "/s.S/Fail", .handle = fail_call },
        { .path = "/s.S/Hang", .handle = hang },        { .path = "/s.S/Pour", .handle = pour },
        { .path = "/s.S/Converse", .start = converse }, { .path = "/s.S/Refuse", .start = refuse },
};

static int on_begin(Call *call, void *context, HutchError *err) {
        (void) call, (void) context, (void) err;
        n_begun++;
        return 0;
}

static void on_end(Call *call, StatusCode status, CallEnd how, void *context) {
        (void) call, (void) status, (void) how, (void) context;
        n_over++;
}

static const Interceptor interceptor = { .begin = on_begin, .end = on_end };

typedef struct Soak {
        uv_loop_t loop;
        uv_timer_t limit;
        MethodTable *table;
        Server *server;
        ChannelHub *hub;
        Channel *channels[CHANNELS];
        Metadata compress;

        size_t n_started, n_ended;
        ChannelCall *to_cancel; /* when the server has it; NULL: none */
        size_t warm_kib;
} Soak;

static void on_limit(uv_timer_t *timer) {
        Soak *soak = timer->data;

        fail_msg("nothing happens: %zu calls started, %zu ended", soak->n_started, soak->n_ended);
}

static void progress(Soak *soak) {
        assert_int_equal(uv_timer_start(&soak->limit, on_limit, STALL_MS, 0), 0);
}

static void gone(void *user) {
        *(bool *) user = true;
}

static void serve(Soak *soak) {
        ServerOptions options = server_options_default;

        options.interceptors = &interceptor;
        options.n_interceptors = 1;
        assert_int_equal(server_new(&soak->loop, soak->table, &options, &soak->server), 0);
        assert_int_equal(server_listen_unix(soak->server, socket_path, 0600, NULL), 0);
}

static void stop_serving(Soak *soak) {
        bool stopped = false;

        server_free(soak->server, gone, &stopped);
        while (!stopped)
                (void) uv_run(&soak->loop, UV_RUN_ONCE);
}

static Soak *soak_new(void) {
        Soak *soak = new0(Soak, 1);

        assert_int_equal(uv_loop_init(&soak->loop), 0);
        assert_int_equal(uv_timer_init(&soak->loop, &soak->limit), 0);
        soak->limit.data = soak;
        soak->table = method_table_new();
        assert_int_equal(method_table_add(soak->table, methods, sizeof(methods) / sizeof(methods[0])), 0);
        soak->compress.bytes_max = 1024;
        assert_int_equal(metadata_add(&soak->compress, "x-compress", "1", 1), 0);
        n_begun = n_over = 0;
        return soak;
}

static void soak_free(Soak *soak) {
        uv_close((uv_handle_t *) &soak->limit, NULL);
        assert_int_equal(uv_run(&soak->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&soak->loop), 0);
        method_table_free(soak->table);
        metadata_clear(&soak->compress);
        free(soak);
}

/* The kinds of calls: one in so many, and the first that fits is taken. */
typedef struct Kind {
        size_t one_in;
        const char *path;
        size_t n_messages, len;
        uint8_t first;    /* byte of each message */
        bool cancels;     /* when it was sent */
        uint64_t timeout; /* 0: none */
        bool compresses;
        StatusCode code;
        size_t n_answers;
} Kind;

static const Kind kinds[] = {
        { .one_in = 400, .path = "/s.S/Hang", .n_messages = 1, .cancels = true, .code = STATUS_CANCELLED },
        { .one_in = 399,
          .path = "/s.S/Hang",
          .n_messages = 1,
          .timeout = 5 * NSEC_PER_MSEC,
          .code = STATUS_DEADLINE_EXCEEDED },
        { .one_in = 397, .path = "/s.S/Refuse", .n_messages = 1, .code = STATUS_RESOURCE_EXHAUSTED },
        { .one_in = 101, .path = "/s.S/Pour", .n_messages = 1, .len = 1, .first = 20, .n_answers = 20 },
        { .one_in = 97, .path = "/s.S/Converse", .n_messages = 5, .len = 2000, .n_answers = 5 },
        { .one_in = 89, .path = "/s.S/Echo", .n_messages = 1, .len = 5000, .compresses = true, .n_answers = 1 },
        { .one_in = 83, .path = "/s.S/Echo", .n_messages = 1, .len = sizeof(block), .n_answers = 1 },
        { .one_in = 53, .path = "/s.S/Fail", .n_messages = 1, .code = STATUS_NOT_FOUND },
        { .one_in = 51, .path = "/s.S/None", .n_messages = 1, .code = STATUS_UNIMPLEMENTED },
        { .one_in = 1, .path = "/s.S/Echo", .n_messages = 1, .len = 100, .n_answers = 1 },
};

typedef struct Running {
        Soak *soak;
        Channel *channel;
        const Kind *kind;
        size_t n_answers;
} Running;

static void start_call(Soak *soak, Channel *channel);

static void on_message(ChannelCall *call, const uint8_t *message, size_t len) {
        Running *running = channel_call_user(call);

        (void) message, (void) len;
        running->n_answers++;
        channel_call_read(call);
}

static void on_ended(ChannelCall *call, const ClientStatus *status) {
        Running *running = channel_call_user(call);
        Soak *soak = running->soak;

        assert_int_equal(status->code, running->kind->code);
        assert_int_equal(running->n_answers, running->kind->n_answers);
        soak->n_ended++;
        if (soak->n_ended % 1000 == 0)
                progress(soak);
        if (soak->n_ended == calls_wanted / 4)
                soak->warm_kib = resident_kib();

        start_call(soak, running->channel);
        free(running);
}

static void start_call(Soak *soak, Channel *channel) {
        static const ChannelEvents events = { .message = on_message, .ended = on_ended };
        const Kind *kind = kinds;
        Running *running;
        ChannelCall *call;

        if (soak->n_started == calls_wanted)
                return;

        soak->n_started++;
        while (soak->n_started % kind->one_in != 0)
                kind++;
        running = new0(Running, 1);
        *running = (Running){ .soak = soak, .channel = channel, .kind = kind };
        call = channel_call_start(channel,
                                  &(ChannelRequest){
                                          .path = kind->path,
                                          .metadata = kind->compresses ? &soak->compress : NULL,
                                          .deadline = kind->timeout ? uv_hrtime() + kind->timeout : DEADLINE_NONE,
                                          .compresses = kind->compresses,
                                  },
                                  &events, running);
        assert_non_null(call);

        channel_call_read(call);
        block[0] = kind->first;
        for (size_t i = 0; i < kind->n_messages; i++)
                assert_int_equal(channel_call_send(call, block, kind->len), 0);
        if (kind->code != STATUS_RESOURCE_EXHAUSTED)
                channel_call_end(call);
        if (kind->cancels && !soak->to_cancel)
                soak->to_cancel = call;
        else if (kind->cancels)
                channel_call_cancel(call);
}

static void calls_leave_nothing_behind(void **state) {
        size_t descriptors = count_descriptors(), after_kib, turn = 0;
        Soak *soak = soak_new();
        ChannelOptions options = channel_options_default;
        uint64_t begun = uv_hrtime();
        ServerStats stats;

        serve(soak);
        progress(soak);
        options.target = target;
        assert_int_equal(channel_hub_new(&soak->loop, &soak->hub), 0);
        for (size_t i = 0; i < CHANNELS; i++) {
                assert_int_equal(channel_new(soak->hub, &options, &soak->channels[i], NULL), 0);
                for (size_t n = 0; n < CALLS_AT_ONCE; n++)
                        start_call(soak, soak->channels[i]);
        }
        while (soak->n_ended < calls_wanted) {
                (void) uv_run(&soak->loop, UV_RUN_ONCE);
                if (soak->to_cancel && ++turn % 5 == 0)
                        channel_call_cancel(TAKE_PTR(soak->to_cancel));
        }
        after_kib = resident_kib();
        print_message("%zu calls in %.1f s, resident memory %zu KiB after a quarter, %zu KiB at the end\n",
                      calls_wanted, (double) (uv_hrtime() - begun) / (double) NSEC_PER_SEC, soak->warm_kib, after_kib);

        /* The last cancelled calls may be under way still. */
        do {
                (void) uv_run(&soak->loop, UV_RUN_NOWAIT);
                stats = server_stats(soak->server);
        } while (stats.streams > 0);
        assert_int_equal(stats.buffered, 0);
        assert_int_equal(stats.connections, CHANNELS);
        assert_int_equal(n_begun, n_over);
        assert_flat(soak->warm_kib, after_kib);

        for (size_t i = 0; i < CHANNELS; i++)
                channel_free(soak->channels[i], NULL, NULL);
        channel_hub_free(soak->hub);
        stop_serving(soak);
        soak_free(soak);
        assert_int_equal(count_descriptors(), descriptors);
}

/* What a client says that asks for more than a socket holds, and sends a long message besides. */
typedef struct Script {
        uint8_t bytes[65536];
        size_t len;
} Script;

static void script_write(Script *script) {
        static const ClientEvents events;
        const ClientIdentity identity = { .authority = "localhost", .user_agent = "soak" };
        ClientSession *session = client_session_new(&identity, &session_limits_default, 1);
        const char *const paths[] = { "/s.S/Pour", "/s.S/Hang", "/s.S/Converse" };
        static const uint8_t much = 255;
        ssize_t n;

        assert_non_null(session);
        for (size_t i = 0; i < 3; i++) {
                ClientCall *call = client_call_start(
                        session, &(ClientRequest){ .path = paths[i], .deadline = DEADLINE_NONE }, &events, NULL);

                assert_non_null(call);
                assert_int_equal(i < 2 ? client_call_send(call, &much, 1) : client_call_send(call, block, 30000), 0);
                if (i < 2)
                        client_call_end(call);
        }
        while ((n = session_produce(client_session_base(session), script->bytes + script->len,
                                    sizeof(script->bytes) - script->len)) > 0)
                script->len += (size_t) n;
        client_session_free(session);
}

static int dial(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        memcpy(address.sun_path, socket_path, strlen(socket_path));
        assert_int_equal(connect(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
        return fd;
}

static void turns(Soak *soak, size_t n) {
        while (n-- > 0)
                (void) uv_run(&soak->loop, UV_RUN_NOWAIT);
}

/* How much of the script connection @i sends: nothing, a bit of the preface, of the headers, of the message, all. */
static size_t cut(const Script *script, size_t i) {
        switch (i % 5) {
        case 0:
                return 0;
        case 1:
                return i % 24;
        case 2:
                return 24 + i % 200;
        case 3:
                return script->len - 1 - i % 20000;
        default:
                return script->len;
        }
}

/* Connections in all states; a third is dropped at once, a third while the server writes, a third while it drains. */
static void run_batch(Soak *soak, const Script *script, size_t base) {
        int fds[BATCH];
        uint8_t buffer[4096];
        bool drained = false;

        serve(soak);
        for (size_t i = 0; i < BATCH; i++) {
                size_t len = cut(script, base + i);

                fds[i] = dial();
                if (len > 0)
                        assert_int_equal(send(fds[i], script->bytes, len, MSG_NOSIGNAL), len);
                turns(soak, i % 3);
                if (i % 3 == 0)
                        fds[i] = fd_close(fds[i]);
        }
        turns(soak, 3);
        for (size_t i = 1; i < BATCH; i += 3) {
                if (i % 2 == 0)
                        (void) recv(fds[i], buffer, 1 + (base + i) % sizeof(buffer), 0);
                turns(soak, 1);
                fds[i] = fd_close(fds[i]);
        }

        server_drain(soak->server, 5 * NSEC_PER_MSEC, gone, &drained);
        for (size_t i = 2; i < BATCH; i += 3) {
                if (i % 2 == 0)
                        (void) recv(fds[i], buffer, 1 + (base + i) % sizeof(buffer), 0);
                turns(soak, i % 2);
                if (i % 4 > 0)
                        fds[i] = fd_close(fds[i]);
        }
        while (!drained)
                (void) uv_run(&soak->loop, UV_RUN_ONCE);
        assert_int_equal(server_stats(soak->server).connections, 0);
        assert_int_equal(server_stats(soak->server).streams, 0);
        assert_int_equal(server_stats(soak->server).buffered, 0);
        for (size_t i = 0; i < BATCH; i++)
                fds[i] = fd_close(fds[i]);
        stop_serving(soak);
        assert_int_equal(n_begun, n_over);
}

static void dropped_connections_leave_nothing_behind(void **state) {
        static Script script;
        size_t descriptors = count_descriptors(), warm_kib = 0, after_kib, n = 0;
        Soak *soak = soak_new();
        uint64_t begun = uv_hrtime();

        script_write(&script);
        for (; n < connections_wanted; n += BATCH) {
                progress(soak);
                run_batch(soak, &script, n);
                if (warm_kib == 0 && n >= connections_wanted / 4)
                        warm_kib = resident_kib();
        }
        after_kib = resident_kib();
        print_message("%zu connections and %zu calls dropped in %.1f s, resident memory %zu KiB after a quarter, "
                      "%zu KiB at the end\n",
                      n, n_begun, (double) (uv_hrtime() - begun) / (double) NSEC_PER_SEC, warm_kib, after_kib);
        assert_true(n_begun > 0);
        assert_flat(warm_kib, after_kib);

        soak_free(soak);
        assert_int_equal(count_descriptors(), descriptors);
}

/* libuv keeps two descriptors for the process from its first loop on. */
static void warm_up(void) {
        uv_loop_t loop;

        if (uv_loop_init(&loop) == 0)
                (void) uv_loop_close(&loop);
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(calls_leave_nothing_behind),
                cmocka_unit_test(dropped_connections_leave_nothing_behind),
        };
        int r;

        if (argc > 1)
                calls_wanted = strtoul(argv[1], NULL, 10);
        if (argc > 2)
                connections_wanted = strtoul(argv[2], NULL, 10);
        if (!mkdtemp(folder))
                return EXIT_FAILURE;
        warm_up();
        snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
        snprintf(target, sizeof(target), "unix:%s", socket_path);

        r = cmocka_run_group_tests_name("soak", tests, NULL, NULL);
        (void) rmdir(folder);
        return r;
}
