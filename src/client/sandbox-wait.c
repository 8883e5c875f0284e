/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: waiting until a sandbox is in a state, without asking again and again. What does not: watching
 * (watch.c), and which request leads to which state (model/sandbox-state.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <uv.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/checks.h"
#include "client/client.h"
#include "client/outcall.h"
#include "client/views.h"
#include "client/watch.h"
#include "contract/hutch/v1/event.pb-c.h"

#define WAIT_TIMEOUT (180 * NSEC_PER_SEC)

#define BIT(state) (UINT32_C(1) << HUTCH_SANDBOX_##state)
#define GOING (BIT(DELETING) | BIT(DELETED))
#define ENDING (BIT(STOPPING) | BIT(STOPPED) | BIT(FAILED) | GOING)

/* The states that a sandbox may come to from each by itself: when what was asked of it is done, when it fails, when its
 * time has come. */
static const uint32_t ahead[] = {
        [HUTCH_SANDBOX_PENDING] = BIT(READY) | BIT(PAUSED) | ENDING,
        [HUTCH_SANDBOX_READY] = BIT(PAUSED) | ENDING,
        [HUTCH_SANDBOX_PAUSED] = BIT(READY) | ENDING,
        [HUTCH_SANDBOX_STOPPING] = BIT(STOPPED) | BIT(FAILED) | GOING,
        [HUTCH_SANDBOX_STOPPED] = GOING,
        [HUTCH_SANDBOX_FAILED] = GOING,
        [HUTCH_SANDBOX_DELETING] = BIT(DELETED),
        [HUTCH_SANDBOX_DELETED] = 0,
};

/* What is left of the time; 1 when nothing is. */
static uint64_t left_until(uint64_t deadline) {
        uint64_t now = uv_hrtime();

        if (deadline == DEADLINE_NONE)
                return HUTCH_FOREVER;
        return deadline > now ? deadline - now : 1;
}

/* Whether a sandbox that has come to @state has come to one of @states: 1; 0: it may come to one yet. */
static int judge(unsigned state, uint32_t states, Failure *failure) {
        const char *name = hutch_sandbox_state_name((HutchSandboxState) state);

        if (state < 32 && states & UINT32_C(1) << state)
                return 1;
        if (state >= sizeof(ahead) / sizeof(ahead[0]) || ahead[state] & states)
                return 0;

        (void) error_set(&failure->error, -EBUSY, "SANDBOX_WRONG_STATE",
                         "the sandbox is %s, and does not leave that by itself for what is waited for", name);
        error_add_pair(&failure->error, "state", "%s", name);
        return -EBUSY;
}

static int get(HutchClient *client, const char *id, uint64_t deadline, HutchSandbox **ret_sandbox, Failure *failure) {
        Hutch__V1__GetSandboxRequest request = HUTCH__V1__GET_SANDBOX_REQUEST__INIT;
        uint64_t left = left_until(deadline);
        ProtobufCMessage *reply;
        int r;

        request.sandbox_id = (char *) id;
        r = outcall_unary_message(client, "AgentSandboxService/GetSandbox", &request.base,
                                  left < client->timeout ? left : client->timeout, &reply, failure);
        return r < 0 ? r
                     : sandbox_view_new(reply, ((const Hutch__V1__GetSandboxResponse *) reply)->sandbox, ret_sandbox);
}

/* Waits for an event that leads to one of @states, after @sequence. */
static int watch_for(HutchClient *client, const char *id, uint64_t sequence, uint32_t states, uint64_t deadline,
                     Failure *failure) {
        Hutch__V1__WatchEventsRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        Hutch__V1__EventType type = HUTCH__V1__EVENT_TYPE__EVENT_TYPE_SANDBOX_STATE_CHANGED;
        _cleanup_(watch_freep) HutchWatch *watch = NULL;
        char *ids[] = { (char *) id };
        int r;

        request.n_sandbox_ids = 1;
        request.sandbox_ids = ids;
        request.n_types = 1;
        request.types = &type;
        request.opt_after_sequence_case = HUTCH__V1__WATCH_EVENTS_REQUEST__OPT_AFTER_SEQUENCE_AFTER_SEQUENCE;
        request.after_sequence = sequence;
        r = watch_new(client, &request, left_until(deadline), NULL, &watch, failure);

        while (r == 0) {
                const Hutch__V1__Event *event = NULL;

                r = watch_next(watch, true, &event, failure);
                if (r == 1)
                        r = event && event->change_case == HUTCH__V1__EVENT__CHANGE_SANDBOX_STATE
                                    ? judge(event->sandbox_state->to_state, states, failure)
                                    : 0;
        }

        return r < 0 ? r : 0;
}

static int wait_for(HutchClient *client, const char *id, uint32_t states, uint64_t deadline, HutchSandbox **ret_sandbox,
                    Failure *failure) {
        HutchSandbox *sandbox = NULL;
        int r = get(client, id, deadline, &sandbox, failure);

        if (r == 0)
                r = judge(sandbox->state, states, failure);
        if (r == 0) {
                r = watch_for(client, id, sandbox->sequence, states, deadline, failure);
                hutch_sandbox_free(TAKE_PTR(sandbox));
                if (r == 0)
                        r = get(client, id, deadline, &sandbox, failure);
        }
        if (r < 0) {
                hutch_sandbox_free(sandbox);
                return r;
        }

        *ret_sandbox = sandbox;
        return 0;
}

int hutch_sandbox_wait(HutchClient *client, const char *id, uint32_t states, uint64_t timeout,
                       HutchSandbox **ret_sandbox, HutchError **ret_error) {
        uint64_t deadline = client_deadline(client, timeout > 0 ? timeout : WAIT_TIMEOUT);
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        HutchSandbox *sandbox = NULL;
        int r;

        checks_id(&checks, "sandbox_id", id);
        r = checks_result(&checks, &failure);
        if (r == 0)
                r = wait_for(client, id, states, deadline, &sandbox, &failure);
        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        if (ret_sandbox)
                *ret_sandbox = sandbox;
        else
                hutch_sandbox_free(sandbox);
        return 0;
}
