/* SPDX-License-Identifier: Apache-2.0 */

/* Input: what happens to an exec in its life, a byte for each request or observation. */

#include "model/exec-state.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        ExecState state = EXEC_PENDING;
        int n_moves = 0;

        for (size_t i = 0; i < size; i++) {
                ExecInput input = data[i] % EXEC_INPUTS_N;
                ExecTransition transition = {}, again = {};

                if (exec_state_apply(state, input, &transition, NULL) < 0) {
                        assert(input == EXEC_REQUEST_SIGNAL && state != EXEC_RUNNING);
                        continue;
                }

                /* What was done is not done twice, and repeating a request is no error. */
                assert((transition.action == TRANSITION_MOVE) == (transition.state != state));
                if (transition.action == TRANSITION_MOVE) {
                        n_moves++;
                        assert(exec_state_apply(transition.state, input, &again, NULL) == 0);
                        assert(again.action == TRANSITION_NOTHING || again.action == TRANSITION_IGNORE);
                }

                /* A life is PENDING, perhaps RUNNING, and an end. */
                state = transition.state;
                assert(n_moves <= 2);
                assert((n_moves == 0) == (state == EXEC_PENDING));
        }

        return 0;
}
