/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules of hutch.v1.SandboxSpec, and its way into the model and back. What does not: limits and
 * profiles (limits.c), and what specs and execs share (process-rules.c). */

#include "api/sandbox-spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/limits.h"
#include "api/process-rules.h"
#include "api/spec-mounts.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/strings.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "policy/capabilities.h"
#include "policy/path-rules.h"
#include "policy/profile.h"
#include "rpc/core/protobuf.h"
#include "runtime/runtime.h"

#define IMAGE_LEN_MAX 512
#define IMAGE_DEFAULT "host"
#define USER_DEFAULT "1000"
#define STORED_MAX ((size_t) 64 << 20) /* bytes in memory of what the store kept */

typedef Hutch__V1__SandboxSpec Message;

static const char *const field_names[N_SPEC_FIELDS] = {
        [SPEC_LABELS] = "labels",
        [SPEC_IDLE_TTL] = "idle_ttl",
        [SPEC_MAX_LIFETIME] = "max_lifetime",
        [SPEC_LIFETIME_ACTION] = "lifetime_action",
        [SPEC_IDLE_ACTION] = "idle_action",
};

const char *spec_field_name(SpecField field) {
        return field_names[field];
}

SpecField spec_field_from_name(const char *name) {
        SpecField field = 0;

        while (field < N_SPEC_FIELDS && !str_equal(field_names[field], name))
                field++;
        return field;
}

static void check_path(const char *path, const char *field, bool root_allowed, Violations *violations) {
        _cleanup_free_ char *resolved = NULL;
        const PathContext context = { .use = PATH_USE_ABSOLUTE };

        if (!*path)
                return;
        if (violations_note(violations, field,
                            path_resolve(path, strlen(path), &context, &resolved, NULL, &violations->err)) == 0 &&
            !root_allowed && str_equal(resolved, "/"))
                violations_add(violations, field, REASON_FIELD_INVALID, "the root cannot be named here");
}

static void check_workspace(const Hutch__V1__Workspace *workspace, Violations *violations) {
        size_t above;

        if (!workspace)
                return;

        above = violations_enter(violations, "workspace");
        check_path(workspace->target, "target", false, violations);
        if (!*workspace->source && workspace->read_only)
                violations_add(violations, "read_only", REASON_FIELD_INVALID, "it has a meaning only with a source");
        if (!*workspace->source && workspace->sockets)
                violations_add(violations, "sockets", REASON_FIELD_INVALID, "it has a meaning only with a source");
        violations_leave(violations, above);
}

/* What the contract has and this daemon has not. */
static void refuse_unsupported(const Message *message, Violations *violations) {
        const struct {
                const char *field;
                bool used;
        } features[] = {
                { "image", *message->image && !str_equal(message->image, IMAGE_DEFAULT) },
                { "companions", message->n_companions > 0 },
                { "ports", message->n_ports > 0 },
                { "gpus", message->gpus },
                { "secrets", message->n_secrets > 0 },
                { "egress", message->n_egress > 0 },
                { "policy", message->policy },
                { "providers", message->n_providers > 0 },
                { "snapshot", *message->snapshot },
        };

        for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
                if (features[i].used)
                        violations_add(violations, features[i].field, REASON_FEATURE_UNSUPPORTED,
                                       "this daemon does not have the feature; leave the field out");
}

static void check_max_lifetime(const Message *message, const SandboxRules *rules, Violations *violations) {
        uint64_t lifetime, max = rules->max_lifetime;

        if (message->max_lifetime &&
            duration_read(message->max_lifetime, field_names[SPEC_MAX_LIFETIME], violations, &lifetime) == 0 &&
            max > 0 && lifetime > max)
                violations_add_limit(violations, field_names[SPEC_MAX_LIFETIME], REASON_FIELD_OUT_OF_RANGE,
                                     "max_lifetime", max / NSEC_PER_SEC, "at most %" PRIu64 " seconds",
                                     max / NSEC_PER_SEC);
}

void sandbox_spec_check_update(const Message *changes, unsigned fields, const SandboxRules *rules,
                               Violations *violations) {
        uint64_t ttl;

        if (fields & 1U << SPEC_LABELS)
                check_labels((MapEntry *const *) changes->labels, changes->n_labels, field_names[SPEC_LABELS],
                             violations);
        if (fields & 1U << SPEC_IDLE_TTL)
                duration_read_bounded(changes->idle_ttl, field_names[SPEC_IDLE_TTL], UINT64_MAX, 0, violations, &ttl);
        if (fields & 1U << SPEC_MAX_LIFETIME)
                check_max_lifetime(changes, rules, violations);
        if (fields & 1U << SPEC_LIFETIME_ACTION &&
            !protobuf_c_enum_descriptor_get_value(&hutch__v1__lifetime_action__descriptor, changes->lifetime_action))
                violations_add(violations, field_names[SPEC_LIFETIME_ACTION], REASON_FIELD_INVALID,
                               "there is no such action");
        if (fields & 1U << SPEC_IDLE_ACTION &&
            !protobuf_c_enum_descriptor_get_value(&hutch__v1__idle_action__descriptor, changes->idle_action))
                violations_add(violations, field_names[SPEC_IDLE_ACTION], REASON_FIELD_INVALID,
                               "there is no such action");
}

/* The bits of the first @n. */
static uint64_t read_capabilities(const Message *message, size_t n) {
        uint64_t mask = 0;

        for (size_t i = 0; i < n; i++) {
                int number = capability_find(message->capabilities[i], NULL);

                mask |= number >= 0 ? UINT64_C(1) << number : 0;
        }
        return mask;
}

static void check_capability(const Message *message, size_t i, Violations *violations) {
        size_t above = violations_enter_element(violations, "capabilities", i);
        int number = capability_find(message->capabilities[i], &violations->err);

        if (number < 0)
                (void) violations_note(violations, NULL, number);
        else if (read_capabilities(message, i) & UINT64_C(1) << number)
                violations_add(violations, NULL, REASON_FIELD_INVALID, "it is there twice");
        violations_leave(violations, above);
}

static bool has_feature(const RuntimeVerbs *runtime, const char *name) {
        for (const char *const *feature = runtime->features; *feature; feature++)
                if (str_equal(*feature, name))
                        return true;
        return false;
}

static void check_capabilities(const Message *message, const SandboxRules *rules, const RuntimeVerbs *runtime,
                               Violations *violations) {
        if (message->n_capabilities == 0)
                return;

        if (message->n_capabilities > CAPABILITIES_MAX)
                violations_add_limit(violations, "capabilities", REASON_FIELD_OUT_OF_RANGE, "capabilities",
                                     CAPABILITIES_MAX, "at most %d capabilities", CAPABILITIES_MAX);
        else
                for (size_t i = 0; i < message->n_capabilities; i++)
                        check_capability(message, i, violations);
        if (!capabilities_fit_profile(message->profile))
                violations_add(violations, "capabilities", REASON_FIELD_CONFLICT,
                               "under the profile '%s' nobody has any", message->profile);
        if (!rules->allow_capabilities)
                violations_add(violations, "capabilities", REASON_FEATURE_UNSUPPORTED,
                               "the operator does not allow them (sandboxes.allow_capabilities)");
        else if (runtime && !has_feature(runtime, "uid-ranges"))
                violations_add(violations, "capabilities", REASON_FEATURE_UNSUPPORTED,
                               "sandboxes have no root here; 'hutch doctor' tells how they get one");
}

static void check_profile(const Message *message, const RuntimeVerbs *runtime, Violations *violations) {
        if (runtime && profile_needs_private_files(message->profile) && !has_feature(runtime, "private-files"))
                violations_add(violations, "profile", REASON_FEATURE_UNSUPPORTED,
                               "'%s' needs files of the host with inodes of the sandbox's own, which this host does "
                               "not have; 'hutch doctor' tells why",
                               message->profile);
}

static const RuntimeVerbs *find_runtime(const Message *message, const SandboxRules *rules, Violations *violations) {
        for (Runtime *const *runtime = rules->runtimes; *runtime; runtime++)
                if (!*message->runtime || str_equal((*runtime)->verbs->name, message->runtime))
                        return (*runtime)->verbs;

        violations_add(violations, "runtime", REASON_RUNTIME_UNKNOWN, "there is no runtime of that name");
        return NULL;
}

static void check(const Message *message, const SandboxRules *rules, Violations *violations) {
        MapEntry *const *env = (MapEntry *const *) message->env;

        if (strlen(message->image) > IMAGE_LEN_MAX)
                violations_add_limit(violations, "image", REASON_FIELD_TOO_LONG, "image_bytes", IMAGE_LEN_MAX,
                                     "an image's name has at most %d bytes", IMAGE_LEN_MAX);
        if (*message->image && *message->snapshot)
                violations_add(violations, "snapshot", REASON_FIELD_CONFLICT, "image and snapshot exclude each other");
        if (message->n_command > 0)
                check_arguments(message->command, message->n_command, "command", violations);
        check_environment(env, message->n_env, "env", violations);
        check_path(message->working_directory, "working_directory", true, violations);
        check_user(message->user, "user", violations);
        check_workspace(message->workspace, violations);
        spec_mounts_check(message, rules, violations);
        sandbox_spec_check_update(message, ~0U, rules, violations);
        check_arguments_size(message->command, message->n_command, env, message->n_env, violations);
        refuse_unsupported(message, violations);
}

static char *path_or(const char *path, const char *otherwise) {
        const PathContext context = { .use = PATH_USE_ABSOLUTE };
        char *resolved = NULL;

        if (!*path)
                return xstrdup(otherwise);
        return path_resolve(path, strlen(path), &context, &resolved, NULL, NULL) < 0 ? NULL : resolved;
}

static bool is_duration(const Google__Protobuf__Duration *duration) {
        return !duration || (duration->seconds >= 0 && duration->seconds <= INT32_MAX && duration->nanos >= 0 &&
                             duration->nanos < (int32_t) NSEC_PER_SEC);
}

/* Makes a spec of @message and of the bytes of both messages, which are copied. */
static int build(const Message *message, const StoredSpec *stored, SandboxSpec **ret_spec) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = sandbox_spec_new();
        _cleanup_(protobuf_freep) ProtobufCMessage *effective = NULL;
        int r;

        r = protobuf_unpack(&hutch__v1__effective_limits__descriptor, stored->effective, stored->effective_len,
                            STORED_MAX, &effective);
        if (r < 0)
                return r == -EMSGSIZE ? -EBADMSG : r;
        if (!is_duration(message->idle_ttl) || !is_duration(message->max_lifetime))
                return -EBADMSG;
        limits_from_message(((Hutch__V1__EffectiveLimits *) effective)->limits, &spec->limits);
        spec->limits.private_files = profile_needs_private_files(((Hutch__V1__EffectiveLimits *) effective)->profile);

        spec->image = xstrdup(*message->image ? message->image : IMAGE_DEFAULT);
        spec->runtime = xstrdup(message->runtime);
        spec->user = xstrdup(*message->user ? message->user : USER_DEFAULT);
        spec->workspace = path_or(message->workspace ? message->workspace->target : "", PATH_WORKSPACE);
        if (!spec->workspace)
                return -EBADMSG;
        r = spec_mounts_build(message, spec);
        if (r < 0)
                return r;
        spec->capabilities = read_capabilities(message, message->n_capabilities);
        spec->working_directory = path_or(message->working_directory, spec->workspace);
        if (!spec->working_directory)
                return -EBADMSG;
        spec->command = copy_texts(message->command, message->n_command);
        spec->n_env = message->n_env;
        spec->env = copy_environment((MapEntry *const *) message->env, message->n_env);
        spec->n_labels = message->n_labels;
        spec->labels = copy_labels((MapEntry *const *) message->labels, message->n_labels);
        spec->idle_ttl = message->idle_ttl ? duration_ns(message->idle_ttl) : 0;
        spec->max_lifetime = message->max_lifetime ? duration_ns(message->max_lifetime) : 0;
        spec->lifetime_action = message->lifetime_action == HUTCH__V1__LIFETIME_ACTION__LIFETIME_ACTION_DELETE
                                        ? LIFETIME_DELETE
                                        : LIFETIME_STOP;
        spec->idle_action =
                message->idle_action == HUTCH__V1__IDLE_ACTION__IDLE_ACTION_DELETE ? IDLE_DELETE : IDLE_STOP;

        spec->encoded = malloc(stored->encoded_len + 1);
        spec->effective = malloc(stored->effective_len + 1);
        if (!spec->encoded || !spec->effective)
                return -ENOMEM;
        if (stored->encoded_len > 0)
                memcpy(spec->encoded, stored->encoded, stored->encoded_len);
        if (stored->effective_len > 0)
                memcpy(spec->effective, stored->effective, stored->effective_len);
        spec->encoded_len = stored->encoded_len;
        spec->effective_len = stored->effective_len;

        *ret_spec = TAKE_PTR(spec);
        return 0;
}

/* Fills in what the operator's settings decide, packs and makes the spec. @message is a copy. */
static int fill_in(Message message, const uint8_t *effective, size_t effective_len, const SandboxRules *rules,
                   SandboxSpec **ret_spec) {
        Google__Protobuf__Duration ttl = duration_message(rules->default_idle_ttl);
        Google__Protobuf__Duration lifetime = duration_message(rules->max_lifetime);
        _cleanup_free_ uint8_t *encoded = NULL;
        StoredSpec stored = { .effective = effective, .effective_len = effective_len };
        int r;

        if (!message.idle_ttl)
                message.idle_ttl = &ttl;
        if (rules->max_lifetime > 0 && (!message.max_lifetime || duration_ns(message.max_lifetime) == 0))
                message.max_lifetime = &lifetime;

        r = protobuf_pack(&message.base, &encoded, &stored.encoded_len);
        if (r < 0)
                return r;
        stored.encoded = encoded;
        return build(&message, &stored, ret_spec);
}

int sandbox_spec_create(const Message *message, const SandboxRules *rules, Violations *violations,
                        SandboxSpec **ret_spec) {
        const Message empty = HUTCH__V1__SANDBOX_SPEC__INIT;
        LimitRules limit_rules = { .caps = rules->caps, .allow_unenforced = rules->allow_unenforced };
        _cleanup_free_ uint8_t *effective = NULL;
        Message filled = message ? *message : empty;
        const RuntimeVerbs *runtime;
        size_t effective_len = 0;
        int r;

        check(&filled, rules, violations);
        runtime = find_runtime(&filled, rules, violations);
        check_capabilities(&filled, rules, runtime, violations);
        check_profile(&filled, runtime, violations);
        limit_rules.not_enforced = runtime ? runtime->not_enforced : NULL;
        r = limits_resolve(filled.limits, filled.profile, &limit_rules, violations, &effective, &effective_len);
        if (r < 0)
                return r;
        if (violations_result(violations, NULL) < 0 || !runtime)
                return -EINVAL;

        filled.runtime = (char *) runtime->name;
        return fill_in(filled, effective, effective_len, rules, ret_spec);
}

int sandbox_spec_update(const SandboxSpec *current, const Message *changes, unsigned fields, const SandboxRules *rules,
                        SandboxSpec **ret_spec) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        Message message;
        int r;

        r = protobuf_unpack(&hutch__v1__sandbox_spec__descriptor, current->encoded, current->encoded_len, STORED_MAX,
                            &unpacked);
        if (r < 0)
                return r;

        message = *(const Message *) unpacked;
        if (fields & 1U << SPEC_LABELS) {
                message.n_labels = changes->n_labels;
                message.labels = changes->labels;
        }
        if (fields & 1U << SPEC_IDLE_TTL)
                message.idle_ttl = changes->idle_ttl;
        if (fields & 1U << SPEC_MAX_LIFETIME)
                message.max_lifetime = changes->max_lifetime;
        if (fields & 1U << SPEC_LIFETIME_ACTION)
                message.lifetime_action = changes->lifetime_action;
        if (fields & 1U << SPEC_IDLE_ACTION)
                message.idle_action = changes->idle_action;
        return fill_in(message, current->effective, current->effective_len, rules, ret_spec);
}

int sandbox_spec_decode(const StoredSpec *stored, SandboxSpec **ret_spec, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int r;

        r = protobuf_unpack(&hutch__v1__sandbox_spec__descriptor, stored->encoded, stored->encoded_len, STORED_MAX,
                            &unpacked);
        if (r == 0)
                r = build((const Message *) unpacked, stored, ret_spec);
        if (r == -ENOMEM)
                return reason_set(err, r, REASON_HOST_EXHAUSTED, "out of memory");
        if (r < 0)
                return reason_set(err, -EBADMSG, REASON_INTERNAL, "the spec of a sandbox in the store cannot be read");
        return 0;
}
