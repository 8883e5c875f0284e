/* SPDX-License-Identifier: Apache-2.0 */

/* A server and its clients on one thread: the loop runs a step, then each client sends and receives what it can. */

#include "rpc/server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strings.h"
#include "rpc/core/method-table.h"
#include "rpc/tls.h"

#include "certificates.h"
#include "fail-alloc.h"
#include "h2-client.h"
#include "test.h"

#define PATIENCE (60 * NSEC_PER_SEC)
#define MESSAGE_LEN ((size_t) 64 << 10)
#define N_CLIENTS_MAX 300

static char dir[] = "/tmp/hutch-test-server-XXXXXX";

typedef struct Fixture {
        uv_loop_t loop;
        MethodTable *methods;
        ServerOptions options;
        SessionLimits limits;
        Server *server;
        char path[100];
        H2Client *clients[N_CLIENTS_MAX];
        size_t n_clients;

        /* What the handlers saw and do. */
        Call *call; /* the latest that was not answered */
        size_t n_calls;
        size_t n_ended;
        CallEnd how;
        size_t n_sent, n_to_send; /* messages of a stream */
        size_t n_bytes;
        size_t n_flushes;
        uint64_t sent_before; /* bytes, when the first handler ran since the flush before */
        bool unflushed;
        bool unsent; /* an answer was given, and before_send() was not called since */
        bool answers_at_flush;
        bool frees_server;
        size_t n_failures;
        char failure[ERROR_REASON_MAX + 1];
        bool drained, freed;
        uv_timer_t timer;
} Fixture;

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        Fixture *f = context;

        f->n_calls++;
        if (!f->unflushed)
                f->sent_before = server_stats(f->server).sent_bytes;
        f->unflushed = f->unsent = true;
        call_reply(call, message, len);
}

static void on_hanging_ended(Call *call, CallEnd how) {
        Fixture *f = call_user(call);

        f->n_ended++;
        f->how = how;
        f->call = NULL;
}

/* Does not answer. */
static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .ended = on_hanging_ended };
        Fixture *f = context;

        f->n_calls++;
        f->call = call;
        call_set_events(call, &events, f);
        if (f->frees_server)
                server_free(f->server, NULL, NULL);
}

static void send_messages(Call *call) {
        static uint8_t message[MESSAGE_LEN];
        Fixture *f = call_user(call);

        while (f->n_sent < f->n_to_send && call_is_writable(call)) {
                memset(message, (int) f->n_sent, sizeof(message));
                assert_int_equal(call_send(call, message, sizeof(message)), 0);
                f->n_sent++;
        }
        if (f->n_sent == f->n_to_send)
                call_finish(call, STATUS_OK, NULL);
}

/* Sends many messages, as fast as the peer takes them. */
static void flood(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .writable = send_messages, .ended = on_hanging_ended };

        call_set_events(call, &events, context);
        send_messages(call);
}

static void count_message(Call *call, const uint8_t *message, size_t len) {
        Fixture *f = call_user(call);

        f->n_bytes += len;
        call_read(call);
}

static void reply_count(Call *call) {
        Fixture *f = call_user(call);
        char text[32];

        snprintf(text, sizeof(text), "%zu", f->n_bytes);
        call_reply(call, text, strlen(text));
}

static void collect(Call *call, void *context) {
        static const CallEvents events = { .message = count_message, .half_closed = reply_count };

        call_set_events(call, &events, context);
        call_read(call);
}

static void describe_peer(Call *call, const uint8_t *message, size_t len, void *context) {
        const Peer *peer = call_peer(call);
        char text[256];

        snprintf(text, sizeof(text), "%s%s%s uid %d%s", peer->address, peer->encrypted ? " encrypted " : "",
                 peer->certificate_subject ? peer->certificate_subject : "",
                 peer->has_credentials ? (int) peer->uid : -1,
                 peer->has_credentials && peer->pid == getpid() ? " own" : "");
        call_reply(call, text, strlen(text));
}

static void before_flush(void *user) {
        Fixture *f = user;

        f->n_flushes++;
        if (f->unflushed)
                assert_int_equal(server_stats(f->server).sent_bytes, f->sent_before);
        f->unflushed = false;
        if (f->answers_at_flush && f->call) {
                call_reply(f->call, "flushed", 7);
                f->call = NULL;
        }
}

static void before_send(void *user) {
        Fixture *f = user;

        if (f->unsent)
                assert_int_equal(server_stats(f->server).sent_bytes, f->sent_before);
        f->unsent = false;
}

static void connection_failed(const Peer *peer, const HutchError *err, void *user) {
        Fixture *f = user;

        assert_non_null(peer->address);
        f->n_failures++;
        memcpy(f->failure, err->reason, sizeof(f->failure));
}

static int set_up(void **state) {
        Fixture *f = new0(Fixture, 1);
        const Method methods[] = {
                { .path = "/test.Echo/Echo", .handle = echo, .context = f },
                { .path = "/test.Echo/Hang", .handle = hang, .context = f },
                { .path = "/test.Echo/Flood", .handle = flood, .context = f },
                { .path = "/test.Echo/Collect", .start = collect, .context = f },
                { .path = "/test.Echo/Peer", .handle = describe_peer, .context = f },
        };
        static Method kept[sizeof(methods) / sizeof(methods[0])];

        memcpy(kept, methods, sizeof(methods));
        f->methods = method_table_new();
        assert_non_null(f->methods);
        assert_int_equal(method_table_add(f->methods, kept, sizeof(kept) / sizeof(kept[0])), 0);
        assert_int_equal(uv_loop_init(&f->loop), 0);
        assert_int_equal(uv_timer_init(&f->loop, &f->timer), 0);
        f->timer.data = f;
        f->limits = session_limits_default;
        f->options = server_options_default;
        f->options.limits = &f->limits;
        f->options.before_flush = before_flush;
        f->options.before_send = before_send;
        f->options.connection_failed = connection_failed;
        f->options.user = f;
        snprintf(f->path, sizeof(f->path), "%s/server.sock", dir);
        (void) unlink(f->path); /* a test that failed may have left it */
        *state = f;
        return 0;
}

/* Starts the server with the options of @f, on a Unix socket. */
static void start(Fixture *f) {
        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), 0);
        assert_int_equal(server_listen_unix(f->server, f->path, 0600, NULL), 0);
}

/* After which the server does something by itself, and before which a test comes to what it does first, also on a host
 * that stalls. Where allocations fail, tests may, too. */
static uint64_t a_while(void) {
        return (getenv("HUTCH_FAIL_ALLOC") ? 100 : 1500) * NSEC_PER_MSEC;
}

/* One step of the loop and of all clients. */
static void step(Fixture *f) {
        bool moved = false;

        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        for (size_t i = 0; i < f->n_clients; i++)
                if (f->clients[i])
                        moved |= h2_client_pump(f->clients[i]);
        if (!moved)
                usleep(100);
}

#define RUN_UNTIL(f, condition)                                                                                        \
        do {                                                                                                           \
                uint64_t give_up_at = clock_monotonic_ns() + PATIENCE;                                                 \
                while (!(condition)) {                                                                                 \
                        assert_true(clock_monotonic_ns() < give_up_at);                                                \
                        step(f);                                                                                       \
                }                                                                                                      \
        } while (0)

/* Sends a ping, past nghttp2. Returns whether the socket took it. */
static bool send_ping(H2Client *client) {
        static const uint8_t ping[] = "\0\0\10\6\0\0\0\0\0abcdefgh";

        return send(client->fd, ping, sizeof(ping) - 1, MSG_NOSIGNAL) == sizeof(ping) - 1;
}

/* Answers the call that hangs with @len bytes. */
static void reply_much(Fixture *f, size_t len) {
        _cleanup_free_ uint8_t *message = new0(uint8_t, len);

        call_reply(f->call, message, len);
}

/* Lets everything that is under way come to its end. */
static void settle(Fixture *f) {
        for (int i = 0; i < 100; i++)
                step(f);
}

static void on_drained(void *user) {
        Fixture *f = user;

        f->drained = true;
}

static void on_freed(void *user) {
        Fixture *f = user;

        f->freed = true;
        f->server = NULL;
}

static int tear_down(void **state) {
        Fixture *f = *state;

        if (f->server) {
                server_free(f->server, on_freed, f);
                RUN_UNTIL(f, f->freed);
        }
        uv_close((uv_handle_t *) &f->timer, NULL);
        for (size_t i = 0; i < f->n_clients; i++)
                if (f->clients[i])
                        h2_client_free(f->clients[i]);
        (void) uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&f->loop), 0);
        assert_int_equal(access(f->path, F_OK), -1);
        method_table_free(f->methods);
        free(f);
        return 0;
}

static H2Client *add_client(Fixture *f, int fd, TlsContext *tls) {
        assert_true(f->n_clients < N_CLIENTS_MAX);
        return f->clients[f->n_clients++] = h2_client_new(fd, tls);
}

static H2Client *connect_client(Fixture *f) {
        return add_client(f, h2_connect_unix(f->path), NULL);
}

/* The client vanishes. */
static void drop_client(Fixture *f, H2Client *client) {
        for (size_t i = 0; i < f->n_clients; i++)
                if (f->clients[i] == client)
                        f->clients[i] = NULL;
        h2_client_free(client);
}

/* A fresh client is served. */
static void assert_serves(Fixture *f) {
        H2Client *client = connect_client(f);
        H2Stream *stream = h2_client_call_unary(client, "/test.Echo/Echo", "still there?");

        RUN_UNTIL(f, h2_stream_is_answered(stream, "still there?"));
        drop_client(f, client);
}

static void unary_calls_are_answered(void **state) {
        Fixture *f = *state;
        H2Client *client;
        H2Stream *streams[10];
        ServerStats stats;

        start(f);
        client = connect_client(f);
        for (size_t i = 0; i < 10; i++)
                streams[i] = h2_client_call_unary(client, "/test.Echo/Echo", "hello");
        for (size_t i = 0; i < 10; i++)
                RUN_UNTIL(f, h2_stream_is_answered(streams[i], "hello"));

        assert_string_equal(streams[0]->http_status, "200");
        settle(f);
        stats = server_stats(f->server);
        assert_int_equal(stats.connections, 1);
        assert_int_equal(stats.accepted_connections, 1);
        assert_int_equal(stats.calls, 10);
        assert_int_equal(stats.streams, 0);
        assert_int_equal(stats.buffered, 0);
        assert_int_equal(stats.sent_bytes, client->received);
        assert_true(stats.received_bytes > 10 * strlen("hello"));
}

static void peers_are_known(void **state) {
        Fixture *f = *state;
        char expected[64];
        H2Stream *stream;
        H2Client *client;
        uint16_t port = 0;

        start(f);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", 0, NULL, &port, NULL), 0);
        assert_true(port > 0);

        snprintf(expected, sizeof(expected), "unix uid %d own", (int) getuid());
        stream = h2_client_call_unary(connect_client(f), "/test.Echo/Peer", "");
        RUN_UNTIL(f, h2_stream_is_answered(stream, expected));

        client = add_client(f, h2_connect_tcp(port), NULL);
        stream = h2_client_call_unary(client, "/test.Echo/Peer", "");
        RUN_UNTIL(f, stream->closed);
        assert_true(stream->len > 5);
        assert_memory_equal(stream->data + 5, "127.0.0.1:", 10);
        assert_memory_equal(stream->data + stream->len - 7, " uid -1", 7);
}

static void answer_later(uv_timer_t *timer) {
        Fixture *f = timer->data;

        call_reply(f->call, "later", 5);
        f->call = NULL;
}

static void answers_may_come_later(void **state) {
        Fixture *f = *state;
        H2Stream *stream;

        start(f);
        stream = h2_client_call_unary(connect_client(f), "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        settle(f);
        assert_false(stream->closed);

        assert_int_equal(uv_timer_start(&f->timer, answer_later, 1, 0), 0);
        RUN_UNTIL(f, h2_stream_is_answered(stream, "later"));
        RUN_UNTIL(f, f->n_ended == 1);
        assert_int_equal(f->how, CALL_END_FINISHED);
}

static void the_flush_is_announced_and_may_answer(void **state) {
        Fixture *f = *state;
        H2Stream *stream;

        f->answers_at_flush = true;
        start(f);
        stream = h2_client_call_unary(connect_client(f), "/test.Echo/Hang", "");
        RUN_UNTIL(f, h2_stream_is_answered(stream, "flushed"));
        assert_true(f->n_flushes > 0);
}

static void what_is_sent_is_announced(void **state) {
        Fixture *f = *state;
        H2Stream *stream;

        start(f);
        stream = h2_client_call_unary(connect_client(f), "/test.Echo/Echo", "x");
        RUN_UNTIL(f, f->n_calls == 1);
        RUN_UNTIL(f, h2_stream_is_answered(stream, "x"));
        assert_false(f->unsent);
}

/* Nobody is called while nothing happens. */
static void idle_connections_cost_nothing(void **state) {
        Fixture *f = *state;
        size_t n_flushes;

        start(f);
        for (int i = 0; i < 10; i++)
                h2_client_call_unary(connect_client(f), "/test.Echo/Echo", "x");
        RUN_UNTIL(f, f->n_calls == 10);
        settle(f);
        n_flushes = f->n_flushes;
        settle(f);
        assert_int_equal(f->n_flushes, n_flushes);
        assert_int_not_equal(uv_backend_timeout(&f->loop), 0);
}

static void a_slow_reader_holds_up_its_stream_only(void **state) {
        Fixture *f = *state;
        H2Client *slow;
        H2Stream *stream;
        size_t n_sent;

        f->n_to_send = 1000;
        start(f);
        slow = connect_client(f);
        stream = h2_client_call_unary(slow, "/test.Echo/Flood", "");
        RUN_UNTIL(f, f->n_sent > 0);
        slow->reading = false;
        settle(f);
        n_sent = f->n_sent;

        /* No more than the high water, and what the kernel and the peer's window take. */
        assert_true(n_sent * MESSAGE_LEN < f->limits.high_water + ((size_t) 1 << 20));
        assert_serves(f);
        assert_int_equal(f->n_sent, n_sent);

        slow->reading = true;
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->grpc_status, 0);
        assert_int_equal(stream->len, 1000 * (MESSAGE_LEN + 5));
        for (size_t i = 0; i < 1000; i++)
                assert_int_equal(stream->data[i * (MESSAGE_LEN + 5) + 5 + i], i % 256);
}

/* The server may send as much as it likes. */
static void open_windows(H2Client *client) {
        static const nghttp2_settings_entry setting = { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, INT32_MAX };

        assert_int_equal(nghttp2_submit_settings(client->http2, NGHTTP2_FLAG_NONE, &setting, 1), 0);
        assert_int_equal(nghttp2_submit_window_update(client->http2, NGHTTP2_FLAG_NONE, 0, 1 << 30), 0);
}

/* The peer grants windows, but does not read: only the socket holds the server up. */
static void a_full_socket_holds_up_the_server(void **state) {
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;
        size_t n_sent;

        f->n_to_send = 1000;
        start(f);
        client = connect_client(f);
        open_windows(client);
        stream = h2_client_call_unary(client, "/test.Echo/Flood", "");
        RUN_UNTIL(f, f->n_sent > 0);
        client->reading = false;
        settle(f);
        n_sent = f->n_sent;
        settle(f);
        assert_int_equal(f->n_sent, n_sent);
        assert_true(n_sent * MESSAGE_LEN < f->limits.high_water + ((size_t) 2 << 20));

        client->reading = true;
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->len, 1000 * (MESSAGE_LEN + 5));
}

/* More than fits into one turn, to a peer that says nothing meanwhile. */
static void a_large_answer_is_sent_without_being_asked(void **state) {
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;
        uint16_t port;

        start(f);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", 0, NULL, &port, NULL), 0);
        client = add_client(f, h2_connect_tcp(port), NULL);
        open_windows(client);
        stream = h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        client->sending = false;
        reply_much(f, 4 << 20);
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->len, 5 + (4 << 20));
}

/* What a peer sends is read for a while, in which it may come to its senses, and then no more. */
static void a_peer_that_does_not_read_is_not_read_from(void **state) {
        _cleanup_free_ uint8_t *message = new0(uint8_t, 1 << 20);
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;
        uint64_t received, sent;

        f->n_to_send = 1000;
        start(f);
        client = connect_client(f);
        open_windows(client);
        h2_client_call_unary(client, "/test.Echo/Flood", "");
        RUN_UNTIL(f, f->n_sent > 0);
        client->reading = false;
        settle(f);
        sent = server_stats(f->server).sent_bytes;

        /* As the windows allow it to, on several streams. */
        for (int i = 0; i < 12; i++) {
                stream = h2_client_call(client, "/test.Echo/Collect", NULL);
                h2_stream_send(client, stream, message, (1 << 20) - 5);
        }
        settle(f);
        received = server_stats(f->server).received_bytes;
        assert_true(received > 1 << 20);
        assert_true(received < 5 << 20);
        settle(f);
        assert_int_equal(server_stats(f->server).received_bytes, received);
        assert_int_equal(server_stats(f->server).sent_bytes, sent); /* nothing is made while nothing can be sent */

        client->reading = true;
        RUN_UNTIL(f, f->n_bytes == 12 * ((1 << 20) - 5));
}

/* The server ends the connection, with much that the peer has not read, and much that it has not read itself. */
static void what_was_said_last_arrives(void **state) {
        Fixture *f = *state;
        H2Client *client;
        uint16_t port;

        f->n_to_send = 32;
        start(f);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", 0, NULL, &port, NULL), 0);
        client = add_client(f, h2_connect_tcp(port), NULL);
        open_windows(client);
        settle(f);
        client->reading = false;
        h2_client_call_unary(client, "/test.Echo/Flood", "");
        RUN_UNTIL(f, f->n_sent == 32);
        settle(f);
        client->sending = false;
        for (int i = 0; i < 100000 && send_ping(client); i++)
                ;
        settle(f);

        client->reading = true;
        RUN_UNTIL(f, client->gone);
        assert_true(client->got_goaway);
        assert_int_equal(client->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void a_peer_that_never_reads_is_cut_at_last(void **state) {
        Fixture *f = *state;
        H2Client *client;

        f->n_to_send = 1000;
        start(f);
        client = connect_client(f);
        open_windows(client);
        h2_client_call_unary(client, "/test.Echo/Flood", "");
        RUN_UNTIL(f, f->n_sent > 0);
        client->reading = client->sending = false;
        settle(f);
        for (int i = 0; i < 10000 && send_ping(client); i++)
                ;
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
        assert_int_equal(f->n_ended, 1);
}

/* How much of each stream may be sent to the client. */
static void set_windows(H2Client *client, uint32_t size) {
        const nghttp2_settings_entry window = { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, size };

        assert_int_equal(nghttp2_submit_settings(client->http2, NGHTTP2_FLAG_NONE, &window, 1), 0);
}

static void unread_answers_are_bounded(void **state) {
        enum { N = 50, LEN = 100000 };
        Fixture *f = *state;
        _cleanup_free_ char *message = new0(char, LEN + 1);
        H2Stream *streams[N];
        H2Client *client;
        size_t n_failed = 0;

        memset(message, 'x', LEN);
        f->options.max_queued = 10 * LEN;
        start(f);
        client = connect_client(f);
        set_windows(client, 0);
        for (size_t i = 0; i < N; i++) {
                streams[i] = h2_client_call_unary(client, "/test.Echo/Echo", message);
                RUN_UNTIL(f, f->n_calls == i + 1);
        }
        assert_in_range(server_stats(f->server).queued, 10 * LEN, 12 * LEN);
        assert_serves(f); /* what is small */

        set_windows(client, 2 * LEN);
        for (size_t i = 0; i < N; i++) {
                RUN_UNTIL(f, streams[i]->closed);
                n_failed += streams[i]->grpc_status == STATUS_RESOURCE_EXHAUSTED;
        }
        assert_in_range(n_failed, N - 11, N - 10);
        assert_int_equal(server_stats(f->server).queued, 0);
}

static void streams_that_nobody_reads_are_not_far_ahead(void **state) {
        enum { N = 20 };
        Fixture *f = *state;
        H2Client *client, *reader;
        H2Stream *stream;

        f->options.max_queued = 64 * MESSAGE_LEN;
        f->n_to_send = 100000;
        start(f);
        client = connect_client(f);
        set_windows(client, 0);
        for (size_t i = 0; i < N; i++)
                h2_client_call_unary(client, "/test.Echo/Flood", "");
        settle(f);
        assert_in_range(server_stats(f->server).queued, 16 * MESSAGE_LEN, (16 + N) * (MESSAGE_LEN + 16));

        /* Whoever reads gets on all the same. */
        f->n_to_send = f->n_sent + 50;
        reader = connect_client(f);
        open_windows(reader);
        stream = h2_client_call_unary(reader, "/test.Echo/Flood", "");
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->grpc_status, STATUS_OK);
        assert_int_equal(stream->len, 50 * (MESSAGE_LEN + 5));
}

static void requests_without_an_end_are_bounded(void **state) {
        enum { N = 50, LEN = 100000 };
        Fixture *f = *state;
        _cleanup_free_ char *message = new0(char, LEN);
        H2Client *client;
        H2Stream *streams[N];
        size_t n_failed = 0;

        f->options.max_buffered = 10 * LEN;
        start(f);
        client = connect_client(f);
        for (size_t i = 0; i < N; i++) {
                streams[i] = h2_client_call(client, "/test.Echo/Echo", NULL);
                h2_stream_send(client, streams[i], message, LEN);
                settle(f);
        }
        for (size_t i = 0; i < N; i++)
                n_failed += streams[i]->grpc_status == STATUS_RESOURCE_EXHAUSTED;
        assert_in_range(n_failed, N - 11, N - 9);
        assert_in_range(server_stats(f->server).buffered, 9 * LEN, 12 * LEN);

        drop_client(f, client);
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
        assert_int_equal(server_stats(f->server).buffered, 0);
        assert_serves(f);
}

static void client_streams_are_collected(void **state) {
        _cleanup_free_ uint8_t *message = new0(uint8_t, 100000);
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;

        start(f);
        client = connect_client(f);
        stream = h2_client_call(client, "/test.Echo/Collect", NULL);
        for (int i = 0; i < 100; i++)
                h2_stream_send(client, stream, message, 100000);
        h2_stream_end(client, stream);
        RUN_UNTIL(f, stream->closed);
        assert_true(h2_stream_is_answered(stream, "10000000"));
        assert_int_equal(server_stats(f->server).buffered, 0);
}

static void cancelled_calls_hear_of_it(void **state) {
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;

        start(f);
        client = connect_client(f);
        stream = h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        h2_stream_cancel(client, stream);
        RUN_UNTIL(f, f->n_ended == 1);
        assert_int_equal(f->how, CALL_END_CANCELLED);
        assert_serves(f);
}

static void calls_of_a_peer_that_vanished_hear_of_it(void **state) {
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = connect_client(f);
        h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        drop_client(f, client);
        RUN_UNTIL(f, f->n_ended == 1);
        assert_int_equal(f->how, CALL_END_LOST);
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
        assert_int_equal(server_stats(f->server).streams, 0);
        assert_int_equal(f->n_failures, 0);
}

static void deadlines_pass(void **state) {
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;
        uint64_t began = clock_monotonic_ns();

        start(f);
        client = connect_client(f);
        stream = h2_client_call(client, "/test.Echo/Hang", "50m");
        h2_stream_send(client, stream, "", 0);
        h2_stream_end(client, stream);
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->grpc_status, STATUS_DEADLINE_EXCEEDED);
        assert_true(clock_monotonic_ns() - began >= 50 * NSEC_PER_MSEC);
        assert_int_equal(f->how, CALL_END_DEADLINE);
        assert_int_equal(f->n_ended, 1);
}

static void a_drain_lets_calls_finish(void **state) {
        Fixture *f = *state;
        H2Client *busy, *idle, *silent;
        H2Stream *stream;

        start(f);
        busy = connect_client(f);
        idle = connect_client(f);
        silent = connect_client(f);
        silent->sending = false;
        stream = h2_client_call_unary(busy, "/test.Echo/Hang", "");
        h2_client_call_unary(idle, "/test.Echo/Echo", "");
        RUN_UNTIL(f, f->call && f->n_calls == 2 && server_stats(f->server).connections == 3);

        server_drain(f->server, 10 * NSEC_PER_SEC, on_drained, f);
        assert_int_equal(h2_connect_unix(f->path), -ENOENT);
        RUN_UNTIL(f, idle->gone && silent->gone);
        assert_true(idle->got_goaway);
        assert_int_equal(idle->goaway_code, NGHTTP2_NO_ERROR);
        RUN_UNTIL(f, busy->got_goaway);
        settle(f);
        assert_false(busy->gone);
        assert_false(f->drained);

        call_reply(f->call, "done", 4);
        RUN_UNTIL(f, h2_stream_is_answered(stream, "done"));
        RUN_UNTIL(f, busy->gone && f->drained);
        assert_int_equal(server_stats(f->server).connections, 0);
}

static void a_drain_ends_at_its_deadline(void **state) {
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = connect_client(f);
        h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        server_drain(f->server, 50 * NSEC_PER_MSEC, on_drained, f);
        RUN_UNTIL(f, f->drained);
        assert_int_equal(f->how, CALL_END_LOST);
        RUN_UNTIL(f, client->gone);
}

static void a_drain_of_nothing_is_done_at_once(void **state) {
        Fixture *f = *state;

        start(f);
        server_drain(f->server, 10 * NSEC_PER_SEC, on_drained, f);
        assert_false(f->drained); /* not inside of server_drain() */
        RUN_UNTIL(f, f->drained);
}

static void handlers_may_free_the_server(void **state) {
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = connect_client(f);
        f->frees_server = true;
        h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, client->gone);
        assert_int_equal(f->n_ended, 1);
        f->server = NULL;
        /* The rest of its handles goes with the loop. */
        for (int i = 0; i < 3; i++)
                (void) uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void too_many_connections_are_closed(void **state) {
        Fixture *f = *state;
        H2Client *first, *second, *third;

        f->options.max_connections = 2;
        start(f);
        first = connect_client(f);
        second = connect_client(f);
        RUN_UNTIL(f, server_stats(f->server).connections == 2);
        third = connect_client(f);
        RUN_UNTIL(f, third->gone);
        assert_int_equal(server_stats(f->server).refused_connections, 1);
        assert_false(first->gone || second->gone);

        drop_client(f, first);
        RUN_UNTIL(f, server_stats(f->server).connections == 1);
        assert_serves(f);
}

static void those_who_come_by_tcp_leave_room_for_others(void **state) {
        Fixture *f = *state;
        H2Client *first, *second;
        uint16_t port;

        f->options.max_by_tcp = 1;
        start(f);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", 0, NULL, &port, NULL), 0);
        first = add_client(f, h2_connect_tcp(port), NULL);
        RUN_UNTIL(f, server_stats(f->server).connections == 1);
        second = add_client(f, h2_connect_tcp(port), NULL);
        RUN_UNTIL(f, second->gone);
        assert_false(first->gone);
        assert_serves(f);
}

static void too_many_streams_are_refused(void **state) {
        Fixture *f = *state;
        H2Client *first, *second;
        H2Stream *stream;

        f->options.max_streams = 2;
        start(f);
        first = connect_client(f);
        second = connect_client(f);
        h2_client_call_unary(first, "/test.Echo/Hang", "");
        h2_client_call_unary(second, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->n_calls == 2);

        stream = h2_client_call_unary(second, "/test.Echo/Echo", "x");
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->close_code, NGHTTP2_REFUSED_STREAM);

        drop_client(f, first);
        RUN_UNTIL(f, server_stats(f->server).streams == 1);
        stream = h2_client_call_unary(second, "/test.Echo/Echo", "x");
        RUN_UNTIL(f, h2_stream_is_answered(stream, "x"));
}

static void late_handshakes_are_cut(void **state) {
        Fixture *f = *state;
        H2Client *silent, *slow, *good;

        f->options.handshake_timeout = a_while();
        start(f);
        silent = connect_client(f);
        silent->sending = false;
        slow = connect_client(f);
        slow->sending = false;
        assert_int_equal(write(slow->fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n", 22), 22);
        good = connect_client(f);
        RUN_UNTIL(f, silent->gone && slow->gone);
        assert_int_equal(f->n_failures, 2);
        assert_string_equal(f->failure, "HANDSHAKE_TIMEOUT");

        usleep(150000);
        settle(f);
        assert_false(good->gone);
}

static void idle_connections_are_drained(void **state) {
        Fixture *f = *state;
        H2Client *idle, *busy;
        H2Stream *stream;

        f->options.idle_timeout = a_while();
        start(f);
        idle = connect_client(f);
        busy = connect_client(f);
        stream = h2_client_call_unary(busy, "/test.Echo/Hang", "");
        h2_client_call_unary(idle, "/test.Echo/Echo", "");
        RUN_UNTIL(f, idle->gone);
        assert_true(idle->got_goaway);
        assert_int_equal(idle->goaway_code, NGHTTP2_NO_ERROR);
        usleep(150000);
        settle(f);
        assert_false(busy->gone || busy->got_goaway);

        call_reply(f->call, "done", 4);
        RUN_UNTIL(f, h2_stream_is_answered(stream, "done"));
        RUN_UNTIL(f, busy->gone);
}

static void old_connections_are_drained(void **state) {
        Fixture *f = *state;
        H2Client *client;
        H2Stream *stream;

        f->options.max_connection_age = a_while();
        start(f);
        client = connect_client(f);
        stream = h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, client->got_goaway);
        settle(f);
        assert_false(client->gone);
        call_reply(f->call, "done", 4);
        RUN_UNTIL(f, h2_stream_is_answered(stream, "done"));
        RUN_UNTIL(f, client->gone);
        assert_serves(f);
}

static void dead_peers_are_noticed(void **state) {
        Fixture *f = *state;
        H2Client *client;

        f->limits.keepalive_interval = 50 * NSEC_PER_MSEC;
        f->limits.keepalive_timeout = a_while();
        start(f);
        client = connect_client(f);
        h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        for (uint64_t end = clock_monotonic_ns() + 300 * NSEC_PER_MSEC; clock_monotonic_ns() < end;)
                step(f);
        assert_int_equal(f->n_ended, 0); /* it answers pings */

        client->sending = false;
        RUN_UNTIL(f, f->n_ended == 1);
        RUN_UNTIL(f, client->gone);
}

/* Speaks @bytes to the server, and returns what it answers before it closes. */
static size_t speak(Fixture *f, int fd, const void *bytes, size_t len, char *ret_answer, size_t size) {
        uint64_t give_up_at = clock_monotonic_ns() + PATIENCE;
        size_t n_read = 0;

        assert_int_equal(write(fd, bytes, len), len);
        for (;;) {
                ssize_t n;

                assert_true(clock_monotonic_ns() < give_up_at);
                step(f);
                n = read(fd, ret_answer + n_read, size - 1 - n_read);
                if (n > 0)
                        n_read += (size_t) n;
                else if (n == 0 || errno != EAGAIN)
                        break;
        }

        ret_answer[n_read] = '\0';
        fd_close(fd);
        return n_read;
}

static void http1_is_answered(void **state) {
        static const char request[] = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        Fixture *f = *state;
        char answer[1000];

        start(f);
        speak(f, h2_connect_unix(f->path), request, strlen(request), answer, sizeof(answer));
        assert_true(str_has_prefix(answer, "HTTP/1.1 400 Bad Request\r\n"));
        assert_non_null(strstr(answer, "gRPC"));
        assert_string_equal(f->failure, "HTTP2_BROKEN");
        assert_serves(f);
}

static void garbage_closes_the_connection(void **state) {
        Fixture *f = *state;
        char answer[1000];

        start(f);
        speak(f, h2_connect_unix(f->path), "\0\1\2\3garbage garbage garbage", 27, answer, sizeof(answer));
        assert_string_equal(f->failure, "HTTP2_BROKEN");
        assert_serves(f);
}

/* A frame that nghttp2 answers with GOAWAY, while a call is running. */
static void a_broken_protocol_ends_the_connection_and_its_calls(void **state) {
        static const uint8_t data_on_stream_0[] = { 0, 0, 1, NGHTTP2_DATA, 0, 0, 0, 0, 0, 'x' };
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = connect_client(f);
        h2_client_call_unary(client, "/test.Echo/Hang", "");
        RUN_UNTIL(f, f->call);
        assert_int_equal(write(client->fd, data_on_stream_0, sizeof(data_on_stream_0)), sizeof(data_on_stream_0));
        RUN_UNTIL(f, client->gone);
        assert_true(client->got_goaway);
        assert_int_equal(client->goaway_code, NGHTTP2_PROTOCOL_ERROR);
        RUN_UNTIL(f, f->n_ended == 1);
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
}

static void floods_end_in_goaway(void **state) {
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = connect_client(f);
        h2_client_call_unary(client, "/test.Echo/Echo", "");
        RUN_UNTIL(f, f->n_calls == 1);
        for (int i = 0; i < 1000 && send_ping(client); i++)
                ;
        RUN_UNTIL(f, client->gone);
        assert_true(client->got_goaway);
        assert_int_equal(client->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
        assert_string_equal(client->goaway_debug, "too_many_pings");
        assert_serves(f);
}

/* A peer with very many calls at once, and one with a single call behind it. */
static void a_busy_peer_does_not_starve_others(void **state) {
        Fixture *f = *state;
        H2Client *busy, *other;
        H2Stream *streams[900], *stream;
        size_t n_answered = 0;

        start(f);
        busy = connect_client(f);
        other = connect_client(f);
        settle(f);
        for (size_t i = 0; i < 900; i++)
                streams[i] = h2_client_call_unary(busy, "/test.Echo/Echo", "x");
        h2_client_pump(busy);
        stream = h2_client_call_unary(other, "/test.Echo/Echo", "y");
        h2_client_pump(other);

        /* Both are read in the first turn, and each has its share of it. */
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(f->n_calls < 200);
        h2_client_pump(other);
        assert_true(h2_stream_is_answered(stream, "y"));

        RUN_UNTIL(f, f->n_calls == 901);
        settle(f);
        for (size_t i = 0; i < 900; i++)
                n_answered += h2_stream_is_answered(streams[i], "x");
        assert_int_equal(n_answered, 900);
}

/* More than one turn has time for, and no answers that would give reason for another. */
static void all_calls_have_their_turn(void **state) {
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = connect_client(f);
        settle(f);
        for (size_t i = 0; i < 900; i++)
                h2_client_call_unary(client, "/test.Echo/Hang", "x");
        RUN_UNTIL(f, f->n_calls == 900);
}

/* Connections that break off after any number of bytes of a good conversation, and everywhere else. */
static void connections_may_drop_at_any_moment(void **state) {
        Fixture *f = *state;
        uint8_t conversation[400];
        size_t len = 0;
        H2Client *model;

        start(f);
        model = connect_client(f);
        h2_client_call_unary(model, "/test.Echo/Echo", "one");
        h2_client_call_unary(model, "/test.Echo/Hang", "two");
        for (;;) {
                const uint8_t *bytes;
                ssize_t n = nghttp2_session_mem_send(model->http2, &bytes);

                if (n <= 0)
                        break;
                assert_true(len + (size_t) n <= sizeof(conversation));
                memcpy(conversation + len, bytes, (size_t) n);
                len += (size_t) n;
        }
        drop_client(f, model);

        for (size_t i = 0; i <= len; i++) {
                int fd = h2_connect_unix(f->path);

                assert_int_equal(write(fd, conversation, i), i);
                for (size_t n = i % 4; n > 0; n--)
                        step(f);
                fd_close(fd);
        }
        RUN_UNTIL(f, server_stats(f->server).accepted_connections == len + 2);
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
        assert_int_equal(server_stats(f->server).streams, 0);
        assert_int_equal(server_stats(f->server).buffered, 0);
        assert_serves(f);
}

static void many_connections_are_served(void **state) {
        Fixture *f = *state;
        H2Stream *streams[250];

        start(f);
        for (size_t i = 0; i < 250; i++)
                streams[i] = h2_client_call_unary(connect_client(f), "/test.Echo/Echo", "x");
        for (size_t i = 0; i < 250; i++)
                RUN_UNTIL(f, h2_stream_is_answered(streams[i], "x"));
        assert_int_equal(server_stats(f->server).connections, 250);
}

static void a_lack_of_descriptors_is_survived(void **state) {
        Fixture *f = *state;
        struct rlimit limit, low;
        H2Client *client;
        H2Stream *stream;
        size_t n_turns = 0;
        int fd;

        start(f);
        client = connect_client(f);
        fd = h2_connect_unix(f->path);
        assert_true(fd >= 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        low = limit;
        low.rlim_cur = (rlim_t) fd + 1;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);

        stream = h2_client_call_unary(client, "/test.Echo/Echo", "x");
        h2_client_pump(client);
        for (uint64_t end = clock_monotonic_ns() + 300 * NSEC_PER_MSEC; clock_monotonic_ns() < end; n_turns++)
                (void) uv_run(&f->loop, UV_RUN_ONCE);
        assert_false(stream->closed);
        assert_true(n_turns < 100); /* it does not spin */

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        RUN_UNTIL(f, h2_stream_is_answered(stream, "x"));
        fd_close(fd);
}

static void a_stale_socket_is_replaced_and_a_live_one_is_not(void **state) {
        Fixture *f = *state;
        _cleanup_(error_clear) HutchError err = {};
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct stat info;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
        assert_int_equal(bind(stale, (struct sockaddr *) &address, sizeof(address)), 0);
        fd_close(stale);

        start(f);
        assert_int_equal(stat(f->path, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0600);
        assert_int_equal(server_listen_unix(f->server, f->path, 0600, &err), -EADDRINUSE);
        assert_string_equal(err.reason, "LISTEN_IN_USE");
        assert_non_null(strstr(error_message(&err), f->path));
        assert_serves(f);
}

static void what_is_no_socket_is_not_replaced(void **state) {
        Fixture *f = *state;
        _cleanup_close_ int fd = open(f->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), 0);
        assert_int_equal(server_listen_unix(f->server, f->path, 0600, NULL), -EEXIST);
        assert_int_equal(unlink(f->path), 0);
}

static void permissions_are_exact(void **state) {
        Fixture *f = *state;
        struct stat info;
        mode_t mask = umask(0777);

        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), 0);
        assert_int_equal(server_listen_unix(f->server, f->path, 0666, NULL), 0);
        umask(mask);
        assert_int_equal(stat(f->path, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0666);
}

static void the_socket_of_a_successor_is_left_alone(void **state) {
        Fixture *f = *state;
        Server *successor;

        start(f);
        assert_int_equal(unlink(f->path), 0);
        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &successor), 0);
        assert_int_equal(server_listen_unix(successor, f->path, 0600, NULL), 0);
        server_free(f->server, on_freed, f);
        RUN_UNTIL(f, f->freed);
        f->freed = false;
        f->server = successor;
        assert_serves(f);
}

static void bad_addresses_are_told(void **state) {
        Fixture *f = *state;
        char path[200];
        uint16_t port;

        memset(path, 'a', sizeof(path));
        path[sizeof(path) - 1] = '\0';
        start(f);
        assert_int_equal(server_listen_unix(f->server, path, 0600, NULL), -ENAMETOOLONG);
        assert_int_equal(server_listen_unix(f->server, "/nonexistent/socket", 0600, NULL), -ENOENT);
        assert_int_equal(server_listen_tcp(f->server, "localhost", 0, NULL, NULL, NULL), -EINVAL);
        assert_int_equal(server_listen_tcp(f->server, "192.0.2.1", 0, NULL, NULL, NULL), -EADDRNOTAVAIL);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", 0, NULL, &port, NULL), 0);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", port, NULL, NULL, NULL), -EADDRINUSE);
}

static void sockets_of_others_are_adopted(void **state) {
        Fixture *f = *state;
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), no_listener = open("/dev/null", O_RDONLY | O_CLOEXEC);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 10), 0);

        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), 0);
        assert_int_equal(server_listen_fd(f->server, no_listener, NULL, NULL), -EINVAL);
        assert_int_equal(fcntl(no_listener, F_GETFD), -1);
        assert_int_equal(server_listen_fd(f->server, fd, NULL, NULL), 0);
        assert_serves(f);

        /* It is not ours to remove. */
        server_free(f->server, on_freed, f);
        RUN_UNTIL(f, f->freed);
        assert_int_equal(unlink(f->path), 0);
}

static TlsContext *server_context(const char *certificate, TlsClientCertificates clients) {
        TlsServerOptions options = {
                .certificate_file = certificate_file(dir, certificate, ".pem"),
                .key_file = certificate_file(dir, certificate, ".key"),
                .client_ca_file = certificate_file(dir, "ca", ".pem"),
                .client_certificates = clients,
        };
        TlsContext *context;

        assert_int_equal(tls_context_new_server(&options, &context, NULL), 0);
        return context;
}

static TlsContext *client_context(const char *ca, const char *certificate) {
        TlsClientOptions options = {
                .ca_file = certificate_file(dir, ca, ".pem"),
                .certificate_file = certificate ? certificate_file(dir, certificate, ".pem") : NULL,
                .key_file = certificate ? certificate_file(dir, certificate, ".key") : NULL,
        };
        TlsContext *context;

        assert_int_equal(tls_context_new_client(&options, &context, NULL), 0);
        return context;
}

static uint16_t start_tls(Fixture *f, TlsContext *context) {
        uint16_t port;

        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), 0);
        assert_int_equal(server_listen_tcp(f->server, "127.0.0.1", 0, context, &port, NULL), 0);
        return port;
}

static void tls_carries_calls_and_identities(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *server = server_context("server", TLS_CLIENT_CERTIFICATES_WANTED);
        _cleanup_(tls_context_unrefp) TlsContext *nobody = client_context("ca", NULL);
        _cleanup_(tls_context_unrefp) TlsContext *alice = client_context("ca", "alice");
        Fixture *f = *state;
        uint16_t port = start_tls(f, server);
        H2Stream *stream;

        stream = h2_client_call_unary(add_client(f, h2_connect_tcp(port), nobody), "/test.Echo/Peer", "");
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->grpc_status, 0);
        assert_non_null(memmem(stream->data, stream->len, " encrypted  uid", 15));

        stream = h2_client_call_unary(add_client(f, h2_connect_tcp(port), alice), "/test.Echo/Peer", "");
        RUN_UNTIL(f, stream->closed);
        assert_non_null(memmem(stream->data, stream->len, " encrypted CN=alice,O=Hutch Tests", 33));
}

static void tls_carries_much(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *server = server_context("server", TLS_CLIENT_CERTIFICATES_NONE);
        _cleanup_(tls_context_unrefp) TlsContext *client = client_context("ca", NULL);
        Fixture *f = *state;
        uint16_t port = start_tls(f, server);
        H2Stream *stream;

        f->n_to_send = 200;
        stream = h2_client_call_unary(add_client(f, h2_connect_tcp(port), client), "/test.Echo/Flood", "");
        RUN_UNTIL(f, stream->closed);
        assert_int_equal(stream->grpc_status, 0);
        assert_int_equal(stream->len, 200 * (MESSAGE_LEN + 5));
        for (size_t i = 0; i < 200; i++)
                assert_int_equal(stream->data[i * (MESSAGE_LEN + 5) + 5 + i], i % 256);
}

static void strangers_are_refused_and_hear_why(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *server = server_context("server", TLS_CLIENT_CERTIFICATES_REQUIRED);
        _cleanup_(tls_context_unrefp) TlsContext *nobody = client_context("ca", NULL);
        _cleanup_(tls_context_unrefp) TlsContext *mallory = client_context("ca", "mallory");
        _cleanup_(tls_context_unrefp) TlsContext *distrustful = client_context("other-ca", "alice");
        Fixture *f = *state;
        uint16_t port = start_tls(f, server);
        H2Client *client;

        client = add_client(f, h2_connect_tcp(port), nobody);
        h2_client_call_unary(client, "/test.Echo/Echo", "");
        RUN_UNTIL(f, client->gone);
        assert_string_equal(client->error.reason, "TLS_CERTIFICATE_REQUIRED");
        assert_string_equal(f->failure, "TLS_CERTIFICATE_REQUIRED");

        client = add_client(f, h2_connect_tcp(port), mallory);
        h2_client_call_unary(client, "/test.Echo/Echo", "");
        RUN_UNTIL(f, client->gone);
        assert_string_equal(client->error.reason, "TLS_CERTIFICATE_UNTRUSTED");
        assert_string_equal(f->failure, "TLS_CERTIFICATE_UNTRUSTED");

        f->failure[0] = '\0';
        client = add_client(f, h2_connect_tcp(port), distrustful);
        RUN_UNTIL(f, client->gone && f->n_failures == 3);
        assert_string_equal(client->error.reason, "TLS_CERTIFICATE_UNTRUSTED");
        assert_string_equal(f->failure, "TLS_CERTIFICATE_UNTRUSTED");

        assert_int_equal(f->n_calls, 0);
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
}

static void plaintext_to_a_tls_port_is_closed(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *server = server_context("server", TLS_CLIENT_CERTIFICATES_NONE);
        Fixture *f = *state;
        uint16_t port = start_tls(f, server);
        H2Client *client = add_client(f, h2_connect_tcp(port), NULL);

        h2_client_call_unary(client, "/test.Echo/Echo", "");
        RUN_UNTIL(f, client->gone);
        assert_string_equal(f->failure, "TLS_PLAINTEXT");
        assert_int_equal(client->received, 0);
        RUN_UNTIL(f, server_stats(f->server).connections == 0);
}

static void tls_to_a_plaintext_port_is_closed(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *nobody = client_context("ca", NULL);
        Fixture *f = *state;
        H2Client *client;

        start(f);
        client = add_client(f, h2_connect_unix(f->path), nobody);
        RUN_UNTIL(f, client->gone);
        assert_string_equal(f->failure, "HTTP2_BROKEN");
        assert_string_equal(client->error.reason, "TLS_PLAINTEXT");
}

static void silent_handshakes_are_cut(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *server = server_context("server", TLS_CLIENT_CERTIFICATES_NONE);
        Fixture *f = *state;
        H2Client *client;
        uint16_t port;

        f->options.handshake_timeout = 50 * NSEC_PER_MSEC;
        port = start_tls(f, server);
        client = add_client(f, h2_connect_tcp(port), NULL);
        client->sending = false;
        RUN_UNTIL(f, client->gone);
        assert_string_equal(f->failure, "HANDSHAKE_TIMEOUT");
}

static void renewed_certificates_are_used(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *old = server_context("expired", TLS_CLIENT_CERTIFICATES_NONE);
        _cleanup_(tls_context_unrefp) TlsContext *new = server_context("server", TLS_CLIENT_CERTIFICATES_NONE);
        _cleanup_(tls_context_unrefp) TlsContext *client_tls = client_context("ca", NULL);
        Fixture *f = *state;
        uint16_t port = start_tls(f, old);
        H2Client *client = add_client(f, h2_connect_tcp(port), client_tls);
        H2Stream *stream;

        RUN_UNTIL(f, client->gone);
        assert_string_equal(client->error.reason, "TLS_CERTIFICATE_EXPIRED");

        server_replace_tls(f->server, old, new);
        client = add_client(f, h2_connect_tcp(port), client_tls);
        stream = h2_client_call_unary(client, "/test.Echo/Echo", "x");
        RUN_UNTIL(f, h2_stream_is_answered(stream, "x"));
}

/* Whichever allocation fails: the server lives, and serves the next connection. */
static void failed_allocations_cost_no_more_than_a_connection(void **state) {
        Fixture *f = *state;

        start(f);
        for (size_t n = 0;; n++) {
                H2Client *client = connect_client(f);
                H2Stream *stream = h2_client_call_unary(client, "/test.Echo/Echo", "x");

                /* What the client says is made before memory runs out. */
                h2_client_pump(client);
                client->sending = client->reading = false;
                fail_alloc_after(n);
                for (int i = 0; i < 5; i++)
                        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
                fail_alloc_off();
                client->sending = client->reading = true;
                RUN_UNTIL(f, stream->closed || client->gone);
                if (!fail_alloc_happened()) {
                        assert_true(h2_stream_is_answered(stream, "x"));
                        break;
                }
                drop_client(f, client);
                f->n_clients--;
                assert_serves(f);
                f->n_clients--;
        }
        RUN_UNTIL(f, server_stats(f->server).connections <= 1);
        assert_int_equal(server_stats(f->server).streams, 0);
        assert_int_equal(server_stats(f->server).buffered, 0);
}

static void no_server_is_made_without_memory(void **state) {
        Fixture *f = *state;

        fail_alloc_after(0);
        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), -ENOMEM);
        assert_null(f->server);
        fail_alloc_off();

        assert_int_equal(server_new(&f->loop, f->methods, &f->options, &f->server), 0);
        for (size_t n = 0; n < 2; n++) {
                fail_alloc_after(n);
                assert_int_equal(server_listen_unix(f->server, f->path, 0600, NULL), -ENOMEM);
                fail_alloc_off();
                assert_int_equal(access(f->path, F_OK), -1);
        }
        assert_int_equal(server_listen_unix(f->server, f->path, 0600, NULL), 0);
}

static int make_certificates(void **state) {
        static const CertificateSpec specs[] = {
                { .name = "ca", .is_ca = true },
                { .name = "other-ca", .is_ca = true },
                { .name = "server", .issuer = "ca", .is_for = "DNS:localhost" },
                { .name = "expired", .issuer = "ca", .is_for = "DNS:localhost", .from_day = -2, .to_day = -1 },
                { .name = "alice", .issuer = "ca" },
                { .name = "mallory", .issuer = "other-ca" },
        };

        assert_non_null(mkdtemp(dir));
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
                certificate_make(dir, &specs[i]);
        return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
        return remove(path);
}

static int remove_certificates(void **state) {
        return nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#define SERVER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                SERVER_TEST(unary_calls_are_answered),
                SERVER_TEST(peers_are_known),
                SERVER_TEST(answers_may_come_later),
                SERVER_TEST(the_flush_is_announced_and_may_answer),
                SERVER_TEST(what_is_sent_is_announced),
                SERVER_TEST(idle_connections_cost_nothing),
                SERVER_TEST(a_slow_reader_holds_up_its_stream_only),
                SERVER_TEST(a_full_socket_holds_up_the_server),
                SERVER_TEST(a_peer_that_does_not_read_is_not_read_from),
                SERVER_TEST(a_large_answer_is_sent_without_being_asked),
                SERVER_TEST(what_was_said_last_arrives),
                SERVER_TEST(a_peer_that_never_reads_is_cut_at_last),
                SERVER_TEST(unread_answers_are_bounded),
                SERVER_TEST(streams_that_nobody_reads_are_not_far_ahead),
                SERVER_TEST(requests_without_an_end_are_bounded),
                SERVER_TEST(client_streams_are_collected),
                SERVER_TEST(cancelled_calls_hear_of_it),
                SERVER_TEST(calls_of_a_peer_that_vanished_hear_of_it),
                SERVER_TEST(deadlines_pass),
                SERVER_TEST(a_drain_lets_calls_finish),
                SERVER_TEST(a_drain_ends_at_its_deadline),
                SERVER_TEST(a_drain_of_nothing_is_done_at_once),
                SERVER_TEST(handlers_may_free_the_server),
                SERVER_TEST(too_many_connections_are_closed),
                SERVER_TEST(those_who_come_by_tcp_leave_room_for_others),
                SERVER_TEST(too_many_streams_are_refused),
                SERVER_TEST(late_handshakes_are_cut),
                SERVER_TEST(idle_connections_are_drained),
                SERVER_TEST(old_connections_are_drained),
                SERVER_TEST(dead_peers_are_noticed),
                SERVER_TEST(http1_is_answered),
                SERVER_TEST(garbage_closes_the_connection),
                SERVER_TEST(a_broken_protocol_ends_the_connection_and_its_calls),
                SERVER_TEST(floods_end_in_goaway),
                SERVER_TEST(a_busy_peer_does_not_starve_others),
                SERVER_TEST(all_calls_have_their_turn),
                SERVER_TEST(connections_may_drop_at_any_moment),
                SERVER_TEST(many_connections_are_served),
                SERVER_TEST(a_lack_of_descriptors_is_survived),
                SERVER_TEST(a_stale_socket_is_replaced_and_a_live_one_is_not),
                SERVER_TEST(what_is_no_socket_is_not_replaced),
                SERVER_TEST(permissions_are_exact),
                SERVER_TEST(the_socket_of_a_successor_is_left_alone),
                SERVER_TEST(bad_addresses_are_told),
                SERVER_TEST(sockets_of_others_are_adopted),
                SERVER_TEST(tls_carries_calls_and_identities),
                SERVER_TEST(tls_carries_much),
                SERVER_TEST(strangers_are_refused_and_hear_why),
                SERVER_TEST(plaintext_to_a_tls_port_is_closed),
                SERVER_TEST(tls_to_a_plaintext_port_is_closed),
                SERVER_TEST(silent_handshakes_are_cut),
                SERVER_TEST(renewed_certificates_are_used),
                SERVER_TEST(failed_allocations_cost_no_more_than_a_connection),
                SERVER_TEST(no_server_is_made_without_memory),
        };

        return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
