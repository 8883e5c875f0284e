/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "model/transition.h"

typedef struct HutchError HutchError;

/* The life of a sandbox, as a table: what each request and each observation does in each state. The table is that of
 * spec/behavior.md, and the state of a sandbox changes in no other way. */

typedef enum SandboxState {
        SANDBOX_PENDING,
        SANDBOX_READY,
        SANDBOX_PAUSED,
        SANDBOX_STOPPING,
        SANDBOX_STOPPED,
        SANDBOX_FAILED,
        SANDBOX_DELETING,
        SANDBOX_DELETED,
} SandboxState;

#define SANDBOX_STATES_N (SANDBOX_DELETED + 1)

typedef enum SandboxInput {
        SANDBOX_REQUEST_STOP,
        SANDBOX_REQUEST_RESUME,
        SANDBOX_REQUEST_PAUSE,
        SANDBOX_REQUEST_UNPAUSE,
        SANDBOX_REQUEST_UPDATE,
        SANDBOX_REQUEST_USE, /* whatever needs a running sandbox: execs, file work, ports */
        SANDBOX_REQUEST_SNAPSHOT,
        SANDBOX_REQUEST_DELETE,
        SANDBOX_OBSERVED_STARTED,
        SANDBOX_OBSERVED_START_FAILED,
        SANDBOX_OBSERVED_PAUSED,
        SANDBOX_OBSERVED_UNPAUSED,
        SANDBOX_OBSERVED_STOPPED,
        SANDBOX_OBSERVED_LOST,     /* runtime or keeper are gone without having been told to stop */
        SANDBOX_OBSERVED_REBOOTED, /* the machine came up again */
        SANDBOX_OBSERVED_REMOVED,
} SandboxInput;

#define SANDBOX_INPUTS_N (SANDBOX_OBSERVED_REMOVED + 1)

typedef struct SandboxTransition {
        TransitionAction action;
        SandboxState state; /* the state afterwards; another one exactly when @action is TRANSITION_MOVE */
} SandboxTransition;

/* Tells what @input does to a sandbox that is @state. A request that the state does not allow is -EBUSY and
 * SANDBOX_WRONG_STATE. */
int sandbox_state_apply(SandboxState state, SandboxInput input, SandboxTransition *ret_transition, HutchError *err);

/* Names: states as the contract has them without their prefix ("READY"), inputs as the table has them ("start-failed").
 * The other way round an unknown name is -EINVAL. */
const char *sandbox_state_name(SandboxState state);
const char *sandbox_input_name(SandboxInput input);
int sandbox_state_from_name(const char *name, SandboxState *ret_state);
int sandbox_input_from_name(const char *name, SandboxInput *ret_input);
