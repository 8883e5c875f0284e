/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the builtin profiles, and the arithmetic of limits. What does not: enforcing a limit (keeper,
 * runtime), and where requests and caps come from (api, the daemon's configuration). Pure, and never aborts. */

#include "policy/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/strings.h"
#include "model/reason.h"

#define KIB(n) (UINT64_C(1024) * (n))
#define MIB(n) KIB(KIB(n))
#define GIB(n) KIB(MIB(n))
#define MINUTES_MS(n) (UINT64_C(60000) * (n))

struct Profile {
        const char *name;
        bool ceiling; /* its limits bound requests; else they are only defaults */
        Limit limits[N_LIMITS];
        bool restrictions[N_RESTRICTIONS];
};

static const Profile profiles[] = {
        {
                .name = "default",
                .limits = {
                        [LIMIT_MEMORY_BYTES] = { true, MIB(512) },
                        [LIMIT_CPU_MILLIS] = { true, 1000 },
                        [LIMIT_MAX_PROCESSES] = { true, 256 },
                        [LIMIT_MAX_OPEN_FILES] = { true, 1024 },
                        [LIMIT_DISK_BYTES] = { true, GIB(4) },
                },
        },
        {
                .name = "strict",
                .ceiling = true,
                .limits = {
                        [LIMIT_MEMORY_BYTES] = { true, MIB(256) },
                        [LIMIT_CPU_MILLIS] = { true, 500 },
                        [LIMIT_MAX_PROCESSES] = { true, 64 },
                        [LIMIT_MAX_OPEN_FILES] = { true, 1024 },
                        [LIMIT_DISK_BYTES] = { true, MIB(256) },
                        [LIMIT_TMP_BYTES] = { true, MIB(64) },
                        [LIMIT_EXEC_TIMEOUT_MS] = { true, MINUTES_MS(5) },
                },
                .restrictions = {
                        [RESTRICTION_READ_ONLY_ROOT] = true,
                        [RESTRICTION_TMP_NOEXEC] = true,
                        [RESTRICTION_NO_NETWORK] = true,
                },
        },
        {
                .name = "standard",
                .ceiling = true,
                .limits = {
                        [LIMIT_MEMORY_BYTES] = { true, MIB(256) },
                        [LIMIT_CPU_MILLIS] = { true, 500 },
                        [LIMIT_MAX_PROCESSES] = { true, 64 },
                        [LIMIT_MAX_OPEN_FILES] = { true, 1024 },
                        [LIMIT_DISK_BYTES] = { true, GIB(1) },
                        [LIMIT_EXEC_TIMEOUT_MS] = { true, MINUTES_MS(5) },
                },
        },
        {
                .name = "permissive",
                .ceiling = true,
                .limits = {
                        [LIMIT_MEMORY_BYTES] = { true, GIB(2) },
                        [LIMIT_CPU_MILLIS] = { true, 2000 },
                        [LIMIT_MAX_PROCESSES] = { true, 512 },
                        [LIMIT_MAX_OPEN_FILES] = { true, 4096 },
                        [LIMIT_DISK_BYTES] = { true, GIB(8) },
                        [LIMIT_EXEC_TIMEOUT_MS] = { true, MINUTES_MS(10) },
                },
        },
};

/* The contract's name of each limit, and the least that a request may ask for. */
static const struct {
        const char *name;
        uint64_t least;
} limit_fields[N_LIMITS] = {
        [LIMIT_MEMORY_BYTES] = { "memory_bytes", MIB(8) },  [LIMIT_CPU_MILLIS] = { "cpu_millis", 10 },
        [LIMIT_MAX_PROCESSES] = { "max_processes", 1 },     [LIMIT_MAX_OPEN_FILES] = { "max_open_files", 16 },
        [LIMIT_DISK_BYTES] = { "disk_bytes", MIB(1) },      [LIMIT_TMP_BYTES] = { "tmp_bytes", KIB(64) },
        [LIMIT_EXEC_TIMEOUT_MS] = { "exec_timeout_ms", 1 },
};

static const char *const restriction_names[N_RESTRICTIONS] = {
        [RESTRICTION_READ_ONLY_ROOT] = "read_only_root",
        [RESTRICTION_TMP_NOEXEC] = "tmp_noexec",
        [RESTRICTION_NO_NETWORK] = "no_network",
};

int profile_find(const char *name, size_t len, const char *otherwise, const Profile **ret_profile, HutchError *err) {
        if (len == 0) {
                name = otherwise;
                len = strlen(otherwise);
        }

        for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
                if (strlen(profiles[i].name) == len && memcmp(profiles[i].name, name, len) == 0) {
                        *ret_profile = &profiles[i];
                        return 0;
                }

        return reason_set(err, -EINVAL, REASON_PROFILE_UNKNOWN,
                          "there is no profile of that name: use default, strict, standard or permissive");
}

const char *limit_field_name(LimitField field) {
        return limit_fields[field].name;
}

bool profile_needs_private_files(const char *name) {
        return str_equal(name, "strict");
}

const char *restriction_name(Restriction restriction) {
        return restriction_names[restriction];
}

int limit_check(LimitField field, uint64_t requested, HutchError *err) {
        if (requested < limit_fields[field].least)
                return reason_add_limit(err, limit_fields[field].name, limit_fields[field].least,
                                        reason_set(err, -EINVAL, REASON_LIMIT_TOO_SMALL, "%s must be at least %" PRIu64,
                                                   limit_fields[field].name, limit_fields[field].least));

        return 0;
}

/* Lowers @limit to @bound, where there is one. Returns whether it did. */
static bool limit_lower(Limit *limit, Limit bound) {
        if (!bound.set || (limit->set && limit->value <= bound.value))
                return false;

        *limit = bound;
        return true;
}

static void resolve_limit(EffectiveLimits *effective, LimitField field, const Profile *profile, Limit requested,
                          Limit cap) {
        Limit *limit = &effective->limits[field];
        ClampedBy clamped = CLAMPED_BY_NOBODY;

        *limit = requested;
        if ((profile->ceiling || !requested.set) && limit_lower(limit, profile->limits[field]))
                clamped = CLAMPED_BY_PROFILE;
        if (limit_lower(limit, cap))
                clamped = CLAMPED_BY_OPERATOR;

        /* Only what was asked for can have been refused. */
        effective->limits_clamped[field] = requested.set ? clamped : CLAMPED_BY_NOBODY;
}

static void resolve_restriction(EffectiveLimits *effective, Restriction restriction, const Profile *profile,
                                Choice requested) {
        bool forced = profile->restrictions[restriction];

        effective->restrictions[restriction] = forced || requested == CHOICE_YES;
        effective->restrictions_clamped[restriction] = forced && requested == CHOICE_NO;
}

int profile_resolve(const Profile *profile, const LimitRequest *request, const LimitCaps *caps,
                    EffectiveLimits *ret_effective, HutchError *err) {
        EffectiveLimits effective = {};

        for (LimitField field = 0; field < N_LIMITS; field++) {
                Limit requested = request->limits[field];
                int r = requested.set ? limit_check(field, requested.value, err) : 0;

                if (r < 0)
                        return r;

                resolve_limit(&effective, field, profile, requested, caps->limits[field]);
        }

        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                resolve_restriction(&effective, restriction, profile, request->restrictions[restriction]);

        *ret_effective = effective;
        return 0;
}
