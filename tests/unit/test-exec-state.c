/* SPDX-License-Identifier: Apache-2.0 */

#include "model/exec-state.h"

#include <errno.h>
#include <stdio.h>

#include "contract/hutch/v1/state.pb-c.h"
#include "test.h"

#define FOREACH_CELL(state, input)                                                                                     \
        for (ExecState state = 0; state < EXEC_STATES_N; state++)                                                      \
                for (ExecInput input = 0; input < EXEC_INPUTS_N; input++)

static void every_cell_is_set(void **unused) {
        FOREACH_CELL(state, input) {
                _cleanup_(error_clear) HutchError err = {};
                ExecTransition transition = {};
                int r = exec_state_apply(state, input, &transition, &err);

                if (r < 0) {
                        assert_int_equal(r, -EBUSY);
                        assert_int_equal(err.code, STATUS_FAILED_PRECONDITION);
                        assert_string_equal(err.reason, "EXEC_WRONG_STATE");
                        continue;
                }

                assert_in_range(transition.action, TRANSITION_MOVE, TRANSITION_IGNORE);
                assert_int_equal(transition.action == TRANSITION_MOVE, transition.state != state);
        }
}

static void requests_are_never_ignored_and_observations_never_refused(void **unused) {
        FOREACH_CELL(state, input) {
                ExecTransition transition = {};
                int r = exec_state_apply(state, input, &transition, NULL);

                if (input >= EXEC_OBSERVED_STARTED)
                        assert_true(r == 0 &&
                                    (transition.action == TRANSITION_MOVE || transition.action == TRANSITION_IGNORE));
                else
                        assert_true(r < 0 || transition.action != TRANSITION_IGNORE);
        }
}

static void ends_have_no_way_out(void **unused) {
        for (ExecState state = EXEC_EXITED; state <= EXEC_LOST; state++)
                for (ExecInput input = 0; input < EXEC_INPUTS_N; input++) {
                        ExecTransition transition = { .state = state };

                        (void) exec_state_apply(state, input, &transition, NULL);
                        assert_int_equal(transition.state, state);
                }
}

static void every_end_is_one_or_two_steps_from_pending(void **unused) {
        unsigned reached = 0;

        for (ExecState state = EXEC_PENDING; state <= EXEC_RUNNING; state++)
                for (ExecInput input = 0; input < EXEC_INPUTS_N; input++) {
                        ExecTransition transition;

                        if (exec_state_apply(state, input, &transition, NULL) == 0)
                                reached |= 1u << transition.state;
                }

        assert_int_equal(reached, (1u << EXEC_STATES_N) - 1);
}

static void refusal_says_what_and_why(void **unused) {
        _cleanup_(error_clear) HutchError err = {};
        ExecTransition transition;

        assert_int_equal(exec_state_apply(EXEC_PENDING, EXEC_REQUEST_SIGNAL, &transition, &err), -EBUSY);
        assert_string_equal(error_message(&err), "'signal' is not possible while the exec is PENDING");
}

static void names_lead_back(void **unused) {
        FOREACH_CELL(state, input) {
                ExecState state_found;
                ExecInput input_found;

                assert_int_equal(exec_state_from_name(exec_state_name(state), &state_found), 0);
                assert_int_equal(state_found, state);
                assert_int_equal(exec_input_from_name(exec_input_name(input), &input_found), 0);
                assert_int_equal(input_found, input);
        }

        assert_int_equal(exec_state_from_name("pending", &(ExecState){ 0 }), -EINVAL);
        assert_int_equal(exec_input_from_name("", &(ExecInput){ 0 }), -EINVAL);
}

static void states_are_those_of_the_contract(void **unused) {
        for (ExecState state = 0; state < EXEC_STATES_N; state++) {
                char name[64];

                snprintf(name, sizeof(name), "EXEC_STATE_%s", exec_state_name(state));
                assert_non_null(protobuf_c_enum_descriptor_get_value_by_name(&hutch__v1__exec_state__descriptor, name));
        }

        assert_int_equal(EXEC_STATES_N + 1, hutch__v1__exec_state__descriptor.n_values); /* with UNSPECIFIED */
}

static const char *const action_names[] = {
        [TRANSITION_MOVE] = "move",
        [TRANSITION_OK] = "ok",
        [TRANSITION_NOTHING] = "nothing",
        [TRANSITION_IGNORE] = "ignore",
};

static void vectors_hold(void **unused) {
        bool seen[EXEC_STATES_N][EXEC_INPUTS_N] = {};
        size_t n_seen = 0;

        VECTOR_FOREACH(v, "exec-states.json") {
                _cleanup_(error_clear) HutchError err = {};
                ExecTransition transition;
                ExecState state;
                ExecInput input;
                int r;

                if (!vector_check(v, exec_state_from_name(vector_string(v, "state"), &state) == 0,
                                  "has an unknown state"))
                        continue;
                if (!vector_check(v, exec_input_from_name(vector_string(v, "input"), &input) == 0,
                                  "has an unknown input"))
                        continue;

                n_seen += !seen[state][input];
                seen[state][input] = true;

                r = exec_state_apply(state, input, &transition, &err);
                vector_assert_result(v, r, &err);
                if (r >= 0 && vector_json(v, "out")) {
                        vector_assert_string(v, "action", action_names[transition.action]);
                        vector_assert_string(v, "state", exec_state_name(transition.state));
                }
        }

        assert_int_equal(n_seen, EXEC_STATES_N * EXEC_INPUTS_N);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_cell_is_set),
                cmocka_unit_test(requests_are_never_ignored_and_observations_never_refused),
                cmocka_unit_test(ends_have_no_way_out),
                cmocka_unit_test(every_end_is_one_or_two_steps_from_pending),
                cmocka_unit_test(refusal_says_what_and_why),
                cmocka_unit_test(names_lead_back),
                cmocka_unit_test(states_are_those_of_the_contract),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
