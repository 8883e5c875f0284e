/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the table of an exec's life. What does not: carrying a transition out (control, keeper). */

#include "model/exec-state.h"

#include <errno.h>

#include "base/error.h"
#include "base/strings.h"
#include "model/reason.h"

static const char *const state_names[EXEC_STATES_N] = {
        [EXEC_PENDING] = "PENDING",     [EXEC_RUNNING] = "RUNNING",     [EXEC_EXITED] = "EXITED",
        [EXEC_CANCELLED] = "CANCELLED", [EXEC_TIMED_OUT] = "TIMED_OUT", [EXEC_FAILED] = "FAILED",
        [EXEC_LOST] = "LOST",
};

static const char *const input_names[EXEC_INPUTS_N] = {
        [EXEC_REQUEST_CANCEL] = "cancel",        [EXEC_REQUEST_SIGNAL] = "signal",
        [EXEC_REQUEST_INPUT] = "input",          [EXEC_REQUEST_ATTACH] = "attach",
        [EXEC_OBSERVED_STARTED] = "started",     [EXEC_OBSERVED_START_FAILED] = "start-failed",
        [EXEC_OBSERVED_EXITED] = "exited",       [EXEC_OBSERVED_CANCELLED] = "cancelled",
        [EXEC_OBSERVED_TIMED_OUT] = "timed-out", [EXEC_OBSERVED_SANDBOX_ENDED] = "sandbox-ended",
        [EXEC_OBSERVED_REBOOTED] = "rebooted",
};

/* clang-format off */

/* What a cell says: the state to move to, or that it stays and why. */
#define RUNNING   { TRANSITION_MOVE, EXEC_RUNNING }
#define EXITED    { TRANSITION_MOVE, EXEC_EXITED }
#define CANCELLED { TRANSITION_MOVE, EXEC_CANCELLED }
#define TIMED_OUT { TRANSITION_MOVE, EXEC_TIMED_OUT }
#define FAILED    { TRANSITION_MOVE, EXEC_FAILED }
#define LOST      { TRANSITION_MOVE, EXEC_LOST }
#define OK        { .action = TRANSITION_OK }
#define SAME      { .action = TRANSITION_NOTHING }
#define STALE     { .action = TRANSITION_IGNORE }
#define NO        { .action = TRANSITION_REFUSE }

#define ROW(input, pending, running, exited, cancelled, timed_out, failed, lost) \
        [EXEC_##input] = { pending, running, exited, cancelled, timed_out, failed, lost }

/* Laid out as in spec/behavior.md. */
static const ExecTransition transitions[EXEC_INPUTS_N][EXEC_STATES_N] = {
        /*                          PENDING    RUNNING    EXITED CANCELLED TIMED_OUT FAILED LOST */
        ROW(REQUEST_CANCEL,         CANCELLED, OK,        SAME,  SAME,     SAME,     SAME,  SAME),
        ROW(REQUEST_SIGNAL,         NO,        OK,        NO,    NO,       NO,       NO,    NO),
        ROW(REQUEST_INPUT,          OK,        OK,        SAME,  SAME,     SAME,     SAME,  SAME),
        ROW(REQUEST_ATTACH,         OK,        OK,        OK,    OK,       OK,       OK,    OK),
        ROW(OBSERVED_STARTED,       RUNNING,   STALE,     STALE, STALE,    STALE,    STALE, STALE),
        ROW(OBSERVED_START_FAILED,  FAILED,    STALE,     STALE, STALE,    STALE,    STALE, STALE),
        ROW(OBSERVED_EXITED,        STALE,     EXITED,    STALE, STALE,    STALE,    STALE, STALE),
        ROW(OBSERVED_CANCELLED,     STALE,     CANCELLED, STALE, STALE,    STALE,    STALE, STALE),
        ROW(OBSERVED_TIMED_OUT,     STALE,     TIMED_OUT, STALE, STALE,    STALE,    STALE, STALE),
        ROW(OBSERVED_SANDBOX_ENDED, CANCELLED, CANCELLED, STALE, STALE,    STALE,    STALE, STALE),
        ROW(OBSERVED_REBOOTED,      LOST,      LOST,      STALE, STALE,    STALE,    STALE, STALE),
};

/* clang-format on */

int exec_state_apply(ExecState state, ExecInput input, ExecTransition *ret_transition, HutchError *err) {
        ExecTransition transition = transitions[input][state];

        if (transition.action == TRANSITION_REFUSE)
                return reason_set(err, -EBUSY, REASON_EXEC_WRONG_STATE, "'%s' is not possible while the exec is %s",
                                  input_names[input], state_names[state]);

        if (transition.action != TRANSITION_MOVE)
                transition.state = state;

        *ret_transition = transition;
        return 0;
}

const char *exec_state_name(ExecState state) {
        return state_names[state];
}

const char *exec_input_name(ExecInput input) {
        return input_names[input];
}

int exec_state_from_name(const char *name, ExecState *ret_state) {
        for (ExecState state = 0; state < EXEC_STATES_N; state++)
                if (str_equal(name, state_names[state])) {
                        *ret_state = state;
                        return 0;
                }

        return -EINVAL;
}

int exec_input_from_name(const char *name, ExecInput *ret_input) {
        for (ExecInput input = 0; input < EXEC_INPUTS_N; input++)
                if (str_equal(name, input_names[input])) {
                        *ret_input = input;
                        return 0;
                }

        return -EINVAL;
}
