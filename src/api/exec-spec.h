/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "api/violations.h"
#include "control/control.h"
#include "model/exec.h"
#include "model/sandbox.h"

/* Specs of execs: hutch.v1.ExecSpec checked, and made into what the daemon acts on.
 *
 * The bytes that are kept and shown are the caller's message, with the working directory as it was resolved and the
 * output limit in force. */

typedef struct Hutch__V1__ExecSpec Hutch__V1__ExecSpec;
typedef struct Hutch__V1__TerminalSize Hutch__V1__TerminalSize;

/* The operator's settings. */
typedef struct ExecRules {
        uint64_t output;     /* kept of each stream when the request does not say */
        uint64_t max_output; /* that a request may ask for */
} ExecRules;

/* Checks what can be checked without the sandbox; @message NULL: FIELD_REQUIRED. */
void exec_spec_check(const Hutch__V1__ExecSpec *message, const ExecRules *rules, Violations *violations)
        __attribute__((nonnull(2, 3)));

/* Makes the spec of an exec in @sandbox, of a message that was checked. @input is copied. What is wrong is added to
 * @violations, which are where the spec stands; then, and when memory is out, negative. */
int exec_spec_create(const Hutch__V1__ExecSpec *message, const ExecRules *rules, const SandboxSpec *sandbox,
                     const void *input, size_t input_len, Violations *violations, ExecSpec **ret_spec)
        __attribute__((nonnull(1, 2, 3, 6, 7)));

/* The spec of the exec that runs the sandbox's command. */
ExecSpec *exec_spec_make_main(const SandboxSpec *sandbox, uint64_t output) __attribute__((nonnull, returns_nonnull));

/* Makes the spec of what the store kept. -EBADMSG, -ENOMEM. */
int exec_spec_decode(const StoredSpec *stored, ExecSpec **ret_spec, HutchError *err) __attribute__((nonnull(1, 2)));

/* Checks a terminal's size; 0 is as good as any. */
void terminal_check(const Hutch__V1__TerminalSize *size, const char *field, Violations *violations)
        __attribute__((nonnull));

/* What 0 stands for. */
#define TERMINAL_ROWS 24
#define TERMINAL_COLUMNS 80

#define KILL_GRACE_MAX (UINT64_C(600) * 1000000000) /* nanoseconds, of execs and sandboxes */
