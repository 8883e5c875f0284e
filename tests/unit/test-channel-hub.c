/* SPDX-License-Identifier: Apache-2.0 */

/* Hubs with tasks that count. */

#include "rpc/channel-hub.h"

#include "test.h"

typedef struct Counter {
        HubTask task; /* first: a counter is its task */
        ChannelHub *hub;
        size_t n_runs;
        bool tells;
        bool restless;    /* queues itself again */
        HubTask *forgets; /* takes it out of the queue */
        HubTask *awakens; /* puts it in */
} Counter;

typedef struct Fixture {
        uv_loop_t loop;
        uv_timer_t timer; /* keeps the loop alive */
        ChannelHub *hub;
        bool fired;
} Fixture;

static bool count(HubTask *task) {
        Counter *counter = (Counter *) task;

        counter->n_runs++;
        if (counter->restless)
                channel_hub_queue(counter->hub, task);
        if (counter->forgets)
                channel_hub_dequeue(counter->hub, counter->forgets);
        if (counter->awakens)
                channel_hub_queue(counter->hub, counter->awakens);
        return counter->tells;
}

static Counter counter_of(const Fixture *fixture) {
        return (Counter){ .task.run = count, .hub = fixture->hub };
}

static void on_timer(uv_timer_t *timer) {
        Fixture *fixture = timer->data;

        fixture->fired = true;
}

static int set_up(void **state) {
        Fixture *fixture = new0(Fixture, 1);

        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        assert_int_equal(channel_hub_new(&fixture->loop, &fixture->hub), 0);
        assert_int_equal(uv_timer_init(&fixture->loop, &fixture->timer), 0);
        fixture->timer.data = fixture;
        *state = fixture;
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;

        uv_close((uv_handle_t *) &fixture->timer, NULL);
        if (fixture->hub)
                channel_hub_free(fixture->hub);
        assert_int_equal(uv_run(&fixture->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        free(fixture);
        return 0;
}

/* One turn of the loop, which may wait for @ms. Returns whether it did. */
static bool turn(Fixture *fixture, uint64_t ms) {
        fixture->fired = false;
        uv_timer_start(&fixture->timer, on_timer, ms, 0);
        uv_run(&fixture->loop, UV_RUN_ONCE);
        uv_timer_stop(&fixture->timer);
        return fixture->fired;
}

static void only_what_is_queued_is_run_and_once(void **state) {
        Fixture *fixture = *state;
        Counter busy = counter_of(fixture), idle = counter_of(fixture);

        channel_hub_queue(fixture->hub, &busy.task);
        channel_hub_queue(fixture->hub, &busy.task);
        assert_true(turn(fixture, 1));
        assert_true(turn(fixture, 1));
        assert_int_equal(busy.n_runs, 1);
        assert_int_equal(idle.n_runs, 0);

        channel_hub_queue(fixture->hub, &busy.task);
        turn(fixture, 1);
        assert_int_equal(busy.n_runs, 2);
}

static void loop_does_not_wait_when_somebody_was_told(void **state) {
        Fixture *fixture = *state;
        Counter counter = counter_of(fixture);

        counter.tells = true;
        channel_hub_queue(fixture->hub, &counter.task);
        assert_false(turn(fixture, 10000));
        assert_true(turn(fixture, 1)); /* once */
}

static void who_never_rests_does_not_hold_up_the_loop(void **state) {
        Fixture *fixture = *state;
        Counter restless = counter_of(fixture), other = counter_of(fixture);

        restless.restless = true;
        channel_hub_queue(fixture->hub, &restless.task);
        channel_hub_queue(fixture->hub, &other.task);
        assert_false(turn(fixture, 10000)); /* it comes back, without waiting */
        assert_int_equal(other.n_runs, 1);
        assert_true(restless.n_runs > 1);
        channel_hub_dequeue(fixture->hub, &restless.task);
}

static void what_was_taken_out_is_not_run(void **state) {
        Fixture *fixture = *state;
        Counter first = counter_of(fixture), second = counter_of(fixture), third = counter_of(fixture);

        first.forgets = &second.task;
        channel_hub_queue(fixture->hub, &first.task);
        channel_hub_queue(fixture->hub, &second.task);
        channel_hub_queue(fixture->hub, &third.task);
        turn(fixture, 1);
        assert_int_equal(first.n_runs, 1);
        assert_int_equal(second.n_runs, 0);
        assert_int_equal(third.n_runs, 1);
}

static void what_others_queue_is_run_too(void **state) {
        Fixture *fixture = *state;
        Counter first = counter_of(fixture), second = counter_of(fixture);

        second.awakens = &first.task;
        channel_hub_queue(fixture->hub, &first.task);
        channel_hub_queue(fixture->hub, &second.task);
        turn(fixture, 1);
        assert_int_equal(first.n_runs, 2);
}

static void loop_goes_on_while_there_are_calls(void **state) {
        Fixture *fixture = *state;

        assert_false(uv_loop_alive(&fixture->loop));
        channel_hub_begin_call(fixture->hub);
        channel_hub_begin_call(fixture->hub);
        channel_hub_end_call(fixture->hub);
        assert_true(uv_loop_alive(&fixture->loop));
        channel_hub_end_call(fixture->hub);
        assert_false(uv_loop_alive(&fixture->loop));
}

static void freed_hub_waits_for_its_channels(void **state) {
        Fixture *fixture = *state;
        Counter counter = counter_of(fixture);
        ChannelHub *hub = fixture->hub;

        channel_hub_join(hub);
        fixture->hub = NULL;
        channel_hub_free(hub);
        turn(fixture, 1);

        channel_hub_queue(hub, &counter.task);
        turn(fixture, 1);
        assert_int_equal(counter.n_runs, 1);
        channel_hub_leave(hub);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(only_what_is_queued_is_run_and_once, set_up, tear_down),
                cmocka_unit_test_setup_teardown(loop_does_not_wait_when_somebody_was_told, set_up, tear_down),
                cmocka_unit_test_setup_teardown(who_never_rests_does_not_hold_up_the_loop, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_was_taken_out_is_not_run, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_others_queue_is_run_too, set_up, tear_down),
                cmocka_unit_test_setup_teardown(loop_goes_on_while_there_are_calls, set_up, tear_down),
                cmocka_unit_test_setup_teardown(freed_hub_waits_for_its_channels, set_up, tear_down),
        };

        return cmocka_run_group_tests_name("channel-hub", tests, NULL, NULL);
}
