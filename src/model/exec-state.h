/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "model/transition.h"

typedef struct HutchError HutchError;

/* The life of an exec, as a table: what each request and each observation does in each state. The table is that of
 * spec/behavior.md, and the state of an exec changes in no other way. */

typedef enum ExecState {
        EXEC_PENDING,
        EXEC_RUNNING,
        EXEC_EXITED,
        EXEC_CANCELLED,
        EXEC_TIMED_OUT,
        EXEC_FAILED, /* never started */
        EXEC_LOST,   /* the machine went down */
} ExecState;

#define EXEC_STATES_N (EXEC_LOST + 1)

typedef enum ExecInput {
        EXEC_REQUEST_CANCEL,
        EXEC_REQUEST_SIGNAL,
        EXEC_REQUEST_INPUT, /* bytes for stdin, its close, and terminal sizes */
        EXEC_REQUEST_ATTACH,
        EXEC_OBSERVED_STARTED,
        EXEC_OBSERVED_START_FAILED,
        EXEC_OBSERVED_EXITED,
        EXEC_OBSERVED_CANCELLED,
        EXEC_OBSERVED_TIMED_OUT,
        EXEC_OBSERVED_SANDBOX_ENDED, /* the sandbox was stopped, deleted or failed */
        EXEC_OBSERVED_REBOOTED,      /* the machine came up again */
} ExecInput;

#define EXEC_INPUTS_N (EXEC_OBSERVED_REBOOTED + 1)

typedef struct ExecTransition {
        TransitionAction action;
        ExecState state; /* the state afterwards; another one exactly when @action is TRANSITION_MOVE */
} ExecTransition;

/* Tells what @input does to an exec that is @state. A request that the state does not allow is -EBUSY and
 * EXEC_WRONG_STATE. */
int exec_state_apply(ExecState state, ExecInput input, ExecTransition *ret_transition, HutchError *err);

/* Names: states as the contract has them without their prefix ("RUNNING"), inputs as the table has them ("timed-out").
 * The other way round an unknown name is -EINVAL. */
const char *exec_state_name(ExecState state);
const char *exec_input_name(ExecInput input);
int exec_state_from_name(const char *name, ExecState *ret_state);
int exec_input_from_name(const char *name, ExecInput *ret_input);
