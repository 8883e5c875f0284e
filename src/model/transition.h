/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Transitions: what an input does to a thing that has a state. The state machines (sandbox-state.h, exec-state.h)
 * share these words. */

typedef enum TransitionAction {
        TRANSITION_REFUSE = 1, /* a request that this state does not allow */
        TRANSITION_MOVE,       /* accepted, and the state becomes another: exactly one event */
        TRANSITION_OK,         /* accepted, and the state stays, at least until the work is observed done */
        TRANSITION_NOTHING,    /* accepted, and there is nothing to do */
        TRANSITION_IGNORE,     /* a stale observation */
} TransitionAction;
