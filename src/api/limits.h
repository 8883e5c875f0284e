/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/violations.h"
#include "api/wire-buffer.h"
#include "model/sandbox.h"
#include "model/unenforced-limit.h"
#include "policy/profile.h"

/* Limits as the contract has them: hutch.v1.ResourceLimits, what comes of them under a profile, and back. */

typedef struct Hutch__V1__ResourceLimits Hutch__V1__ResourceLimits;

typedef struct LimitRules {
        LimitCaps caps;
        const UnenforcedLimit *not_enforced; /* by the runtime; ends with one without a limit; NULL: all are enforced */
        bool allow_unenforced;
} LimitRules;

/* Checks @requested, which may be NULL, finds out what is in force, and encodes it as hutch.v1.EffectiveLimits, which
 * the caller frees. Violations are added, below where @violations are; then, and when memory is out, negative. */
int limits_resolve(const Hutch__V1__ResourceLimits *requested, const char *profile, const LimitRules *rules,
                   Violations *violations, uint8_t **ret_effective, size_t *ret_len)
        __attribute__((nonnull(2, 3, 4, 5, 6)));

/* What the daemon acts on, of what is in force. */
void limits_from_message(const Hutch__V1__ResourceLimits *message, SandboxLimits *ret_limits)
        __attribute__((nonnull(2)));

/* Puts a hutch.v1.ResourceLimits into @field. */
void put_limits(WireBuffer *buffer, unsigned field, const Limit limits[static N_LIMITS]) __attribute__((nonnull));

/* Puts what a builtin profile gives to requests that ask for nothing into one field, and the most that it gives into
 * another. */
void put_profile_limits(WireBuffer *buffer, unsigned defaults_field, unsigned ceilings_field, const char *profile)
        __attribute__((nonnull));
