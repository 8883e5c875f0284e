/* SPDX-License-Identifier: Apache-2.0 */

/* Input: what happens to a sandbox in its life, a byte for each request or observation. */

#include "model/sandbox-state.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        SandboxState state = SANDBOX_PENDING;

        for (size_t i = 0; i < size; i++) {
                SandboxInput input = data[i] % SANDBOX_INPUTS_N;
                SandboxTransition transition = {}, again = {};

                if (sandbox_state_apply(state, input, &transition, NULL) < 0) {
                        assert(input < SANDBOX_OBSERVED_STARTED);
                        continue;
                }

                /* Nothing is resurrected. */
                if (state >= SANDBOX_DELETING)
                        assert(transition.state >= state);

                /* What was done is not done twice, and repeating a request is no error. */
                assert((transition.action == TRANSITION_MOVE) == (transition.state != state));
                if (transition.action == TRANSITION_MOVE) {
                        assert(sandbox_state_apply(transition.state, input, &again, NULL) == 0);
                        assert(again.action == TRANSITION_NOTHING || again.action == TRANSITION_IGNORE);
                }

                state = transition.state;
        }

        return 0;
}
