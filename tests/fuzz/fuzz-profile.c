/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a byte that chooses the profile; a byte for each limit whose bit 0 says that it is requested and bit 1 that
 * it is capped; a byte for each restriction, whose value modulo 3 is a Choice; then requested values and caps in turn,
 * in 8 bytes each, lowest first. What is missing at the end is 0. */

#include "policy/profile.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Input {
        const uint8_t *data;
        size_t size;
} Input;

static uint64_t take(Input *input, size_t n_bytes) {
        uint64_t value = 0;

        for (size_t i = 0; i < n_bytes && input->size > 0; i++) {
                value |= (uint64_t) *input->data++ << (8 * i);
                input->size--;
        }

        return value;
}

static bool limit_equal(Limit a, Limit b) {
        return a.set == b.set && (!a.set || a.value == b.value);
}

/* @bare is what the profile gives when nothing is asked and nothing capped. */
static void check_limit(LimitField field, Limit requested, Limit cap, const EffectiveLimits *bare, bool ceiling,
                        const EffectiveLimits *effective) {
        ClampedBy by = effective->limits_clamped[field];
        Limit limit = effective->limits[field], own = bare->limits[field];

        /* Never above any bound, and never lower than the lowest. */
        assert(!cap.set || (limit.set && limit.value <= cap.value));
        assert(!requested.set || (limit.set && limit.value <= requested.value));
        assert(!(own.set && (ceiling || !requested.set)) || (limit.set && limit.value <= own.value));
        assert(!limit.set || limit_equal(limit, cap) || limit_equal(limit, requested) || limit_equal(limit, own));
        assert(limit.set == (cap.set || requested.set || own.set));

        assert((by != CLAMPED_BY_NOBODY) == (requested.set && limit.value != requested.value));
        if (by == CLAMPED_BY_OPERATOR)
                assert(limit_equal(limit, cap) && (!ceiling || !own.set || cap.value < own.value));
        if (by == CLAMPED_BY_PROFILE)
                assert(ceiling && limit_equal(limit, own));
}

static void check_restriction(Restriction restriction, Choice requested, const EffectiveLimits *bare,
                              const EffectiveLimits *effective) {
        bool in_force = effective->restrictions[restriction];

        assert(in_force == (bare->restrictions[restriction] || requested == CHOICE_YES));
        assert(effective->restrictions_clamped[restriction] == (requested == CHOICE_NO && in_force));
}

/* Asking for what is in force changes nothing, unless profile or operator are below what may be asked for. */
static void check_is_stable(const Profile *profile, const LimitCaps *caps, const EffectiveLimits *effective) {
        LimitRequest request = {};
        EffectiveLimits again;

        memcpy(request.limits, effective->limits, sizeof(request.limits));
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                request.restrictions[restriction] = effective->restrictions[restriction] ? CHOICE_YES : CHOICE_NO;
        for (LimitField field = 0; field < N_LIMITS; field++)
                if (request.limits[field].set && limit_check(field, request.limits[field].value, NULL) < 0)
                        request.limits[field] = (Limit){};

        assert(profile_resolve(profile, &request, caps, &again, NULL) == 0);
        for (LimitField field = 0; field < N_LIMITS; field++)
                assert(again.limits_clamped[field] == CLAMPED_BY_NOBODY &&
                       limit_equal(again.limits[field], effective->limits[field]));
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                assert(!again.restrictions_clamped[restriction] &&
                       again.restrictions[restriction] == effective->restrictions[restriction]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const char *const names[] = { "default", "strict", "standard", "permissive" };
        Input input = { data, size };
        const char *name = names[take(&input, 1) % 4];
        LimitRequest request = {};
        LimitCaps caps = {};
        EffectiveLimits bare, effective;
        const Profile *profile;
        bool too_small = false;
        int r;

        for (LimitField field = 0; field < N_LIMITS; field++) {
                uint64_t bits = take(&input, 1);

                request.limits[field].set = bits & 1;
                caps.limits[field].set = bits & 2;
        }
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                request.restrictions[restriction] = (Choice) (take(&input, 1) % 3);
        for (LimitField field = 0; field < N_LIMITS; field++) {
                request.limits[field].value = take(&input, 8);
                caps.limits[field].value = take(&input, 8);
                too_small |= request.limits[field].set && limit_check(field, request.limits[field].value, NULL) < 0;
        }

        assert(profile_find(name, strlen(name), "", &profile, NULL) == 0);
        assert(profile_resolve(profile, &(LimitRequest){}, &(LimitCaps){}, &bare, NULL) == 0);

        r = profile_resolve(profile, &request, &caps, &effective, NULL);
        assert(r == (too_small ? -EINVAL : 0));
        if (r < 0)
                return 0;

        for (LimitField field = 0; field < N_LIMITS; field++)
                check_limit(field, request.limits[field], caps.limits[field], &bare, !str_equal(name, "default"),
                            &effective);
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                check_restriction(restriction, request.restrictions[restriction], &bare, &effective);
        check_is_stable(profile, &caps, &effective);
        return 0;
}
