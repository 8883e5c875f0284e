/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

typedef struct HutchError HutchError;

/* Environments: what a process finds in its environment, and how much of it the kernel takes.
 *
 * A name is 1 to 255 bytes without "=" and control characters; a value is anything without NUL. Names are
 * case-sensitive, nothing is expanded, and an empty value is a value. */

#define ENV_NAME_LEN_MAX 255
#define ARGUMENT_LEN_MAX 131071      /* of one argument or one NAME=VALUE, without its NUL */
#define ARGUMENTS_SIZE_MAX (1 << 20) /* of all of them together, each with its NUL */

typedef struct EnvVariable {
        const char *name;
        const char *value;
} EnvVariable;

typedef struct EnvLayer {
        const EnvVariable *variables;
        size_t n_variables;
} EnvLayer;

/* Frees variables whose texts were allocated one by one, and their list, which may be NULL. */
void env_variables_free(EnvVariable *variables, size_t n_variables);

/* Checks the @len bytes at @name; else -EINVAL and ENV_NAME_MALFORMED. */
int env_name_check(const char *name, size_t len, HutchError *err);

/* Checks the @len bytes at @value; else -EINVAL and ENV_VALUE_MALFORMED. */
int env_value_check(const char *value, size_t len, HutchError *err);

/* Makes the environment of a process out of layers, the lowest first: a name in a later layer, or later in the same
 * one, overrides an earlier one. Then the names in @unset are taken out; those that are not there do no harm. The
 * result is a list of NAME=VALUE ordered by name, byte by byte, that ends with NULL; it is one piece of memory, for the
 * caller to free. Names and values have been checked.
 *
 * Fails with -E2BIG and ARGUMENTS_TOO_LARGE when the result is larger than a process may have, or -ENOMEM and
 * HOST_EXHAUSTED. */
int environment_merge(const EnvLayer layers[], size_t n_layers, const char *const unset[], size_t n_unset,
                      char ***ret_environment, HutchError *err);

/* Checks that a process may have these arguments and this environment, both lists that end with NULL; else -E2BIG and
 * ARGUMENTS_TOO_LARGE. */
int arguments_check_size(char *const argv[], char *const environment[], HutchError *err);
