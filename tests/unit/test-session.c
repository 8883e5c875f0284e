/* SPDX-License-Identifier: Apache-2.0 */

/* Server and client sessions, joined by nothing but memory: what one produces the other receives. */

#include "rpc/core/client-session.h"
#include "rpc/core/server-session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/strings.h"
#include "rpc/core/call.h"
#include "rpc/core/method-table.h"
#include "rpc/peer.h"

#include "test.h"

#define MILLISECONDS(n) ((uint64_t) (n) *NSEC_PER_MSEC)

/* Both ends of a connection, and the time. */
typedef struct Pair {
        MethodTable *methods;
        ServerHandlers handlers;
        Interceptor interceptors[2];
        Peer peer;
        SessionLimits limits;
        uint64_t now;
        ServerSession *server;
        ClientSession *client;

        /* What the handlers saw. */
        Call *call;
        CallEnd how;
        size_t n_ended;
        size_t n_messages;
        size_t bytes;
        size_t n_sent, n_to_send;
        bool reads;
} Pair;

/* What a call of the client's came to. */
typedef struct Outcome {
        ClientCall *call;
        Pair *pair;
        bool ended;
        StatusCode code;
        char reason[64];
        char message[256];
        bool from_server, not_processed, lost;
        size_t n_messages;
        size_t bytes;
        uint8_t first[64]; /* of the first message */
        size_t first_len;
        char header[64], trailer[64]; /* x-echo, x-echo-bin */
        bool reads;                   /* goes on reading */
} Outcome;

static void on_headers(ClientCall *call, const Metadata *metadata) {
        Outcome *outcome = client_call_user(call);
        const MetadataEntry *entry = metadata_find(metadata, "x-echo");

        if (entry)
                snprintf(outcome->header, sizeof(outcome->header), "%s", entry->value);
}

static void on_message(ClientCall *call, const uint8_t *message, size_t len) {
        Outcome *outcome = client_call_user(call);

        if (outcome->n_messages++ == 0) {
                outcome->first_len = len;
                memcpy(outcome->first, message, len < sizeof(outcome->first) ? len : sizeof(outcome->first));
        }
        outcome->bytes += len;
        if (outcome->reads)
                client_call_read(call);
}

static void on_ended(ClientCall *call, const ClientStatus *status) {
        Outcome *outcome = client_call_user(call);
        const MetadataEntry *entry = metadata_find(status->trailing, "x-echo-bin");

        assert_false(outcome->ended);
        outcome->ended = true;
        outcome->call = NULL;
        outcome->code = status->code;
        outcome->from_server = status->from_server;
        outcome->not_processed = status->not_processed;
        outcome->lost = status->lost;
        snprintf(outcome->reason, sizeof(outcome->reason), "%s", status->reason);
        snprintf(outcome->message, sizeof(outcome->message), "%s", status->message);
        if (entry)
                snprintf(outcome->trailer, sizeof(outcome->trailer), "%s", entry->value);
}

static const ClientEvents client_events = { .headers = on_headers, .message = on_message, .ended = on_ended };

/* Answers with what came, and with the metadata that came. */
static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        const MetadataEntry *entry = metadata_find(call_metadata(call), "x-echo");
        const MetadataEntry *binary = metadata_find(call_metadata(call), "x-echo-bin");

        (void) context;
        if (entry)
                (void) metadata_add(call_initial_metadata(call), "x-echo", entry->value, entry->value_len);
        if (binary)
                (void) metadata_add(call_trailing_metadata(call), "x-echo-bin", binary->value, binary->value_len);
        call_set_compression(call, metadata_find(call_metadata(call), "x-compress"));
        call_reply(call, message, len);
}

static void fail_call(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len, (void) context;
        call_finish(call, STATUS_NOT_FOUND, "nothing: 100 % gone\n");
}

static void on_call_ended(Call *call, CallEnd how) {
        Pair *pair = call_user(call);

        pair->n_ended++;
        pair->how = how;
        pair->call = NULL;
}

/* Never answers. */
static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .ended = on_call_ended };
        Pair *pair = context;

        (void) message, (void) len;
        pair->call = call;
        call_set_events(call, &events, pair);
}

/* Sends @n_to_send messages of 64 KiB as fast as the client takes them. */
static void send_some(Call *call) {
        static const uint8_t block[65536];
        Pair *pair = call_user(call);

        while (pair->n_sent < pair->n_to_send && call_is_writable(call)) {
                assert_int_equal(call_send(call, block, sizeof(block)), 0);
                pair->n_sent++;
        }
        if (pair->n_sent == pair->n_to_send)
                call_finish(call, STATUS_OK, NULL);
}

static void pour(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .writable = send_some, .ended = on_call_ended };

        (void) message, (void) len;
        call_set_events(call, &events, context);
        send_some(call);
}

static void count_message(Call *call, const uint8_t *message, size_t len) {
        Pair *pair = call_user(call);

        (void) message;
        pair->n_messages++;
        pair->bytes += len;
        if (pair->reads)
                call_read(call);
}

static void reply_count(Call *call) {
        Pair *pair = call_user(call);
        char text[32];

        call_reply(call, text, (size_t) snprintf(text, sizeof(text), "%zu", pair->bytes));
}

static void collect(Call *call, void *context) {
        static const CallEvents events = {
                .message = count_message,
                .half_closed = reply_count,
                .ended = on_call_ended,
        };
        Pair *pair = context;

        pair->call = call;
        call_set_events(call, &events, pair);
        if (pair->reads)
                call_read(call);
}

static void echo_message(Call *call, const uint8_t *message, size_t len) {
        (void) call_send(call, message, len);
        call_read(call);
}

static void finish_ok(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void converse(Call *call, void *context) {
        static const CallEvents events = { .message = echo_message, .half_closed = finish_ok, .ended = on_call_ended };

        call_set_events(call, &events, context);
        call_read(call);
}

static void refuse_early(Call *call, void *context) {
        (void) context;
        call_finish(call, STATUS_RESOURCE_EXHAUSTED, "no more");
}

static Pair *pair_new(const SessionLimits *limits) {
        static const char *const paths[] = { "/t.T/Echo",    "/t.T/Fail",     "/t.T/Hang",  "/t.T/Pour",
                                             "/t.T/Collect", "/t.T/Converse", "/t.T/Refuse" };
        Pair *pair = new0(Pair, 1);
        Method *methods = new0(Method, 7);

        for (size_t i = 0; i < 7; i++)
                methods[i] = (Method){ .path = paths[i], .context = pair };
        methods[0].handle = echo;
        methods[1].handle = fail_call;
        methods[2].handle = hang;
        methods[3].handle = pour;
        methods[4].start = collect;
        methods[5].start = converse;
        methods[6].start = refuse_early;

        pair->now = NSEC_PER_SEC;
        pair->limits = limits ? *limits : session_limits_default;
        pair->reads = true;
        pair->methods = method_table_new();
        assert_non_null(pair->methods);
        assert_int_equal(method_table_add(pair->methods, methods, 7), 0);
        pair->handlers = (ServerHandlers){ .methods = pair->methods };
        pair->server = server_session_new(&pair->handlers, &pair->limits, NULL, &pair->peer, pair->now);
        pair->client = client_session_new(&(ClientIdentity){ .authority = "localhost", .user_agent = "test" },
                                          &pair->limits, pair->now);
        assert_non_null(pair->server);
        assert_non_null(pair->client);
        return pair;
}

static Pair *pair_free(Pair *pair) {
        const Method *methods = method_table_at(pair->methods, 0);

        server_session_free(pair->server);
        client_session_free(pair->client);
        method_table_free(pair->methods);
        free((void *) (uintptr_t) methods);
        free(pair);
        return NULL;
}
DEFINE_CLEANUP(Pair *, pair_free);

/* Moves what @from has for @to, in pieces of @piece bytes. Returns how much. */
static size_t carry(Session *from, Session *to, size_t piece, uint64_t now) {
        static uint8_t buffer[65536];
        size_t total = 0;
        ssize_t n;

        while ((n = session_produce(from, buffer, sizeof(buffer))) > 0) {
                for (size_t at = 0; at < (size_t) n; at += piece) {
                        size_t len = (size_t) n - at < piece ? (size_t) n - at : piece;

                        (void) session_receive(to, buffer + at, len, now);
                        while (session_dispatch(to, 1))
                                ;
                }
                total += (size_t) n;
        }
        assert_true(n == 0);
        return total;
}

/* Until neither has anything more to say. */
static void pump_pieces(Pair *pair, size_t piece) {
        Session *server = server_session_base(pair->server), *client = client_session_base(pair->client);
        size_t carried;

        do {
                carried = carry(client, server, piece, pair->now) + carry(server, client, piece, pair->now);
                while (session_dispatch(client, 1) || session_dispatch(server, 1))
                        ;
        } while (carried > 0 || session_wants_produce(client) || session_wants_produce(server));
}

static void pump(Pair *pair) {
        pump_pieces(pair, SIZE_MAX / 2);
}

static void start(Pair *pair, Outcome *outcome, const char *path, const Metadata *metadata, uint64_t timeout) {
        outcome->pair = pair;
        outcome->reads = true;
        outcome->call = client_call_start(pair->client,
                                          &(ClientRequest){ .path = path,
                                                            .metadata = metadata,
                                                            .deadline = timeout ? pair->now + timeout : DEADLINE_NONE },
                                          &client_events, outcome);
        assert_non_null(outcome->call);
        client_call_read(outcome->call);
}

/* The call, which must not be over, nor must its connection. */
static ClientCall *open_call(const Outcome *outcome) {
        assert_non_null(outcome->call);
        assert_false(server_session_base(outcome->pair->server)->broken);
        return outcome->call;
}

static void request(Pair *pair, Outcome *outcome, const char *path, const void *message, size_t len) {
        start(pair, outcome, path, NULL, 0);
        assert_int_equal(client_call_send(outcome->call, message, len), 0);
        client_call_end(outcome->call);
        pump(pair);
}

static void unary_call_is_answered(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        request(pair, &outcome, "/t.T/Echo", "hello", 5);

        assert_true(outcome.ended);
        assert_true(outcome.from_server);
        assert_int_equal(outcome.code, STATUS_OK);
        assert_int_equal(outcome.n_messages, 1);
        assert_memory_equal(outcome.first, "hello", 5);
}

static void bytes_may_come_one_by_one(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &outcome, "/t.T/Echo", NULL, 0);
        assert_int_equal(client_call_send(open_call(&outcome), "hello", 5), 0);
        client_call_end(open_call(&outcome));
        pump_pieces(pair, 1);

        assert_int_equal(outcome.code, STATUS_OK);
        assert_memory_equal(outcome.first, "hello", 5);
}

static void metadata_goes_both_ways(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 1024 };

        assert_int_equal(metadata_add(&metadata, "x-echo", "text", 4), 0);
        assert_int_equal(metadata_add(&metadata, "x-echo-bin", "\xff\x01z", 3), 0);
        start(pair, &outcome, "/t.T/Echo", &metadata, 0);
        assert_int_equal(client_call_send(open_call(&outcome), "", 0), 0);
        client_call_end(open_call(&outcome));
        pump(pair);

        assert_int_equal(outcome.code, STATUS_OK);
        assert_string_equal(outcome.header, "text");
        assert_string_equal(outcome.trailer, "\xff\x01z");
        assert_int_equal(outcome.first_len, 0);
}

static void status_and_message_arrive(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        request(pair, &outcome, "/t.T/Fail", "", 0);

        assert_int_equal(outcome.code, STATUS_NOT_FOUND);
        assert_string_equal(outcome.message, "nothing: 100 % gone\n");
        assert_true(outcome.from_server);
}

static void unknown_method_is_unimplemented(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        request(pair, &outcome, "/t.T/None", "", 0);
        assert_int_equal(outcome.code, STATUS_UNIMPLEMENTED);
        assert_true(outcome.from_server);
        assert_string_equal(outcome.reason, "METHOD_UNIMPLEMENTED");
}

static void one_message_means_one(void **state) {
        Outcome none = {}, two = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &none, "/t.T/Echo", NULL, 0);
        client_call_end(open_call(&none));
        start(pair, &two, "/t.T/Echo", NULL, 0);
        assert_int_equal(client_call_send(open_call(&two), "a", 1), 0);
        assert_int_equal(client_call_send(open_call(&two), "b", 1), 0);
        client_call_end(open_call(&two));
        pump(pair);

        assert_int_equal(none.code, STATUS_UNIMPLEMENTED);
        assert_string_equal(none.reason, "METHOD_UNIMPLEMENTED");
        assert_int_equal(two.code, STATUS_UNIMPLEMENTED);
        assert_string_equal(two.reason, "METHOD_UNIMPLEMENTED");
}

static void message_larger_than_any_window_comes_through(void **state) {
        SessionLimits limits = session_limits_default;
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = NULL;
        _cleanup_free_ uint8_t *large = new0(uint8_t, 4 << 20);

        limits.stream_window = 65535;
        limits.connection_window = 65535;
        pair = pair_new(&limits);
        large[0] = 42;
        request(pair, &outcome, "/t.T/Echo", large, 4 << 20);

        assert_int_equal(outcome.code, STATUS_OK);
        assert_int_equal(outcome.bytes, 4 << 20);
        assert_int_equal(outcome.first[0], 42);
}

static void message_longer_than_a_prefix_can_say_is_refused(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &outcome, "/t.T/Echo", NULL, 0);
        assert_int_equal(client_call_send(open_call(&outcome), "", (size_t) UINT32_MAX + 1), -EMSGSIZE);
        assert_int_equal(client_call_send(open_call(&outcome), "x", 1), 0);
        client_call_end(open_call(&outcome));
        pump(pair);
        assert_int_equal(outcome.code, STATUS_OK);
}

static void message_beyond_the_limit_is_refused(void **state) {
        Outcome outcome = {}, after = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        _cleanup_free_ uint8_t *large = new0(uint8_t, (4 << 20) + 1);

        request(pair, &outcome, "/t.T/Echo", large, (4 << 20) + 1);
        assert_int_equal(outcome.code, STATUS_RESOURCE_EXHAUSTED);
        assert_string_equal(outcome.reason, "MESSAGE_TOO_LARGE");

        request(pair, &after, "/t.T/Echo", "x", 1);
        assert_int_equal(after.code, STATUS_OK);
}

static void server_streams_no_faster_than_the_client_reads(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        size_t sent_before;

        pair->n_to_send = 1000;
        start(pair, &outcome, "/t.T/Pour", NULL, 0);
        outcome.reads = false; /* one message was asked for */
        assert_int_equal(client_call_send(open_call(&outcome), "", 0), 0);
        client_call_end(open_call(&outcome));
        pump(pair);

        assert_int_equal(outcome.n_messages, 1);
        assert_true(pair->n_sent < 64);
        sent_before = pair->n_sent;
        pump(pair);
        assert_int_equal(pair->n_sent, sent_before);

        outcome.reads = true;
        client_call_read(open_call(&outcome));
        pump(pair);
        assert_int_equal(outcome.n_messages, 1000);
        assert_int_equal(outcome.code, STATUS_OK);
        assert_int_equal(pair->how, CALL_END_FINISHED);
}

static void client_streams_no_faster_than_the_server_reads(void **state) {
        static const uint8_t block[65536];
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        size_t n = 0;

        pair->reads = false;
        start(pair, &outcome, "/t.T/Collect", NULL, 0);
        for (int i = 0; i < 100; i++) {
                while (n < 1000 && client_call_is_writable(open_call(&outcome))) {
                        assert_int_equal(client_call_send(open_call(&outcome), block, sizeof(block)), 0);
                        n++;
                }
                pump(pair);
        }
        assert_true(n < 64);
        assert_int_equal(pair->n_messages, 0);

        pair->reads = true;
        call_read(pair->call);
        while (n < 1000) {
                while (n < 1000 && client_call_is_writable(open_call(&outcome))) {
                        assert_int_equal(client_call_send(open_call(&outcome), block, sizeof(block)), 0);
                        n++;
                }
                pump(pair);
        }
        client_call_end(open_call(&outcome));
        pump(pair);

        assert_int_equal(outcome.code, STATUS_OK);
        assert_memory_equal(outcome.first, "65536000", 8);
}

static void stalled_call_does_not_stall_another(void **state) {
        static const uint8_t block[65536];
        Outcome stalled = {}, other = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        pair->reads = false;
        start(pair, &stalled, "/t.T/Collect", NULL, 0);
        for (int i = 0; i < 32; i++)
                assert_int_equal(client_call_send(open_call(&stalled), block, sizeof(block)), 0);
        pump(pair);

        request(pair, &other, "/t.T/Echo", "x", 1);
        assert_int_equal(other.code, STATUS_OK);
        assert_false(stalled.ended);
}

static void both_sides_stream(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &outcome, "/t.T/Converse", NULL, 0);
        for (size_t i = 1; i <= 10; i++) {
                assert_int_equal(client_call_send(open_call(&outcome), "ping", 4), 0);
                pump(pair);
                assert_int_equal(outcome.n_messages, i);
        }
        client_call_end(open_call(&outcome));
        pump(pair);
        assert_int_equal(outcome.code, STATUS_OK);
}

static void early_answer_ends_the_call_for_both(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &outcome, "/t.T/Refuse", NULL, 0);
        pump(pair);
        assert_true(outcome.ended);
        assert_int_equal(outcome.code, STATUS_RESOURCE_EXHAUSTED);
        assert_string_equal(outcome.message, "no more");
        assert_int_equal(server_session_base(pair->server)->n_streams, 0);
        assert_int_equal(client_session_base(pair->client)->n_streams, 0);
}

static void cancel_reaches_the_handler(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        request(pair, &outcome, "/t.T/Hang", "", 0);
        assert_false(outcome.ended);

        client_call_cancel(open_call(&outcome));
        pump(pair);
        assert_int_equal(outcome.code, STATUS_CANCELLED);
        assert_int_equal(pair->n_ended, 1);
        assert_int_equal(pair->how, CALL_END_CANCELLED);
}

/* What a new client has to say that sends large messages and small ones, by session_gather() or session_produce().
 * Counts the parts that are not in the buffer. */
static size_t say_much(bool gathers, uint8_t *ret_said, size_t *ret_lent) {
        static uint8_t buffer[256 << 10];
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        Session *client = client_session_base(pair->client);
        size_t len = 0;
        ssize_t n;

        start(pair, &outcome, "/t.T/Hang", NULL, 0);
        pump(pair);
        for (size_t i = 0; i < 20; i++) {
                size_t size = i % 4 == 3 ? 100 : 5000 * i;
                uint8_t *message = new0(uint8_t, size + 1);

                for (size_t k = 0; k < size; k++)
                        message[k] = (uint8_t) (i + k / 7);
                assert_int_equal(client_call_send_taken(open_call(&outcome), message, size), 0);
        }
        do {
                _cleanup_(session_output_clear) SessionOutput output = { .buffer = buffer, .size = sizeof(buffer) };

                n = gathers ? session_gather(client, &output) : session_produce(client, ret_said + len, sizeof(buffer));
                assert_true(output.n_parts <= SESSION_PARTS_MAX);
                for (size_t i = 0, at = len; i < output.n_parts; i++) {
                        uint8_t *base = output.parts[i].iov_base;

                        *ret_lent += base < buffer || base >= buffer + sizeof(buffer);
                        memcpy(ret_said + at, base, output.parts[i].iov_len);
                        at += output.parts[i].iov_len;
                }
                len += n > 0 ? (size_t) n : 0;
        } while (n > 0);
        assert_int_equal(n, 0);
        return len;
}

static void what_is_gathered_is_what_is_produced(void **state) {
        _cleanup_free_ uint8_t *gathered = new0(uint8_t, 4 << 20), *produced = new0(uint8_t, 4 << 20);
        size_t lent = 0, none = 0, len = say_much(true, gathered, &lent);

        assert_true(lent > SESSION_PARTS_MAX);
        assert_int_equal(len, say_much(false, produced, &none));
        assert_true(len > 64 << 10);
        assert_memory_equal(gathered, produced, len);
}

static void cancelled_call_hears_nothing_but_its_end(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 1024 };
        Session *server = server_session_base(pair->server), *client = client_session_base(pair->client);
        uint8_t buffer[SESSION_BUFFER_SIZE];
        ssize_t n;

        assert_int_equal(metadata_add(&metadata, "x-echo", "text", 4), 0);
        start(pair, &outcome, "/t.T/Echo", &metadata, 0);
        assert_int_equal(client_call_send(open_call(&outcome), "hello", 5), 0);
        client_call_end(open_call(&outcome));
        (void) carry(client, server, SIZE_MAX / 2, pair->now);

        /* The answer is there, and nobody was told yet. */
        while ((n = session_produce(server, buffer, sizeof(buffer))) > 0)
                assert_int_equal(session_receive(client, buffer, (size_t) n, pair->now), 0);
        client_call_cancel(open_call(&outcome));
        pump(pair);
        assert_int_equal(outcome.code, STATUS_CANCELLED);
        assert_string_equal(outcome.header, "");
        assert_int_equal(outcome.n_messages, 0);
}

static void deadline_ends_the_call_on_both_sides(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &outcome, "/t.T/Hang", NULL, MILLISECONDS(100));
        assert_int_equal(client_call_send(open_call(&outcome), "", 0), 0);
        client_call_end(open_call(&outcome));
        pump(pair);
        assert_int_equal(session_deadline(server_session_base(pair->server)), pair->now + MILLISECONDS(100));
        assert_non_null(pair->call);
        assert_string_equal(call_path(pair->call), "/t.T/Hang");
        assert_int_equal(call_deadline(pair->call), pair->now + MILLISECONDS(100));

        pair->now += MILLISECONDS(99);
        session_tick(server_session_base(pair->server), pair->now);
        session_tick(client_session_base(pair->client), pair->now);
        assert_int_equal(pair->n_ended, 0);

        pair->now += MILLISECONDS(1);
        session_tick(server_session_base(pair->server), pair->now);
        assert_int_equal(pair->n_ended, 1);
        assert_int_equal(pair->how, CALL_END_DEADLINE);
        pump(pair);
        assert_int_equal(outcome.code, STATUS_DEADLINE_EXCEEDED);
        assert_true(outcome.from_server);
        assert_string_equal(outcome.reason, "DEADLINE_EXCEEDED");
}

static void client_gives_up_by_itself_at_the_deadline(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        start(pair, &outcome, "/t.T/Hang", NULL, MILLISECONDS(100));
        pump(pair);
        pair->now += MILLISECONDS(100);
        session_tick(client_session_base(pair->client), pair->now);
        pump(pair);
        assert_int_equal(outcome.code, STATUS_DEADLINE_EXCEEDED);
        assert_false(outcome.from_server);
}

static void vanished_peer_ends_every_call(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        request(pair, &outcome, "/t.T/Hang", "", 0);
        assert_non_null(pair->call);
        assert_int_equal(call_deadline(pair->call), UINT64_MAX); /* it has none */
        pair->client = client_session_free(pair->client);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_string_equal(outcome.reason, "CONNECTION_LOST");
        assert_true(outcome.lost);

        pair->server = server_session_free(pair->server);
        assert_int_equal(pair->n_ended, 1);
        assert_int_equal(pair->how, CALL_END_LOST);
}

static void lost_connection_ends_calls_whose_answers_nobody_read(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        pair->n_to_send = 3;
        start(pair, &outcome, "/t.T/Pour", NULL, 0);
        outcome.reads = false; /* one message was asked for */
        assert_int_equal(client_call_send(open_call(&outcome), "", 0), 0);
        client_call_end(open_call(&outcome));
        pump(pair);
        assert_int_equal(outcome.n_messages, 1);
        assert_false(outcome.ended);

        /* Not OK: there was more. */
        pair->client = client_session_free(pair->client);
        assert_int_equal(outcome.code, STATUS_UNAVAILABLE);
        assert_true(outcome.lost);
}

static void lost_connection_leaves_what_was_answered(void **state) {
        Outcome answered = {}, hung = {}, unfinished = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        Session *client = client_session_base(pair->client);

        pair->n_to_send = 3;
        start(pair, &answered, "/t.T/Pour", NULL, 0);
        answered.reads = false; /* one message was asked for */
        assert_int_equal(client_call_send(open_call(&answered), "", 0), 0);
        client_call_end(open_call(&answered));
        request(pair, &hung, "/t.T/Hang", "", 0);
        start(pair, &unfinished, "/t.T/Converse", NULL, 0);
        assert_int_equal(client_call_send(open_call(&unfinished), "1", 1), 0);
        assert_int_equal(client_call_send(open_call(&unfinished), "2", 1), 0);
        unfinished.reads = false;
        pump(pair);
        assert_int_equal(unfinished.n_messages, 1);

        client_session_lose(pair->client, "CONNECTION_CLOSED", "the server went home");
        while (session_dispatch(client, 1))
                ;
        assert_true(hung.lost);
        assert_string_equal(hung.reason, "CONNECTION_CLOSED");
        assert_string_equal(hung.message, "the server went home");
        assert_true(unfinished.lost); /* though there was a message to read */
        assert_false(answered.ended);
        assert_non_null(answered.call);
        assert_int_equal(session_deadline(client), UINT64_MAX);

        assert_int_equal(client_call_send(open_call(&answered), "", 0), -EPIPE);
        for (size_t i = 1; i < 3; i++) {
                assert_false(answered.ended);
                client_call_read(open_call(&answered));
                while (session_dispatch(client, 1))
                        ;
                assert_int_equal(answered.n_messages, i + 1);
        }
        assert_int_equal(answered.code, STATUS_OK);
        assert_true(answered.from_server);
        assert_false(answered.lost);
        assert_int_equal(client->n_streams, 0);
}

/* A server need not reset what it has answered before the client had sent all. */
static void complete_answer_ends_a_call_that_still_sends(void **state) {
        static const uint8_t settings[] = { 0, 0, 0, 4, 0, 0, 0, 0, 0 };
        static const uint8_t head[] = { 0, 0, 47, 1, 5, 0, 0, 0, 1 }; /* HEADERS with its end, of stream 1 */
        static const uint8_t status[] = "\x88"                        /* :status 200 */
                                        "\x00\x0c"
                                        "content-type"
                                        "\x10"
                                        "application/grpc"
                                        "\x00\x0b"
                                        "grpc-status"
                                        "\x01"
                                        "5";
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        Session *client = client_session_base(pair->client);
        uint8_t buffer[SESSION_BUFFER_SIZE];

        start(pair, &outcome, "/t.T/Collect", NULL, 0);
        while (session_produce(client, buffer, sizeof(buffer)) > 0)
                ;
        assert_int_equal(sizeof(status) - 1, head[2]);
        assert_int_equal(session_receive(client, settings, sizeof(settings), pair->now), 0);
        assert_int_equal(session_receive(client, head, sizeof(head), pair->now), 0);
        assert_int_equal(session_receive(client, status, sizeof(status) - 1, pair->now), 0);
        (void) session_dispatch(client, SIZE_MAX);
        while (session_produce(client, buffer, sizeof(buffer)) > 0)
                ;
        (void) session_dispatch(client, SIZE_MAX);

        assert_true(outcome.ended);
        assert_true(outcome.from_server);
        assert_int_equal(outcome.code, STATUS_NOT_FOUND);
        assert_int_equal(client->n_streams, 0);
}

static void answers_are_compressed_when_asked(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 1024 };
        static const uint8_t zeros[100000];

        assert_int_equal(metadata_add(&metadata, "x-compress", "1", 1), 0);
        outcome.pair = pair;
        outcome.reads = true;
        outcome.call = client_call_start(
                pair->client,
                &(ClientRequest){
                        .path = "/t.T/Echo", .metadata = &metadata, .deadline = DEADLINE_NONE, .compresses = true },
                &client_events, &outcome);
        assert_non_null(outcome.call);
        client_call_read(open_call(&outcome));
        assert_int_equal(client_call_send(open_call(&outcome), zeros, sizeof(zeros)), 0);
        client_call_end(open_call(&outcome));
        pump(pair);

        assert_int_equal(outcome.code, STATUS_OK);
        assert_int_equal(outcome.bytes, sizeof(zeros));
}

static int refuse_all(Call *call, void *context, HutchError *err) {
        (void) call, (void) context;
        return error_set_code(err, STATUS_UNAUTHENTICATED, -EPERM, "CREDENTIALS_MISSING", "who are you?");
}

static int count_begin(Call *call, void *context, HutchError *err) {
        (void) call, (void) err;
        ++*(int *) context;
        return 0;
}

static void count_end(Call *call, StatusCode status, CallEnd how, void *context) {
        (void) call, (void) how;
        assert_int_equal(status, STATUS_UNAUTHENTICATED);
        *(int *) context += 100;
}

static void interceptors_stand_before_handlers(void **state) {
        Outcome outcome = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        int count = 0;

        pair->interceptors[0] = (Interceptor){ .begin = count_begin, .end = count_end, .context = &count };
        pair->interceptors[1] = (Interceptor){ .begin = refuse_all };
        pair->handlers.interceptors = pair->interceptors;
        pair->handlers.n_interceptors = 2;
        request(pair, &outcome, "/t.T/Echo", "x", 1);

        assert_int_equal(outcome.code, STATUS_UNAUTHENTICATED);
        assert_string_equal(outcome.message, "who are you?");
        assert_int_equal(count, 101);
}

static void drain_lets_running_calls_finish(void **state) {
        Outcome running = {}, late = {};
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);

        request(pair, &running, "/t.T/Hang", "", 0);
        assert_int_equal(session_drain(server_session_base(pair->server)), 0);
        pump(pair);
        assert_false(client_session_is_open(pair->client));
        assert_false(running.ended);
        assert_false(session_is_finished(server_session_base(pair->server)));

        /* nghttp2 refuses to open streams after GOAWAY: the caller may go elsewhere. */
        late.reads = true;
        late.call = client_call_start(pair->client, &(ClientRequest){ .path = "/t.T/Echo", .deadline = DEADLINE_NONE },
                                      &client_events, &late);
        if (late.call) {
                pump(pair);
                assert_true(late.not_processed);
        }

        call_reply(pair->call, "done", 4);
        pump(pair);
        assert_int_equal(running.code, STATUS_OK);
        assert_memory_equal(running.first, "done", 4);
        assert_true(session_is_finished(server_session_base(pair->server)));
}

/* The peer opens streams and breaks their rules, so that the server must reset them. */
static void resets_that_the_peer_provokes_are_limited(void **state) {
        static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
        uint8_t headers[] = "\0\0\x25\1\4\0\0\0\0" /* HEADERS */
                            "\x83\x86\x41\1a"      /* POST, http, authority */
                            "\4\x0b/t.T/Refuse\x0f\x10\x10"
                            "application/grpc";
        uint8_t overflow[] = "\0\0\4\x08\0\0\0\0\0\x7f\xff\xff\xff"; /* WINDOW_UPDATE */
        _cleanup_(pair_freep) Pair *pair = pair_new(NULL);
        Session *server = server_session_base(pair->server);
        uint8_t buffer[SESSION_BUFFER_SIZE];
        unsigned n;

        assert_int_equal(sizeof(headers) - 1, 9 + headers[2]);
        assert_int_equal(session_receive(server, preface, sizeof(preface) - 1, pair->now), 0);
        for (n = 0; n < 1000 && !server->broken; n++) {
                headers[7] = overflow[7] = (uint8_t) ((2 * n + 1) >> 8);
                headers[8] = overflow[8] = (uint8_t) (2 * n + 1);
                assert_int_equal(session_receive(server, headers, sizeof(headers) - 1, pair->now), 0);
                assert_int_equal(session_receive(server, overflow, sizeof(overflow) - 1, pair->now), 0);
                while (session_produce(server, buffer, sizeof(buffer)) > 0)
                        ;
                (void) session_dispatch(server, SIZE_MAX);
        }
        assert_in_range(n, 50, 200);
}

static void silence_is_broken_and_then_taken_for_death(void **state) {
        SessionLimits limits = session_limits_default;
        _cleanup_(pair_freep) Pair *pair = NULL;
        Session *client;

        limits.keepalive_interval = MILLISECONDS(1000);
        limits.keepalive_timeout = MILLISECONDS(200);
        pair = pair_new(&limits);
        client = client_session_base(pair->client);
        pump(pair);

        pair->now += MILLISECONDS(1000);
        session_tick(client, pair->now);
        pump(pair);
        assert_false(client->dead); /* the answer came */

        pair->now += MILLISECONDS(1000);
        session_tick(client, pair->now);
        pair->now += MILLISECONDS(200);
        session_tick(client, pair->now);
        assert_true(client->dead);
        assert_true(session_is_finished(client));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(unary_call_is_answered),
                cmocka_unit_test(bytes_may_come_one_by_one),
                cmocka_unit_test(metadata_goes_both_ways),
                cmocka_unit_test(status_and_message_arrive),
                cmocka_unit_test(unknown_method_is_unimplemented),
                cmocka_unit_test(one_message_means_one),
                cmocka_unit_test(message_larger_than_any_window_comes_through),
                cmocka_unit_test(what_is_gathered_is_what_is_produced),
                cmocka_unit_test(message_longer_than_a_prefix_can_say_is_refused),
                cmocka_unit_test(message_beyond_the_limit_is_refused),
                cmocka_unit_test(server_streams_no_faster_than_the_client_reads),
                cmocka_unit_test(client_streams_no_faster_than_the_server_reads),
                cmocka_unit_test(stalled_call_does_not_stall_another),
                cmocka_unit_test(both_sides_stream),
                cmocka_unit_test(early_answer_ends_the_call_for_both),
                cmocka_unit_test(cancel_reaches_the_handler),
                cmocka_unit_test(cancelled_call_hears_nothing_but_its_end),
                cmocka_unit_test(deadline_ends_the_call_on_both_sides),
                cmocka_unit_test(client_gives_up_by_itself_at_the_deadline),
                cmocka_unit_test(vanished_peer_ends_every_call),
                cmocka_unit_test(lost_connection_ends_calls_whose_answers_nobody_read),
                cmocka_unit_test(lost_connection_leaves_what_was_answered),
                cmocka_unit_test(complete_answer_ends_a_call_that_still_sends),
                cmocka_unit_test(answers_are_compressed_when_asked),
                cmocka_unit_test(interceptors_stand_before_handlers),
                cmocka_unit_test(drain_lets_running_calls_finish),
                cmocka_unit_test(resets_that_the_peer_provokes_are_limited),
                cmocka_unit_test(silence_is_broken_and_then_taken_for_death),
        };

        return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
