/* SPDX-License-Identifier: Apache-2.0 */

/* Calls are the same to handlers and interceptors, whether they are streams of HTTP/2 or come from this process. */

#include "rpc/core/call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "rpc/core/local-call.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"

#include "session-pair.h"
#include "test.h"

/* What handlers and interceptors saw, in letters. */
typedef struct Seen {
        char log[64];
        Call *waiting;     /* at the interceptor */
        bool waits, reads; /* the interceptor has calls wait; the handler reads at once */
        Call *call;        /* the handler's */
        unsigned identity, n_freed;
} Seen;

static Seen seen;

static void note(char letter) {
        size_t len = strlen(seen.log);

        assert_true(len + 1 < sizeof(seen.log));
        seen.log[len] = letter;
}

static void free_identity(void *identity) {
        assert_ptr_equal(identity, &seen.identity);
        seen.n_freed++;
}

static void on_wait_ended(Call *call, CallEnd how) {
        (void) call, (void) how;
        seen.waiting = NULL;
        note('x');
}

static int on_begin(Call *call, void *context, HutchError *err) {
        static const CallEvents events = { .ended = on_wait_ended };

        (void) context, (void) err;
        note('b');
        call_set_identity(call, &seen.identity, free_identity);
        if (!seen.waits)
                return 0;
        seen.waiting = call;
        call_set_events(call, &events, NULL);
        return CALL_WAITS;
}

static void on_end(Call *call, StatusCode status, CallEnd how, void *context) {
        (void) status, (void) how, (void) context;
        assert_ptr_equal(call_identity(call), &seen.identity);
        note('e');
}

static void go_on(const HutchError *refusal) {
        Call *call = TAKE_PTR(seen.waiting);

        assert_non_null(call);
        call_go_on(call, refusal);
}

static const Interceptor interceptors[] = { { .begin = on_begin, .end = on_end } };

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) context;
        assert_ptr_equal(call_identity(call), &seen.identity);
        call_set_events(call, NULL, NULL);
        note('h');
        call_reply(call, message, len);
}

static void on_message(Call *call, const uint8_t *message, size_t len) {
        note('m');
        assert_int_equal(call_send_taken(call, call_take_message(call), len), 0);
        (void) message;
        if (seen.reads)
                call_read(call);
}

static void on_half_closed(Call *call) {
        note('c');
        call_finish(call, STATUS_OK, NULL);
}

static void on_ended(Call *call, CallEnd how) {
        (void) call;
        seen.call = NULL;
        note(how == CALL_END_FINISHED ? 'f' : 'k');
}

static void stream(Call *call, void *context) {
        static const CallEvents events = { .message = on_message, .half_closed = on_half_closed, .ended = on_ended };

        (void) context;
        note('s');
        seen.call = call;
        call_set_events(call, &events, NULL);
        if (seen.reads)
                call_read(call);
}

static void read_more(void) {
        assert_non_null(seen.call);
        call_read(seen.call);
}

static const Method methods[] = {
        { .path = "/t.T/Echo", .handle = echo },
        { .path = "/t.T/Stream", .start = stream },
};

typedef struct Fixture {
        MethodTable *table;
        ServerHandlers handlers;
        Metadata metadata;
        Peer peer;
} Fixture;

static int set_up(void **state) {
        static Fixture fixture;

        seen = (Seen){ .reads = true };
        fixture = (Fixture){ .table = method_table_new() };
        assert_non_null(fixture.table);
        assert_int_equal(method_table_add(fixture.table, methods, 2), 0);
        fixture.handlers =
                (ServerHandlers){ .methods = fixture.table, .interceptors = interceptors, .n_interceptors = 1 };
        *state = &fixture;
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;

        fixture->table = method_table_free(fixture->table);
        return 0;
}

/* What came of a call from this process. */
typedef struct Outcome {
        char messages[64];
        bool finished;
        StatusCode status;
        size_t details_len;
} Outcome;

static void take_message(const uint8_t *message, size_t len, void *user) {
        Outcome *outcome = user;

        assert_false(outcome->finished);
        strncat(outcome->messages, (const char *) message, len);
}

static void take_status(StatusCode status, const char *message, const void *details, size_t details_len, void *user) {
        Outcome *outcome = user;

        (void) message, (void) details;
        assert_false(outcome->finished);
        outcome->finished = true;
        outcome->status = status;
        outcome->details_len = details_len;
}

static LocalCall *begin_local(const Fixture *fixture, const char *path, Outcome *outcome) {
        static const LocalCallEvents events = { take_message, take_status };

        LocalCall *call;

        *outcome = (Outcome){};
        call = local_call_new(&fixture->handlers, path, &fixture->metadata, &fixture->peer, UINT64_MAX, &events,
                              outcome);
        assert_non_null(call);
        return call;
}

static void a_local_call_is_handled_like_any_other(void **state) {
        Outcome outcome;
        LocalCall *call = begin_local(*state, "/t.T/Echo", &outcome);

        assert_int_equal(local_call_send(call, "hello", 5), 0);
        assert_false(outcome.finished);
        local_call_half_close(call);
        assert_true(outcome.finished);
        assert_int_equal(outcome.status, STATUS_OK);
        assert_string_equal(outcome.messages, "hello");
        assert_int_equal(local_call_send(call, "more", 4), -EPIPE);
        (void) local_call_free(call);
        assert_string_equal(seen.log, "bhe");
        assert_int_equal(seen.n_freed, 1);
}

static void a_local_call_streams_as_far_as_is_asked_for(void **state) {
        Outcome outcome;
        LocalCall *call;

        seen.reads = false;
        call = begin_local(*state, "/t.T/Stream", &outcome);
        assert_int_equal(local_call_send(call, "a", 1), 0);
        assert_int_equal(local_call_send(call, "b", 1), 0);
        assert_string_equal(outcome.messages, "");
        read_more();
        assert_string_equal(outcome.messages, "a");
        local_call_half_close(call);
        assert_false(outcome.finished);
        read_more();
        assert_string_equal(outcome.messages, "ab");
        assert_int_equal(outcome.status, STATUS_OK);
        assert_true(outcome.finished);
        (void) local_call_free(call);
        assert_string_equal(seen.log, "bsmmcfe");
}

static void a_local_call_that_is_freed_early_is_cancelled(void **state) {
        Outcome outcome;
        LocalCall *call = begin_local(*state, "/t.T/Stream", &outcome);

        assert_int_equal(local_call_send(call, "a", 1), 0);
        seen.reads = false;
        assert_int_equal(local_call_send(call, "b", 1), 0);
        assert_int_equal(local_call_send(call, "c", 1), 0);
        (void) local_call_free(call);
        assert_false(outcome.finished);
        assert_string_equal(seen.log, "bsmmke");
}

static void what_a_local_call_asks_wrongly_is_refused(void **state) {
        Outcome outcome;
        LocalCall *call = begin_local(*state, "/t.T/None", &outcome);

        assert_int_equal(outcome.status, STATUS_UNIMPLEMENTED);
        assert_true(outcome.details_len > 0);
        (void) local_call_free(call);

        for (size_t n = 0; n < 3; n += 2) {
                call = begin_local(*state, "/t.T/Echo", &outcome);
                for (size_t i = 0; i < n; i++)
                        assert_int_equal(local_call_send(call, "x", 1), 0);
                local_call_half_close(call);
                assert_int_equal(outcome.status, STATUS_UNIMPLEMENTED);
                (void) local_call_free(call);
        }
}

static void a_local_call_waits_for_its_interceptor(void **state) {
        const HutchError refusal = { .code = STATUS_UNAUTHENTICATED, .error = -EACCES, .message = (char *) "no" };
        Outcome outcome;
        LocalCall *call;

        seen.waits = true;
        call = begin_local(*state, "/t.T/Echo", &outcome);
        assert_int_equal(local_call_send(call, "hello", 5), 0);
        local_call_half_close(call);
        assert_string_equal(seen.log, "b");
        go_on(NULL);
        assert_string_equal(outcome.messages, "hello");
        (void) local_call_free(call);
        assert_string_equal(seen.log, "bhe");

        memset(seen.log, 0, sizeof(seen.log));
        call = begin_local(*state, "/t.T/Echo", &outcome);
        go_on(&refusal);
        assert_int_equal(outcome.status, STATUS_UNAUTHENTICATED);
        (void) local_call_free(call);
        assert_string_equal(seen.log, "bx");

        memset(seen.log, 0, sizeof(seen.log));
        call = begin_local(*state, "/t.T/Stream", &outcome);
        (void) local_call_free(call);
        assert_null(seen.waiting);
        assert_string_equal(seen.log, "bx");
        assert_int_equal(seen.n_freed, 3);
}

static void begin_pair(SessionPair *pair, const Fixture *fixture) {
        session_pair_init(pair, fixture->table);
        pair->handlers.interceptors = interceptors;
        pair->handlers.n_interceptors = 1;
}

static void a_stream_of_http2_waits_for_its_interceptor(void **state) {
        static const char *const paths[] = { "/t.T/Echo", "/t.T/Stream" }, *const logs[] = { "bhe", "bsmcfe" };

        for (size_t i = 0; i < 2; i++) {
                _cleanup_(pair_call_clear) PairCall call = {};
                _cleanup_(session_pair_clear) SessionPair pair = {};

                seen = (Seen){ .reads = true, .waits = true };
                begin_pair(&pair, *state);
                pair_call_start(&pair, &call, paths[i]);
                pair_call_send_bytes(&pair, &call, "hello", 5);
                pair_call_end(&pair, &call);
                assert_non_null(call.call);
                assert_string_equal(seen.log, "b");
                go_on(NULL);
                session_pair_pump(&pair);
                assert_null(call.call);
                assert_int_equal(call.code, STATUS_OK);
                assert_int_equal(call.n_messages, 1);
                assert_int_equal(call.len, 5);
                assert_memory_equal(call.message, "hello", 5);
                assert_string_equal(seen.log, logs[i]);
                assert_int_equal(seen.n_freed, 1);
        }
}

static void a_stream_that_waits_can_be_empty_refused_and_cancelled(void **state) {
        const HutchError refusal = { .code = STATUS_UNAUTHENTICATED, .error = -EACCES, .message = (char *) "no" };
        _cleanup_(pair_call_clear) PairCall empty = {}, refused = {}, cancelled = {};
        _cleanup_(session_pair_clear) SessionPair pair = {};

        begin_pair(&pair, *state);
        seen.waits = true;
        seen.reads = false;
        pair_call_start(&pair, &empty, "/t.T/Stream");
        pair_call_end(&pair, &empty);
        go_on(NULL);
        session_pair_pump(&pair);
        assert_int_equal(empty.code, STATUS_OK);
        assert_string_equal(seen.log, "bscfe");

        pair_call_start(&pair, &refused, "/t.T/Stream");
        go_on(&refusal);
        session_pair_pump(&pair);
        assert_int_equal(refused.code, STATUS_UNAUTHENTICATED);

        memset(seen.log, 0, sizeof(seen.log));
        pair_call_start(&pair, &cancelled, "/t.T/Stream");
        assert_non_null(seen.waiting);
        assert_non_null(cancelled.call);
        client_call_cancel(cancelled.call);
        session_pair_pump(&pair);
        assert_null(seen.waiting);
        assert_string_equal(seen.log, "bx");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_local_call_is_handled_like_any_other, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_local_call_streams_as_far_as_is_asked_for, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_local_call_that_is_freed_early_is_cancelled, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_a_local_call_asks_wrongly_is_refused, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_local_call_waits_for_its_interceptor, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_stream_of_http2_waits_for_its_interceptor, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_stream_that_waits_can_be_empty_refused_and_cancelled, set_up,
                                                tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
