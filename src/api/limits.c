/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: limits to and from messages. What does not: the arithmetic of profiles (policy/profile.c). */

#include "api/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/times.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/strings.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"

#define DISK_INODES_MIN 64
#define BYTES_PER_INODE 4096
#define WEIGHT_MAX 10000

typedef Hutch__V1__ResourceLimits Message;

/* An optional field of the message. */
typedef struct Member {
        const char *name;
        uint32_t tag;
        size_t case_offset;
        size_t value_offset;
        bool wide; /* 64 bits */
} Member;

#define MEMBER(lower, upper)                                                                                           \
        {                                                                                                              \
#lower, HUTCH__V1__RESOURCE_LIMITS__OPT_##upper##_##upper, offsetof(Message, opt_##lower##_case),      \
                        offsetof(Message, lower), sizeof(((Message *) NULL)->lower) == 8,                              \
        }

/* LIMIT_EXEC_TIMEOUT_MS is a message of its own. */
static const Member limit_members[N_LIMITS] = {
        [LIMIT_MEMORY_BYTES] = MEMBER(memory_bytes, MEMORY_BYTES),
        [LIMIT_CPU_MILLIS] = MEMBER(cpu_millis, CPU_MILLIS),
        [LIMIT_MAX_PROCESSES] = MEMBER(max_processes, MAX_PROCESSES),
        [LIMIT_MAX_OPEN_FILES] = MEMBER(max_open_files, MAX_OPEN_FILES),
        [LIMIT_DISK_BYTES] = MEMBER(disk_bytes, DISK_BYTES),
        [LIMIT_TMP_BYTES] = MEMBER(tmp_bytes, TMP_BYTES),
        [LIMIT_EXEC_TIMEOUT_MS] = { .name = "exec_timeout" },
};

static const Member disk_inodes = MEMBER(disk_inodes, DISK_INODES);
static const Member cpu_weight = MEMBER(cpu_weight, CPU_WEIGHT);
static const Member io_weight = MEMBER(io_weight, IO_WEIGHT);

static const Member restriction_members[N_RESTRICTIONS] = {
        [RESTRICTION_READ_ONLY_ROOT] = MEMBER(read_only_root, READ_ONLY_ROOT),
        [RESTRICTION_TMP_NOEXEC] = MEMBER(tmp_noexec, TMP_NOEXEC),
        [RESTRICTION_NO_NETWORK] = MEMBER(no_network, NO_NETWORK),
};

static const void *at(const Message *message, size_t offset) {
        return (const char *) message + offset;
}

static bool member_get(const Message *message, const Member *member, uint64_t *ret_value) {
        const void *value;

        if (!message || *(const uint32_t *) at(message, member->case_offset) != member->tag)
                return false;

        value = at(message, member->value_offset);
        *ret_value = member->wide ? *(const uint64_t *) value : *(const uint32_t *) value;
        return true;
}

static void member_set(Message *message, const Member *member, uint64_t value) {
        void *to = (char *) message + member->value_offset;
        uint32_t *set = (void *) ((char *) message + member->case_offset);

        *set = member->tag;
        if (member->wide)
                *(uint64_t *) to = value;
        else
                *(uint32_t *) to = value < UINT32_MAX ? (uint32_t) value : UINT32_MAX;
}

/* The limit of that name, of a duration its nanoseconds. */
static bool get_by_name(const Message *message, const char *name, uint64_t *ret_value) {
        const ProtobufCFieldDescriptor *field =
                protobuf_c_message_descriptor_get_field_by_name(&hutch__v1__resource_limits__descriptor, name);

        if (!message || !field)
                return false;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
                *ret_value = message->exec_timeout ? duration_ns(message->exec_timeout) : 0;
                return message->exec_timeout;
        }

        return member_get(message,
                          &(Member){ .tag = field->id,
                                     .case_offset = field->quantifier_offset,
                                     .value_offset = field->offset,
                                     .wide = field->type == PROTOBUF_C_TYPE_UINT64 },
                          ret_value);
}

/* Reads the request as profiles know it, and checks each value of it. */
static void check_request(const Message *message, LimitRequest *ret_request, Violations *violations) {
        LimitRequest request = {};
        uint64_t value;

        for (LimitField field = 0; field < N_LIMITS; field++) {
                Limit *limit = &request.limits[field];

                if (field == LIMIT_EXEC_TIMEOUT_MS) {
                        uint64_t ns = 0;

                        if (!message || !message->exec_timeout ||
                            duration_read(message->exec_timeout, "exec_timeout", violations, &ns) < 0)
                                continue;
                        /* Less than one is none; parts of one count, so that no bound is passed by them. */
                        limit->set = true;
                        limit->value = ns < NSEC_PER_MSEC ? 0 : (ns - 1) / NSEC_PER_MSEC + 1;
                } else {
                        limit->set = member_get(message, &limit_members[field], &limit->value);
                }
                if (limit->set)
                        (void) violations_note(violations, limit_members[field].name,
                                               limit_check(field, limit->value, &violations->err));
        }

        for (Restriction i = 0; i < N_RESTRICTIONS; i++)
                if (member_get(message, &restriction_members[i], &value))
                        request.restrictions[i] = value ? CHOICE_YES : CHOICE_NO;

        if (member_get(message, &disk_inodes, &value) && value < DISK_INODES_MIN)
                violations_add_limit(violations, disk_inodes.name, REASON_LIMIT_TOO_SMALL, disk_inodes.name,
                                     DISK_INODES_MIN, "at least %d", DISK_INODES_MIN);
        for (size_t i = 0; i < 2; i++) {
                const Member *weight = i == 0 ? &cpu_weight : &io_weight;

                if (member_get(message, weight, &value) && (value < 1 || value > WEIGHT_MAX))
                        violations_add(violations, weight->name, REASON_FIELD_OUT_OF_RANGE, "a weight is 1 to %d",
                                       WEIGHT_MAX);
        }

        *ret_request = request;
}

/* A message, and what it points to. */
typedef struct LimitsMessage {
        Message message;
        Google__Protobuf__Duration exec_timeout;
} LimitsMessage;

#define CLAMPED_MAX (N_LIMITS + N_RESTRICTIONS)

/* Building a hutch.v1.EffectiveLimits. */
typedef struct Building {
        Hutch__V1__EffectiveLimits message;
        LimitsMessage limits;
        Hutch__V1__ClampedLimit clamped[CLAMPED_MAX], *clamped_list[CLAMPED_MAX];
        char requested[CLAMPED_MAX][DURATION_TEXT_SIZE], effective[CLAMPED_MAX][DURATION_TEXT_SIZE];
        char *not_enforced[32];
} Building;

static void format_value(LimitField field, uint64_t value, char ret_text[static DURATION_TEXT_SIZE]) {
        if (field == LIMIT_EXEC_TIMEOUT_MS)
                duration_format((Duration){ .seconds = (int64_t) (value / NSEC_PER_SEC),
                                            .nanos = (int32_t) (value % NSEC_PER_SEC) },
                                ret_text);
        else
                (void) snprintf(ret_text, DURATION_TEXT_SIZE, "%" PRIu64, value);
}

static size_t add_clamped(Building *building, const char *field, Hutch__V1__ClampedBy by) {
        size_t i = building->message.n_clamped++;
        Hutch__V1__ClampedLimit *clamped = &building->clamped[i];

        *clamped = (Hutch__V1__ClampedLimit) HUTCH__V1__CLAMPED_LIMIT__INIT;
        clamped->field = (char *) field;
        clamped->requested = building->requested[i];
        clamped->effective = building->effective[i];
        clamped->by = by;
        building->clamped_list[i] = clamped;
        return i;
}

static void build_clamped(Building *building, const Message *requested, const LimitRequest *request,
                          const EffectiveLimits *effective) {
        for (LimitField field = 0; field < N_LIMITS; field++) {
                uint64_t scale = field == LIMIT_EXEC_TIMEOUT_MS ? NSEC_PER_MSEC : 1;
                uint64_t asked = request->limits[field].value;
                size_t i;

                if (effective->limits_clamped[field] == CLAMPED_BY_NOBODY)
                        continue;
                if (field == LIMIT_EXEC_TIMEOUT_MS)
                        asked = duration_ns(requested->exec_timeout);

                i = add_clamped(building, limit_members[field].name,
                                effective->limits_clamped[field] == CLAMPED_BY_PROFILE
                                        ? HUTCH__V1__CLAMPED_BY__CLAMPED_BY_PROFILE
                                        : HUTCH__V1__CLAMPED_BY__CLAMPED_BY_OPERATOR);
                format_value(field, asked, building->requested[i]);
                format_value(field, effective->limits[field].value * scale, building->effective[i]);
        }

        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                if (effective->restrictions_clamped[restriction]) {
                        size_t i = add_clamped(building, restriction_members[restriction].name,
                                               HUTCH__V1__CLAMPED_BY__CLAMPED_BY_PROFILE);

                        (void) snprintf(building->requested[i], DURATION_TEXT_SIZE, "false");
                        (void) snprintf(building->effective[i], DURATION_TEXT_SIZE, "true");
                }
}

static void limits_message_init(LimitsMessage *message, const Limit limits[static N_LIMITS]) {
        *message = (LimitsMessage){ .message = HUTCH__V1__RESOURCE_LIMITS__INIT };

        for (LimitField field = 0; field < N_LIMITS; field++) {
                if (!limits[field].set)
                        continue;
                if (field == LIMIT_EXEC_TIMEOUT_MS) {
                        message->exec_timeout = duration_message(limits[field].value * NSEC_PER_MSEC);
                        message->message.exec_timeout = &message->exec_timeout;
                } else {
                        member_set(&message->message, &limit_members[field], limits[field].value);
                }
        }
}

static void build_limits(Building *building, const Message *requested, const LimitRequest *request,
                         const EffectiveLimits *effective) {
        Message *message = &building->limits.message;
        uint64_t value;

        limits_message_init(&building->limits, effective->limits);
        for (Restriction restriction = 0; restriction < N_RESTRICTIONS; restriction++)
                member_set(message, &restriction_members[restriction], effective->restrictions[restriction]);

        /* What was asked for in parts of a millisecond stays as it is. */
        if (request->limits[LIMIT_EXEC_TIMEOUT_MS].set &&
            effective->limits_clamped[LIMIT_EXEC_TIMEOUT_MS] == CLAMPED_BY_NOBODY)
                building->limits.exec_timeout = duration_message(duration_ns(requested->exec_timeout));

        if (member_get(requested, &disk_inodes, &value))
                member_set(message, &disk_inodes, value);
        else if (effective->limits[LIMIT_DISK_BYTES].set)
                member_set(message, &disk_inodes, effective->limits[LIMIT_DISK_BYTES].value / BYTES_PER_INODE);
        if (member_get(requested, &cpu_weight, &value))
                member_set(message, &cpu_weight, value);
        if (member_get(requested, &io_weight, &value))
                member_set(message, &io_weight, value);
}

/* What was asked for must be enforced, or be allowed not to be; what nobody asked for is told. */
static void build_not_enforced(Building *building, const Message *requested, const LimitRules *rules,
                               Violations *violations) {
        const size_t max = sizeof(building->not_enforced) / sizeof(building->not_enforced[0]);

        for (const UnenforcedLimit *one = rules->not_enforced; one && one->limit; one++) {
                uint64_t value;

                if (get_by_name(requested, one->limit, &value) && !rules->allow_unenforced)
                        violations_add_limit(violations, one->limit, REASON_LIMIT_NOT_ENFORCEABLE, one->limit, value,
                                             "this host does not enforce it: %s%s%s", one->why,
                                             *one->fix ? "; to fix: " : "", one->fix);
                if (get_by_name(&building->limits.message, one->limit, &value) &&
                    building->message.n_not_enforced < max)
                        building->not_enforced[building->message.n_not_enforced++] = (char *) one->limit;
        }
}

int limits_resolve(const Message *requested, const char *profile_name, const LimitRules *rules, Violations *violations,
                   uint8_t **ret_effective, size_t *ret_len) {
        Building building = { .message = HUTCH__V1__EFFECTIVE_LIMITS__INIT };
        const Profile *profile = NULL;
        EffectiveLimits effective;
        LimitRequest request;
        size_t n = violations->n, above = violations_enter(violations, "limits");
        int r;

        check_request(requested, &request, violations);
        violations_leave(violations, above);
        (void) violations_note(
                violations, "profile",
                profile_find(profile_name, strlen(profile_name), PROFILE_FOR_SANDBOXES, &profile, &violations->err));
        if (violations->n > n || !profile)
                return -EINVAL;

        r = profile_resolve(profile, &request, &rules->caps, &effective, NULL);
        if (r < 0)
                return r;

        build_limits(&building, requested, &request, &effective);
        build_clamped(&building, requested, &request, &effective);
        above = violations_enter(violations, "limits");
        build_not_enforced(&building, requested, rules, violations);
        violations_leave(violations, above);

        building.message.profile = (char *) (*profile_name ? profile_name : PROFILE_FOR_SANDBOXES);
        building.message.limits = &building.limits.message;
        building.message.clamped = building.clamped_list;
        building.message.not_enforced = building.not_enforced;
        return protobuf_pack(&building.message.base, ret_effective, ret_len);
}

void limits_from_message(const Message *message, SandboxLimits *ret_limits) {
        SandboxLimits limits = {};
        uint64_t restrictions[N_RESTRICTIONS] = {}, values[N_LIMITS] = {}, weights[2] = {};

        for (LimitField field = 0; field < N_LIMITS; field++)
                if (field != LIMIT_EXEC_TIMEOUT_MS)
                        (void) member_get(message, &limit_members[field], &values[field]);
        for (Restriction i = 0; i < N_RESTRICTIONS; i++)
                (void) member_get(message, &restriction_members[i], &restrictions[i]);
        (void) member_get(message, &cpu_weight, &weights[0]);
        (void) member_get(message, &io_weight, &weights[1]);
        (void) member_get(message, &disk_inodes, &limits.disk_inodes);

        limits.memory_bytes = values[LIMIT_MEMORY_BYTES];
        limits.cpu_millis = (uint32_t) values[LIMIT_CPU_MILLIS];
        limits.max_processes = (uint32_t) values[LIMIT_MAX_PROCESSES];
        limits.max_open_files = (uint32_t) values[LIMIT_MAX_OPEN_FILES];
        limits.disk_bytes = values[LIMIT_DISK_BYTES];
        limits.tmp_bytes = values[LIMIT_TMP_BYTES];
        limits.exec_timeout = message && message->exec_timeout ? duration_ns(message->exec_timeout) : 0;
        limits.cpu_weight = (uint32_t) weights[0];
        limits.io_weight = (uint32_t) weights[1];
        limits.read_only_root = restrictions[RESTRICTION_READ_ONLY_ROOT];
        limits.tmp_noexec = restrictions[RESTRICTION_TMP_NOEXEC];
        limits.no_network = restrictions[RESTRICTION_NO_NETWORK];
        *ret_limits = limits;
}

void put_limits(WireBuffer *buffer, unsigned field, const Limit limits[static N_LIMITS]) {
        LimitsMessage message;

        limits_message_init(&message, limits);
        wire_put_message(buffer, field, &message.message.base);
}

void put_profile_limits(WireBuffer *buffer, unsigned defaults_field, unsigned ceilings_field, const char *name) {
        LimitRequest nothing = {}, everything = {};
        EffectiveLimits defaults, ceilings;
        const LimitCaps no_caps = {};
        LimitsMessage default_message, ceiling_message;
        const Profile *profile;

        if (profile_find(name, strlen(name), name, &profile, NULL) < 0)
                return;

        /* What is clamped when everything is asked for has a ceiling. */
        for (LimitField field = 0; field < N_LIMITS; field++)
                everything.limits[field] = (Limit){ true, UINT64_MAX };
        for (Restriction i = 0; i < N_RESTRICTIONS; i++)
                everything.restrictions[i] = CHOICE_NO;
        (void) profile_resolve(profile, &nothing, &no_caps, &defaults, NULL);
        (void) profile_resolve(profile, &everything, &no_caps, &ceilings, NULL);
        for (LimitField field = 0; field < N_LIMITS; field++)
                ceilings.limits[field].set = ceilings.limits_clamped[field] != CLAMPED_BY_NOBODY;

        limits_message_init(&default_message, defaults.limits);
        limits_message_init(&ceiling_message, ceilings.limits);
        for (Restriction i = 0; i < N_RESTRICTIONS; i++) {
                member_set(&default_message.message, &restriction_members[i], defaults.restrictions[i]);
                if (ceilings.restrictions_clamped[i])
                        member_set(&ceiling_message.message, &restriction_members[i], 1);
        }
        wire_put_message(buffer, defaults_field, &default_message.message.base);
        wire_put_message(buffer, ceilings_field, &ceiling_message.message.base);
}
