/* SPDX-License-Identifier: Apache-2.0 */

#include "model/sandbox-state.h"

#include <errno.h>
#include <stdio.h>

#include "contract/hutch/v1/state.pb-c.h"
#include "test.h"

#define FOREACH_CELL(state, input)                                                                                     \
        for (SandboxState state = 0; state < SANDBOX_STATES_N; state++)                                                \
                for (SandboxInput input = 0; input < SANDBOX_INPUTS_N; input++)

static void every_cell_is_set(void **unused) {
        FOREACH_CELL(state, input) {
                _cleanup_(error_clear) HutchError err = {};
                SandboxTransition transition = {};
                int r = sandbox_state_apply(state, input, &transition, &err);

                if (r < 0) {
                        assert_int_equal(r, -EBUSY);
                        assert_int_equal(err.code, STATUS_FAILED_PRECONDITION);
                        assert_string_equal(err.reason, "SANDBOX_WRONG_STATE");
                        continue;
                }

                assert_in_range(transition.action, TRANSITION_MOVE, TRANSITION_IGNORE);
                assert_int_equal(transition.action == TRANSITION_MOVE, transition.state != state);
        }
}

static void requests_are_never_ignored_and_observations_never_refused(void **unused) {
        FOREACH_CELL(state, input) {
                SandboxTransition transition = {};
                int r = sandbox_state_apply(state, input, &transition, NULL);

                if (input >= SANDBOX_OBSERVED_STARTED)
                        assert_true(r == 0 &&
                                    (transition.action == TRANSITION_MOVE || transition.action == TRANSITION_IGNORE));
                else
                        assert_true(r < 0 || transition.action != TRANSITION_IGNORE);
        }
}

static void deleted_has_no_way_out(void **unused) {
        for (SandboxInput input = 0; input < SANDBOX_INPUTS_N; input++) {
                SandboxTransition transition = { .state = SANDBOX_DELETED };

                (void) sandbox_state_apply(SANDBOX_DELETED, input, &transition, NULL);
                assert_int_equal(transition.state, SANDBOX_DELETED);
        }
}

static void deleting_leads_to_deleted_only(void **unused) {
        for (SandboxInput input = 0; input < SANDBOX_INPUTS_N; input++) {
                SandboxTransition transition = { .state = SANDBOX_DELETING };

                (void) sandbox_state_apply(SANDBOX_DELETING, input, &transition, NULL);
                assert_int_equal(transition.state,
                                 input == SANDBOX_OBSERVED_REMOVED ? SANDBOX_DELETED : SANDBOX_DELETING);
        }
}

/* The states that can be reached from @state, itself among them, as bits. */
static unsigned reachable_from(SandboxState state) {
        unsigned reached = 1u << state, before;

        do {
                before = reached;
                FOREACH_CELL(from, input) {
                        SandboxTransition transition;

                        if (before & (1u << from) && sandbox_state_apply(from, input, &transition, NULL) == 0)
                                reached |= 1u << transition.state;
                }
        } while (reached != before);

        return reached;
}

static void deleted_is_reached_from_every_state(void **unused) {
        for (SandboxState state = 0; state < SANDBOX_STATES_N; state++)
                assert_true(reachable_from(state) & (1u << SANDBOX_DELETED));
}

static void every_state_is_reached_from_pending(void **unused) {
        assert_int_equal(reachable_from(SANDBOX_PENDING), (1u << SANDBOX_STATES_N) - 1);
}

static void refusal_says_what_and_why(void **unused) {
        _cleanup_(error_clear) HutchError err = {};
        SandboxTransition transition;

        assert_int_equal(sandbox_state_apply(SANDBOX_STOPPING, SANDBOX_REQUEST_PAUSE, &transition, &err), -EBUSY);
        assert_string_equal(error_message(&err), "'pause' is not possible while the sandbox is STOPPING");
        error_clear(&err);
        assert_int_equal(sandbox_state_apply(SANDBOX_PAUSED, SANDBOX_REQUEST_USE, &transition, &err), -EBUSY);
        assert_string_equal(error_message(&err), "no command can be started while the sandbox is PAUSED");
}

static void names_lead_back(void **unused) {
        FOREACH_CELL(state, input) {
                SandboxState state_found;
                SandboxInput input_found;

                assert_int_equal(sandbox_state_from_name(sandbox_state_name(state), &state_found), 0);
                assert_int_equal(state_found, state);
                assert_int_equal(sandbox_input_from_name(sandbox_input_name(input), &input_found), 0);
                assert_int_equal(input_found, input);
        }

        assert_int_equal(sandbox_state_from_name("pending", &(SandboxState){ 0 }), -EINVAL);
        assert_int_equal(sandbox_input_from_name("", &(SandboxInput){ 0 }), -EINVAL);
}

static void states_are_those_of_the_contract(void **unused) {
        for (SandboxState state = 0; state < SANDBOX_STATES_N; state++) {
                char name[64];

                snprintf(name, sizeof(name), "SANDBOX_STATE_%s", sandbox_state_name(state));
                assert_non_null(
                        protobuf_c_enum_descriptor_get_value_by_name(&hutch__v1__sandbox_state__descriptor, name));
        }

        assert_int_equal(SANDBOX_STATES_N + 1, hutch__v1__sandbox_state__descriptor.n_values); /* with UNSPECIFIED */
}

static const char *const action_names[] = {
        [TRANSITION_MOVE] = "move",
        [TRANSITION_OK] = "ok",
        [TRANSITION_NOTHING] = "nothing",
        [TRANSITION_IGNORE] = "ignore",
};

static void vectors_hold(void **unused) {
        bool seen[SANDBOX_STATES_N][SANDBOX_INPUTS_N] = {};
        size_t n_seen = 0;

        VECTOR_FOREACH(v, "sandbox-states.json") {
                _cleanup_(error_clear) HutchError err = {};
                SandboxTransition transition;
                SandboxState state;
                SandboxInput input;
                int r;

                if (!vector_check(v, sandbox_state_from_name(vector_string(v, "state"), &state) == 0,
                                  "has an unknown state"))
                        continue;
                if (!vector_check(v, sandbox_input_from_name(vector_string(v, "input"), &input) == 0,
                                  "has an unknown input"))
                        continue;

                n_seen += !seen[state][input];
                seen[state][input] = true;

                r = sandbox_state_apply(state, input, &transition, &err);
                vector_assert_result(v, r, &err);
                if (r >= 0 && vector_json(v, "out")) {
                        vector_assert_string(v, "action", action_names[transition.action]);
                        vector_assert_string(v, "state", sandbox_state_name(transition.state));
                }
        }

        assert_int_equal(n_seen, SANDBOX_STATES_N * SANDBOX_INPUTS_N);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_cell_is_set),
                cmocka_unit_test(requests_are_never_ignored_and_observations_never_refused),
                cmocka_unit_test(deleted_has_no_way_out),
                cmocka_unit_test(deleting_leads_to_deleted_only),
                cmocka_unit_test(deleted_is_reached_from_every_state),
                cmocka_unit_test(every_state_is_reached_from_pending),
                cmocka_unit_test(refusal_says_what_and_why),
                cmocka_unit_test(names_lead_back),
                cmocka_unit_test(states_are_those_of_the_contract),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
