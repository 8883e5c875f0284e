/* SPDX-License-Identifier: Apache-2.0 */

#include "policy/profile.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/strings.h"
#include "test.h"

#define MIB(n) (UINT64_C(1048576) * (n))

static const LimitRequest nothing_asked = {};
static const LimitCaps no_caps = {};

static const Profile *find(const char *name) {
        const Profile *profile;

        assert_int_equal(profile_find(name, strlen(name), PROFILE_FOR_SANDBOXES, &profile, NULL), 0);
        return profile;
}

static EffectiveLimits resolve(const char *profile, const LimitRequest *request, const LimitCaps *caps) {
        EffectiveLimits effective;

        assert_int_equal(profile_resolve(find(profile), request, caps, &effective, NULL), 0);
        return effective;
}

static void expect_limit(const EffectiveLimits *effective, LimitField field, uint64_t value) {
        assert_true(effective->limits[field].set);
        assert_int_equal(effective->limits[field].value, value);
}

/* Nothing but the fields in @clamped was clamped. */
static void expect_clamped(const EffectiveLimits *effective, const ClampedBy clamped[static N_LIMITS]) {
        for (LimitField field = 0; field < N_LIMITS; field++)
                if (effective->limits_clamped[field] != clamped[field])
                        fail_msg("%s: clamped by %d", limit_field_name(field), effective->limits_clamped[field]);
}

static const ClampedBy nothing_clamped[N_LIMITS];

static void an_empty_name_stands_for_what_the_caller_says(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        const Profile *profile = NULL;

        assert_ptr_equal(find(""), find("default"));
        assert_int_equal(profile_find(NULL, 0, PROFILE_FOR_REMOTE_EXEC, &profile, &err), 0);
        assert_ptr_equal(profile, find("standard"));

        assert_int_equal(profile_find("strict", 5, PROFILE_FOR_SANDBOXES, &profile, &err), -EINVAL);
        assert_string_equal(err.reason, "PROFILE_UNKNOWN");
        assert_int_equal(profile_find("", 0, "gone", &profile, &err), -EINVAL);
        assert_ptr_equal(profile, find("standard"));
}

static void what_is_not_asked_is_the_profile_s(void **state) {
        EffectiveLimits strict = resolve("strict", &nothing_asked, &no_caps);
        EffectiveLimits plain = resolve("default", &nothing_asked, &no_caps);

        expect_limit(&strict, LIMIT_MEMORY_BYTES, MIB(256));
        expect_limit(&strict, LIMIT_TMP_BYTES, MIB(64));
        expect_limit(&strict, LIMIT_EXEC_TIMEOUT_MS, 300000);
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                assert_true(strict.restrictions[restriction]);
        expect_clamped(&strict, nothing_clamped);

        expect_limit(&plain, LIMIT_DISK_BYTES, MIB(4096));
        assert_false(plain.limits[LIMIT_TMP_BYTES].set);
        assert_false(plain.limits[LIMIT_EXEC_TIMEOUT_MS].set);
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                assert_false(plain.restrictions[restriction]);
}

static void a_ceiling_lowers_and_a_default_does_not(void **state) {
        LimitRequest request = { .limits[LIMIT_MEMORY_BYTES] = { true, MIB(8192) } };
        EffectiveLimits standard = resolve("standard", &request, &no_caps),
                        plain = resolve("default", &request, &no_caps);

        expect_limit(&standard, LIMIT_MEMORY_BYTES, MIB(256));
        expect_clamped(&standard, (ClampedBy[N_LIMITS]){ [LIMIT_MEMORY_BYTES] = CLAMPED_BY_PROFILE });

        expect_limit(&plain, LIMIT_MEMORY_BYTES, MIB(8192));
        expect_clamped(&plain, nothing_clamped);
}

static void the_lower_bound_is_told_and_the_profile_when_both_are_equal(void **state) {
        LimitRequest request = {
                .limits[LIMIT_CPU_MILLIS] = { true, 4000 },
                .limits[LIMIT_MAX_PROCESSES] = { true, 65 },
                .limits[LIMIT_MAX_OPEN_FILES] = { true, UINT64_MAX },
                .limits[LIMIT_TMP_BYTES] = { true, MIB(2) },
        };
        LimitCaps caps = {
                .limits[LIMIT_CPU_MILLIS] = { true, 499 },
                .limits[LIMIT_MAX_PROCESSES] = { true, 64 },
                .limits[LIMIT_MAX_OPEN_FILES] = { true, 2048 },
                .limits[LIMIT_TMP_BYTES] = { true, MIB(1) },
        };
        EffectiveLimits effective = resolve("standard", &request, &caps);

        expect_limit(&effective, LIMIT_CPU_MILLIS, 499);
        expect_limit(&effective, LIMIT_MAX_PROCESSES, 64);
        expect_limit(&effective, LIMIT_MAX_OPEN_FILES, 1024);
        expect_limit(&effective, LIMIT_TMP_BYTES, MIB(1));
        expect_clamped(&effective, (ClampedBy[N_LIMITS]){
                                           [LIMIT_CPU_MILLIS] = CLAMPED_BY_OPERATOR,
                                           [LIMIT_MAX_PROCESSES] = CLAMPED_BY_PROFILE,
                                           [LIMIT_MAX_OPEN_FILES] = CLAMPED_BY_PROFILE,
                                           [LIMIT_TMP_BYTES] = CLAMPED_BY_OPERATOR,
                                   });
}

static void a_cap_holds_for_what_nobody_asked_and_is_not_told_then(void **state) {
        LimitCaps caps = {
                .limits[LIMIT_MEMORY_BYTES] = { true, 1 },
                .limits[LIMIT_EXEC_TIMEOUT_MS] = { true, 60000 },
        };
        EffectiveLimits effective = resolve("default", &nothing_asked, &caps);

        expect_limit(&effective, LIMIT_MEMORY_BYTES, 1);
        expect_limit(&effective, LIMIT_EXEC_TIMEOUT_MS, 60000);
        expect_clamped(&effective, nothing_clamped);
}

static void requests_tighten_and_do_not_loosen(void **state) {
        LimitRequest loosen = { .restrictions = { CHOICE_NO, CHOICE_UNSET, CHOICE_NO } };
        LimitRequest tighten = { .restrictions = { CHOICE_NO, CHOICE_YES, CHOICE_UNSET } };
        EffectiveLimits strict = resolve("strict", &loosen, &no_caps);
        EffectiveLimits permissive = resolve("permissive", &tighten, &no_caps);

        assert_true(strict.restrictions[RESTRICTION_READ_ONLY_ROOT]);
        assert_true(strict.restrictions_clamped[RESTRICTION_READ_ONLY_ROOT]);
        assert_false(strict.restrictions_clamped[RESTRICTION_TMP_NOEXEC]);
        assert_true(strict.restrictions_clamped[RESTRICTION_NO_NETWORK]);

        assert_false(permissive.restrictions[RESTRICTION_READ_ONLY_ROOT]);
        assert_true(permissive.restrictions[RESTRICTION_TMP_NOEXEC]);
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                assert_false(permissive.restrictions_clamped[restriction]);
}

static void too_small_is_refused_not_raised(void **state) {
        static const uint64_t least[N_LIMITS] = { MIB(8), 10, 1, 16, MIB(1), 65536, 1 };

        for (LimitField field = 0; field < N_LIMITS; field++) {
                _cleanup_(error_clear) HutchError err = {};
                EffectiveLimits effective = { .restrictions = { true } };
                LimitRequest request = {};

                request.limits[field] = (Limit){ true, least[field] - 1 };
                assert_int_equal(profile_resolve(find("default"), &request, &no_caps, &effective, &err), -EINVAL);
                assert_string_equal(err.reason, "LIMIT_TOO_SMALL");
                assert_non_null(strstr(error_message(&err), limit_field_name(field)));
                assert_true(effective.restrictions[0]);

                assert_int_equal(limit_check(field, least[field], NULL), 0);
        }
}

static void read_limits(Vector *v, const json_t *object, Limit ret_limits[static N_LIMITS]) {
        size_t n = 0;

        for (LimitField field = 0; field < N_LIMITS; field++) {
                const json_t *value = json_object_get(object, limit_field_name(field));

                if (value)
                        ret_limits[field] = (Limit){ true, (uint64_t) json_integer_value(value) };
                n += value != NULL;
        }

        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                n += json_object_get(object, restriction_name(restriction)) != NULL;

        vector_check(v, n == json_object_size(object), "a field of the case is unknown");
}

static void read_restrictions(const json_t *object, Choice ret_choices[static N_RESTRICTIONS]) {
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++) {
                const json_t *value = json_object_get(object, restriction_name(restriction));

                ret_choices[restriction] = !value ? CHOICE_UNSET : json_is_true(value) ? CHOICE_YES : CHOICE_NO;
        }
}

static json_t *effective_json(const EffectiveLimits *effective) {
        json_t *object = json_object();

        for (LimitField field = 0; field < N_LIMITS; field++)
                if (effective->limits[field].set)
                        json_object_set_new(object, limit_field_name(field),
                                            json_integer((json_int_t) effective->limits[field].value));
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                json_object_set_new(object, restriction_name(restriction),
                                    json_boolean(effective->restrictions[restriction]));

        return object;
}

static json_t *clamp_json(const char *field, json_t *requested, json_t *effective, ClampedBy by) {
        return json_pack("{ss so so ss}", "field", field, "requested", requested, "effective", effective, "by",
                         by == CLAMPED_BY_OPERATOR ? "operator" : "profile");
}

static json_t *clamps_json(const LimitRequest *request, const EffectiveLimits *effective) {
        json_t *array = json_array();

        for (LimitField field = 0; field < N_LIMITS; field++)
                if (effective->limits_clamped[field] != CLAMPED_BY_NOBODY)
                        json_array_append_new(array,
                                              clamp_json(limit_field_name(field),
                                                         json_integer((json_int_t) request->limits[field].value),
                                                         json_integer((json_int_t) effective->limits[field].value),
                                                         effective->limits_clamped[field]));
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                if (effective->restrictions_clamped[restriction])
                        json_array_append_new(array, clamp_json(restriction_name(restriction), json_false(),
                                                                json_true(), CLAMPED_BY_PROFILE));

        return array;
}

/* Compares @actual, which is taken over, with the member @key of the expected result. */
static void check_json(Vector *v, const char *key, json_t *actual) {
        _cleanup_free_ char *text = json_dumps(actual, JSON_COMPACT);

        vector_check(v, json_equal(actual, json_object_get(vector_json(v, "out"), key)), "%s is %s", key, text);
        json_decref(actual);
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "profiles.json") {
                _cleanup_(error_clear) HutchError err = {};
                const json_t *in = vector_json(v, "in"), *asked = json_object_get(in, "request");
                LimitRequest request = {};
                LimitCaps caps = {};
                EffectiveLimits effective;
                const Profile *profile;
                size_t len;
                const char *name = vector_bytes(v, "profile", &len);
                int r;

                read_limits(v, asked, request.limits);
                read_restrictions(asked, request.restrictions);
                read_limits(v, json_object_get(in, "caps"), caps.limits);

                r = profile_find(name, len, PROFILE_FOR_SANDBOXES, &profile, &err);
                if (r >= 0)
                        r = profile_resolve(profile, &request, &caps, &effective, &err);
                if (!vector_assert_result(v, r, &err) || r < 0)
                        continue;

                check_json(v, "effective", effective_json(&effective));
                check_json(v, "clamped", clamps_json(&request, &effective));
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_empty_name_stands_for_what_the_caller_says),
                cmocka_unit_test(what_is_not_asked_is_the_profile_s),
                cmocka_unit_test(a_ceiling_lowers_and_a_default_does_not),
                cmocka_unit_test(the_lower_bound_is_told_and_the_profile_when_both_are_equal),
                cmocka_unit_test(a_cap_holds_for_what_nobody_asked_and_is_not_told_then),
                cmocka_unit_test(requests_tighten_and_do_not_loosen),
                cmocka_unit_test(too_small_is_refused_not_raised),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
