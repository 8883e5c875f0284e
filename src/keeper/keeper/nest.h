/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* The nest: a process that is ready to be a keeper, or whatever else this program is, and has no sandbox. hutchd sends
 * it what one is started with, and it forks that one, a child of hutchd's, which has all of this as if it had been
 * executed. */

#define NEST_FD 3 /* the socket to hutchd */

/* Returns true in each of them, with its command line in the place of the nest's, and false in the nest, when hutchd is
 * gone. */
bool nest_wait(int *argc, char **argv[]) __attribute__((nonnull));
