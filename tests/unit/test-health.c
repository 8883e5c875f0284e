/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/health.h"

#include <errno.h>
#include <string.h>

#include "contract/grpc/health/v1/health.pb-c.h"
#include "rpc/core/method-table.h"

#include "fail-alloc.h"
#include "session-pair.h"
#include "test.h"

#define CHECK "/grpc.health.v1.Health/Check"
#define WATCH "/grpc.health.v1.Health/Watch"
#define LIST "/grpc.health.v1.Health/List"
#define STATUS_IS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

/* A server with "" and "t.Down" in its health, and a connection to it. */
typedef struct Fixture {
        MethodTable *table;
        Health *health;
        SessionPair pair;
} Fixture;

static Fixture *fixture_new(void) {
        Fixture *fixture = new0(Fixture, 1);

        fixture->table = method_table_new();
        fixture->health = health_new();
        assert_non_null(fixture->table);
        assert_non_null(fixture->health);
        assert_int_equal(health_set(fixture->health, "", true), 0);
        assert_int_equal(health_set(fixture->health, "t.Down", false), 0);
        assert_int_equal(health_add_methods(fixture->health, fixture->table), 0);
        session_pair_init(&fixture->pair, fixture->table);
        return fixture;
}

static Fixture *fixture_free(Fixture *fixture) {
        session_pair_clear(&fixture->pair);
        health_free(fixture->health);
        method_table_free(fixture->table);
        free(fixture);
        return NULL;
}
DEFINE_CLEANUP(Fixture *, fixture_free);

static void ask(Fixture *fixture, PairCall *call, const char *path, const char *service) {
        Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

        request.service = (char *) service;
        pair_call_start(&fixture->pair, call, path);
        pair_call_send(&fixture->pair, call, &request.base);
        pair_call_end(&fixture->pair, call);
}

/* The status in the latest message. */
static int latest(const PairCall *call) {
        Grpc__Health__V1__HealthCheckResponse *response =
                grpc__health__v1__health_check_response__unpack(NULL, call->len, call->message);
        int status;

        assert_non_null(response);
        status = (int) response->status;
        grpc__health__v1__health_check_response__free_unpacked(response, NULL);
        return status;
}

static void check_tells_what_was_set(void **state) {
        _cleanup_(pair_call_clear) PairCall whole = {}, down = {}, up = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &whole, CHECK, "");
        assert_int_equal(whole.code, STATUS_OK);
        assert_int_equal(latest(&whole), STATUS_IS(SERVING));

        ask(fixture, &down, CHECK, "t.Down");
        assert_int_equal(latest(&down), STATUS_IS(NOT_SERVING));

        assert_int_equal(health_set(fixture->health, "t.Down", true), 0);
        ask(fixture, &up, CHECK, "t.Down");
        assert_int_equal(latest(&up), STATUS_IS(SERVING));
}

static void check_does_not_find_unknown_services(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &call, CHECK, "t.Dow");
        assert_null(call.call);
        assert_int_equal(call.code, STATUS_NOT_FOUND);
        assert_int_equal(call.n_messages, 0);
}

static void watch_tells_at_once_and_then_every_change(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &call, WATCH, "t.Down");
        assert_non_null(call.call);
        assert_int_equal(call.n_messages, 1);
        assert_int_equal(latest(&call), STATUS_IS(NOT_SERVING));

        assert_int_equal(health_set(fixture->health, "t.Down", true), 0);
        session_pair_pump(&fixture->pair);
        assert_int_equal(call.n_messages, 2);
        assert_int_equal(latest(&call), STATUS_IS(SERVING));

        /* What is no change of this service is not told. */
        assert_int_equal(health_set(fixture->health, "t.Down", true), 0);
        assert_int_equal(health_set(fixture->health, "", false), 0);
        session_pair_pump(&fixture->pair);
        assert_int_equal(call.n_messages, 2);
        assert_non_null(call.call);
}

static void watch_of_an_unknown_service_waits_for_it(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &call, WATCH, "t.Late");
        assert_int_equal(latest(&call), STATUS_IS(SERVICE_UNKNOWN));
        assert_non_null(call.call);

        assert_int_equal(health_set(fixture->health, "t.Late", true), 0);
        session_pair_pump(&fixture->pair);
        assert_int_equal(latest(&call), STATUS_IS(SERVING));
}

static void a_watcher_that_does_not_read_costs_no_memory(void **state) {
        _cleanup_(pair_call_clear) PairCall call = { .pauses = true };
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &call, WATCH, "");
        for (int i = 0; i < 200000; i++)
                assert_int_equal(health_set(fixture->health, "", i % 2 == 1), 0);

        /* It hears of the latest, whatever it missed. */
        call.pauses = false;
        client_call_read(call.call);
        session_pair_pump(&fixture->pair);
        assert_int_equal(latest(&call), STATUS_IS(SERVING));
        assert_in_range(call.n_messages, 2, 199999);
}

static void watchers_may_leave_in_any_order(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();
        PairCall calls[5] = {};
        static const size_t order[] = { 2, 0, 4 };

        for (size_t i = 0; i < 5; i++)
                ask(fixture, &calls[i], WATCH, "");
        for (size_t i = 0; i < 3; i++) {
                assert_non_null(calls[order[i]].call);
                client_call_cancel(calls[order[i]].call);
                session_pair_pump(&fixture->pair);
                assert_int_equal(health_set(fixture->health, "", i % 2 == 1), 0);
                session_pair_pump(&fixture->pair);
        }

        for (size_t i = 0; i < 5; i++) {
                assert_int_equal(calls[i].call != NULL, i == 1 || i == 3);
                if (calls[i].call)
                        assert_int_equal(calls[i].n_messages, 4);
        }
        session_pair_clear(&fixture->pair);
        for (size_t i = 0; i < 5; i++)
                pair_call_clear(&calls[i]);
}

static void shutting_down_tells_and_ends_watchers(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {}, check = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &call, WATCH, "");
        health_shut_down(fixture->health);
        session_pair_pump(&fixture->pair);
        assert_null(call.call);
        assert_int_equal(call.code, STATUS_UNAVAILABLE);
        assert_int_equal(latest(&call), STATUS_IS(NOT_SERVING));

        ask(fixture, &check, CHECK, "");
        assert_int_equal(latest(&check), STATUS_IS(NOT_SERVING));
}

static void health_may_go_before_its_watchers(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

        ask(fixture, &call, WATCH, "");
        fixture->health = health_free(fixture->health);
        session_pair_pump(&fixture->pair);
        assert_null(call.call);
        assert_int_equal(call.code, STATUS_UNAVAILABLE);
}

static void list_tells_of_all(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {};
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();
        Grpc__Health__V1__HealthListResponse *response;

        ask(fixture, &call, LIST, "");
        assert_int_equal(call.code, STATUS_OK);
        response = grpc__health__v1__health_list_response__unpack(NULL, call.len, call.message);
        assert_non_null(response);
        assert_int_equal(response->n_statuses, 2);
        assert_string_equal(response->statuses[0]->key, "t.Down");
        assert_int_equal(response->statuses[0]->value->status, STATUS_IS(NOT_SERVING));
        assert_string_equal(response->statuses[1]->key, "");
        assert_int_equal(response->statuses[1]->value->status, STATUS_IS(SERVING));
        grpc__health__v1__health_list_response__free_unpacked(response, NULL);
}

static void malformed_and_oversized_requests_fail(void **state) {
        static const char *const paths[] = { CHECK, WATCH };
        static uint8_t large[100000] = { 0x0a, 0x9c, 0x8d, 0x06 }; /* a service of 99,996 bytes */

        memset(large + 4, 'x', sizeof(large) - 4);
        for (size_t i = 0; i < 2; i++) {
                _cleanup_(pair_call_clear) PairCall malformed = {}, oversized = {};
                _cleanup_(fixture_freep) Fixture *fixture = fixture_new();

                pair_call_start(&fixture->pair, &malformed, paths[i]);
                pair_call_send_bytes(&fixture->pair, &malformed, "\x0a\x05x", 3);
                pair_call_end(&fixture->pair, &malformed);
                assert_int_equal(malformed.code, STATUS_INTERNAL);

                pair_call_start(&fixture->pair, &oversized, paths[i]);
                pair_call_send_bytes(&fixture->pair, &oversized, large, sizeof(large));
                pair_call_end(&fixture->pair, &oversized);
                assert_int_equal(oversized.code, STATUS_RESOURCE_EXHAUSTED);
        }
}

static void memory_may_run_out_anywhere(void **state) {
        static const char *const paths[] = { CHECK, WATCH, LIST };

        for (size_t i = 0; i < 3; i++) {
                bool goes_on = true;

                for (size_t n = 0; goes_on; n++) {
                        _cleanup_(pair_call_clear) PairCall call = {};
                        _cleanup_(fixture_freep) Fixture *fixture = fixture_new();
                        int r;

                        fail_alloc_after(n);
                        ask(fixture, &call, paths[i], "");
                        r = health_set(fixture->health, "t.New", true);
                        assert_true(r == 0 || r == -ENOMEM);
                        (void) health_set(fixture->health, "", false);
                        if (!call.call && call.code == STATUS_OK)
                                assert_int_equal(call.n_messages, 1);
                        goes_on = fail_alloc_happened();
                        fail_alloc_off();
                        session_pair_clear(&fixture->pair);
                }
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(check_tells_what_was_set),
                cmocka_unit_test(check_does_not_find_unknown_services),
                cmocka_unit_test(watch_tells_at_once_and_then_every_change),
                cmocka_unit_test(watch_of_an_unknown_service_waits_for_it),
                cmocka_unit_test(a_watcher_that_does_not_read_costs_no_memory),
                cmocka_unit_test(watchers_may_leave_in_any_order),
                cmocka_unit_test(shutting_down_tells_and_ends_watchers),
                cmocka_unit_test(health_may_go_before_its_watchers),
                cmocka_unit_test(list_tells_of_all),
                cmocka_unit_test(malformed_and_oversized_requests_fail),
                cmocka_unit_test(memory_may_run_out_anywhere),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
