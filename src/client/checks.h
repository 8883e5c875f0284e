/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "client/failure.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"

/* What a request must be before anything is sent: the rules that clients share with the daemon, with its reasons and
 * its names of fields.
 *
 *         _cleanup_(checks_clear) Checks checks = {};
 *
 *         checks_id(&checks, "sandbox_id", id);
 *         r = checks_result(&checks, failure);
 *
 * All that is wrong is told at once. */

#define CHECKS_MAX 32 /* violations; more are not kept */
#define CHECKS_FIELD_SIZE 160

typedef struct Violated {
        char field[CHECKS_FIELD_SIZE];
        HutchError error;
} Violated;

typedef struct Checks {
        const char *above; /* what stands before the fields' names: "create."; NULL: nothing */
        Violated list[CHECKS_MAX];
        size_t n;
        bool no_memory;
} Checks;

void checks_clear(Checks *checks) __attribute__((nonnull));

/* 0, or -EINVAL and what is wrong in @failure. -ENOMEM. */
int checks_result(const Checks *checks, Failure *failure) __attribute__((nonnull));

/* An id that must be there; one that may be NULL or empty; one of a list; a request id, which may be NULL or empty. */
void checks_id(Checks *checks, const char *field, const char *id) __attribute__((nonnull(1, 2)));
void checks_new_id(Checks *checks, const char *field, const char *id) __attribute__((nonnull(1, 2)));
void checks_element_id(Checks *checks, const char *list, size_t i, const char *id) __attribute__((nonnull));
void checks_request_id(Checks *checks, const char *id) __attribute__((nonnull(1)));

/* A selector, which may be NULL, and which may be empty or not. */
void checks_selector(Checks *checks, const char *selector, bool may_be_empty) __attribute__((nonnull(1)));

/* A duration in nanoseconds. */
void checks_duration(Checks *checks, const char *field, uint64_t duration) __attribute__((nonnull));

/* Texts that must have the form "NAME=VALUE"; else @reason. @pairs may be NULL. */
void checks_pairs(Checks *checks, const char *field, const char *reason, const char *const *pairs)
        __attribute__((nonnull(1, 2, 3)));

/* A text that must be there. */
void checks_required(Checks *checks, const char *field, const char *text) __attribute__((nonnull(1, 2)));

/* A path inside a sandbox, as far as a client can tell: it does not know where the sandbox has its workspace. */
void checks_path(Checks *checks, const char *field, const char *path) __attribute__((nonnull(1, 2)));

/* Permission bits that a file may be given. */
void checks_mode(Checks *checks, const char *field, uint32_t mode) __attribute__((nonnull));

/* What a request has in its field "spec". */
void checks_sandbox_spec(Checks *checks, const Hutch__V1__SandboxSpec *spec) __attribute__((nonnull));
void checks_exec_spec(Checks *checks, const Hutch__V1__ExecSpec *spec) __attribute__((nonnull));

/* A one-shot. */
void checks_once(Checks *checks, const Hutch__V1__ExecRequest *request) __attribute__((nonnull));
