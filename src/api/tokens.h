/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/memory.h"

/* The bearer tokens that are accepted: those of a file (local/token-file.h), which is looked at for each call and read
 * again when it changed. So a token that was revoked is refused from the next call on, on whatever connection. */

typedef struct Tokens Tokens;

/* Reads the file. One that is not there, or not any more, has no tokens. */
int tokens_open(const char *path, Tokens **ret_tokens, HutchError *err) __attribute__((nonnull(1, 2)));
Tokens *tokens_free(Tokens *tokens);
DEFINE_CLEANUP(Tokens *, tokens_free);

/* Whether the file was there. */
bool tokens_have_file(const Tokens *tokens) __attribute__((nonnull));

/* Accepts the token @text or not: CREDENTIALS_INVALID, CREDENTIALS_EXPIRED. */
int tokens_check(Tokens *tokens, const char *text, size_t len, HutchError *err) __attribute__((nonnull(1, 2)));

/* Reads the file again, if it looks changed or not. When that fails it is logged, and what was read before holds. */
void tokens_reload(Tokens *tokens) __attribute__((nonnull));
