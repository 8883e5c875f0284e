/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes that are nobody's children: the program that starts one hears nothing of its end, by SIGCHLD or wait(), and
 * leaves it none of its files, signals or terminal. */

typedef struct Detached {
        const char *program; /* its path */
        char *const *argv;
        char *const *environment;
        const char *log; /* gets what it prints, at its end */
} Detached;

/* Starts one. Returns a pidfd, which can be read when the process has ended, or a negative errno. */
int detached_start(const Detached *detached) __attribute__((nonnull));
