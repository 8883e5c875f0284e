/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a policy, then when the call begins, its deadline and how long each try takes, then a random number and how a
 * try ended, as they lie in memory; the rest is cut off. */

#include "base/retry.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Input {
        uint32_t attempts, initial_ms, max_ms;
        uint32_t random;
        uint64_t now_ms, deadline_ms;
        uint32_t attempt_ms;
        uint8_t code, connection_lost, sent, safe, answered;
} Input;

/* A pause lies within a quarter of its base, which is the largest pause divided by five quarters. */
static void check_pause(const RetryPolicy *policy, unsigned tries, uint32_t random) {
        uint64_t pause = retry_pause_ms(policy, tries, random), least = retry_pause_ms(policy, tries, 0);
        uint64_t most = retry_pause_ms(policy, tries, UINT32_MAX), next_least = retry_pause_ms(policy, tries + 1, 0);

        assert(least <= pause && pause <= most);
        assert(most <= (uint64_t) policy->max_ms + policy->max_ms / 4);
        assert(most - least <= least);
        assert(next_least >= least);
        if (tries > 33 && policy->initial_ms > 0)
                assert(least == (uint64_t) policy->max_ms - policy->max_ms / 4);
}

/* All pauses and tries lie before the deadline, but the last try, which began before it. */
static void check_schedule(const RetryPolicy *policy, const Input *input) {
        uint64_t now_ms = input->now_ms, pause_ms;
        unsigned tries = 1;

        for (; retry_next(policy, tries, now_ms, input->deadline_ms, input->random, &pause_ms); tries++) {
                assert(pause_ms == retry_pause_ms(policy, tries, input->random));
                assert(input->deadline_ms == RETRY_NO_DEADLINE || now_ms < input->deadline_ms - pause_ms);
                if (now_ms > UINT64_MAX - pause_ms - input->attempt_ms || tries == 100)
                        return;
                now_ms += pause_ms + input->attempt_ms;
        }

        assert(tries <= policy->attempts || tries == 1);
        if (input->deadline_ms == RETRY_NO_DEADLINE && policy->attempts > 0)
                assert(tries == policy->attempts);
}

static void check_decision(const Input *input) {
        RetryOutcome outcome = {
                .code = (StatusCode) (input->code % 17),
                .connection_lost = input->connection_lost & 1,
                .sent = input->sent & 1,
                .safe = input->safe & 1,
                .answered = input->answered & 1,
        };
        bool allowed = retry_allowed(&outcome);

        if (allowed) {
                assert(!outcome.answered);
                assert(outcome.code == STATUS_UNAVAILABLE || outcome.connection_lost);
                assert(outcome.safe || !outcome.sent);
        }

        /* Being safe never forbids. */
        outcome.safe = true;
        assert(retry_allowed(&outcome) || !allowed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        RetryPolicy policy;
        Input input;

        if (size < sizeof(input))
                return -1;
        memcpy(&input, data, sizeof(input));
        policy = (RetryPolicy){ input.attempts, input.initial_ms, input.max_ms };

        check_pause(&policy, 1 + input.random % 40, input.random);
        check_schedule(&policy, &input);
        check_decision(&input);
        return 0;
}
