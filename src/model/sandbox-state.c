/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the table of a sandbox's life. What does not: carrying a transition out (control). */

#include "model/sandbox-state.h"

#include <errno.h>

#include "base/error.h"
#include "base/strings.h"
#include "model/reason.h"

static const char *const state_names[SANDBOX_STATES_N] = {
        [SANDBOX_PENDING] = "PENDING",   [SANDBOX_READY] = "READY",     [SANDBOX_PAUSED] = "PAUSED",
        [SANDBOX_STOPPING] = "STOPPING", [SANDBOX_STOPPED] = "STOPPED", [SANDBOX_FAILED] = "FAILED",
        [SANDBOX_DELETING] = "DELETING", [SANDBOX_DELETED] = "DELETED",
};

static const char *const input_names[SANDBOX_INPUTS_N] = {
        [SANDBOX_REQUEST_STOP] = "stop",          [SANDBOX_REQUEST_RESUME] = "resume",
        [SANDBOX_REQUEST_PAUSE] = "pause",        [SANDBOX_REQUEST_UNPAUSE] = "unpause",
        [SANDBOX_REQUEST_UPDATE] = "update",      [SANDBOX_REQUEST_USE] = "use",
        [SANDBOX_REQUEST_SNAPSHOT] = "snapshot",  [SANDBOX_REQUEST_DELETE] = "delete",
        [SANDBOX_OBSERVED_STARTED] = "started",   [SANDBOX_OBSERVED_START_FAILED] = "start-failed",
        [SANDBOX_OBSERVED_PAUSED] = "paused",     [SANDBOX_OBSERVED_UNPAUSED] = "unpaused",
        [SANDBOX_OBSERVED_STOPPED] = "stopped",   [SANDBOX_OBSERVED_LOST] = "lost",
        [SANDBOX_OBSERVED_REBOOTED] = "rebooted", [SANDBOX_OBSERVED_REMOVED] = "removed",
};

/* clang-format off */

/* What a cell says: the state to move to, or that it stays and why. */
#define PENDING  { TRANSITION_MOVE, SANDBOX_PENDING }
#define READY    { TRANSITION_MOVE, SANDBOX_READY }
#define PAUSED   { TRANSITION_MOVE, SANDBOX_PAUSED }
#define STOPPING { TRANSITION_MOVE, SANDBOX_STOPPING }
#define STOPPED  { TRANSITION_MOVE, SANDBOX_STOPPED }
#define FAILED   { TRANSITION_MOVE, SANDBOX_FAILED }
#define DELETING { TRANSITION_MOVE, SANDBOX_DELETING }
#define DELETED  { TRANSITION_MOVE, SANDBOX_DELETED }
#define OK       { .action = TRANSITION_OK }
#define SAME     { .action = TRANSITION_NOTHING }
#define STALE    { .action = TRANSITION_IGNORE }
#define NO       { .action = TRANSITION_REFUSE }

#define ROW(input, pending, ready, paused, stopping, stopped, failed, deleting, deleted) \
        [SANDBOX_##input] = { pending, ready, paused, stopping, stopped, failed, deleting, deleted }

/* Laid out as in spec/behavior.md. */
static const SandboxTransition transitions[SANDBOX_INPUTS_N][SANDBOX_STATES_N] = {
        /*                         PENDING   READY     PAUSED    STOPPING  STOPPED   FAILED    DELETING DELETED */
        ROW(REQUEST_STOP,          STOPPING, STOPPING, STOPPING, SAME,     SAME,     NO,       NO,      NO),
        ROW(REQUEST_RESUME,        SAME,     SAME,     NO,       NO,       PENDING,  NO,       NO,      NO),
        ROW(REQUEST_PAUSE,         NO,       OK,       SAME,     NO,       NO,       NO,       NO,      NO),
        ROW(REQUEST_UNPAUSE,       NO,       SAME,     OK,       NO,       NO,       NO,       NO,      NO),
        ROW(REQUEST_UPDATE,        OK,       OK,       OK,       OK,       OK,       OK,       NO,      NO),
        ROW(REQUEST_USE,           OK,       OK,       NO,       NO,       NO,       NO,       NO,      NO),
        ROW(REQUEST_SNAPSHOT,      NO,       OK,       OK,       NO,       OK,       NO,       NO,      NO),
        ROW(REQUEST_DELETE,        DELETING, DELETING, DELETING, DELETING, DELETING, DELETING, SAME,    SAME),
        ROW(OBSERVED_STARTED,      READY,    STALE,    STALE,    STALE,    STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_START_FAILED, FAILED,   STALE,    STALE,    FAILED,   STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_PAUSED,       STALE,    PAUSED,   STALE,    STALE,    STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_UNPAUSED,     STALE,    STALE,    READY,    STALE,    STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_STOPPED,      STALE,    STALE,    STALE,    STOPPED,  STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_LOST,         FAILED,   FAILED,   FAILED,   FAILED,   STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_REBOOTED,     STALE,    STOPPED,  STOPPED,  STOPPED,  STALE,    STALE,    STALE,   STALE),
        ROW(OBSERVED_REMOVED,      STALE,    STALE,    STALE,    STALE,    STALE,    STALE,    DELETED, STALE),
};

/* clang-format on */

int sandbox_state_apply(SandboxState state, SandboxInput input, SandboxTransition *ret_transition, HutchError *err) {
        SandboxTransition transition = transitions[input][state];

        if (transition.action == TRANSITION_REFUSE && input == SANDBOX_REQUEST_USE)
                return reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE,
                                  "no command can be started while the sandbox is %s", state_names[state]);
        if (transition.action == TRANSITION_REFUSE)
                return reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE,
                                  "'%s' is not possible while the sandbox is %s", input_names[input],
                                  state_names[state]);

        if (transition.action != TRANSITION_MOVE)
                transition.state = state;

        *ret_transition = transition;
        return 0;
}

const char *sandbox_state_name(SandboxState state) {
        return state_names[state];
}

const char *sandbox_input_name(SandboxInput input) {
        return input_names[input];
}

int sandbox_state_from_name(const char *name, SandboxState *ret_state) {
        for (SandboxState state = 0; state < SANDBOX_STATES_N; state++)
                if (str_equal(name, state_names[state])) {
                        *ret_state = state;
                        return 0;
                }

        return -EINVAL;
}

int sandbox_input_from_name(const char *name, SandboxInput *ret_input) {
        for (SandboxInput input = 0; input < SANDBOX_INPUTS_N; input++)
                if (str_equal(name, input_names[input])) {
                        *ret_input = input;
                        return 0;
                }

        return -EINVAL;
}
