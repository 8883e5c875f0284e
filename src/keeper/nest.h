/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* The nest: a process that is ready to be a keeper, and has no sandbox. hutchd sends it what a keeper is started with,
 * and it forks one, a child of hutchd's, that has all of this by the numbers that it would be executed with. */

#define NEST_FD 3 /* the socket to hutchd */

/* Returns true in each keeper, and false in the nest, when hutchd is gone. @verb is what of the command line no keeper
 * has. */
bool nest_wait(char *verb) __attribute__((nonnull));
