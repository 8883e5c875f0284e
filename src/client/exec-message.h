/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>

#include "client/checks.h"
#include "client/pairs.h"
#include "contract/google/protobuf/duration.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"

/* What to run, as callers say it, as a message with all that it points to. It points to what the caller gave, too. */

typedef struct ExecMessage {
        Hutch__V1__ExecSpec spec;
        Google__Protobuf__Duration timeout, kill_grace;
        Hutch__V1__TerminalSize terminal;
        Pair **env;
} ExecMessage;

/* Fills @message, and checks it, the ids of @spec and @sandbox_id. Fails as checks_result() does. */
int exec_message_fill(ExecMessage *message, const char *sandbox_id, const HutchExecSpec *spec, const char *above,
                      Failure *failure) __attribute__((nonnull(1, 3, 5)));
void exec_message_clear(ExecMessage *message) __attribute__((nonnull));
