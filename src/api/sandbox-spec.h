/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/violations.h"
#include "control/control.h"
#include "model/sandbox.h"
#include "policy/profile.h"

/* Specs of sandboxes: hutch.v1.SandboxSpec checked, and made into what the daemon acts on.
 *
 * The bytes that are kept and shown are the caller's message, with what the operator's settings decide filled in
 * (runtime, idle_ttl, and max_lifetime where there is a cap): a sandbox does not change when the settings do. */

typedef struct Runtime Runtime;
typedef struct SourceRules SourceRules;
typedef struct Hutch__V1__SandboxSpec Hutch__V1__SandboxSpec;

/* The operator's settings. */
typedef struct SandboxRules {
        Runtime *const *runtimes; /* the default one first; ends with NULL */
        LimitCaps caps;
        bool allow_unenforced;
        bool allow_capabilities;
        uint64_t default_idle_ttl;  /* nanoseconds */
        uint64_t max_lifetime;      /* nanoseconds; 0: for ever */
        const SourceRules *sources; /* what of the host may be had; NULL: nothing */
        const char *owner;          /* who creates sandboxes by them; NULL: nobody */
} SandboxRules;

/* Makes the spec of a new sandbox; @message NULL: all defaults. What is wrong is added to @violations, which are where
 * the spec stands; then, and when memory is out, negative. */
int sandbox_spec_create(const Hutch__V1__SandboxSpec *message, const SandboxRules *rules, Violations *violations,
                        SandboxSpec **ret_spec) __attribute__((nonnull(2, 3, 4)));

/* What of a spec an update may change. */
typedef enum SpecField {
        SPEC_LABELS,
        SPEC_IDLE_TTL,
        SPEC_MAX_LIFETIME,
        SPEC_LIFETIME_ACTION,
        SPEC_IDLE_ACTION,
        N_SPEC_FIELDS,
} SpecField;

/* The field's name in the contract; the field of that name, or N_SPEC_FIELDS. */
const char *spec_field_name(SpecField field);
SpecField spec_field_from_name(const char *name) __attribute__((nonnull));

/* Checks those of @changes that the bits of @fields name. */
void sandbox_spec_check_update(const Hutch__V1__SandboxSpec *changes, unsigned fields, const SandboxRules *rules,
                               Violations *violations) __attribute__((nonnull(1, 3, 4)));

/* Makes of @current the spec with these changes, which were checked. -ENOMEM; -EBADMSG. */
int sandbox_spec_update(const SandboxSpec *current, const Hutch__V1__SandboxSpec *changes, unsigned fields,
                        const SandboxRules *rules, SandboxSpec **ret_spec) __attribute__((nonnull));

/* Makes the spec of what the store kept. -EBADMSG, -ENOMEM. */
int sandbox_spec_decode(const StoredSpec *stored, SandboxSpec **ret_spec, HutchError *err)
        __attribute__((nonnull(1, 2)));
