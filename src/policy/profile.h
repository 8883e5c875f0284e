/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct HutchError HutchError;

/* Profiles: named sets of limits, and what of a request is in force under one.
 *
 * The value in force is the lowest of what was requested (or, unset, the profile's default), the profile's ceiling and
 * the operator's cap; without any of them there is no limit. A restriction is in force when the profile or the request
 * has it. Whatever the request gave and did not get is told:
 *
 *         r = profile_find(name, len, PROFILE_FOR_SANDBOXES, &profile, err);
 *         r = profile_resolve(profile, &request, &caps, &effective, err);
 */

/* What a profile bounds, in the order in which clamping is told. */
typedef enum LimitField {
        LIMIT_MEMORY_BYTES,
        LIMIT_CPU_MILLIS,
        LIMIT_MAX_PROCESSES,
        LIMIT_MAX_OPEN_FILES,
        LIMIT_DISK_BYTES,
        LIMIT_TMP_BYTES,
        LIMIT_EXEC_TIMEOUT_MS,
        N_LIMITS,
} LimitField;

/* What a profile forbids; told after the limits. */
typedef enum Restriction {
        RESTRICTION_READ_ONLY_ROOT,
        RESTRICTION_TMP_NOEXEC,
        RESTRICTION_NO_NETWORK,
        N_RESTRICTIONS,
} Restriction;

/* A limit that may have no value. */
typedef struct Limit {
        bool set;
        uint64_t value;
} Limit;

/* A restriction that may be left open. */
typedef enum Choice {
        CHOICE_UNSET,
        CHOICE_NO,
        CHOICE_YES,
} Choice;

typedef struct LimitRequest {
        Limit limits[N_LIMITS];
        Choice restrictions[N_RESTRICTIONS];
} LimitRequest;

/* What the operator allows at most. */
typedef struct LimitCaps {
        Limit limits[N_LIMITS];
} LimitCaps;

/* Whose bound lowered what was requested: the lower one, the profile's when both are equal. */
typedef enum ClampedBy {
        CLAMPED_BY_NOBODY,
        CLAMPED_BY_PROFILE,
        CLAMPED_BY_OPERATOR,
} ClampedBy;

/* What is in force, and which of it is less than what was requested. */
typedef struct EffectiveLimits {
        Limit limits[N_LIMITS];
        ClampedBy limits_clamped[N_LIMITS];
        bool restrictions[N_RESTRICTIONS];
        bool restrictions_clamped[N_RESTRICTIONS]; /* in force by the profile, though the request said no */
} EffectiveLimits;

typedef struct Profile Profile;

/* What an empty profile name stands for, unless the operator configured another. */
#define PROFILE_FOR_SANDBOXES "default"
#define PROFILE_FOR_REMOTE_EXEC "standard"

/* Finds the builtin profile whose name is the @len bytes at @name or, when there are none, @otherwise. -EINVAL with
 * PROFILE_UNKNOWN when there is no such profile. */
int profile_find(const char *name, size_t len, const char *otherwise, const Profile **ret_profile, HutchError *err)
        __attribute__((nonnull(3, 4)));

/* Their names in the vectors and messages: the contract's, with the unit ("memory_bytes", "exec_timeout_ms"). */
const char *limit_field_name(LimitField field);
const char *restriction_name(Restriction restriction);

/* Checks a requested value: -EINVAL with LIMIT_TOO_SMALL when nothing could run with it. */
int limit_check(LimitField field, uint64_t requested, HutchError *err);

/* Whether sandboxes under the profile of this name must not share inodes with the host. */
bool profile_needs_private_files(const char *name) __attribute__((nonnull));

/* Tells what is in force when @request is made under @profile and @caps. Fails as limit_check() does for the first
 * limit in @request that is too small; profile and operator may well go below what a request may ask for. */
int profile_resolve(const Profile *profile, const LimitRequest *request, const LimitCaps *caps,
                    EffectiveLimits *ret_effective, HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));
